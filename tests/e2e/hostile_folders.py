"""Model folders that mean harm, each made from the model in the box by one change.

A payload that runs would write the file `canary` beside the model's files.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors.numpy import load_file, save_file

from streamwell.models import brooklet_path

Build = Callable[[Path], None]

INNER_SIZE = json.loads((brooklet_path() / "config.json").read_text())["intermediate_size"]


@dataclass(frozen=True, slots=True)
class Hostile:
    """A folder, and how it is to be refused."""

    build: Build
    #: What the refusal must say, as a regular expression.
    says: str
    #: Who sees it first.
    seen_by: Literal["engine", "tokenizer"]
    #: Which paths of the engine may have a say.
    model_impls: tuple[str, ...] = ("auto", "transformers")


HOSTILE: dict[str, Hostile] = {}


def _engine(says: str, *model_impls: str) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        kinds = model_impls or ("auto", "transformers")
        HOSTILE[build.__name__] = Hostile(build, says, "engine", kinds)
        return build

    return register


def _tokenizer(says: str) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        HOSTILE[build.__name__] = Hostile(build, says, "tokenizer")
        return build

    return register


def make(name: str, folder: Path) -> Path:
    """Write the folder of this name; returns the path of its canary."""
    HOSTILE[name].build(copy_of_brooklet(folder))
    return folder / "canary"


def copy_of_brooklet(folder: Path) -> Path:
    """The model in the box by links, as the hub's cache has them."""
    folder.mkdir(parents=True)
    for file in brooklet_path().iterdir():
        (folder / file.name).symlink_to(file)
    return folder


