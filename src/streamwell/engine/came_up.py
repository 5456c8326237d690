"""What the log says of an engine that has come up."""

from __future__ import annotations

import structlog

from streamwell.core.engine_state import EngineInfo

log = structlog.get_logger()


def tell(info: EngineInfo) -> None:
    """Log what came up, and what about it the person who started it may not expect."""
    log.info(
        "engine ready",
        implementation=info.implementation,
        quantization=info.quantization,
        dtype=info.dtype,
        device=info.device,
    )
    for warning in info.warnings:
        log.warning(warning)
