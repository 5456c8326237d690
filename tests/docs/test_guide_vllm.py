"""The command of `docs/vllm.md` serves on vLLM, in the environment of `make test-vllm`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import DEADLINE_S, answer_of, environment, served
from guide import Block, blocks_run_by

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.timeout(900),
]


@pytest.mark.parametrize("block", blocks_run_by(__file__), ids=str)
def test_vllm_serves_a_folder(block: Block, folder: Path) -> None:
    """As it stands there, with all defaults."""
    with served(block, folder, environment(folder), 3 * DEADLINE_S) as address:
        assert answer_of(address).strip()
