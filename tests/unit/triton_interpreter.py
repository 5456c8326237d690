"""Imported before kernels are: Triton runs them by its interpreter then, on a CPU.

It is told so when it is imported itself, which others do, too: `make` says it from the beginning.
"""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")
_language = pytest.importorskip("triton.language", reason="Triton is for Linux only")
if type(_language.cdiv).__name__ == "JITFunction":
    pytest.skip("Triton was imported before TRITON_INTERPRET was set", allow_module_level=True)
