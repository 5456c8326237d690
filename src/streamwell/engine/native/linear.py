"""Linear layers over packed weights: the native counterpart of `engine.linear`."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch

from streamwell.engine.native.memory import WeightMemory
from streamwell.engine.native.structures import Activation, Epilogue, Kind, LinearStruct
from streamwell.engine.quantization import effective
from streamwell.engine.saved_weights import SavedRows
from streamwell.models.gguf_header import KEPT

_STORED = {
    torch.float32: Kind.FLOAT32,
    torch.bfloat16: Kind.BFLOAT16,
    torch.float16: Kind.FLOAT16,
}
_ROUNDED = {"int8": Kind.INT8, "int4": Kind.INT4, "int8_groups": Kind.INT8_GROUPS}
_KEPT_AS = {
    "Q4_0": Kind.INT4,
    "Q4_1": Kind.INT4_MINIMUM,
    "Q8_0": Kind.INT8_GROUPS,
    "Q4_K": Kind.INT4_K,
    "Q5_K": Kind.INT5_K,
    "Q6_K": Kind.INT6_K,
    "MXFP4": Kind.MXFP4,
}
_CODED = {Kind.BFLOAT16_PAIRS: Kind.CODED_PAIRS, Kind.BFLOAT16: Kind.CODED_BFLOAT16}
#: The share of a panel's bytes that codes may leave: it is 0.75, and what is listed.
_WORTH_CODING = 0.8
#: Outputs that lie together.
PANEL = 32


def storage_kind(
    weight: torch.Tensor | SavedRows,
    quantization: str,
    dtype: torch.dtype = torch.float32,
    *,
    fast_pairs: bool = True,
) -> Kind:
    """How `[n, k]` weights are stored: as they are, rounded, or as `dtype` multiplies them.

    What is saved in rows that are rounded stays so, whatever `quantization` says.

    Bfloat16 is multiplied in pairs, or widened to floats where that is faster.

    Raises:
        ValueError: the helper does not know their dtype.
    """
    if isinstance(weight, SavedRows):
        return _KEPT_AS[weight.kind]
    if weight.dtype not in _STORED:
        raise ValueError(f"weights in {str(weight.dtype).removeprefix('torch.')} are not supported")
    kind = effective(quantization, weight.shape[1])
    if kind == "none" and dtype is torch.bfloat16:
        return Kind.BFLOAT16_PAIRS if fast_pairs else Kind.BFLOAT16
    if kind == "none":
        return _STORED[weight.dtype]
    return _ROUNDED[kind]


def are_stored(weights: Mapping[str, torch.Tensor]) -> bool:
    """Whether the helper can have all of these; PyTorch computes with doubles, too."""
    return all(weight.dtype in _STORED for weight in weights.values())


class PackedLinear:
    """`[n, k]` weights in the layout of `csrc/schemes.h`, and the structure that points to them.

    16-bit weights keep their bits; of bfloat16 they take 12 (`csrc/coding.h`). The arithmetic is
    float32 all the same, except with pairs of bfloat16, whose other factor is rounded to that too.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        weight: torch.Tensor | SavedRows,
        bias: torch.Tensor | None,
        kind: Kind,
        factor: float = 1.0,
        memory: WeightMemory | None = None,
    ) -> None:
        """`factor` is that of what is accumulated; weights lie in `memory`, or have their own."""
        n, k = weight.shape
        columns = _panels_of(n) * PANEL
        memory = memory or WeightMemory()
        self._library = library
        self._scales = memory.floats(columns) if kind is Kind.INT8 else None
        self._offsets = memory.floats(columns) if kind is Kind.INT8 else None
        self._bias = None
        if bias is not None:
            self._bias = memory.floats(columns)
            self._bias[:n] = bias
        if isinstance(weight, SavedRows):
            panel_bytes = self._pack_saved(weight, kind, memory)
        else:
            kind, panel_bytes = self._pack(weight, kind, memory)
        self.out_features, self.in_features = n, k
        self.struct = LinearStruct(
            self._weights.data_ptr(),
            address(self._bias),
            address(self._scales),
            address(self._offsets),
            n,
            k,
            panel_bytes,
            kind,
            factor,
            n,
            None,
        )

    def _pack_saved(self, weight: SavedRows, kind: Kind, memory: WeightMemory) -> int:
        n, k = weight.shape
        panel_bytes: int = self._library.sw_panel_bytes(kind, k)
        self._weights = memory.take(_panels_of(n) * panel_bytes)
        blocks, number = weight.blocks.contiguous(), KEPT[weight.kind].number
        self._library.sw_pack_saved(number, blocks.data_ptr(), n, k, self._weights.data_ptr())
        return panel_bytes

    def _pack(self, weight: torch.Tensor, kind: Kind, memory: WeightMemory) -> tuple[Kind, int]:
        """The kind that they come to, coded where that is worth it, and the bytes of a panel."""
        n, k = weight.shape
        weight = (weight.bfloat16() if kind is Kind.BFLOAT16 else weight).contiguous()
        source = weight.data_ptr(), _STORED[weight.dtype], n, k
        panel_bytes: int = self._library.sw_panel_bytes(kind, k)
        if kind in _CODED:
            coded_bytes = self._library.sw_coded_panel_bytes(_CODED[kind], *source)
            if coded_bytes < _WORTH_CODING * panel_bytes:
                kind, panel_bytes = _CODED[kind], coded_bytes
        self._weights = memory.take(_panels_of(n) * panel_bytes)
        self._library.sw_pack(
            kind,
            *source,
            panel_bytes,
            self._weights.data_ptr(),
            address(self._scales),
            address(self._offsets),
        )
        return kind, panel_bytes

    def __call__(
        self,
        x: torch.Tensor,
        epilogue: Epilogue = Epilogue.STORE,
        activation: Activation = Activation.NONE,
    ) -> torch.Tensor:
        """`[rows, k]` float32 to `[rows, n]`, or to `[rows, n / 2]` when gated."""
        x = x.contiguous()
        rows, width = x.shape[0], self.out_features
        make = torch.zeros if epilogue is Epilogue.ACCUMULATE else torch.empty
        y = make(rows, width // 2 if epilogue is Epilogue.GATE else width)
        workspace = make_workspace(self._library, rows, self.in_features)
        self._library.sw_linear(
            self.struct,
            x.data_ptr(),
            rows,
            y.data_ptr(),
            epilogue,
            activation,
            workspace.data_ptr(),
        )
        return y

    def read_rows(self, ids: array[int], out: torch.Tensor) -> None:
        """Write the weights of some outputs, `[count]` int64, unpacked to float32.

        They are the first rows of `out`, `[count or more, k]`.
        """
        where, count = ids.buffer_info()
        self._library.sw_unpack_rows(self.struct, where, count, out.data_ptr())


def _panels_of(outputs: int) -> int:
    return -(-outputs // PANEL)


def side_by_side(layers: Sequence[PackedLinear]) -> PackedLinear:
    """Have layers of one input write their results next to each other.

    All but the last have a multiple of 32 outputs. Call the first one, and keep the others.
    """
    width = sum(layer.out_features for layer in layers)
    for layer in layers:
        layer.struct.width = width
    for layer, rest in pairwise(layers):
        layer.struct.rest = ctypes.addressof(rest.struct)
    layers[0].out_features = width
    return layers[0]


def make_workspace(library: ctypes.CDLL, rows: int, in_features: int) -> torch.Tensor:
    """Scratch memory for calls of at most so many rows and inputs."""
    return torch.empty(library.sw_workspace_bytes(rows, in_features), dtype=torch.uint8)


def interleave(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows of a gate and of what it multiplies in turn, sixteen and sixteen: a gated layer."""
    width = parts[0].shape[-1]
    return torch.stack([part.view(-1, 16, width) for part in parts], 1).reshape(-1, width)


def address(tensor: torch.Tensor | None) -> int | None:
    """Where a tensor's numbers are; the caller keeps the tensor."""
    return None if tensor is None else tensor.data_ptr()