def write(folder: Path, name: str, content: str | bytes) -> None:
    file = folder / name
    file.unlink(missing_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def change(folder: Path, name: str, **changes: object) -> None:
    """Set fields of a JSON file."""
    write(folder, name, json.dumps({**json.loads((folder / name).read_text()), **changes}))


def set_template(folder: Path, template: str) -> None:
    write(folder, "chat_template.jinja", template)


def _payload(folder: Path) -> bytes:
    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.system, (f"touch {folder}/canary",)

    return pickle.dumps(Evil())


def _code(folder: Path) -> str:
    return f"open({str(folder / 'canary')!r}, 'w')\n"


# Code to be run


@_engine("pytorch_model.bin may be a pickle")
def pickled_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    write(folder, "pytorch_model.bin", _payload(folder))


@_engine("names 'pytorch_model.bin', which is no safetensors file")
def index_of_pickles(folder: Path) -> None:
    write(folder, "pytorch_model.bin", _payload(folder))
    _write_index(folder, {"model.norm.weight": "pytorch_model.bin"})


@_engine("auto_map .* only with --trust-remote-code")
def remote_code(folder: Path) -> None:
    write(folder, "modeling_evil.py", _code(folder))
    change(folder, "config.json", auto_map={"AutoModelForCausalLM": "modeling_evil.Evil"})


@_engine("text_config.auto_map .* only with --trust-remote-code")
def remote_code_of_an_inner_config(folder: Path) -> None:
    write(folder, "configuration_evil.py", _code(folder))
    inner = {"model_type": "evil", "auto_map": {"AutoConfig": "configuration_evil.Evil"}}
    change(folder, "config.json", text_config=inner)


@_engine("_attn_implementation_internal .* 'evil/kernels'")
def attention_from_the_hub(folder: Path) -> None:
    change(folder, "config.json", _attn_implementation_internal="evil/kernels")


@_engine("attn_implementation .* only with --trust-remote-code")
def attention_for_a_part(folder: Path) -> None:
    change(folder, "config.json", parts=[{"attn_implementation": {"text": "evil/kernels:run"}}])


@_engine("trust_remote_code is True")
def trust_for_itself(folder: Path) -> None:
    change(folder, "config.json", vision_config={"trust_remote_code": True})


@_engine("generation_config.json asks for code")
def remote_code_for_generation(folder: Path) -> None:
    write(folder, "generate.py", _code(folder))
    change(folder, "generation_config.json", trust_remote_code=True, custom_generate=str(folder))


@_engine("transformers_weights")
def weights_elsewhere(folder: Path) -> None:
    write(folder, "adapter_model.bin", _payload(folder))
    change(folder, "config.json", transformers_weights="adapter_model.bin")


@_engine("names other files in configuration_files")
def config_elsewhere(folder: Path) -> None:
    write(folder, "configuration_evil.py", _code(folder))
    write(folder, "config.4.0.0.json", '{"auto_map": {"AutoConfig": "configuration_evil.Evil"}}')
    change(folder, "config.json", configuration_files=["config.4.0.0.json"])


@_engine("part of a distributed checkpoint")
def weights_of_a_cluster(folder: Path) -> None:
    write(folder, "shard-00000-model-00000-of-00001.safetensors", b"")


@_engine("adapter")
def adapter_in_disguise(folder: Path) -> None:
    write(folder, "adapter_model.bin", _payload(folder))
    write(folder, "adapter_config.json", '{"base_model_name_or_path": "evil/model"}')


@_tokenizer("auto_map .* only with --trust-remote-code")
def tokenizer_with_code(folder: Path) -> None:
    write(folder, "tokenization_evil.py", _code(folder))
    (folder / "tokenizer.json").unlink()
    auto_map = {"AutoTokenizer": ["tokenization_evil.Evil", None]}
    change(folder, "tokenizer_config.json", auto_map=auto_map)


@_tokenizer("names other files in fast_tokenizer_files")
def tokenizer_elsewhere(folder: Path) -> None:
    write(folder, "tokenizer.4.0.0.json", "[" * 100_000)
    change(folder, "tokenizer_config.json", fast_tokenizer_files=["tokenizer.4.0.0.json"])


# Files that are not what they seem


def _write_index(folder: Path, weight_map: object) -> None:
    write(folder, "model.safetensors.index.json", json.dumps({"weight_map": weight_map}))


@_engine("names '../elsewhere.safetensors'")
def index_that_points_out(folder: Path) -> None:
    (folder.parent / "elsewhere.safetensors").write_bytes(b"")
    _write_index(folder, {"model.norm.weight": "../elsewhere.safetensors"})


@_engine("names '/etc/passwd'")
def index_of_system_files(folder: Path) -> None:
    _write_index(folder, {"model.norm.weight": "/etc/passwd"})


@_engine("names 100000 files")
def index_of_too_many_files(folder: Path) -> None:
    _write_index(folder, {f"w{i}": f"{i}.safetensors" for i in range(100_000)})


@_engine("promises 1 tensors that its files lack")
def index_of_missing_tensors(folder: Path) -> None:
    _write_index(folder, {"model.lm_head.weight": "model.safetensors"})


@_engine("has the tensor .* which another file has too")
def tensors_in_two_files(folder: Path) -> None:
    (folder / "copy.safetensors").symlink_to(folder / "model.safetensors")
    names = {"model.norm.weight": "model.safetensors", "model.embed_tokens.weight": "copy"}
    _write_index(folder, {**names, "model.embed_tokens.weight": "copy.safetensors"})


@_engine("has no weight_map")
def index_without_a_map(folder: Path) -> None:
    _write_index(folder, ["model.safetensors"])


@_engine("config.json is not a regular file")
def pipe_for_a_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


@_engine("model.safetensors is not a regular file")
def device_for_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("/dev/zero")
    _write_index(folder, {"model.norm.weight": "model.safetensors"})


# Configs


@_engine("config.json holds a list where an object is wanted")
def config_that_is_a_list(folder: Path) -> None:
    write(folder, "config.json", "[]")


@_engine("config.json holds a number where an object is wanted")
def config_that_is_a_number(folder: Path) -> None:
    write(folder, "config.json", "1e999")


@_engine("config.json is no JSON")
def config_in_another_encoding(folder: Path) -> None:
    write(folder, "config.json", (folder / "config.json").read_text().encode("utf-16"))


@_engine("config.json is no JSON")
def truncated_config(folder: Path) -> None:
    write(folder, "config.json", (folder / "config.json").read_bytes()[:-20])


@_engine("config.json is nested too deeply")
def deeply_nested_config(folder: Path) -> None:
    write(folder, "config.json", '{"a":' * 100_000 + "1" + "}" * 100_000)


@_engine("config.json is too large")
def large_config(folder: Path) -> None:
    change(folder, "config.json", padding="x" * (2 << 20))


@_engine("num_hidden_layers is 1000000000, but")
def billion_layers(folder: Path) -> None:
    change(folder, "config.json", num_hidden_layers=10**9)


@_engine("num_hidden_layers is inf, but")
def infinite_layers(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    write(folder, "config.json", re.sub(r'_layers": \d+', '_layers": 1e999', text))


@_engine("vocab_size is 1000000000000, but")
def vocabulary_of_terabytes(folder: Path) -> None:
    change(folder, "config.json", vocab_size=10**12)


@_engine("hidden_size is 1000000000, but")
def hidden_size_of_terabytes(folder: Path) -> None:
    change(folder, "config.json", hidden_size=10**9)


@_engine("num_local_experts is 100000000, but")
def million_experts(folder: Path) -> None:
    change(folder, "config.json", model_type="mixtral", num_local_experts=10**8)


@_engine(r"describes \d{13} numbers, but the weights cannot be more", "transformers")
def feed_forward_of_terabytes(folder: Path) -> None:
    """Our own decoders go by the weights, and do not ask."""
    architectures = ["GPTNeoXForCausalLM"]
    changes = {"model_type": "gpt_neox", "architectures": architectures, "hidden_act": "gelu"}
    change(folder, "config.json", **changes, intermediate_size=4 * 10**8)


@_engine("describes 256.* numbers, but the weights cannot be more", "transformers")
def positions_of_terabytes(folder: Path) -> None:
    changes = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 256}
    change(folder, "config.json", **changes, n_layer=6, n_head=4, max_position_embeddings=10**12)


@_engine("nonesuch")
def invented_family(folder: Path) -> None:
    change(folder, "config.json", model_type="nonesuch", architectures=["NonesuchForCausalLM"])


@_engine("temperature is 'hot', not a number")
def temperature_in_words(folder: Path) -> None:
    change(folder, "generation_config.json", temperature="hot")


@_engine("temperature is True, not a number")
def temperature_that_is_a_truth_value(folder: Path) -> None:
    change(folder, "generation_config.json", temperature=True)


@_engine("temperature is -0.5, not from 0 to")
def negative_temperature(folder: Path) -> None:
    change(folder, "generation_config.json", temperature=-0.5)


@_engine("top_p is 1.5, not from 0 to 1")
def top_p_of_more_than_all(folder: Path) -> None:
    change(folder, "generation_config.json", top_p=1.5)


@_engine("top_k is 2.5, not a whole number")
def half_a_top_k(folder: Path) -> None:
    change(folder, "generation_config.json", top_k=2.5)


@_engine("repetition_penalty is 0, not from")
def penalty_that_divides_by_zero(folder: Path) -> None:
    change(folder, "generation_config.json", repetition_penalty=0)


@_engine("eos_token_id is 'stop', not the id of a token")
def end_in_words(folder: Path) -> None:
    change(folder, "generation_config.json", eos_token_id="stop")


@_engine(r"eos_token_id is \[2, 0.5\], not the id of a token")
def half_an_end(folder: Path) -> None:
    change(folder, "config.json", eos_token_id=[2, 0.5])


@_engine("num_experts_per_tok is 0 of 4")
def no_experts_for_a_token(folder: Path) -> None:
    mixture = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 0}
    change(folder, "config.json", **mixture)


