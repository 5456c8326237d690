"""Which folders of encoder-decoders are served, and how: what is not known is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_rig import BLOCK_SIZE, MAX_MODEL_LEN, EngineRig, load_model
from safetensors.torch import load_file, save_file
from tiny_seq2seq import CONFIGS, MAX_POSITIONS, build, edit
from transformers.models.t5.modeling_t5 import T5Attention

from streamwell.core.errors import LoadError
from streamwell.core.types import GenerateRequest, SamplingParams
from streamwell.engine.loader import DEFAULT_MAX_INPUT_LEN, LoadedModel, load
from streamwell.engine.messages import EngineConfig
from streamwell.engine.native import BLOCK_SIZE as NATIVE_BLOCK_SIZE
from streamwell.engine.seq2seq.attention import DistanceBias
from streamwell.engine.seq2seq.embeddings import sinusoids
from streamwell.engine.seq2seq.families import RelativeBias, describe, is_encoder_decoder
from streamwell.models.outline import describe_folder

pytestmark = pytest.mark.slow

REQUEST = GenerateRequest(
    request_id="r",
    prompt_ids=(5, 9, 100, 20, 33),
    sampling=SamplingParams(max_tokens=12, temperature=0.0, repetition_penalty=1.8),
)


def answer(folder: Path) -> list[int]:
    """What the model in a folder says to `REQUEST`."""
    return EngineRig(load_model(folder)).serve([REQUEST])["r"].token_ids


@pytest.fixture(params=["torch", "native"])
def block_size(request: pytest.FixtureRequest) -> int:
    """What decides which path is tried first when nothing is asked for."""
    return NATIVE_BLOCK_SIZE if request.param == "native" else BLOCK_SIZE


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def rename(old: str, new: str) -> Callable[[dict[str, torch.Tensor]], None]:
    def change(weights: dict[str, torch.Tensor]) -> None:
        for name in [name for name in weights if old in name]:
            weights[name.replace(old, new)] = weights.pop(name)

    return change


def load_with(folder: Path, **changes: object) -> LoadedModel:
    config = EngineConfig(
        model_path=str(folder),
        device="cpu",
        dtype="float32",
        max_model_len=None,
        max_num_seqs=2,
        max_num_batched_tokens=8,
        kv_cache_bytes=None,
        block_size=4,
        num_threads=1,
    )
    return load(replace_fields(config, changes), lambda _stage, _progress: None)


def replace_fields(config: EngineConfig, changes: dict[str, object]) -> EngineConfig:
    fields = {name: getattr(config, name) for name in config.__struct_fields__}
    return EngineConfig(**fields | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "whisper", "architectures": ["WhisperForX"]}, "WhisperForX"),
        ({"model_type": None, "architectures": None}, "cannot be served"),
        ({"architectures": ["T5EncoderModel"]}, "T5EncoderModel"),
        ({"architectures": ["T5ForTokenClassification"]}, "T5ForTokenClassification"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq|not quantised"),
        ({"feed_forward_proj": "gated-nonesuch"}, "nonesuch"),
        ({"feed_forward_proj": "fast-relu"}, "fast-relu"),
        ({"num_heads": 5}, "cannot load"),
        ({"num_layers": 9}, "cannot load"),
        ({"relative_attention_num_buckets": 16}, "buckets"),
        ({"layer_norm_epsilon": -9.0}, "not finite"),
    ],
)
def test_what_is_not_known_is_refused(
    tmp_path: Path, block_size: int, changes: dict[str, object], message: str
) -> None:
    """Another architecture, a model without a head, quantised weights, sizes that do not fit."""
    folder = build("t5", tmp_path)
    edit(folder / "config.json", **changes)

    with pytest.raises(LoadError, match=message):
        load_model(folder, block_size=block_size)


@pytest.mark.parametrize("ids", [{"decoder_start_token_id": 300}, {"forced_bos_token_id": "en"}])
def test_answers_begin_with_tokens(tmp_path: Path, block_size: int, ids: dict[str, object]) -> None:
    """What the decoder starts with must be in its vocabulary."""
    folder = build("bart", tmp_path)
    edit(folder / "generation_config.json", **ids)

    with pytest.raises(LoadError, match=r"start"):
        load_model(folder, block_size=block_size)


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"model_impl": "native"}, "its cache blocks hold 16 tokens"),
        ({"model_impl": "transformers"}, "--model-impl transformers"),
        ({"compile": True}, "--compile"),
        ({"quantization": "int8"}, "--quantization int8 needs the native helper"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    tmp_path: Path, changes: dict[str, object], flag: str
) -> None:
    """There is no other code to run them, nor to round them."""
    with pytest.raises(LoadError, match=flag):
        load_with(build("t5", tmp_path), **changes)


def test_damaged_weights_are_refused(tmp_path: Path, block_size: int) -> None:
    """A weight that is missing, of another shape, or not finite."""

    def forget(weights: dict[str, torch.Tensor]) -> None:
        del weights["model.decoder.layers.1.encoder_attn.k_proj.weight"]

    def misshape(weights: dict[str, torch.Tensor]) -> None:
        weights["model.decoder.layers.1.fc2.weight"] = torch.zeros(48, 7)

    def poison(weights: dict[str, torch.Tensor]) -> None:
        weights["model.decoder.layers.1.fc2.bias"][3] = float("nan")

    def shorten(weights: dict[str, torch.Tensor]) -> None:
        name = "model.encoder.embed_positions.weight"
        weights[name] = weights[name][: MAX_POSITIONS - 3].clone()

    def narrow(weights: dict[str, torch.Tensor]) -> None:
        name = "model.encoder.layernorm_embedding.bias"
        weights[name] = weights[name][:-1].clone()

    for number, damage in enumerate((forget, misshape, poison, shorten, narrow)):
        folder = build("bart", tmp_path / str(number))
        edit_weights(folder, damage)
        with pytest.raises(LoadError):
            load_model(folder, block_size=block_size)


@pytest.mark.parametrize(
    "name", ["decoder.layers.1.fc1.bias", "encoder.layers.0.self_attn.k_proj.bias"]
)
def test_a_bias_that_other_blocks_have_is_missed(
    tmp_path: Path, name: str, block_size: int
) -> None:
    """By its name; without it the answers would be others."""

    def forget(weights: dict[str, torch.Tensor]) -> None:
        del weights[f"model.{name}"]

    folder = build("bart", tmp_path)
    edit_weights(folder, forget)
    with pytest.raises(LoadError, match=rf"has no weights 'model.{name}'"):
        load_model(folder, block_size=block_size)


def test_limits_are_those_of_the_positions(tmp_path: Path) -> None:
    """T5 has none built in and gets a moderate one; BART's are its table's, and not to exceed."""
    t5, bart = build("t5", tmp_path / "t5"), build("bart", tmp_path / "bart")
    loaded = [load_model(folder).info for folder in (t5, bart)]

    assert [(MAX_MODEL_LEN, MAX_MODEL_LEN)] * 2 == [
        (i.max_model_len, i.max_input_len) for i in loaded
    ]
    assert [(0,), (2, 0)] == [info.start_ids for info in loaded]
    with pytest.raises(LoadError, match=str(MAX_POSITIONS)):
        load_with(bart, max_model_len=MAX_POSITIONS + 1)
    with pytest.raises(LoadError, match="cannot hold one sequence"):
        load_with(t5, kv_cache_bytes=DEFAULT_MAX_INPUT_LEN * 2 * 2 * 4 * 8 * 4)


def test_the_positions_of_a_t5_are_no_limit(tmp_path: Path) -> None:
    """Published ones say 512, the length that they were trained on; they turn nothing by it."""
    folder = build("t5", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"n_positions": 512}))

    assert DEFAULT_MAX_INPUT_LEN == load_with(folder).info.max_model_len
    assert 4096 == load_with(folder, max_model_len=4096).info.max_model_len
    assert describe_folder(folder).context is None


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("bart", "model.", ""),
        ("bart", "model.shared.", "model.encoder.embed_tokens."),
        ("t5", "shared.", "decoder.embed_tokens."),
        ("t5", "shared.", "lm_head."),
    ],
)
def test_weights_may_be_saved_under_other_names(
    tmp_path: Path, name: str, old: str, new: str
) -> None:
    """Older folders lack a prefix, or keep the embeddings that all share under another name."""
    folder = build(name, tmp_path)
    expected = answer(folder)
    edit_weights(folder, rename(old, new))

    assert expected == answer(folder)


def test_sines_need_not_be_saved(tmp_path: Path) -> None:
    """Pegasus folders have them and Marian's do not; what is computed is the same."""
    folder = build("pegasus", tmp_path)
    expected = answer(folder)

    def forget_positions(weights: dict[str, torch.Tensor]) -> None:
        for name in (
            "model.encoder.embed_positions.weight",
            "model.decoder.embed_positions.weight",
        ):
            assert (MAX_POSITIONS, 48) == weights[name].shape
            torch.testing.assert_close(sinusoids(MAX_POSITIONS, 48), weights.pop(name))

    edit_weights(folder, forget_positions)

    assert expected == answer(folder)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 20), (64, 512)])
