"""Requests and outputs under vLLM's names; runs without vLLM."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest
from msgspec import structs

from streamwell.backends.vllm.arguments import engine_arguments, environment
from streamwell.backends.vllm.translate import (
    MAX_BIASES,
    MAX_STOPS,
    check,
    prompt_ids,
    sampling_arguments,
    sequence_output,
)
from streamwell.core.engine_state import EngineInfo
from streamwell.core.types import FinishReason, GenerateRequest, SamplingParams
from streamwell.engine.messages import EngineConfig
from streamwell.engine.sequence import SequenceOutput

EOS = frozenset({2})
INFO = EngineInfo(
    max_model_len=20, vocab_size=9, num_blocks=9, block_size=4, dtype="float32", device="cpu"
)
CONFIG = EngineConfig(
    model_path="nowhere",
    device="auto",
    dtype="float32",
    max_model_len=99,
    max_num_seqs=4,
    max_num_batched_tokens=64,
    kv_cache_bytes=None,
    block_size=16,
    num_threads=None,
)


@dataclass(frozen=True)
class Completion:
    """What tests put in the place of vLLM's."""

    token_ids: tuple[int, ...]
    finish_reason: str | None = None


@dataclass(frozen=True)
class Output:
    """The same."""

    outputs: tuple[Completion, ...]
    num_cached_tokens: int | None = None


def _request(completion_ids: tuple[int, ...] = (), **params: object) -> GenerateRequest:
    sampling = SamplingParams(**{"max_tokens": 10, **params})  # type: ignore[arg-type]
    return GenerateRequest(
        request_id="a", prompt_ids=(5, 6), sampling=sampling, completion_ids=completion_ids
    )


def _arguments(request: GenerateRequest) -> dict[str, object]:
    return sampling_arguments(request, EOS)


def test_every_parameter_has_a_place() -> None:
    """No field of ours is dropped on the way: a change of it changes what vLLM is given."""
    changes: dict[str, object] = {
        "max_tokens": 7,
        "seed": 5,
        "temperature": 0.5,
        "top_p": 0.5,
        "top_k": 3,
        "min_p": 0.1,
        "repetition_penalty": 1.5,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "logit_bias": ((3, 1.0),),
        "min_tokens": 2,
        "ignore_eos": True,
        "stop_token_ids": (4,),
    }
    plain = _arguments(_request())

    assert {field.name for field in fields(SamplingParams)} == set(changes)
    for name, value in changes.items():
        assert plain != _arguments(_request(**{name: value})), name


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param({"top_k": -1}, {"top_k": 0}, id="no top-k"),
        pytest.param({"top_p": 0.0}, {"top_p": 1.0, "top_k": 1}, id="only the first token"),
        pytest.param({"seed": -1}, {"seed": 2**63 - 1}, id="a seed that vLLM takes for none"),
        pytest.param({"seed": 2**63 + 4}, {"seed": 4}, id="a seed over 63 bits"),
        pytest.param({"stop_token_ids": (7, 4)}, {"stop_token_ids": [2, 4, 7]}, id="stops"),
        pytest.param({"ignore_eos": True}, {"stop_token_ids": []}, id="no end"),
        pytest.param({"min_tokens": 99}, {"min_tokens": 10}, id="more than can be"),
        pytest.param({"logit_bias": ((3, -100.0),)}, {"logit_bias": {3: -100.0}}, id="bias"),
    ],
)
def test_what_vllm_says_otherwise(ours: dict[str, object], theirs: dict[str, object]) -> None:
    """Values that mean something else there are given as what they mean here."""
    arguments = _arguments(_request(**ours))

    assert theirs == {name: arguments[name] for name in theirs}


def test_going_on_counts_what_was_said() -> None:
    """The ids so far are fed, and leave less room above and below."""
    request = _request((3, 4, 3), min_tokens=5)
    arguments = _arguments(request)

    assert [5, 6, 3, 4, 3] == prompt_ids(request)
    assert (7, 2) == (arguments["max_tokens"], arguments["min_tokens"])
    assert 0 == _arguments(replace(request, completion_ids=(3,) * 6))["min_tokens"]


def test_going_on_keeps_the_penalties() -> None:
    """Tokens that vLLM takes for prompt are held back as much as if it had said them."""
    request = _request(
        (3, 4, 3), presence_penalty=0.5, frequency_penalty=0.25, logit_bias=((3, 2.0),)
    )

    assert {3: 1.0, 4: -0.75} == _arguments(request)["logit_bias"]
    assert _arguments(_request((3, 4, 3)))["logit_bias"] is None


def test_the_strongest_biases_stay() -> None:
    """vLLM ends with more biases than it has room for; the weakest penalties are left out."""
    said = (*range(MAX_BIASES + 10), 7)
    biases = _arguments(_request(said, max_tokens=9999, frequency_penalty=0.5))["logit_bias"]

    assert isinstance(biases, dict)
    assert MAX_BIASES == len(biases)
    assert -1.0 == biases[7]


