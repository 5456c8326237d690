"""An API server of Kubernetes with a database of its own: what `kubectl` talks to, and no nodes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from commands import logged
from guide import ROOT
from harness import eventually, free_port

_PROGRAM = ROOT / "build" / "kubernetes" / "kube-apiserver"
_TOKEN, _USER = "of-the-tests", "tester"
_START_S = 120


def missing() -> str:
    """What is not installed; empty if nothing is."""
    names = [name for name in ("etcd", "kubectl", "openssl") if not shutil.which(name)]
    return " ".join(names if _PROGRAM.exists() else [*names, _PROGRAM.name])


@contextmanager
def running() -> Iterator[Path]:
    """The server, until this is left; gives the file that tells `kubectl` where it is."""
    with TemporaryDirectory(prefix="kubernetes-") as name, ExitStack() as processes:
        folder = Path(name)
        database = f"http://127.0.0.1:{free_port()}"
        peers = f"http://127.0.0.1:{free_port()}"
        port = free_port()
        etcd = ["etcd", "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync"]
        etcd += ["--listen-client-urls", database, "--advertise-client-urls", database]
        etcd += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        etcd += ["--initial-cluster", f"default={peers}"]
        processes.enter_context(logged(etcd, folder / "etcd.log"))
        command = _api_server(folder, database, port)
        server = processes.enter_context(logged(command, folder / "server.log"))
        config = folder / "config.yaml"
        config.write_text(yaml.safe_dump(_config(port)), encoding="utf-8")
        eventually(
            lambda: server.poll() is not None or _is_ready(config), "an API server", _START_S
        )
        assert server.poll() is None, (folder / "server.log").read_text(encoding="utf-8")
        yield config


def kubectl(config: Path, *arguments: str) -> str:
    """What a command prints that ends well."""
    done = _kubectl(config, arguments)
    assert 0 == done.returncode, done.stderr
    return done.stdout


def _kubectl(config: Path, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", "--kubeconfig", str(config), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_START_S, check=False)


def _is_ready(config: Path) -> bool:
    return _kubectl(config, ("get", "--raw", "/readyz")).returncode == 0


def _api_server(folder: Path, database: str, port: int) -> list[str]:
    """The command: on loopback, for one user who may do all, with certificates of its own."""
    key, tokens = folder / "service-accounts.pem", folder / "tokens.csv"
    make_key = ["openssl", "genrsa", "-out", str(key), "2048"]
    subprocess.run(make_key, check=True, capture_output=True)
    tokens.write_text(f"{_TOKEN},{_USER},1,system:masters\n", encoding="utf-8")
    flags = {
        "etcd-servers": database,
        "bind-address": "127.0.0.1",
        # the address that pods would know it by must not be one of loopback
        "advertise-address": "192.0.2.1",
        "secure-port": port,
        "cert-dir": folder / "certificates",
        "token-auth-file": tokens,
        "service-cluster-ip-range": "10.0.0.0/24",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
        # no controller makes the accounts that it would ask for
        "disable-admission-plugins": "ServiceAccount",
    }
    return [str(_PROGRAM), *(f"--{name}={value}" for name, value in flags.items())]


def _config(port: int) -> dict[str, object]:
    """The file that `kubectl` reads."""
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": _USER, "user": {"token": _TOKEN}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": _USER}}],
        "current-context": "tests",
    }


if __name__ == "__main__":
    sys.exit(missing() or 0)
