"""The image that deploy/Dockerfile starts from: the registry's, or a stand-in made of packages.

The stand-in is Debian of the same release with its own Python. It gets what this machine has its
packages from: where no registry is reached, there may be mirrors with certificates of their own.
"""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docker_engine import Engine
from guide import ROOT

_PACKAGES = "ca-certificates,python3,python3-venv,python3-pip,python-is-python3"
_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PYPI = "https://pypi.org/simple"
_MAKING_S = 600


def base_of_the_dockerfile() -> str:
    """The one image that all of its stages start from."""
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    (name,) = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE))
    return name


def provide(engine: Engine, name: str, folder: Path) -> bool:
    """Have the engine have this image; true if it is a stand-in, which was made in the folder."""
    if engine.can("image", "inspect", name) or engine.can("pull", name):
        return False
    overlay, archive = folder / "overlay", folder / "base.tar"
    _carry(overlay)
    # python:3.12-slim-bookworm: the release is the last word
    release = name.rpartition("-")[2]
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={_PACKAGES}"]
    command += [f"--aptopt={line}" for line in _proxies()]
    command += [f"--customize-hook=sync-in {overlay} /", release, str(archive)]
    command += [file for file in _SOURCES if release in _text(file)]
    subprocess.run(command, check=True, timeout=_MAKING_S)
    engine("import", str(archive), name)
    archive.unlink()
    shutil.rmtree(overlay)
    return True


def _carry(overlay: Path) -> None:
    """Put there what pip has on this machine: certificates, addresses and folders of wheels."""
    theirs = _pip_settings()
    wheels = [path for path in theirs.get("find-links", "").split() if Path(path).is_dir()]
    addresses = [theirs.get("index-url", _PYPI), *theirs.get("extra-index-url", "").split()]
    # an index of PyTorch's own, which the Dockerfile names, may be out of reach: one try is enough
    ours = {
        "retries": "0",
        "timeout": theirs.get("timeout", "60"),
        "extra-index-url": " ".join(url for url in addresses if not url.startswith("file:")),
        "find-links": " ".join(wheels),
    }
    for path in wheels:
        shutil.copytree(path, overlay / path.lstrip("/"))
    if _CERTIFICATES.exists():
        ours["cert"] = str(_CERTIFICATES)
        target = overlay / str(_CERTIFICATES).lstrip("/")
        target.parent.mkdir(parents=True)
        shutil.copy(_CERTIFICATES, target)
    settings = configparser.RawConfigParser()
    settings["global"] = {name: value for name, value in ours.items() if value}
    (overlay / "etc").mkdir(parents=True, exist_ok=True)
    with (overlay / "etc" / "pip.conf").open("w", encoding="utf-8") as file:
        settings.write(file)


def _pip_settings() -> dict[str, str]:
    """Of files and the environment, which wins."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^(:env:|global|install)\.(\S+?)='(.*)'$", listed, re.MULTILINE)
    return {name: value for _, name, value in sorted(found, key=lambda one: one[0] == ":env:")}


def _proxies() -> list[str]:
    """Lines of this machine's settings of apt."""
    dumped = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True)
    return re.findall(r"^Acquire::https?::Proxy .+;$", dumped.stdout, re.MULTILINE)


def _text(file: str) -> str:
    path = Path(file)
    return path.read_text(encoding="utf-8") if path.exists() else ""
