"""Loads hostile folders where they can do no harm to the tests: `python hostile_loads.py`.

A line in has the arguments of `_attempt`; the line out says what came of it, and what this process
and its children have used so far: the most memory, and CPU time.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from streamwell.core.errors import LoadError
from streamwell.engine.loader import load
from streamwell.engine.messages import EngineConfig
from streamwell.text.prompt import PromptEncoder

#: The last resort; the tests want far less.
_ADDRESS_SPACE = 32 << 30


def _load(folder: Path, model_impl: str | None, *, trust_remote_code: bool) -> None:
    if model_impl is None:
        PromptEncoder.load(folder, trust_remote_code=trust_remote_code)
        return
    config = EngineConfig(
        model_path=str(folder),
        device="cpu",
        dtype="float32",
        max_model_len=64,
        max_num_seqs=1,
        max_num_batched_tokens=64,
        kv_cache_bytes=None,
        block_size=16,
        num_threads=1,
        model_impl=model_impl,
        trust_remote_code=trust_remote_code,
    )
    load(config, lambda _stage, _progress: None)


def _attempt(folder: str, model_impl: str | None, *, trust_remote_code: bool) -> str | None:
    """What the refusal says; `None` if there was none."""
    try:
        _load(Path(folder), model_impl, trust_remote_code=trust_remote_code)
    except LoadError as error:
        return str(error)
    return None


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    for line in sys.stdin:
        refusal = _attempt(**json.loads(line))
        used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        report = {
            "refusal": refusal,
            "max_rss_mib": max(u.ru_maxrss for u in used) / 1024,
            "cpu_s": sum(u.ru_utime + u.ru_stime for u in used),
        }
        print("\n" + json.dumps(report), flush=True)  # noqa: T201 - to the tests


if __name__ == "__main__":
    main()