@_engine("num_experts_per_tok is 5 of 4")
def more_experts_than_there_are(folder: Path) -> None:
    mixture = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5}
    change(folder, "config.json", **mixture)


@_engine("num_attention_heads is 0, not a whole number above zero")
def no_heads(folder: Path) -> None:
    change(folder, "config.json", num_attention_heads=0)


@_engine("num_key_value_heads is 0, not a whole number above zero")
def no_heads_of_keys(folder: Path) -> None:
    change(folder, "config.json", num_key_value_heads=0)


@_engine("head_dim is -32, not a whole number above zero")
def negative_heads(folder: Path) -> None:
    change(folder, "config.json", head_dim=-32)


@_engine("max_position_embeddings is 0.5, not a whole number above zero")
def half_a_position(folder: Path) -> None:
    change(folder, "config.json", max_position_embeddings=0.5)


@_engine("rms_norm_eps is 'small', not a number")
def epsilon_in_words(folder: Path) -> None:
    change(folder, "config.json", rms_norm_eps="small")


@_engine("rope_parameters.factor is 0, not above zero")
def rotary_factor_of_zero(folder: Path) -> None:
    rope = {"rope_type": "linear", "rope_theta": 1e4, "factor": 0}
    change(folder, "config.json", rope_parameters=rope)


