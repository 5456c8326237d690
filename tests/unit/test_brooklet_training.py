"""How texts become batches: what is learned, what sees what, and how an answer is read again."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from streamwell.core.messages import PartKind
from streamwell.text.response_parser import ResponseParser
from streamwell.text.response_template import parse_response_template
from training import trainer
from training.brooklet import packed_attention, tokenizer, train
from training.brooklet.batches import IGNORED, LONGEST, SHAPES, TOKENS, Row, Steps
from training.brooklet.cases import make_cases
from training.brooklet.corpus import Conversation, conversation
from training.brooklet.evaluate import wire_messages
from training.brooklet.schedule import LAST_ROUND, LATER_PEAK, STEPS, THIRD_ROUND, Schedule
from training.brooklet.tokenizer import TURN_END, encode_conversation, render
from training.brooklet.train import Optimizer, Run, mean_model
from training.loss_curve import LossCurve
from training.muon import Muon
from training.trainer import Checkpoint

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
            },
            "required": ["city"],
        },
    },
}
CALLED = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}
ROUND_TRIP: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "The weather in Oslo?"},
    {"role": "assistant", "content": "", "tool_calls": [CALLED]},
    {"role": "tool", "content": "12 degrees"},
    {"role": "assistant", "content": "12 degrees."},
]
TINY = LlamaConfig(
    vocab_size=50,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    tie_word_embeddings=True,
)


@pytest.fixture(scope="module")
def small() -> PreTrainedTokenizerFast:
    """A tokenizer of few conversations: its merges matter to no test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "SAMPLE_CONVERSATIONS", 200)
        return tokenizer.build_tokenizer(1)


def test_tools_and_calls_have_a_place_in_the_chat_format(small: PreTrainedTokenizerFast) -> None:
    """Tools stand in the system turn, with optional parameters and choices marked as such."""
    assert render(small, Conversation(ROUND_TRIP, [WEATHER])) == (
        "<|im_start|>system\nBe brief.\n"
        "Tools:\nget_weather(city: string, unit?: celsius|kelvin): Get the weather<|im_end|>\n"
        "<|im_start|>user\nThe weather in Oslo?<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}'
        "</tool_call><|im_end|>\n"
        "<|im_start|>tool\n12 degrees<|im_end|>\n"
        "<|im_start|>assistant\n12 degrees.<|im_end|>\n"
    )


def test_what_is_learned_is_what_the_assistant_says(small: PreTrainedTokenizerFast) -> None:
    """Every turn of its own, to the end mark; with a thought only the thought and what follows."""
    rng = Random(2)
    for _ in range(200):
        talk = conversation(rng)
        ids, is_target = encode_conversation(small, talk)
        said = small.decode([token for token, wanted in zip(ids, is_target, strict=True) if wanted])
        rendered = render(small, talk)
        turns = [turn.partition(TURN_END)[0] for turn in rendered.split("<|im_start|>assistant\n")]

        assert small.decode(ids) == rendered
        if talk.thought:
            reply = talk.messages[-1]["content"]
            assert said == f"{talk.thought}</think>{reply}{TURN_END}"
            assert turns[-1].startswith("<think>")
        else:
            assert said == "".join(turn + TURN_END for turn in turns[1:])


def test_an_answer_is_read_as_it_was_written(small: PreTrainedTokenizerFast) -> None:
    """The server finds thoughts and calls by the response template, and so does Transformers."""
    call = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    template = parse_response_template(tokenizer.RESPONSE_TEMPLATE, small.all_special_tokens)
    parser = ResponseParser(template, list(PartKind), "<think>")
    parts = [*parser.push(f"A tool fits.</think>{call}"), *parser.flush()]
    prefix = small.apply_chat_template(
        ROUND_TRIP[:2],
        tools=[WEATHER],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=True,
    )
    theirs = small.parse_response(f"A tool fits.</think>{call}", prefix=prefix)

    assert [(part.kind, part.name) for part in parts] == [
        (PartKind.REASONING, ""),
        (PartKind.TOOL_CALL, "get_weather"),
    ]
    assert json.loads(parts[1].text) == {"city": "Oslo"}
    assert theirs["reasoning_content"] == parts[0].text
    assert theirs["tool_calls"] == [CALLED]


def test_a_row_predicts_within_its_texts() -> None:
    """Each token predicts the next one of its own text if that is to be learned."""
    row = Row()
    row.add([1, 2, 3], [False, True, True])
    row.add([4, 5], [True, True])

    assert row.targets == [2, 3, IGNORED, 5, IGNORED]
    assert row.positions == [0, 1, 2, 0, 1]
    assert row.owners == [0, 0, 0, 1, 1]


def test_a_step_is_made_of_its_number(small: PreTrainedTokenizerFast) -> None:
    """The same seed and step give the same batches, of the known shapes; another step others."""
    first, again, other = Steps(small, 3)[5], Steps(small, 3)[5], Steps(small, 3)[6]

    assert all(a.token_ids.equal(b.token_ids) for a, b in zip(first, again, strict=True))
    assert not first[-1].token_ids.equal(other[-1].token_ids)
    for rows, length in (batch.token_ids.shape for batch in first):
        assert rows in {SHAPES.get(length, 1) >> halved for halved in range(4)} - {0}


