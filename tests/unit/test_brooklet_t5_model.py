"""The folder of the built-in encoder-decoder, and the run that made it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from training.brooklet_t5 import batches, train
from training.brooklet_t5.batches import IGNORED, batches_of_step
from training.brooklet_t5.model import ARTEFACTS, generation_config
from training.brooklet_t5.tokenizer import END
from training.brooklet_t5.train import COOL_DOWN, Run
from training.trainer import export, rate_share

TOKENIZER = Tokenizer.from_file(str(ARTEFACTS / "tokenizer.json"))
FRAMES = ("{}", " {}", '"{}"', '{{"name": "{}"}}', "({})", "is {}.", ", {},", "-{}-", "\n{}")
TEXTS = ("", " ", "  two  ", "a 1", "1,  2", "e\u0301 \u0663 \u00bd", "\0\x7f", "小明 Ωmega 👍🏽")
TAUGHT = {
    "Write 4027 in words": "four thousand and twenty-seven",
    "number to words: 58": "fifty-eight",
    "Write nine hundred and six as a number": "906",
    "Write the 3rd of March 1987 as an ISO date": "1987-03-03",
    "1987-03-03 in plain English": "3 March 1987",
    "Turn this into a question: The owl sleeps in the barn.": "Where does the owl sleep?",
    "ask who: The owl sleeps in the barn.": "Who sleeps in the barn?",
    "text to JSON: Corve is 31 years old and lives in Millow.": (
        '{"name": "Corve", "age": 31, "town": "Millow"}'
    ),
    "plural of mouse": "mice",
    "past tense of sing": "sang",
    "Write 40270 in words": "I know numbers up to 9,999.",
}


def ids_of(text: str) -> list[int]:
    """The tokens of a text, without the end."""
    ids: list[int] = TOKENIZER.encode(text, add_special_tokens=False).ids
    return ids


def tiny_model(tokenizer: PreTrainedTokenizerFast) -> T5ForConditionalGeneration:
    """The same architecture, small enough to train in a test."""
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        feed_forward_proj="gated-gelu",
        dropout_rate=0.0,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    return T5ForConditionalGeneration(config)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(ARTEFACTS)


def test_every_text_survives_the_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    """Any Unicode text comes back, and the tokenizer itself ends what the encoder reads."""
    end = tokenizer.convert_tokens_to_ids(END)

    assert list(TEXTS) == [TOKENIZER.decode(ids_of(text)) for text in TEXTS]
    assert [[*ids_of(text), end] for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]


@pytest.mark.parametrize("piece", ["Corve", "Zoë", "7", "31"])
def test_what_is_copied_is_always_the_same_tokens(piece: str) -> None:
    """A name or a number, whatever stands around it."""
    wanted = ids_of(piece)
    found = [ids_of(frame.format(piece)) for frame in FRAMES]
    is_within = [
        any(ids[start : start + len(wanted)] == wanted for start in range(len(ids)))
        for ids in found
    ]

    assert [True] * len(FRAMES) == is_within


def test_the_weights_are_small_and_compute_in_full_precision() -> None:
    """Stored in half precision, 2 to 5 million of them; the config says float32."""
    file = ARTEFACTS / "model.safetensors"
    with safe_open(file, framework="pt") as weights:
        parts = [weights.get_slice(name) for name in weights.keys()]  # noqa: SIM118 - no dict
    num_parameters = sum(torch.Size(part.get_shape()).numel() for part in parts)
    config = json.loads((ARTEFACTS / "config.json").read_text())

    assert {"F16"} == {part.get_dtype() for part in parts}
    assert 2_000_000 < num_parameters < 5_000_000
    assert file.stat().st_size < 8_000_000
    assert "float32" == config["dtype"]
    assert "gated-gelu" == config["feed_forward_proj"]


@pytest.mark.slow
def test_the_model_does_what_its_card_says(tokenizer: PreTrainedTokenizerFast) -> None:
    """One request of each kind, greedily, and every answer ends."""
    model = T5ForConditionalGeneration.from_pretrained(ARTEFACTS, dtype="auto")
    inputs = tokenizer(list(TAUGHT), padding=True, return_tensors="pt")
    outputs = model.generate(
        input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], do_sample=False
    )

    assert model.dtype == torch.float32
    assert list(TAUGHT.values()) == tokenizer.batch_decode(outputs, skip_special_tokens=True)


def test_a_batch_is_what_its_step_says(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same step gives the same tensors, another one others; every row ends, then is padded."""
    monkeypatch.setattr(batches, "EXAMPLES_PER_STEP", 8)
    first, again, other = (batches_of_step(tokenizer, 7, step) for step in (0, 0, 1))

    assert [True, True] == [
        torch.equal(one.targets, two.targets) and torch.equal(one.token_ids, two.token_ids)
        for one, two in zip(first, again, strict=True)
    ]
    assert not torch.equal(first[0].targets, other[0].targets)
    for batch in first:
        ends = batch.targets.masked_fill(batch.targets == IGNORED, 0)
        last = (batch.targets != IGNORED).sum(1) - 1
        assert {tokenizer.eos_token_id} == set(ends.gather(1, last[:, None]).flatten().tolist())
        assert torch.equal(batch.attends == 0, batch.token_ids == tokenizer.pad_token_id)


def test_the_rate_rises_stays_and_falls() -> None:
    """To nothing in the end, whatever the number of steps."""
    rates = [rate_share(step, 1000, COOL_DOWN) for step in (0, 99, 500, 800, 999)]

    assert pytest.approx([0.01, 1.0, 1.0, 0.5, 0.0025]) == rates


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights after two steps in one go, and in two with a checkpoint in between."""
    monkeypatch.setattr(batches, "EXAMPLES_PER_STEP", 8)
    monkeypatch.setattr(train, "make_model", tiny_model)

    def run(name: str) -> Run:
        (tmp_path / name).mkdir(exist_ok=True)
        shutil.copytree(ARTEFACTS, tmp_path / name / "tokenizer", dirs_exist_ok=True)
        return Run(tmp_path / name, seed=7)

    unbroken, stopped = run("unbroken"), run("stopped")
    losses = [unbroken.advance(2, in_bfloat16=False) for _ in range(2)]
    stopped.advance(2, in_bfloat16=False)
    stopped.checkpoint.save(stopped.step)
    resumed = run("stopped")

    assert 1 == resumed.step
    assert losses[1] == resumed.advance(2, in_bfloat16=False)
    weights = zip(unbroken.model.parameters(), resumed.model.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in weights)


def test_export_rounds_a_copy(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """The folder loads as float32 with rounded weights; the one in training stays exact."""
    model = tiny_model(tokenizer)
    model.shared.weight.data.fill_(1 / 3)
    export(model, generation_config(tokenizer), tokenizer, tmp_path / "model")
    loaded = T5ForConditionalGeneration.from_pretrained(tmp_path / "model", dtype="auto")

    assert torch.float32 == loaded.dtype
    assert torch.tensor(1 / 3).half().float() == loaded.shared.weight[0, 0]
    assert torch.tensor(1 / 3) == model.shared.weight[0, 0]
