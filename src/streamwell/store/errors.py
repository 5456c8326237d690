"""What a store raises when it cannot work at all; refused values are plain `ValueError`s."""

from __future__ import annotations

from streamwell.core.errors import StreamwellError


class StoreError(StreamwellError):
    """The store cannot do its work."""