@pytest.mark.parametrize("steps", [STEPS, STEPS // 2])
def test_a_later_round_begins_when_the_one_before_has_cooled_down(steps: int) -> None:
    """From a part of the rate it falls at once; what is drawn after the first is another mix."""
    schedule = Schedule(steps)
    for begin, end in pairwise((*schedule.later_rounds, steps)):
        middle, last = (begin + end) // 2, end - 1
        shares = [LATER_PEAK * (end - step) / (end - begin) for step in (middle, last)]

        assert pytest.approx(shares) == [schedule.rate_at(step) for step in (middle, last)]
        assert schedule.rate_at(begin - 1) < 0.05
        assert schedule.rate_at(begin) == 0.01 * LATER_PEAK
    second, _, last_round = schedule.later_rounds
    assert schedule.mix_at(second - 1) is not schedule.mix_at(second)
    assert schedule.mix_at(last_round - 1) is not schedule.mix_at(last_round)


def test_a_shorter_run_does_all_that_the_published_one_does() -> None:
    """Its rounds and mixes begin at the same part of the way."""
    assert Schedule().later_rounds == (6000, 7300, 8400)
    assert Schedule(900).later_rounds == (600, 730, 840)
    whole, tenth = Schedule(), Schedule(900)
    assert all(tenth.mix_at(step) is whole.mix_at(step * 10) for step in range(900))


def test_the_mean_of_two_models() -> None:
    """Every weight is half of each one's; the model itself is what it was."""
    one = LlamaForCausalLM(TINY)
    other = copy.deepcopy(one)
    with torch.no_grad():
        for weight in other.parameters():
            weight += 2
    before = [weight.clone() for weight in one.parameters()]
    mean = mean_model(one, other)

    for old, now, middle in zip(before, one.parameters(), mean.parameters(), strict=True):
        assert old.equal(now)
        torch.testing.assert_close(middle, old + 1)
    assert mean.lm_head.weight is mean.model.embed_tokens.weight


@pytest.fixture
def process_group() -> Iterator[None]:
    """A training run of one process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_last_round_begins_with_a_finished_model(
    process_group: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small: PreTrainedTokenizerFast,
) -> None:
    """That is the mean of the third round, rounded as in export; no optimizer remembers."""

    def learn() -> LlamaForCausalLM:
        for weight in run.model.parameters():
            weight.grad = torch.randn_like(weight)
        run.optimizer.step(1.0)
        return copy.deepcopy(run.model)

    def are_equal(one: LlamaForCausalLM, other: LlamaForCausalLM) -> bool:
        return all(map(torch.equal, one.parameters(), other.parameters()))

    monkeypatch.setattr(train, "kept_tokenizer", lambda *_: small)
    monkeypatch.setattr(train, "make_model", lambda _: LlamaForCausalLM(TINY))
    run = Run(tmp_path, 1)
    begun = copy.deepcopy(run.model)
    run.step = THIRD_ROUND
    run.begin_round()
    ended = learn()
    run.step = LAST_ROUND
    run.begin_round()

    assert not are_equal(begun, ended)
    assert are_equal(run.model, mean_model(begun, ended).half().float())
    assert not any(part.state for part in run.optimizer.parts)
    start, later = copy.deepcopy(run.model), learn()
    assert are_equal(run.published, mean_model(start, later))
    run.optimizer.gather()
    run.checkpoint.save(LAST_ROUND + 1)
    resumed = Run(tmp_path, 1)
    assert LAST_ROUND + 1 == resumed.step
    assert are_equal(resumed.published, run.published)


def test_a_resumed_run_takes_the_steps_of_an_unbroken_one(
    process_group: None, tmp_path: Path
) -> None:
    """What both optimizers remember is in the checkpoint."""

    def step(model: LlamaForCausalLM, optimizer: Optimizer, seed: int) -> None:
        torch.manual_seed(seed)
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight)
        optimizer.step(1.0)

    unbroken = LlamaForCausalLM(TINY)
    optimizer = Optimizer(unbroken)
    for seed in (1, 2):
        step(unbroken, optimizer, seed)
    optimizer.gather()
    Checkpoint(tmp_path, unbroken, optimizer.parts).save(2)
    resumed = LlamaForCausalLM(TINY)
    other = Optimizer(resumed)

    assert 2 == Checkpoint(tmp_path, resumed, other.parts).load()
    step(unbroken, optimizer, 3)
    step(resumed, other, 3)
    for one, same in zip(unbroken.parameters(), resumed.parameters(), strict=True):
        assert one.equal(same)


@pytest.mark.parametrize("is_fast", [1, 0])
def test_matrices_are_updated_in_what_is_fast(
    is_fast: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like PyTorch's to the bit, or off by what bfloat16 rounds away, and from the same state."""
    helper = SimpleNamespace(sw_has_fast_pairs=lambda: is_fast)
    monkeypatch.setattr(trainer.library, "best", lambda: helper)
    torch.manual_seed(1)
    weights = [torch.nn.Parameter(torch.randn(shape)) for shape in ((8, 24), (24, 8), (16, 16))]
    others = copy.deepcopy(weights)
    optimizers = (Muon(weights, lr=0.1), torch.optim.Muon(others, lr=0.1))
    for _ in range(2):
        for one, other in zip(weights, others, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        for optimizer in optimizers:
            optimizer.step()

    pairs = list(zip(weights, others, strict=True))
    assert [bool(is_fast)] * 3 == [one.equal(other) for one, other in pairs]
    torch.testing.assert_close(weights, others, atol=0.01, rtol=0.0)
    for one, other in pairs:
        torch.testing.assert_close(optimizers[0].state[one], optimizers[1].state[other])


@pytest.mark.parametrize(("is_fast", "computing"), [(1, torch.bfloat16), (0, torch.float32)])
def test_computes_in_bfloat16_where_that_is_fast(
    is_fast: int,
    computing: torch.dtype,
    process_group: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What learns is float32 everywhere; no helper knows of fast bfloat16 where there is none."""
    helper = SimpleNamespace(sw_has_fast_pairs=lambda: is_fast)
    monkeypatch.setattr(trainer.library, "best", lambda: helper)
    monkeypatch.setattr(train, "make_model", lambda tokenizer: LlamaForCausalLM(TINY))
    monkeypatch.setattr(train, "kept_tokenizer", lambda work, build, seed: None)
    run = train.Run(tmp_path, 7)

    assert computing == run.worker.dtype
    assert torch.float32 == run.model.dtype
    monkeypatch.setattr(trainer.library, "best", lambda: None)
    assert not trainer.has_fast_bfloat16()


def test_processes_share_a_step(small: PreTrainedTokenizerFast) -> None:
    """Each part of it has texts of its own, and together they are about as long as the whole."""
    parts = [Steps(small, 3, part=part, parts=2)[5] for part in range(2)]
    sizes = [sum(int((batch.owners >= 0).sum()) for batch in part) for part in parts]

    assert not parts[0][0].token_ids.equal(parts[1][0].token_ids)
    assert [TOKENS // 2 <= size < TOKENS // 2 + LONGEST for size in sizes] == [True, True]


@torch.no_grad()
@pytest.mark.parametrize("num_queries", [packed_attention.QUERIES, 4])
def test_texts_in_a_row_do_not_see_each_other(
    num_queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two texts in a row have the same hidden states as each alone, also where it is parted."""
    monkeypatch.setattr(packed_attention, "QUERIES", num_queries)
    torch.manual_seed(0)
    model = LlamaForCausalLM(TINY)
    model.set_attn_implementation(packed_attention.NAME)
    row = Row()
    texts = [[3, 9, 4], [7, 8, 2, 6]]
    for ids in texts:
        row.add(ids, [True] * len(ids))
    token_ids, _, positions, owners = (torch.tensor([column]) for column in row.padded(10))
    packed = model.model(
        input_ids=token_ids, position_ids=positions, owners=owners, use_cache=False
    ).last_hidden_state[0]
    model.set_attn_implementation("sdpa")
    alone = [model.model(torch.tensor([ids])).last_hidden_state[0] for ids in texts]

    torch.testing.assert_close(packed[:7], torch.cat(alone))


def test_the_loss_of_a_resumed_run_goes_on(tmp_path: Path) -> None:
    """Rows after the checkpoint are made anew, those before it stay; the drawing has them all."""
    file = tmp_path / "loss.csv"
    curve = LossCurve(file, 0)
    for step in range(75):
        curve.add(3.0 - step / 50)
    curve.save()
    resumed = LossCurve(file, 50)
    for _ in range(25):
        resumed.add(1.0)
    resumed.draw(tmp_path / "loss.svg")

    assert [row[0] for row in resumed.rows] == [25, 50, 75]
    assert resumed.rows[:2] == [(25, pytest.approx(2.76)), (50, pytest.approx(2.26))]
    assert resumed.rows[2][1] == 1.0
    assert 3 == (tmp_path / "loss.svg").read_text().count(",", *_line_of(tmp_path / "loss.svg"))


def _line_of(drawing: Path) -> tuple[int, int]:
    text = drawing.read_text()
    start = text.index('points="') + 8
    return start, text.index('"', start)


def test_cases_end_where_a_reply_is_due() -> None:
    """The last message is the user's or a tool's; calls and results carry ids of their own."""
    cases = make_cases(Random(4), 3)

    assert {case.messages[-1]["role"] for case in cases} == {"user", "tool"}
    assert all(case.calls or case.wanted for case in cases)
    for case in cases:
        wired = wire_messages(case.messages)
        calls = [call["id"] for message in wired for call in message.get("tool_calls", ())]
        results = [message["tool_call_id"] for message in wired if message["role"] == "tool"]
        assert calls == results
        assert len(set(calls)) == len(calls)
