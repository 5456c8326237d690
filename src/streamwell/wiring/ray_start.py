"""Starts a Ray cluster on this machine, or joins one, and runs the application there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from socket import create_server

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
    # by default Ray gives up when an agent or its proxy, programs in Python, does not answer within
    # 30 s or 5 s: on a busy machine they take longer to start
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    # Ray heeds headers with which any client could switch off that leaving cancels
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "streamwell.wiring.ray_proxy.middlewares",
}
#: Of Ray's agents, as its parameters and the files with the ports are named.
_AGENT_PORTS = (
    "dashboard_agent_listen_port",
    "metrics_agent_port",
    "metrics_export_port",
    "runtime_env_agent_port",
)
#: Bytes; Ray's default is 30 % of the machine's memory. Messages are small and go without it.
_OBJECT_STORE_BYTES = 100 << 20


@contextmanager
def cluster() -> Iterator[None]:
    """Ray until the end of the context: the cluster of `RAY_ADDRESS`, else one of our own.

    Raises:
        InvalidRequest: Ray is not installed, or Serve runs on that cluster already.
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
        _check_that_serve_is_ours()
    else:
        _start()
    try:
        yield
    finally:
        serve.shutdown()
        ray.shutdown()


def _check_that_serve_is_ours() -> None:
    """A cluster has one Serve: who came first has said its address, and who ends it ends it all."""
    from ray import serve

    if serve.status().proxies:
        raise InvalidRequest(
            "Serve runs on this Ray cluster already, with an address that --host and --port cannot "
            "change: `serve deploy` adds this server to it, `serve shutdown` ends it",
            "ray",
        )


def _start() -> None:
    """Start a cluster of our own, which ends with this process."""
    import ray

    choose_ports_of_agents()
    ray.init(
        address="local",
        # who reaches the dashboard can run programs here
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        log_to_driver=True,
    )


def choose_ports_of_agents() -> None:
    """Have Ray start without waiting for its agents to choose their ports.

    It gives up when one has not done so after 15 s, and on a busy machine Python has hardly been
    imported then. No setting lengthens that, and the flags of `ray start` are for some ports only.
    These are internals of Ray: where a version has others, it is left to itself.
    """
    try:
        from ray._private.node import Node
        from ray._raylet import persist_port

        start = Node.start_ray_processes
    except (ImportError, AttributeError):
        return

    def start_with_ports(node: Node) -> None:
        for name, port in zip(_AGENT_PORTS, _free_ports(len(_AGENT_PORTS)), strict=True):
            setattr(node._ray_params, name, port)
            persist_port(node._session_dir, node._node_id, name, port)
        start(node)

    Node.start_ray_processes = start_with_ports


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has at the moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


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
