"""Checkpoints whose weights come rounded: by whom, and what must be installed to read them.

Transformers reads them, through packages of those who round; MXFP4 is read by our decoders, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from streamwell.core.errors import LoadError

#: By `quant_method`: modules that Transformers imports then, and what `pip` calls them.
_PACKAGES: Mapping[str, Mapping[str, str]] = {
    "awq": {"gptqmodel": "gptqmodel"},
    "bitsandbytes": {"bitsandbytes": "bitsandbytes"},
    "compressed-tensors": {"compressed_tensors": "compressed-tensors"},
    "gptq": {"optimum": "optimum", "gptqmodel": "gptqmodel"},
    "hqq": {"hqq": "hqq"},
    "torchao": {"torchao": "torchao"},
}
#: Puts the weights where they are to be, for all methods.
_ACCELERATE = {"accelerate": "accelerate"}
#: Needs no package on our decoders.
_OURS = "mxfp4"


def check_packages(config: Mapping[str, Any]) -> None:
    """Look at the `quantization_config` of a config, if there is one.

    Raises:
        LoadError: it says nothing that could be read, or packages for it are missing.
    """
    found = quantization_of(config)
    if found is None:
        return
    method = method_of(found)
    if method is None:
        raise LoadError("config.json: quantization_config has no quant_method")
    if method == _OURS:
        return
    packages = {**_PACKAGES.get(method, {}), **_ACCELERATE}
    missing = [pip for name, pip in packages.items() if find_spec(name) is None]
    if missing:
        raise LoadError(
            f"the weights are rounded by {method}, and to read them takes packages that are not "
            f"installed: pip install {' '.join(missing)}"
        )


def quantization_of(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The `quantization_config` of a config, or of the language model within it.

    Raises:
        LoadError: it is no object.
    """
    inner = config.get("text_config")
    found = config.get("quantization_config")
    if found is None and isinstance(inner, dict):
        found = inner.get("quantization_config")
    if found is not None and not isinstance(found, dict):
        raise LoadError(f"config.json: quantization_config is {found!r:.40}, not an object")
    return found


def method_of(quantization: Mapping[str, Any]) -> str | None:
    """Its `quant_method`; what bitsandbytes saved at first had none."""
    method = quantization.get("quant_method")
    if isinstance(method, str):
        return method
    is_old = quantization.get("load_in_8bit") or quantization.get("load_in_4bit")
    return "bitsandbytes" if is_old else None
