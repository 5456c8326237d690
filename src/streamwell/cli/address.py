"""Which server the commands talk to that need one. Imports little: `--help` must be instant."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter

from streamwell.core.errors import InvalidRequest

_PORT = "STREAMWELL_PORT"
#: Where `streamwell serve` listens, in the same shell, unless it is told otherwise by flags.
DEFAULT_URL = f"http://127.0.0.1:{os.environ.get(_PORT, '8000').strip()}"


def usual_port() -> int:
    """The port of a server of the same shell.

    Raises:
        InvalidRequest: the variable holds no port.
    """
    text = os.environ.get(_PORT, "8000").strip()
    if not (text.isdecimal() and 0 < int(text) < 65536):
        raise InvalidRequest(f"{_PORT} must be a number from 1 to 65535, not {text!r}", _PORT)
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Which server it is; each flag is an environment variable too."""

    url: Annotated[str, Parameter(name=("--url", "--base-url"))] = DEFAULT_URL
    "Address of the server; without it, that of STREAMWELL_PORT on this machine."

    api_key: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    "Key of the server; of several the first is sent. Better as STREAMWELL_API_KEY."

    @property
    def base(self) -> str:
        """The URL without the `/v1` that other clients want in it; `host:port` is plain HTTP.

        Raises:
            InvalidRequest: it is none, or `STREAMWELL_PORT`, which it comes from, is no port.
        """
        if self.url == DEFAULT_URL:
            usual_port()
        url = self.url if "://" in self.url else f"http://{self.url}"
        if not _is_address(url):
            example = "such as http://127.0.0.1:8000"
            raise InvalidRequest(f"--url must be an address {example}, not {self.url!r}", "url")
        return url.rstrip("/").removesuffix("/v1")

    @property
    def headers(self) -> dict[str, str]:
        """Raises `InvalidRequest` for a key that no header can hold."""
        if not self.api_key:
            return {}
        key = self.api_key[0].strip()
        if not (key and key.isascii() and key.isprintable()):
            raise InvalidRequest("--api-key must be printable ASCII, and not empty", "api_key")
        return {"authorization": f"Bearer {key}"}


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, half an IPv6 address
        return False


#: How a command takes the address, and what it is without flags.
At = Annotated[Address, Parameter(name="*")]
HERE = Address()

#: A flag of commands whose output programs read.
AsJson = Annotated[bool, Parameter(negative="")]
