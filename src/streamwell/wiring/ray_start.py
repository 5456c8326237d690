"""Starts a Ray cluster on this machine, or joins one, and runs the application there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from streamwell.core.errors import InvalidRequest
from streamwell.settings import Settings

#: Read by Ray's processes when they start. What is in the environment already counts more.
ENVIRONMENT = {
    # Ray's default sends usage statistics over the internet
    "RAY_USAGE_STATS_ENABLED": "0",
    # by default Ray runs our code and its router in threads of their own: two more hops per token
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    # by default each line of each process's log goes to its standard error too
    "RAY_SERVE_LOG_TO_STDERR": "0",
    # with this Ray stays on loopback, as it does by default where no firewall lets it out
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    # by default what Ray starts gives way to all else on the machine (nice 15), our engines too
    "RAY_worker_niceness": "0",
    # Ray heeds headers with which any client could switch off that leaving cancels
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "streamwell.wiring.ray_proxy.middlewares",
}
#: Bytes; Ray's default is 30 % of the machine's memory. Messages are small and go without it.
_OBJECT_STORE_BYTES = 100 << 20


@contextmanager
def cluster() -> Iterator[None]:
    """Ray until the end of the context: the cluster of `RAY_ADDRESS`, else one of our own.

    Raises:
        InvalidRequest: Ray is not installed.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        from ray import serve
    except ImportError as error:
        message = f"--ray needs Ray: pip install 'streamwell[ray]' ({error})"
        raise InvalidRequest(message, "ray") from None
    if address := os.environ.get("RAY_ADDRESS"):
        ray.init(address=address, log_to_driver=False)
    else:
        ray.init(
            address="local",
            # who reaches the dashboard can run programs here
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=True,
        )
    try:
        yield
    finally:
        serve.shutdown()
        ray.shutdown()


def run(settings: Settings, models: Mapping[str, str]) -> None:
    """Start the application in the cluster; returns when its models are loaded.

    Raises:
        LoadError: a model cannot be loaded.
    """
    from ray import serve

    from streamwell.wiring import ray_cluster

    app = ray_cluster.application(settings, models)
    serve.start(
        http_options=ray_cluster.http_options(settings),
        proxy_location=ray_cluster.PROXY_LOCATION,
        logging_config=ray_cluster.LOGGING,
    )
    serve.run(app, name=ray_cluster.APP_NAME, logging_config=ray_cluster.LOGGING)
    for index in range(len(models)):
        ray_cluster.check_loaded(index)
