"""Compiles the native helper when a wheel or an editable installation is built.

One shared object per instruction set, chosen between at run time. Without a C++ compiler, or on
another processor family, none is built and the server runs on PyTorch alone.
"""

from __future__ import annotations

import os
import platform
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
# contraction is left to the code, so that all variants round alike
COMMON = f"-O3 -std=c++17 -fPIC -fopenmp -fno-math-errno -ffp-contract=off {WARNINGS}"
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
        compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
        if sys.platform != "linux" or platform.machine() != "x86_64" or compiler is None:
            self.app.display_warning("no native helper: it wants Linux, x86-64 and a C++ compiler")
            return
        compile_variants(compiler, Path(self.root) / NATIVE)
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"


def compile_variants(compiler: str, native: Path) -> None:
    """Compile all variants at once."""
    library = native / "lib"
    library.mkdir(exist_ok=True)
    source = str(native / "csrc/kernels.cpp")
    processes = []
    for name, flags in VARIANTS.items():
        target = library / f"kernels_{name}.so"
        # two steps, because linking must leave OpenMP out: PyTorch brings it
        compile_ = [compiler, *COMMON.split(), *flags.split(), "-c", source, "-o", f"{target}.o"]
        link = [compiler, "-shared", f"{target}.o", "-o", f"{target}.partial"]
        processes.append((subprocess.Popen(compile_), link, target))
    for process, link, target in processes:
        if process.wait() != 0:
            raise RuntimeError(f"cannot compile {target.name}")
        subprocess.run(link, check=True)
        Path(f"{target}.partial").replace(target)
        Path(f"{target}.o").unlink()