def test_going_on_draws_new_numbers() -> None:
    """The same seed would say the beginning again; it is the same for the same place."""
    seeds = [_arguments(_request((3,) * count, seed=5))["seed"] for count in (0, 1, 2, 2)]

    assert 5 == seeds[0]
    assert 3 == len(set(seeds))
    assert seeds[2] == seeds[3]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(replace(_request(), prompt_ids=()), id="no token"),
        pytest.param(replace(_request(), prompt_ids=(5,) * 20), id="too long"),
        pytest.param(_request((5,) * 18), id="too long with what was said"),
        pytest.param(replace(_request(), prompt_ids=(9,)), id="a prompt id too large"),
        pytest.param(replace(_request(), prompt_ids=(-1,)), id="a prompt id too small"),
        pytest.param(_request((9,)), id="a completion id"),
        pytest.param(_request(logit_bias=((9, 1.0),)), id="a biased id"),
        pytest.param(_request(stop_token_ids=(9,)), id="a stop id"),
        pytest.param(replace(_request(), adapter="x"), id="an adapter"),
    ],
)
def test_what_cannot_run_is_refused(request_: GenerateRequest) -> None:
    """Before vLLM sees it, which would end with all its requests for some of these."""
    with pytest.raises(ValueError, match=r"token|adapter"):
        check(request_, INFO, EOS)


def test_stops_are_bounded() -> None:
    """As many ids as fit, the model's own included, and none more."""
    info = replace(INFO, vocab_size=999)
    check(_request(stop_token_ids=tuple(range(MAX_STOPS))), info, EOS)

    with pytest.raises(ValueError, match="stop_token_ids"):
        check(_request(stop_token_ids=tuple(range(3, MAX_STOPS + 3))), info, EOS)


def _told(output: Output, *, is_first: bool = False) -> SequenceOutput | None:
    return sequence_output(_request(), output, is_first=is_first)


@pytest.mark.parametrize(
    ("word", "reason"),
    [(None, None), ("stop", FinishReason.STOP), ("length", FinishReason.LENGTH)],
)
def test_ids_and_reasons_come_through(word: str | None, reason: FinishReason | None) -> None:
    """A delta's ids, and why the last one is the last."""
    assert SequenceOutput("a", (3, 4), reason) == _told(Output((Completion((3, 4), word),)))


@pytest.mark.parametrize("word", ["abort", "error", "repetition"])
def test_other_ends_are_errors(word: str) -> None:
    """An end that nobody asked for is told as one."""
    told = _told(Output((Completion((), word),)))

    assert told is not None
    assert (FinishReason.ERROR, f"vLLM ended it: {word}") == (told.finish_reason, told.error)


def test_nothing_is_not_told() -> None:
    """An output without ids and without an end is none."""
    assert _told(Output((Completion(()),))) is None


def test_cached_tokens_are_told_once() -> None:
    """With the first ids; what a run said itself does not count."""
    output = Output((Completion((3,)),), num_cached_tokens=1)

    assert [1, 0] == [
        told.num_cached_tokens
        for told in (_told(output, is_first=True), _told(output))
        if told is not None
    ]
    more = _told(replace(output, num_cached_tokens=16), is_first=True)
    assert more is not None
    assert 2 == more.num_cached_tokens


def _config(**changes: object) -> EngineConfig:
    return structs.replace(CONFIG, **changes)


def test_settings_under_their_names(tmp_path: Path) -> None:
    """What is set is passed on; what is not is bounded as for our own engine."""
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 99999}')
    unset = _config(max_model_len=None, model_path=str(tmp_path))
    names = ("max_model_len", "kv_cache_memory_bytes", "enforce_eager", "max_num_batched_tokens")

    def told(config: EngineConfig, *, is_cpu: bool) -> list[object]:
        arguments = engine_arguments(config, is_cpu=is_cpu)
        return [arguments[name] for name in names]

    assert [99, 7, True, 99] == told(_config(kv_cache_bytes=7), is_cpu=True)
    assert [8192, 1 << 30, True, 8192] == told(unset, is_cpu=True)
    assert [8192, None, False, 64] == told(unset, is_cpu=False)
    assert [99, 7, False, 99] == told(_config(kv_cache_bytes=7, compile=True), is_cpu=True)


def test_the_environment_is_quiet() -> None:
    """Nothing is reported or fetched, but for code that is trusted; threads are what was asked."""
    plain, trusting = environment(CONFIG), environment(_config(trust_remote_code=True))

    assert ("1", "1") == (plain["VLLM_NO_USAGE_STATS"], plain["HF_HUB_OFFLINE"])
    assert "1" == trusting["VLLM_NO_USAGE_STATS"]
    assert "HF_HUB_OFFLINE" not in trusting
    assert "OMP_NUM_THREADS" not in plain
    assert "2" == environment(_config(num_threads=2))["OMP_NUM_THREADS"]
