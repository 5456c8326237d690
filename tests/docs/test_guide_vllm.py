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

#: What a machine of the tests wants besides: builds of vLLM for CPUs may take instructions for 16
#: bits that its processor has not got, and memory and cores are shared with other tests.
SETTINGS = {
    "STREAMWELL_DTYPE": "float32",
    "STREAMWELL_KV_CACHE_MIB": "64",
    "STREAMWELL_NUM_THREADS": "1",
}


@pytest.mark.parametrize("block", blocks_run_by(__file__), ids=str)
def test_vllm_serves_a_folder(block: Block, folder: Path) -> None:
    """As it stands there; the environment says which dtype, and how little memory."""
    settings = environment(folder) | SETTINGS
    with served(block, folder, settings, 3 * DEADLINE_S) as address:
        assert answer_of(address).strip()