def test_distances_have_the_buckets_of_transformers(
    num_buckets: int, max_distance: int, is_causal: bool
) -> None:
    """Each distance of two tokens in contexts of 2048, at T5's own sizes and at others."""
    weight = torch.arange(num_buckets, dtype=torch.float32)[:, None]
    bias = DistanceBias(RelativeBias(num_buckets, max_distance), weight, 2048, is_causal=is_causal)
    distances = torch.arange(-2047, 1 if is_causal else 2048)

    expected = T5Attention._relative_position_bucket(
        distances,
        bidirectional=not is_causal,
        num_buckets=num_buckets,
        max_distance=max_distance,
    )

    assert torch.equal(expected, bias.at(distances)[0].long())


def test_the_generation_config_counts_more(tmp_path: Path) -> None:
    """Where the decoder starts is read there first, and in `config.json` only if it is silent."""
    folder = build("mbart", tmp_path)
    expected = answer(folder)
    edit(folder / "config.json", decoder_start_token_id=11)
    assert expected == answer(folder)
    edit(folder / "generation_config.json", decoder_start_token_id=11)
    other = answer(folder)
    edit(folder / "generation_config.json", decoder_start_token_id=None)

    assert expected != other == answer(folder)


def test_what_is_recommended_and_not_served_is_told(tmp_path: Path) -> None:
    """Nobody gets beams here; whoever starts the server learns that."""
    folder = build("bart", tmp_path)
    assert () == load_model(folder).info.warnings
    edit(folder / "generation_config.json", num_beams=4, min_length=56, no_repeat_ngram_size=0)

    (warning,) = load_model(folder).info.warnings

    assert "num_beams=4, min_length=56" in warning


