"""What the built-in model is taught, and the tokens that it is taught with."""

from __future__ import annotations

import random
import re

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from streamwell.models import brooklet_path
from training.brooklet.corpus import conversation
from training.brooklet.exchange import Exchange, Theme, draw, is_held_out
from training.brooklet.themes import THEMES
from training.brooklet.themes.counting import count_down, count_up, number_neighbour
from training.brooklet.themes.numbers import add, below_zero, subtract
from training.brooklet.themes.words import letter_of, spell

TOKENIZER = Tokenizer.from_file(str(brooklet_path() / "tokenizer.json"))
TEXTS = [
    "",
    " ",
    "  two  ",
    "a 1",
    "1,  2",
    "e\u0301 \u0663 \u00bd",
    "\0\x7f\u2028",
    "小明 Ωmega 👍🏽",
]


def ids_of(text: str) -> list[int]:
    ids: list[int] = TOKENIZER.encode(text, add_special_tokens=False).ids
    return ids


def random_text(rng: random.Random) -> str:
    ranges = ((0x20, 0x7F), (0x20, 0x7F), (0, 0xD800), (0xE000, 0x110000))
    return "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randint(1, 40)))


def drawn(theme: Theme) -> list[Exchange]:
    rng = random.Random(theme.__name__)
    return [draw(theme, rng, {"assistant": "Brooklet"}) for _ in range(300)]


def numbers_in(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def test_every_text_survives_the_tokenizer() -> None:
    """Encoding and decoding gives back any Unicode text, and Transformers gives the same ids."""
    rng = random.Random(0)
    transformers = PreTrainedTokenizerFast.from_pretrained(brooklet_path())
    texts = TEXTS + [random_text(rng) for _ in range(500)]

    assert texts == [TOKENIZER.decode(ids_of(text)) for text in texts]
    assert [transformers.encode(text) for text in texts] == [ids_of(text) for text in texts]


@pytest.mark.parametrize("alone", [*"0123456789", *"abcdefghijklmnopqrstuvwxyz", *"AZ"])
def test_a_digit_or_a_letter_alone_is_always_the_same_token(alone: str) -> None:
    """Whatever stands around it: a space, a hyphen, a comma, a bracket, or digits."""
    (token_id,) = ids_of(alone)
    frames = [" {}", "-{}-", "is {}.", ", {}, ", '"{}"', "({})", "\n{}\n", "= {}", "5{}5", "x-{}"]
    frames = [frame for frame in frames if alone.isdigit() or "5" not in frame]

    assert [True] * len(frames) == [token_id in ids_of(frame.format(alone)) for frame in frames]


@pytest.mark.parametrize("theme", [add, subtract])
def test_every_step_of_a_sum_is_right(theme: Theme) -> None:
    """The reply is a chain of equal terms that starts with the sum asked for."""
    for exchange in drawn(theme):
        values = [
            sum(numbers_in(term))
            if "+" in term
            else 2 * numbers_in(term)[0] - sum(numbers_in(term))
            for term in exchange.reply.split(" = ")
        ]

        assert sorted(numbers_in(exchange.prompt)) == sorted(numbers_in(exchange.reply)[:2])
        assert 1 == len(set(values)), exchange.reply


def test_a_difference_below_zero_is_declined() -> None:
    """The first number is the smaller one."""
    for exchange in drawn(below_zero):
        first, second = numbers_in(exchange.reply)

        assert first < second


def without_marks(count: str) -> str:
    """What is left of a count without what it says of its way and of how far it is."""
    return re.sub(r"^.*(Up|Down): | \(.*\)", "", count)


@pytest.mark.parametrize(("theme", "step"), [(count_up, 1), (count_down, -1)])
def test_counts_go_from_end_to_end(theme: Theme, step: int) -> None:
    """One by one, with the ends that were asked for; without a second end, from or to one."""
    for exchange in drawn(theme):
        counted = numbers_in(without_marks(exchange.reply))
        asked = numbers_in(exchange.prompt)

        assert list(range(counted[0], counted[-1] + step, step)) == counted
        assert asked == [counted[0], counted[-1]] or (
            [1, asked[0]] == sorted([counted[0], counted[-1]]) and 1 == len(asked)
        )


def test_a_neighbour_is_one_away() -> None:
    """In the direction that was asked for."""
    for exchange in drawn(number_neighbour):
        number, neighbour = numbers_in(exchange.reply)

        assert number + (1 if "after" in exchange.prompt else -1) == neighbour


def test_the_letters_are_those_of_the_word() -> None:
    """Joined without hyphens they are in the prompt."""
    for exchange in drawn(spell):
        word = exchange.reply.replace("-", "")

        assert exchange.key == f"letters {word.lower()}"
        assert word in exchange.prompt


def test_a_letter_is_found_by_numbering_those_up_to_it() -> None:
    """The word is spelled, then numbered from its start; the last number's letter is the answer."""
    for exchange in drawn(letter_of):
        spelled, _, rest = exchange.reply.removesuffix(".").partition(": ")
        walked, _, answer = rest.partition(". The ")
        letters, places = zip(*(step.split(" ") for step in walked.split(", ")), strict=True)

        assert spelled.replace("-", "") in exchange.prompt
        assert list(range(1, len(letters) + 1)) == [int(place) for place in places]
        assert spelled.split("-")[: len(letters)] == list(letters)
        assert answer.split()[0] in exchange.prompt
        assert answer.split()[-1] == letters[-1]


def test_what_is_held_out_is_never_taught() -> None:
    """Each theme offers items for training, and they are not those of the evaluation."""
    taught = [exchange for theme in THEMES for exchange in drawn(theme)]

    assert [] == [exchange.key for exchange in taught if is_held_out(exchange.key)]


def test_a_seed_is_a_conversation() -> None:
    """The same seed gives the same conversations."""
    first, second = random.Random(3), random.Random(3)

    assert [conversation(first) for _ in range(50)] == [conversation(second) for _ in range(50)]
