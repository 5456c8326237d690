"""Brings a family's weights under Llama's names and into Llama's layouts.

The names beyond Llama's own, below `model.layers.N.`: `post_self_attn_layernorm` and
`post_mlp_layernorm` for norms of outputs, `mlp.gate` for the router of a mixture of experts,
`mlp.experts.N.…` and `mlp.shared_expert.…` for the experts; `self_attn.sinks` for scores of no key;
`model.embed_positions` beside the embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch

from streamwell.engine.families.spec import DecoderSpec
from streamwell.engine.saved_weights import SavedRows, SavedWeights

Weights = Mapping[str, torch.Tensor]

_HEAD_NORM = re.compile(r"\.self_attn\.[qk]_norm\.")
_QUERIES_AND_KEYS = re.compile(r"\.self_attn\.[qk]_(proj|norm)\.")
#: The number of a layer, where it comes first.
_LAYER = re.compile(r"\.\d+\.")
#: Masks and tables that old files hold beside the weights.
_BUFFER = r".*(\.attn\.bias|\.attention\.bias|\.masked_bias|\.inv_freq)$"
_ALL_EXPERTS = re.compile(r"(.*\.mlp\.experts\.)(gate_up|down)_proj\.(weight|bias)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a family names its weights and lays them out."""

    #: Regular expressions and what takes their place, one after the other. Queries, keys and values
    #: in one are `self_attn.qkv_proj`, gate and up projection in one `mlp.gate_up_proj`; of all
    #: experts in one, `[experts, in_features, out_features]`, their outputs take turns in
    #: `mlp.experts.gate_up_proj`.
    names: tuple[tuple[str, str], ...] = ()
    #: Whether linear layers are saved as `[in_features, out_features]`.
    is_transposed: bool = False
    #: Whether each head of keys stands beside its heads of queries, rather than after all of them.
    is_interleaved: bool = False
    #: Whether each element of a head turns with the one beside it, rather than half a head away.
    turns_neighbours: bool = False
    #: Whether layer norms have no biases, whatever is saved.
    has_bare_norms: bool = False
    #: How the names of weights begin that are not the decoder's, as a regular expression.
    others: str | None = None
    #: What ends the names, Llama's, of those that its config leaves out though they are saved.
    unused: tuple[str, ...] = ()


class CanonicalWeights(SavedWeights):
    """Weights by the names that `canonical` gives them, each read when it is asked for.

    So no more of them is in memory than one layer is made of, while a model is put together.
    """

    def __init__(self, saved: SavedWeights, layout: Layout, spec: DecoderSpec) -> None:
        """Raises `RuntimeError`: a tensor cannot be divided as the spec says, or is there twice."""
        self._saved, self._layout, self._spec = saved, layout, spec
        self.outline: dict[str, torch.Tensor] = {}
        #: Where they are saved, and what they are called there once it is brought into our layout.
        self._sources: dict[str, tuple[str, str]] = {}
        for source, tensor in saved.outline.items():
            if layout.others and re.match(layout.others, source):
                continue
            parts = canonical({source: tensor}, layout, spec)
            if twice := sorted(parts.keys() & self.outline.keys()):
                raise RuntimeError(f"{source} and another tensor are both {twice[0]}")
            self.outline |= parts
            self._sources |= {name: (source, name) for name in parts}
        #: The parts of one are mostly asked for one after the other.
        self._latest: tuple[str, dict[str, torch.Tensor]] = ("", {})

    def name_in_file(self, name: str) -> str:
        """What a weight that is missing would be called there, as far as other layers tell."""
        layer, inner = _LAYER.search(name), _LAYER.sub("", name, count=1)
        if layer is None:
            return name
        alike = (
            source
            for other, (source, _) in self._sources.items()
            if inner == _LAYER.sub("", other, count=1)
        )
        return _LAYER.sub(layer[0], next(alike, name), count=1)

    def unused(self, used: Collection[str]) -> list[str]:
        """Names in the files of what none of these weights is taken from, but for buffers."""
        read = {source for name, (source, _) in self._sources.items() if name in used}
        others = [_BUFFER, *([self._layout.others] if self._layout.others else [])]
        return [
            name
            for name in self._saved.outline
            if name not in read and not any(re.match(pattern, name) for pattern in others)
        ]

    def share(self, name: str, new_name: str) -> None:
        """Have a weight under another name, too."""
        self.outline[new_name] = self.outline[name]
        self._sources[new_name] = self._sources[name]

    def __getitem__(self, name: str) -> torch.Tensor:
        source, part = self._sources[name]
        if self._latest[0] != source:
            tensors = canonical({source: self._saved[source]}, self._layout, self._spec)
            self._latest = source, tensors
        return self._latest[1][part]

    def saved_kind(self, name: str) -> str | None:
        return self._saved.saved_kind(self._sources[name][0])

    def saved_rows(self, name: str) -> SavedRows:
        source, part = self._sources[name]
        rows = self._saved.saved_rows(source)
        # all that is done to a GGUF file's matrices is done to whole rows
        blocks = canonical({source: rows.blocks}, self._layout, self._spec)
        return SavedRows(rows.kind, blocks[part])