@_engine("rope_scaling.original_max_position_embeddings is -5, not above zero")
def stretched_from_less_than_nothing(folder: Path) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": -5}
    change(folder, "config.json", rope_scaling=yarn)


@_engine("rope_scaling.attention_factor is '1', not a number")
def attention_factor_in_quotes(folder: Path) -> None:
    change(
        folder, "config.json", rope_scaling={"type": "yarn", "factor": 4, "attention_factor": "1"}
    )


@_engine("rope_scaling is 5, not an object")
def rotary_scaling_that_is_a_number(folder: Path) -> None:
    change(folder, "config.json", rope_scaling=5)


@_engine("dtype is 5, not the name of a type")
def type_that_is_a_number(folder: Path) -> None:
    change(folder, "config.json", dtype=5)


@_engine("vocab_size is 300, but the embeddings have 2048|not of the sizes that its config")
def fewer_words_than_are_saved(folder: Path) -> None:
    change(folder, "config.json", vocab_size=300)


@_engine("quantization_config is 4, not an object")
def quantization_that_is_a_number(folder: Path) -> None:
    change(folder, "config.json", quantization_config=4)


@_engine("generation_config.json holds a list")
def generation_config_that_is_a_list(folder: Path) -> None:
    write(folder, "generation_config.json", "[1, 2, 3]")


# Weights


def _change_weights(folder: Path, **changes: np.ndarray | None) -> None:
    """Set tensors of the first layer's MLP, or leave them out."""
    weights = load_file(folder / "model.safetensors")
    for name, value in changes.items():
        full = f"model.layers.0.mlp.{name}_proj.weight"
        weights.pop(full)
        if value is not None:
            weights[full] = value
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def _write_header(folder: Path, header: object, data: bytes = b"") -> None:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    write(folder, "model.safetensors", struct.pack("<Q", len(content)) + content + data)


def _entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@_engine("is truncated: 1000 bytes of its tensors are missing")
def truncated_weights(folder: Path) -> None:
    write(folder, "model.safetensors", (folder / "model.safetensors").read_bytes()[:-1000])


@_engine("is truncated: its header goes beyond its end")
def truncated_header(folder: Path) -> None:
    write(folder, "model.safetensors", (folder / "model.safetensors").read_bytes()[:500])


@_engine("is truncated")
def empty_weights(folder: Path) -> None:
    write(folder, "model.safetensors", b"")


@_engine("has a header of 4294967296 bytes, which is too large")
def header_of_gigabytes(folder: Path) -> None:
    write(folder, "model.safetensors", struct.pack("<Q", 4 << 30))
    os.truncate(folder / "model.safetensors", 5 << 30)  # a hole: takes no room on the disk


@_engine("has a header that is no JSON")
def header_of_garbage(folder: Path) -> None:
    _write_header(folder, b"\xff" * 1000)


@_engine("nested too deeply")
def deeply_nested_header(folder: Path) -> None:
    _write_header(folder, b'{"a":' * 100_000 + b"1" + b"}" * 100_000)


@_engine("is truncated: 10.* bytes of its tensors are missing")
def tensors_beyond_the_end(folder: Path) -> None:
    _write_header(folder, {"a": _entry("F32", [2**38], 0, 2**40)})


@_engine("overlap")
def overlapping_tensors(folder: Path) -> None:
    tensors = {"a": _entry("F32", [2], 0, 8), "b": _entry("F32", [2], 4, 12)}
    _write_header(folder, tensors, bytes(12))


@_engine("leaves a gap")
def gap_between_tensors(folder: Path) -> None:
    tensors = {"a": _entry("F32", [2], 0, 8), "b": _entry("F32", [2], 16, 24)}
    _write_header(folder, tensors, bytes(24))


