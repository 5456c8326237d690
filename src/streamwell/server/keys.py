"""API keys, and tickets: short-lived stand-ins for a key that may be written into a URL."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time


class KeyRing:
    """The API keys of this server, as SHA-256 digests; without any, everybody may come in.

    Keys of operators open what other keys open, and what changes the server for all.
    """

    def __init__(self, keys: tuple[str, ...], operators: tuple[str, ...] = ()) -> None:
        self._operators = tuple(map(_digest, operators))
        self._digests = tuple(map(_digest, keys)) + self._operators
        self._nobodys = secrets.token_bytes(32)

    @property
    def is_open(self) -> bool:
        """There are no keys: any, or none, will do."""
        return not self._digests

    def tenant(self, key: str | None) -> str | None:
        """The tenant of a key; `None` when it opens nothing. Looks at every key, always."""
        if not self._digests:
            return ""
        digest = _digest(key or "")
        matches = [known for known in self._digests if hmac.compare_digest(known, digest)]
        return _tenant(matches[0]) if matches else None

    def is_operator(self, tenant: str) -> bool:
        """Whether this tenant may change what is served; without keys, everybody may."""
        return self.is_open or tenant in map(_tenant, self._operators)

    def ticket(self, tenant: str, lifetime_s: int) -> tuple[str, int]:
        """A ticket of a tenant, and when it expires, in seconds since the epoch.

        It is signed with the tenant's key: it outlives a restart of the server, not the key.
        """
        expires_s = int(time.time()) + lifetime_s
        signed = f"{tenant}.{expires_s}"
        return f"{signed}.{_sign(self._secret(tenant), signed)}", expires_s

    def tenant_of_ticket(self, ticket: str) -> str | None:
        """The tenant of a ticket; `None` if it is not ours, or has expired."""
        if not self._digests:
            return ""
        signed, _, signature = ticket.rpartition(".")
        tenant, _, expires_s = signed.partition(".")
        expected = _sign(self._secret(tenant), signed)
        if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogatepass")):
            return None
        return tenant if int(expires_s) > time.time() else None

    def _secret(self, tenant: str) -> bytes:
        """The digest of the tenant's key; of a stranger, something that nobody knows."""
        return next((d for d in self._digests if _tenant(d) == tenant), self._nobodys)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _tenant(digest: bytes) -> str:
    return digest.hex()[:16]


def _sign(secret: bytes, text: str) -> str:
    return hmac.new(secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
