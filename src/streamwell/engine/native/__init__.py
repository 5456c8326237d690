"""The native helper: a decoder's forward pass on CPUs, in C++ over packed weights.

`csrc` is compiled when the package is built, once per instruction set; nothing of it depends on the
versions of Python or PyTorch. Where it cannot be loaded, the PyTorch decoder runs.
"""

from __future__ import annotations

from pathlib import Path

#: Where it is, once it has been compiled.
FOLDER = Path(__file__).parent / "lib"
#: Positions per cache block, as it lays them out.
BLOCK_SIZE = 16


def is_compiled() -> bool:
    """Whether it was compiled when the package was built, for any processor."""
    return any(FOLDER.glob("*.so"))
