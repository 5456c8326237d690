"""Compiles the native helper when a wheel or an editable installation is built.

One shared object per instruction set, chosen between at run time. What a compiler does not know is
left out. Without GCC, or on another processor family, none is built and the server runs on PyTorch
alone.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("src/streamwell/engine/native")
# those left out: two come from the compiler's own headers, one from any vector in a template
WARNINGS = "-Wall -Wextra -Wno-uninitialized -Wno-maybe-uninitialized -Wno-ignored-attributes"
# contraction is left to the code, so that all variants round alike; and a process that loads two of
# them must not have the static variables of one be those of the other
COMMON = (
    "-O3 -std=c++17 -fPIC -fopenmp -fno-math-errno -ffp-contract=off -fno-gnu-unique " + WARNINGS
)
AVX2 = "-mavx2 -mfma -mf16c"
AVX512 = f"{AVX2} -mavx512f -mavx512bw -mavx512vl -mavx512dq"
VNNI = f"{AVX512} -mavx512vnni"
BF16 = f"{VNNI} -mavx512bf16"
AMX = f"{BF16} -mamx-tile -mamx-int8 -mamx-bf16"
VARIANTS = {"avx2": AVX2, "avx512": AVX512, "avx512vnni": VNNI, "avx512bf16": BF16, "amx": AMX}


class NativeHook(BuildHookInterface):
    """Hatchling's hook: `initialize` runs before the files are gathered."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile what can be compiled; a wheel with compiled files is for this platform."""
        compiler = shlex.split(os.environ.get("CXX", "")) or find_compiler()
        if sys.platform != "linux" or platform.machine() != "x86_64" or not is_gcc(compiler):
            self.app.display_warning("no native helper: it wants Linux, x86-64 and GCC")
            for stale in (Path(self.root) / NATIVE / "lib").glob("*.so"):
                stale.unlink()  # of other sources than these
            return
        missing = compile_variants(compiler, Path(self.root) / NATIVE)
        if missing:
            names = ", ".join(missing)
            self.app.display_warning(f"{compiler[0]} cannot compile the native helper for {names}")
        if len(missing) == len(VARIANTS):
            return
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"


def find_compiler() -> list[str]:
    """The command of the usual compiler; empty if there is none."""
    found = shutil.which("g++") or shutil.which("c++")
    return [found] if found else []


def is_gcc(compiler: list[str]) -> bool:
    """Clang's OpenMP is not the one that PyTorch brings."""
    if not compiler or shutil.which(compiler[0]) is None:
        return False
    told = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False)
    return "clang" not in told.stdout.lower()


def compile_variants(compiler: list[str], native: Path) -> list[str]:
    """Compile all variants at once; returns those that the compiler, or its assembler, lacks."""
    library = native / "lib"
    library.mkdir(exist_ok=True)
    source = str(native / "csrc/kernels.cpp")
    missing, processes = [], []
    for name, flags in VARIANTS.items():
        target = library / f"kernels_{name}.so"
        # two steps, because linking must leave OpenMP out: PyTorch brings it
        compile_ = [*compiler, *COMMON.split(), *flags.split(), "-c", source, "-o", f"{target}.o"]
        processes.append((name, subprocess.Popen(compile_), target))
    for name, process, target in processes:
        link = [*compiler, "-shared", f"{target}.o", "-o", f"{target}.partial"]
        if process.wait() == 0 and subprocess.run(link, check=False).returncode == 0:
            Path(f"{target}.partial").replace(target)
        else:
            target.unlink(missing_ok=True)  # of an older source
            missing.append(name)
        for left in (f"{target}.o", f"{target}.partial"):
            Path(left).unlink(missing_ok=True)
    return missing
