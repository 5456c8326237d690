"""llama.cpp's converter, for any tokenizer: `python -m bench.peers.convert_gguf SOURCE ARGS...`.

The converter knows how a byte-level BPE splits text by a hash of what the tokenizer does, from a
list of published models. Ours are trained for the benchmarks and split like GPT-2.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path
from typing import Any


def accept_unknown_tokenizers(model_class: Any) -> None:  # noqa: ANN401 - not typed
    """Let tokenizers that are on no list pass as GPT-2's."""
    known = model_class.get_vocab_base_pre

    def get_vocab_base_pre(self: object, tokenizer: object) -> str:
        try:
            name: str = known(self, tokenizer)
        except NotImplementedError:
            name = "gpt-2"
        return name

    model_class.get_vocab_base_pre = get_vocab_base_pre


def main() -> None:
    source = Path(sys.argv.pop(1))
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    accept_unknown_tokenizers(importlib.import_module("conversion.base").TextModel)
    runpy.run_path(str(source / "convert_hf_to_gguf.py"), run_name="__main__")


if __name__ == "__main__":
    main()
