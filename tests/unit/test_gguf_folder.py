"""The folder that a GGUF file gets: what is in it, that it is made once, and what gets none."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf_bytes import LLAMA as SMALLEST
from gguf_bytes import Tensor, Value, gguf

from streamwell.core.errors import LoadError, NotEnoughMemory
from streamwell.engine import native
from streamwell.engine.gguf import GgufWeights
from streamwell.models import cache_dir, memory
from streamwell.models.gguf_folder import check_unchanged
from streamwell.models.inspection import inspect_model
from streamwell.models.outline import Outline, describe_folder, size_in_memory, size_on_disk
from streamwell.models.resolve import resolve
from streamwell.models.weights import has_rounded_weights, is_gguf, read_headers
from streamwell.settings import Settings
from streamwell.wiring.models import check_memory

LLAMA: dict[str, Value] = {
    **SMALLEST,
    "tokenizer.ggml.tokens": ["a", "b", "<|im_end|>"],
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.eot_token_id": 2,
    "tokenizer.chat_template": "{{ messages }}",
}
EMBEDDING = Tensor("token_embd.weight", (8, 3))
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file with these values; what is `None` is left out."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def write_file(changes: dict[str, Any] | None = None, name: str = "models/a.gguf") -> Path:
        metadata = {k: v for k, v in (LLAMA | (changes or {})).items() if v is not None}
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(gguf(metadata, [EMBEDDING], bytes(96)))
        return file

    return write_file


def config_of(file: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((resolve(str(file)) / "config.json").read_text())
    return config


def test_it_has_what_a_model_folder_has(write: Write) -> None:
    """Config, ends of answers, special tokens, template; the weights are the file itself."""
    file = write()

    folder = resolve(str(file))

    assert cache_dir("gguf") == folder.parent
    config = json.loads((folder / "config.json").read_text())
    assert {
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": 3,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "max_position_embeddings": 256,
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "rms_norm_eps": pytest.approx(1e-5),
        "rope_theta": 10_000.0,
    } == config
    assert {"eos_token_id": [1, 2]} == json.loads((folder / "generation_config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    assert ("b", "{{ messages }}") == (tokenizer["eos_token"], tokenizer["chat_template"])
    assert is_gguf(folder)
    assert ["token_embd.weight"] == list(read_headers(folder))
    assert file.stat().st_size == size_on_disk(folder)
    assert 4 * 24 == size_in_memory(folder, keeps_rounding=True)
    assert not has_rounded_weights(folder)
    assert Outline("llama", 256) == describe_folder(folder)


@pytest.fixture
def rounded(write: Write) -> Path:
    """The folder of a file with weights of eight bits, of four, and of 32."""
    tensors = [
        Tensor("token_embd.weight", (64, 4), kind=8),
        Tensor("blk.0.attn_q.weight", (64, 4), kind=2, offset=288),
        Tensor("output_norm.weight", (64,), kind=0, offset=448),
    ]
    file = write()
    file.write_bytes(gguf(LLAMA, tensors, bytes(448 + 256)))
    return resolve(str(file))


def test_what_rounded_weights_take_in_memory(rounded: Path) -> None:
    """4.5 or 8.5 bits a number where they stay rounded, two bytes where they do not."""
    folder = rounded

    assert has_rounded_weights(folder)
    assert 272 + 144 + 256 == size_in_memory(folder, keeps_rounding=True)
    assert 512 + 512 + 256 == size_in_memory(folder, keeps_rounding=False)


def test_matrices_in_bfloat16_take_three_quarters_coded(write: Write) -> None:
    """Of 16 bits each."""
    tensors = [Tensor("blk.0.attn_q.weight", (64, 4), kind=30), replace(EMBEDDING, offset=512)]
    file = write()
    file.write_bytes(gguf(LLAMA, tensors, bytes(512 + 96)))
    folder = resolve(str(file))

    assert 512 + 96 == size_in_memory(folder, keeps_rounding=True)
    assert 384 + 96 == size_in_memory(folder, keeps_rounding=True, is_coded=True)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("ffn_gate", "ffn_up"), 272 + 272),
        (("ffn_up_exps", "ffn_gate_exps"), 272 + 272),
        (("attn_q", "attn_v"), 144 + 272),
    ],
)
def test_what_is_one_layer_of_several_types_has_eight_bits(
    write: Write, names: tuple[str, str], expected: int
) -> None:
    """Weights of four bits, beside others of eight."""
    tensors = [
        Tensor(f"blk.0.{names[0]}.weight", (64, 4), kind=2),
        Tensor(f"blk.0.{names[1]}.weight", (64, 4), kind=8, offset=160),
        replace(EMBEDDING, offset=448),
    ]
    file = write()
    file.write_bytes(gguf(LLAMA, tensors, bytes(448 + 96)))

    assert expected + 96 == size_in_memory(resolve(str(file)), keeps_rounding=True)


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"model_impl": "native"}, True),
        ({"model_impl": "torch"}, False),
        ({"quantization": "none"}, False),
        ({"compile": True}, False),
        ({"device": "cuda"}, False),
        ({"block_size": 32}, False),
    ],
)
def test_only_the_native_helper_is_taken_to_keep_weights_rounded(
    rounded: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], *, fits: bool
) -> None:
    """Where PyTorch will compute, there must be memory for floats."""
    monkeypatch.setattr(memory, "available_bytes", lambda: memory.PROCESS_BYTES + 1000)
    monkeypatch.setattr(native, "is_compiled", lambda: True)
    refused = contextlib.nullcontext() if fits else pytest.raises(NotEnoughMemory)

    with refused:
        check_memory(Settings(**changes), rounded, draft=None)


def test_a_file_that_was_replaced_is_not_read_by_the_old_one_s_config(write: Write) -> None:
    """Its folder says what the file said that it was made for."""
    folder = resolve(str(write()))
    check_unchanged(folder)
    check_unchanged(folder.parent)  # no folder of ours

    file = write({"llama.context_length": 512})

    with pytest.raises(LoadError, match=rf"{file} has changed"):
        inspect_model(folder)


def test_weights_of_a_layer_that_is_not_there_are_refused(write: Write) -> None:
    """Before anything is made of them: each could stand for thousands of experts."""
    file = write()
    file.write_bytes(gguf(LLAMA, [Tensor("blk.1.attn_norm.weight", (8,))], bytes(32)))

    with pytest.raises(LoadError, match="layer 1, and its block_count is 1"):
        GgufWeights([file], torch.float32)


def test_it_is_made_once_for_each_file(write: Write) -> None:
    """By its path and what it says: another file has another, a changed one too."""
    first = resolve(str(write()))

    assert first == resolve(str(write()))
    assert first == resolve(str(first))
    assert first != resolve(str(write(name="models/b.gguf")))
    assert first != resolve(str(write({"llama.context_length": 512})))


def test_a_folder_of_one_file_stands_for_it(write: Write) -> None:
    """Of several one must be named; safetensors come first."""
    file = write()
    assert resolve(str(file)) == resolve(str(file.parent))

    write(name="models/b.gguf")
    with pytest.raises(LoadError, match=r"2 GGUF files; give the path of one: a.gguf, b"):
        resolve(str(file.parent))

    (file.parent / "model.safetensors").write_bytes(b"")
    assert file.parent == resolve(str(file.parent))


def test_names_that_are_no_text_are_refused(write: Write) -> None:
    """They could be neither logged nor kept."""
    file = write()
    odd = file.rename(file.with_name("b\udcff.gguf"))

    for path in (odd, odd.parent):
        with pytest.raises(LoadError, match=r"b\\udcff.gguf' is no UTF-8: rename it"):
            resolve(str(path))


def test_local_models_have_no_revisions(write: Write) -> None:
    """They are what lies there."""
    for name in (str(write()), "brooklet"):
        with pytest.raises(LoadError, match="has no revisions: leave out --revision"):
            resolve(name, "main")


def test_what_is_no_model_is_named(write: Write) -> None:
    """A file of another kind, and one that is not there."""
    other = write(name="models/a.txt")
    other.write_text("Hello!")
    with pytest.raises(LoadError, match=r"a.txt is no GGUF file"):
        resolve(str(other))
    with pytest.raises(LoadError, match="there is no folder or file /nowhere"):
        resolve("/nowhere")


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"llama.rope.scaling.type": "none"}, {}),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
            {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        ),
        (
            {"llama.rope.scale_linear": 2.0},
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        ),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 1.0,
                "llama.rope.scaling.attn_factor": 3.0,
                "llama.rope.scaling.yarn_ext_factor": 1.0,
                "llama.rope.scaling.yarn_attn_factor": 3.0,
                "llama.rope.scaling.yarn_beta_fast": 8.0,
            },
            {
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 1.0,
                    "original_max_position_embeddings": 256,
                    "attention_factor": 3.0,
                    "beta_fast": 8.0,
                    "beta_slow": 1.0,
                }
            },
        ),
        ({"llama.rope.freq_base": 5e5}, {"rope_theta": 5e5}),
        ({"llama.attention.key_length": 16}, {"head_dim": 16}),
        ({"llama.attention.head_count_kv": 1}, {"num_key_value_heads": 1}),
        ({"llama.expert_count": 0, "llama.vocab_size": 3}, {"vocab_size": 3}),
    ],
)
def test_keys_become_fields(
    write: Write, changes: dict[str, Value], fields: dict[str, object]
) -> None:
    """And what says nothing of the model is left out."""
    if "llama.attention.key_length" in changes:
        changes |= {"llama.rope.dimension_count": 16}

    config = config_of(write(changes))

    assert fields.items() <= config.items()
    assert ("rope_scaling" in fields) == ("rope_scaling" in config)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"general.architecture": "mamba"}, "of the architecture 'mamba'; as GGUF files cohere2"),
        ({"general.architecture": "mixtral"}, "of the architecture 'mixtral'"),
        ({"general.architecture": None}, "holds no language model"),
        ({"llama.rope.scaling.type": "ntk"}, "scaling 'ntk' are not known"),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_ext_factor": 0.5},
            "says llama.rope.scaling.yarn_ext_factor, which is not understood",
        ),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_attn_factor": 1.1},
            "says llama.rope.scaling.yarn_attn_factor, which is not understood",
        ),
        ({"llama.rope.scaling.factor": "four"}, "llama.rope.scaling.factor is no number"),
        (
            {"llama.attention.sliding_window_pattern": [True, False]},
            "says llama.attention.sliding_window_pattern, which is not understood",
        ),
        ({"llama.rope.dimension_count": 2}, "2 elements of a head turn, and not all 4"),
        ({"llama.attention.value_length": 8}, "keys and values of different lengths"),
        ({"llama.attention.max_alibi_bias": 8.0}, "says llama.attention.max_alibi_bias"),
        ({"llama.embedding_length": None}, "llama.embedding_length is missing"),
        ({"llama.attention.head_count": 0}, "attention.head_count is no size"),
        ({"llama.attention.head_count": ["2", "4"]}, "attention.head_count is missing, or no"),
        ({"llama.context_length": None}, "llama.context_length is missing"),
    ],
)
def test_what_is_not_understood_is_refused(
    write: Write, changes: dict[str, Any], says: str
) -> None:
    """It could change the model; nothing is left in the cache."""
    with pytest.raises(LoadError, match=says):
        resolve(str(write(changes)))
    assert not cache_dir("gguf").exists()


def exaone(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - as the file has it
    """Another architecture, in whose models some layers slide."""
    own = {k.replace("llama", "exaone4"): v for k, v in LLAMA.items() if k.startswith("llama.")}
    own |= {f"exaone4.attention.{key}": value for key, value in values.items()}
    return {**own, "general.architecture": "exaone4"} | dict.fromkeys(
        key for key in LLAMA if key.startswith("llama.")
    )


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ({}, ["full_attention"]),
        ({"sliding_window": 4, "sliding_window_pattern": [True]}, ["sliding_attention"]),
        ({"sliding_window": 4, "sliding_window_pattern": [False]}, ["full_attention"]),
    ],
)
def test_which_layers_slide_is_read(write: Write, values: dict[str, Any], kinds: list[str]) -> None:
    """A file says it of each layer."""
    config = config_of(write(exaone(**values)))

    assert kinds == config["layer_types"]
    assert values.get("sliding_window") == config["sliding_window"]


@pytest.mark.parametrize("pattern", [[], [True, False], [1], ["x"]])
def test_a_pattern_of_other_layers_is_refused(write: Write, pattern: list[Any]) -> None:
    """It must say of each layer whether it slides."""
    values = {"sliding_window": 4, "sliding_window_pattern": pattern}

    with pytest.raises(LoadError, match="must say of each layer if it slides"):
        resolve(str(write(exaone(**values))))


def test_a_cache_that_cannot_be_written_is_said(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its path."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    with pytest.raises(LoadError, match=r"cannot write .*file/streamwell/gguf"):
        resolve(str(write()))
