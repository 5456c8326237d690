"""Which server the commands talk to that need one. Imports little: `--help` must be instant."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from streamwell.core.errors import InvalidRequest

#: Where `streamwell serve` listens, in the same shell, unless it is told otherwise by flags.
DEFAULT_URL = f"http://127.0.0.1:{os.environ.get('STREAMWELL_PORT') or 8000}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Which server it is; each flag is an environment variable too."""

    url: Annotated[str, Parameter(name=("--url", "--base-url"))] = DEFAULT_URL
    "Address of the server."

    api_key: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    "Key of the server; of several the first is sent. Better as STREAMWELL_API_KEY."

    @property
    def base(self) -> str:
        """The URL without the `/v1` that other clients want in it; `host:port` is plain HTTP."""
        url = self.url if "://" in self.url else f"http://{self.url}"
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


#: How a command takes the address, and what it is without flags.
At = Annotated[Address, Parameter(name="*")]
HERE = Address()

#: A flag of commands whose output programs read.
AsJson = Annotated[bool, Parameter(negative="")]
