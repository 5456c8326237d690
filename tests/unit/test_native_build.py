"""The native helper is compiled as far as the compiler can, and installing never fails for it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hatch_build import VARIANTS, compile_variants, is_gcc

#: Writes what it is to write, unless it is asked for what it does not know.
COMPILER = """#!/bin/sh
case "$*" in *--version*) echo "{version}"; exit ;; *{unknown}*) exit 1 ;; esac
while [ "$1" != -o ]; do shift; done
echo compiled > "$2"
"""


def compiler(folder: Path, unknown: str = "-mnothing", version: str = "g++ 12.2") -> list[str]:
    program = folder / "compiler"
    program.write_text(COMPILER.format(unknown=unknown, version=version))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return ["env", str(program)]  # a command may have several words


def test_what_a_compiler_does_not_know_is_left_out(tmp_path: Path) -> None:
    """Older ones lack AMX: the rest is there, and nothing of before or half made."""
    library = tmp_path / "lib"
    library.mkdir()
    (library / "kernels_amx.so").write_text("of an older source")

    assert ["amx"] == compile_variants(compiler(tmp_path, "-mamx"), tmp_path)
    built = {f"kernels_{name}.so" for name in VARIANTS} - {"kernels_amx.so"}
    assert built == {path.name for path in library.iterdir()}


@pytest.mark.parametrize(
    ("version", "expected"), [("g++ (Debian) 12.2", True), ("Debian clang version 14", False)]
)
def test_only_gcc_compiles_it(tmp_path: Path, version: str, *, expected: bool) -> None:
    """Clang's would want an OpenMP that PyTorch does not bring."""
    assert expected == is_gcc(compiler(tmp_path, version=version))
    assert not is_gcc([])
    assert not is_gcc([str(tmp_path / "nowhere")])
