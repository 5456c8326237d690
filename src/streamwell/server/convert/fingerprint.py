"""What tells a request that is repeated from another one under the same Idempotency-Key."""

from __future__ import annotations

import hashlib
import json

from streamwell.core.errors import InvalidRequest
from streamwell.core.types import RunKind
from streamwell.server.schemas.fields import GenerationRequest


def fingerprint(kind: RunKind, body: GenerationRequest) -> str:
    """Equal for equal requests, whatever the order of their fields.

    Raises:
        InvalidRequest: it cannot be written down again.
    """
    try:
        fields = body.model_dump(mode="json", exclude_none=True)
    except ValueError:
        message = "a field of the body is nested too deeply, or a name in it is no text"
        raise InvalidRequest(message) from None
    # unlike orjson, this takes integers of any size and text that is not Unicode
    canonical = json.dumps([kind, fields], sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