def test_old_folders_say_it_in_their_config(tmp_path: Path) -> None:
    """Before there was a `generation_config.json`, what is recommended stood in `config.json`."""
    folder = build("bart", tmp_path)
    expected = answer(folder)
    (folder / "generation_config.json").unlink()
    edit(folder / "config.json", force_bos_token_to_be_generated=True, num_beams=4)

    (warning,) = load_model(folder).info.warnings

    assert "num_beams=4" in warning
    assert expected == answer(folder)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_a_config_leaves_out_has_the_default_of_transformers(name: str) -> None:
    """Each field that can be left out; those that cannot are missed."""
    config = CONFIGS[name]()
    fields = config.to_dict() | {"architectures": ["XForConditionalGeneration"]}
    # Transformers makes others of these, and saves those; we read both
    derived = {"model_type", "scale_decoder_outputs", "tie_word_embeddings"}
    wrong = []
    for left_out in fields.keys() - derived:
        rest = {key: value for key, value in fields.items() if key != left_out}
        complete = type(config).from_dict(rest).to_dict() | {
            "architectures": fields["architectures"]
        }
        try:
            if is_encoder_decoder(rest) and describe(rest, {}) != describe(complete, {}):
                wrong.append(left_out)
        except (KeyError, LoadError):
            continue

    assert [] == sorted(wrong)


def test_a_decoder_of_these_families_is_no_encoder_decoder() -> None:
    """`BartForCausalLM` and its like are decoders."""
    assert not is_encoder_decoder({"model_type": "bart", "is_encoder_decoder": False})
    assert is_encoder_decoder({"model_type": "t5"})
    assert not is_encoder_decoder({"model_type": "llama"})
