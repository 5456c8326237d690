"""The linear layers of Transformers' code: packed or rounded where that changes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine_rig import DEVICE, load_model
from native_rig import last_logits, make_sequences, whole
from tiny_models import build
from torch import nn
from torch.nn import functional

from streamwell.core.errors import LoadError
from streamwell.engine.linear import Linear, make_linear
from streamwell.engine.loader import LoadedModel
from streamwell.engine.native import library
from streamwell.engine.native.linear import PackedLinear, storage_kind
from streamwell.engine.native.tied_head import are_one, replace_both
from streamwell.engine.transformers_linears import pack_linears

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DEVICE != "cpu", reason="they are packed on a CPU"),
]


def logits_of(model: LoadedModel, name: str) -> torch.Tensor:
    sequence = make_sequences(name)[0]
    model.runner.model.allocate(8)
    return last_logits(model.runner.model, [whole(sequence)])


def linears(model: LoadedModel) -> dict[str, nn.Linear]:
    module: nn.Module = model.runner.model._decoder._model  # type: ignore[attr-defined]
    return {name: m for name, m in module.named_modules() if isinstance(m, nn.Linear)}


def test_weights_are_there_once(tmp_path: Path) -> None:
    """In the other layout, and so is an output layer that is the embeddings, too."""
    model = load_model(build("opt", tmp_path))
    module: nn.Module = model.runner.model._decoder._model  # type: ignore[attr-defined]

    assert [] == [name for name, m in linears(model).items() if m.weight.numel()]
    assert 0 == module.get_input_embeddings().weight.numel()  # type: ignore[operator]


def test_without_the_helper_an_output_layer_is_the_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch cannot read rows of what oneDNN has laid out: packed, it would be there twice."""
    monkeypatch.setattr(library, "best", lambda: None)
    layers = linears(load_model(build("opt", tmp_path)))

    assert ["lm_head"] == [name for name, m in layers.items() if m.weight.numel()]


def test_what_sees_is_left_alone(tmp_path: Path) -> None:
    """No text comes by there, so it need not be packed."""
    layers = linears(load_model(build("qwen3-vl", tmp_path)))

    kept = {name for name, m in layers.items() if m.weight.numel()}

    assert kept
    assert all("visual" in name for name in kept)


@pytest.mark.parametrize("name", ["opt", "qwen3-5", "lfm2"])
@pytest.mark.parametrize(("quantization", "margin"), [("int8", 0.15), ("int4", 0.6)])
def test_weights_can_be_rounded(
    tmp_path: Path, name: str, quantization: str, margin: float
) -> None:
    """Answers are near to those of the weights that were rounded, and not the same."""
    folder = build(name, tmp_path)
    plain, rounded = (
        load_model(folder),
        load_model(folder, quantization=quantization, block_size=16),
    )

    exact, near = logits_of(plain, name), logits_of(rounded, name)

    assert quantization == rounded.info.quantization
    assert "none" == plain.info.quantization
    assert 0 < float((exact - near).std() / exact.std()) < margin
    used = [m for n, m in linears(rounded).items() if "visual" not in n]
    assert {0} == {layer.weight.numel() for layer in used}


def test_what_cannot_be_rounded_is_told(tmp_path: Path) -> None:
    """Experts that lie in one tensor stay as they are; the log says how much that is."""
    folder = build("qwen3-next", tmp_path)

    warnings = load_model(folder, quantization="int8", block_size=16).info.warnings

    assert ["--quantization int8 leaves"] == [warning[:26] for warning in warnings]
    assert () == load_model(folder).info.warnings
    sees = build("qwen3-vl", tmp_path / "sees")
    assert () == load_model(sees, quantization="int8", block_size=16).info.warnings


def test_without_the_helper_nothing_is_rounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is loaded, with the reason."""
    monkeypatch.setattr(library, "best", lambda: None)

    with pytest.raises(LoadError, match=r"int8 needs the native helper.*not compiled for this"):
        load_model(build("opt", tmp_path), quantization="int8", block_size=16)
    assert "none" == load_model(tmp_path).info.quantization


class Tied(nn.Module):
    """A model of embeddings and an output layer that is the same."""

    def __init__(self, *, is_direct: bool) -> None:
        super().__init__()
        self.is_direct = is_direct
        self.embedding, self.head = nn.Embedding(40, 32), nn.Linear(32, 40, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        return self.head(x + self.embedding.weight[3]) if self.is_direct else self.head(x)


@pytest.mark.parametrize("is_direct", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embeddings_are_read_from_the_output_layer(dtype: torch.dtype, *, is_direct: bool) -> None:
    """To the last bit; where code wants the weights themselves, both stay."""
    helper = library.best()
    assert helper is not None
    torch.manual_seed(0)
    model, ids = Tied(is_direct=is_direct).to(dtype), torch.tensor([[0, 39], [3, 7]])
    with torch.inference_mode():
        rows, logits = model.embedding(ids), model(ids)
        weight = model.head.weight.detach()
        packed_head = PackedLinear(helper, weight, None, storage_kind(weight, "none"))
        assert are_one(model.head, model.embedding)

        replace_both(model.head, model.embedding, packed_head, lambda: model(ids))

        assert torch.equal(rows, model.embedding(ids))
        torch.testing.assert_close(model(ids), logits)
    assert is_direct == are_one(model.head, model.embedding)
    assert (40 * 32 if is_direct else 0) == model.head.weight.numel()


def test_other_output_layers_are_not_the_embeddings() -> None:
    """With weights of their own, of another class, or with embeddings that are changed by use."""
    head, embedding = nn.Linear(4, 8), nn.Embedding(8, 4)
    assert not are_one(head, embedding)

    head.weight = embedding.weight
    assert are_one(head, embedding)
    assert not are_one(None, embedding)
    embedding.max_norm = 1.0
    assert not are_one(head, embedding)


class Direct(nn.Module):
    """Computes with the weights of a layer, and calls another one."""

    def __init__(self, *, is_direct: bool) -> None:
        super().__init__()
        self.is_direct = is_direct
        self.first, self.second, self.idle = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_direct:
            return self.second(functional.linear(x, self.first.weight))  # type: ignore[no-any-return]
        return self.second(self.first(x))  # type: ignore[no-any-return]


def packed(layer: nn.Linear) -> Linear:
    return make_linear(layer.weight.detach(), layer.bias)


@pytest.mark.parametrize(("is_direct", "count"), [(True, 0), (False, 2 * 32 * 32)])
def test_code_that_wants_the_weights_keeps_them(*, is_direct: bool, count: int) -> None:
    """Then all layers stay; else those that are called are packed. The result is the same."""
    torch.manual_seed(0)
    model, x = Direct(is_direct=is_direct), torch.randn(3, 32)
    with torch.inference_mode():
        expected = model(x)

        result = pack_linears(model, lambda: model(x), packed, copies_tied=False)

        torch.testing.assert_close(model(x), expected)
    assert count == result.num_packed
    assert 32 * 32 == model.idle.weight.numel()
