"""What the built-in encoder-decoder is taught, and the tokens that it is taught with."""

from __future__ import annotations

import json
import random
import re
from datetime import datetime

import pytest

from training.brooklet.exchange import is_held_out
from training.brooklet_t5.corpus import TASKS, example
from training.brooklet_t5.dates import date_to_iso, iso_to_date
from training.brooklet_t5.example import Example, Task, draw
from training.brooklet_t5.numbers import LARGEST, in_words
from training.brooklet_t5.questions import Clause
from training.brooklet_t5.records import text_to_json
from training.brooklet_t5.word_forms import PASTS, PLURALS

VALUES = {in_words(number): number for number in (*range(20), *range(20, 100, 10))}
FORMS = ("%d %B %Y", "%B %d, %Y", "the %d of %B %Y", "%d %b %Y", "%b %d, %Y")


def drawn(task: Task, count: int = 200) -> list[Example]:
    rng = random.Random(task.__name__)
    return [draw(task, rng) for _ in range(count)]


def value_of(words: str) -> int:
    """Add up what each word says."""
    total = 0
    for word in words.replace(" and ", " ").replace("-", " ").split():
        if word == "thousand":
            total *= 1000
        elif word == "hundred":
            total += 99 * (total % 1000)
        else:
            total += VALUES[word]
    return total


def date_in(text: str) -> str | None:
    """The ISO date that somebody's request names, if it has one of the usual forms."""
    words = re.sub(r"(\d)(st|nd|rd|th)\b", r"\1", text).rstrip(".?").split()
    for start in range(len(words)):
        for end in range(start + 3, len(words) + 1):
            for form in FORMS:
                try:
                    found = datetime.strptime(" ".join(words[start:end]), form)  # noqa: DTZ007
                except ValueError:
                    continue
                return found.date().isoformat()
    return None


def test_every_number_is_spelled_so_that_it_can_be_read_again() -> None:
    """All ten thousand of them have a spelling of their own, whose words add up."""
    assert list(range(LARGEST + 1)) == [value_of(in_words(n)) for n in range(LARGEST + 1)]
    assert "four thousand and twenty-seven" == in_words(4027)
    assert "nine thousand nine hundred and ninety-nine" == in_words(9999)


def test_dates_are_those_of_the_text() -> None:
    """Python reads the same date out of every form in which it is asked for."""
    asked = drawn(date_to_iso)
    answered = drawn(iso_to_date)

    assert [item.target for item in asked] == [date_in(item.source) for item in asked]
    assert [date_in(item.target) for item in answered] == [
        item.key.removeprefix("date ") for item in answered
    ]
    assert all(item.key.removeprefix("date ") in item.source for item in answered)


@pytest.mark.parametrize(
    ("clause", "sentence", "questions"),
    [
        (
            Clause("the owl", ("sleep", "sleeps", "slept"), "", "in the barn", "", False, False),
            "The owl sleeps in the barn.",
            {
                "who": "Who sleeps in the barn?",
                "where": "Where does the owl sleep?",
                "yes or no": "Does the owl sleep in the barn?",
            },
        ),
        (
            Clause("Ana and Tim", ("see", "see", "saw"), "a fox", "", "at noon", True, True),
            "Ana and Tim saw a fox at noon.",
            {
                "who": "Who saw a fox at noon?",
                "what": "What did Ana and Tim see at noon?",
                "when": "When did Ana and Tim see a fox?",
                "yes or no": "Did Ana and Tim see a fox at noon?",
            },
        ),
    ],
)
def test_questions_ask_about_one_part(
    clause: Clause, sentence: str, questions: dict[str, str]
) -> None:
    """That part is left out, and the verb goes back to its base where a helper comes in."""
    assert sentence == clause.sentence()
    assert [about for about in questions if about != "yes or no"] == clause.parts()
    assert questions == {about: clause.question(about) for about in questions}


def test_objects_say_no_more_than_the_text() -> None:
    """Every output is JSON, and every name and number in it was said."""
    for item in drawn(text_to_json):
        record = json.loads(item.target)
        is_home = record.pop("home", None)

        assert is_home is None or is_home != ("not at home" in item.source)
        assert [] == [value for value in record.values() if str(value) not in item.source]


def test_words_have_the_forms_of_the_dictionary() -> None:
    """Regular words follow the rules of spelling, and the others have entries of their own."""
    plurals = {"fox": "foxes", "city": "cities", "boy": "boys", "mouse": "mice", "sheep": "sheep"}
    pasts = {"bake": "baked", "carry": "carried", "play": "played", "go": "went", "cut": "cut"}

    assert plurals == {word: PLURALS[word] for word in plurals}
    assert pasts == {word: PASTS[word] for word in pasts}


def test_one_input_has_one_right_output() -> None:
    """Nothing is taught that contradicts itself."""
    rng = random.Random(0)
    targets: dict[str, str] = {}
    for _ in range(10_000):
        item = example(rng)

        assert item.target == targets.setdefault(item.source, item.target), item


@pytest.mark.parametrize("task", TASKS)
def test_what_is_held_out_is_never_taught(task: Task) -> None:
    """Each task has items for training and others for the evaluation."""
    held_out = draw(task, random.Random(0), held_out=True)

    assert [] == [item.key for item in drawn(task) if is_held_out(item.key)]
    assert is_held_out(held_out.key)


def test_a_seed_is_a_corpus() -> None:
    """The same seed gives the same examples."""
    first, second = random.Random(3), random.Random(3)

    assert [example(first) for _ in range(50)] == [example(second) for _ in range(50)]
