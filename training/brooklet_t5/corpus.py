"""The corpus: an endless, seeded stream of examples of all tasks."""

from __future__ import annotations

from random import Random

from training.brooklet_t5.anything_else import anything_else
from training.brooklet_t5.dates import date_to_iso, iso_to_date
from training.brooklet_t5.example import Example, Task, draw
from training.brooklet_t5.numbers import number_to_words, too_large, words_to_number
from training.brooklet_t5.questions import last_part, named_part, yes_or_no
from training.brooklet_t5.records import text_to_json
from training.brooklet_t5.word_forms import past_tense, plural

#: How often each task is drawn: more where there is more to copy or to work out.
WEIGHTS: dict[Task, int] = {
    number_to_words: 12,
    words_to_number: 10,
    too_large: 3,
    date_to_iso: 12,
    iso_to_date: 10,
    last_part: 12,
    named_part: 14,
    yes_or_no: 6,
    text_to_json: 24,
    plural: 4,
    past_tense: 5,
    anything_else: 10,
}
TASKS = tuple(WEIGHTS)
_WEIGHTS = tuple(WEIGHTS.values())


def example(rng: Random) -> Example:
    """Draw an example that may be trained on."""
    return draw(rng.choices(TASKS, _WEIGHTS)[0], rng)


def main() -> None:
    """Print a few examples of each task."""
    rng = Random(0)
    for task in TASKS:
        for _ in range(4):
            drawn = draw(task, rng)
            print(f"{drawn.task:22} {drawn.source}\n{'':22} -> {drawn.target}")


if __name__ == "__main__":
    main()