@_engine("bytes that belong to no tensor")
def stowaway_behind_the_tensors(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    write(folder, "model.safetensors", data + _payload(folder))


@_engine("in an impossible shape")
def shape_that_overflows(folder: Path) -> None:
    _write_header(folder, {"a": _entry("F32", [2**62, 4], 0, 0)})


@_engine("in an impossible shape")
def nothing_of_huge_size(folder: Path) -> None:
    _write_header(folder, {"a": _entry("F32", [0, 2**50], 0, 0)})


@_engine("in an impossible shape")
def negative_shape(folder: Path) -> None:
    _write_header(folder, {"a": _entry("F32", [-2, -4], 0, 32)}, bytes(32))


@_engine("has 4 bytes for 'a', which is F32 of")
def shape_that_lies(folder: Path) -> None:
    _write_header(folder, {"a": _entry("F32", [1000, 1000], 0, 4)}, bytes(4))


@_engine("in the unknown type 'PICKLE'")
def unknown_type(folder: Path) -> None:
    _write_header(folder, {"a": _entry("PICKLE", [4], 0, 4)}, bytes(4))


@_engine("has the tensor 'a' twice")
def tensor_twice(folder: Path) -> None:
    entry = json.dumps(_entry("F32", [1], 0, 4))
    _write_header(folder, f'{{"a":{entry},"a":{entry}}}'.encode(), bytes(4))


@_engine("shape|size")
def misshapen_weight(folder: Path) -> None:
    _change_weights(folder, up=np.zeros((3, 256), np.float32))


@_engine("up_proj")
def missing_weight(folder: Path) -> None:
    _change_weights(folder, up=None)


@_engine("is I32, but config.json has no quantization_config")
def weights_of_integers(folder: Path) -> None:
    _change_weights(folder, up=np.ones((INNER_SIZE, 256), np.int32))


@_engine("not finite")
def weights_of_nothing(folder: Path) -> None:
    _change_weights(folder, down=np.full((256, INNER_SIZE), np.nan, np.float32))


@_engine("not finite")
def infinite_weights(folder: Path) -> None:
    _change_weights(folder, down=np.full((256, INNER_SIZE), np.inf, np.float32))


# Tokenizers


def _split(pattern: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _replace(pattern: str, content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


@_tokenizer("tokenizer.json fails at loading")
def tokenizer_of_garbage(folder: Path) -> None:
    write(folder, "tokenizer.json", b"\x80\x04evil")


@_tokenizer("tokenizer.json fails at loading")
def deeply_nested_tokenizer(folder: Path) -> None:
    write(folder, "tokenizer.json", "[" * 100_000)


@_tokenizer("tokenizer.json is too large")
def large_tokenizer(folder: Path) -> None:
    write(folder, "tokenizer.json", b"")
    os.truncate(folder / "tokenizer.json", 65 << 20)


@_tokenizer("tokenizer.json is not a regular file")
def pipe_for_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")


@_tokenizer("tokenizer.json fails at a run of 'a'")
def exponential_pattern(folder: Path) -> None:
    change(folder, "tokenizer.json", pre_tokenizer=_split(r"(\p{L}+)+\p{N}"))


@_tokenizer("tokenizer.json takes too long, at a run of")
def cubic_pattern(folder: Path) -> None:
    change(folder, "tokenizer.json", pre_tokenizer=_split("ꙮ*ꙮ*(?!ꙮ)\\p{L}"))


@_tokenizer("tokenizer.json (takes|crashes|fails)")
def text_that_doubles_and_doubles(folder: Path) -> None:
    normalizer = {"type": "Sequence", "normalizers": [_replace("a", "aa")] * 40}
    change(folder, "tokenizer.json", normalizer=normalizer)


@_tokenizer("tokenizer.json (takes|crashes|fails)")
def character_of_a_megabyte(folder: Path) -> None:
    change(folder, "tokenizer.json", normalizer=_replace("ꙮ", "x" * 10**6))


@_tokenizer("tokenizer.json takes too long, at a run of 'a'|more comes out than went in")
def token_of_a_megabyte(folder: Path) -> None:
    change(folder, "tokenizer.json", decoder=_replace("a", "x" * 10**6))


@_tokenizer("max_input_chars_per_word is 1000000000")
def word_without_end(folder: Path) -> None:
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 10**9,
        "vocab": {"[UNK]": 0},
    }
    change(folder, "tokenizer.json", model=model, added_tokens=[])


@_tokenizer("'4000000000' in added_tokens_decoder is no token id")
def token_id_out_of_range(folder: Path) -> None:
    added = {"4000000000": {"content": "<evil>"}}
    change(folder, "tokenizer_config.json", added_tokens_decoder=added)


@_tokenizer("tokenizer_config.json holds a list")
def tokenizer_config_that_is_a_list(folder: Path) -> None:
    write(folder, "tokenizer_config.json", "[]")


# Chat templates that try to get out


@_tokenizer("'__class__' .* unsafe")
def template_to_all_classes(folder: Path) -> None:
    set_template(folder, "{{ ().__class__.__mro__[1].__subclasses__() }}")


@_tokenizer("'__init__' .* unsafe")
def template_to_the_shell(folder: Path) -> None:
    command = f"touch {folder}/canary"
    set_template(folder, f"{{{{ cycler.__init__.__globals__.os.system('{command}') }}}}")


@_tokenizer("'__globals__' .* unsafe")
def template_to_the_shell_by_lipsum(folder: Path) -> None:
    set_template(
        folder, f"{{{{ lipsum.__globals__['os'].popen('touch {folder}/canary').read() }}}}"
    )


@_tokenizer("'__init__' .* unsafe")
def template_to_the_shell_by_namespace(folder: Path) -> None:
    set_template(folder, "{{ namespace.__init__.__globals__['__builtins__']['open'] }}")


@_tokenizer("not safe")
def template_with_a_forged_class(folder: Path) -> None:
    set_template(folder, "{% set n = namespace(__class__=1) %}{{ n }}")


@_tokenizer("'__init__' .* unsafe")
def template_with_a_format(folder: Path) -> None:
    set_template(folder, "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}")


@_tokenizer("'__class__' .* unsafe")
def template_with_attr(folder: Path) -> None:
    set_template(folder, "{{ (''|attr('__class__')).mro() }}")


@_tokenizer("unsafe")
def template_that_changes_messages(folder: Path) -> None:
    set_template(folder, "{{ messages.append(1) }}")


@_tokenizer("other files")
def template_that_includes(folder: Path) -> None:
    set_template(folder, "{% include '/etc/passwd' %}")


@_tokenizer("other files")
def template_that_imports(folder: Path) -> None:
    set_template(folder, "{% import 'evil.jinja' as evil %}{{ evil.run() }}")


@_tokenizer("'__class__' .* unsafe")
def template_in_the_tokenizer_config(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    change(folder, "tokenizer_config.json", chat_template="{{ ().__class__.__base__ }}")


# Chat templates that take all there is


@_tokenizer("took more than 2 s")
def template_without_end(folder: Path) -> None:
    inner = "{% for j in range(99999) %}{% endfor %}"
    set_template(folder, f"{{% for i in range(99999) %}}{inner}{{% endfor %}}")


@_tokenizer("Range too big")
def template_with_a_long_loop(folder: Path) -> None:
    set_template(folder, "{% for i in range(10**9) %}x{% endfor %}")


@_tokenizer("recursion")
def template_that_calls_itself(folder: Path) -> None:
    set_template(folder, "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")


@_tokenizer("took more than 2 s")
def template_that_calls_itself_twice(folder: Path) -> None:
    calls = "{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    set_template(folder, f"{{% macro f(n) %}}{calls}{{% endmacro %}}{{{{ f(99) }}}}")


@_tokenizer("took more than 2 s")
def template_with_a_power(folder: Path) -> None:
    """Jinja works out constants when it compiles, before anything is rendered."""
    set_template(folder, "{{ 9 ** (9 ** 9) }}")


@_tokenizer("MemoryError|took more than 2 s|writes more than")
def template_of_a_billion_letters(folder: Path) -> None:
    set_template(folder, "{{ 'a' * 10**9 }}")


@_tokenizer("MemoryError|took more than 2 s|writes more than")
def template_with_a_wide_page(folder: Path) -> None:
    set_template(folder, "{{ 'a'|center(10**10) }}")


@_tokenizer("MemoryError|took more than 2 s|writes more than")
def template_that_joins(folder: Path) -> None:
    set_template(folder, "{{ (['a' * 10000] * 1000000)|join }}")


@_tokenizer("MemoryError|took more than 2 s|writes more than")
def template_that_doubles(folder: Path) -> None:
    loop = "{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
    set_template(folder, "{% set n = namespace(x='aa') %}" + loop + "{{ n.x }}")


@_tokenizer("chat_template.jinja is too large")
def large_template(folder: Path) -> None:
    set_template(folder, "x" * (10 << 20))


@_tokenizer("the chat template has .* characters, which is too large")
def large_template_in_the_tokenizer_config(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    change(folder, "tokenizer_config.json", chat_template="x" * (10 << 20))


@_tokenizer("recursion")
def deeply_nested_template(folder: Path) -> None:
    set_template(folder, "{{ " + "(" * 10_000 + "1" + ")" * 10_000 + " }}")