def canonical(weights: Weights, layout: Layout, spec: DecoderSpec) -> dict[str, torch.Tensor]:
    """The weights as `engine.block` and the native helper read them; views where that is possible.

    Raises:
        RuntimeError: a tensor cannot be divided as the spec says.
    """
    renamed = {_rename(name, layout): tensor for name, tensor in weights.items()}
    arranged: dict[str, torch.Tensor] = {}
    for name, tensor in renamed.items():
        is_matrix = layout.is_transposed and "_proj." in name and tensor.dim() == 2
        tensor = tensor.t().contiguous() if is_matrix else tensor
        arranged |= _split(name, tensor, layout, spec)
        if layout.has_bare_norms and name.endswith("norm.weight"):
            arranged[f"{name.removesuffix('weight')}bias"] = torch.zeros_like(tensor)
        elif layout.has_bare_norms and name.endswith("norm.bias"):
            del arranged[name]
    return {
        name: _spread_turning(name, tensor, layout, spec)
        for name, tensor in arranged.items()
        # the native helper would use them
        if (spec.qk_norm is not None or not _HEAD_NORM.search(name))
        and not any(re.search(end, name) for end in layout.unused)
    }


def _rename(name: str, layout: Layout) -> str:
    for pattern, replacement in layout.names:
        name = re.sub(pattern, replacement, name)
    return name


def _split(
    name: str, tensor: torch.Tensor, layout: Layout, spec: DecoderSpec
) -> dict[str, torch.Tensor]:
    """A tensor by its name, or the parts of one that fuses several."""
    if ".mlp.gate_up_proj." in name:
        gate, up = tensor.chunk(2)
        return {name.replace("gate_up", "gate"): gate, name.replace("gate_up", "up"): up}
    if match := _ALL_EXPERTS.fullmatch(name):
        return dict(_experts(tensor, *match.groups()))
    if ".self_attn.qkv_proj." not in name:
        return {name: tensor}
    counts = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
    if layout.is_interleaved:
        heads = tensor.view(spec.num_kv_heads, -1, spec.head_dim, *tensor.shape[1:])
        parts = [heads[:, :-2], heads[:, -2:-1], heads[:, -1:]]
        rows = [part.flatten(0, 2) for part in parts]
    else:
        rows = list(torch.split(tensor, [count * spec.head_dim for count in counts]))
    return {name.replace("qkv", kind): part for kind, part in zip("qkv", rows, strict=True)}


def _experts(
    tensor: torch.Tensor, prefix: str, part: str, kind: str
) -> Iterator[tuple[str, torch.Tensor]]:
    """The matrices, or the biases, of each expert."""
    for index, own in enumerate(tensor):
        rows = own.t() if kind == "weight" else own
        name = f"{prefix}{index}."
        if part == "down":
            yield f"{name}down_proj.{kind}", rows
        else:
            yield f"{name}gate_proj.{kind}", rows[::2]
            yield f"{name}up_proj.{kind}", rows[1::2]


def _spread_turning(
    name: str, tensor: torch.Tensor, layout: Layout, spec: DecoderSpec
) -> torch.Tensor:
    """Put the elements of a head that turn where those of a whole head would.

    Element `i` then turns with `i + head_dim / 2` in every family, and those that stay turn by an
    angle of zero. Scores do not change, since queries and keys are put in order alike.
    """
    dim = next((rope.dim for rope in spec.ropes if rope is not None), spec.head_dim)
    is_in_order = dim == spec.head_dim and not layout.turns_neighbours
    if is_in_order or not _QUERIES_AND_KEYS.search(name):
        return tensor
    order = torch.arange(spec.head_dim)
    middle = (spec.head_dim - dim) // 2
    turning, staying = order[:dim].chunk(2), order[dim:]
    if layout.turns_neighbours:
        turning = order[:dim:2], order[1:dim:2]
    order = torch.cat((turning[0], staying[:middle], turning[1], staying[middle:]))
    heads = tensor.view(-1, spec.head_dim, *tensor.shape[1:])
    return heads[:, order].flatten(0, 1)
