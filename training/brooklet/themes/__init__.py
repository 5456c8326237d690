"""The themes of the corpus and how often each is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from training.brooklet.exchange import Theme
from training.brooklet.themes import (
    calendar,
    counting,
    distances,
    drills,
    memory,
    numbers,
    smalltalk,
    stories,
    structured,
    tongues,
    unknown,
    valley,
    words,
)

# Recalling, counting, adding and spelling need the most practice; fixed phrases need little.
WEIGHTS: dict[Theme, float] = {
    smalltalk.smalltalk: 14,
    smalltalk.joke: 2,
    smalltalk.liking: 1,
    counting.count_up: 9,
    counting.count_down: 7,
    counting.count_far: 0.12,
    counting.too_far: 1,
    counting.count_by: 5,
    counting.number_neighbour: 6,
    numbers.add: 12,
    numbers.subtract: 12,
    numbers.sum_in_words: 3,
    numbers.below_zero: 4,
    numbers.multiply: 7,
    numbers.too_hard: 3,
    numbers.compare: 12,
    numbers.even_or_odd: 3,
    words.spell: 14,
    words.spell_backwards: 8,
    words.letter_of: 9,
    words.count_letters: 5,
    words.occurrences: 7,
    words.letter_neighbour: 2,
    words.echo: 12,
    calendar.neighbour: 4,
    calendar.order: 3,
    calendar.amount: 3,
    calendar.list_of: 2,
    calendar.opposite: 4,
    calendar.colour: 3,
    tongues.word_abroad: 9,
    tongues.word_home: 6,
    tongues.count_abroad: 1,
    tongues.emoji: 5,
    valley.valley: 18,
    distances.distance: 5,
    structured.extract_json: 10,
    structured.boolean_json: 3,
    structured.list_json: 5,
    structured.pairs_json: 4,
    structured.table_json: 3,
    structured.valley_json: 3,
    stories.story: 4,
    stories.long_story: 0.3,
    stories.poem: 1,
    unknown.unknown: 18,
    unknown.near_miss: 9,
    unknown.without_tools: 2,
    unknown.gibberish: 2,
}
# What a user says of themselves, and the question about it turns later, in the same order.
TELL: tuple[Theme, ...] = (
    memory.tell_name,
    memory.tell_favourite,
    memory.tell_town,
    memory.tell_age,
    memory.tell_pet,
    memory.tell_secret,
    memory.tell_lucky,
)
ASK: tuple[Theme, ...] = (
    memory.ask_name,
    memory.ask_favourite,
    memory.ask_town,
    memory.ask_age,
    memory.ask_pet,
    memory.ask_secret,
    memory.ask_lucky,
)
# What may stand between a telling and the question: it changes no answer, and is short.
_LONG = (counting.count_far, stories.story, stories.long_story)
CHAT = tuple(theme for theme in WEIGHTS if theme not in _LONG)
# What a tool that calculates does instead, where one is offered.
SUMS = (numbers.add, numbers.subtract, numbers.sum_in_words, numbers.multiply, numbers.too_hard)

WEIGHTS |= dict.fromkeys(TELL, 2.0) | dict.fromkeys(ASK, 3.0)
WEIGHTS |= {memory.tell_name: 8, memory.ask_name: 12, memory.ask_never_told: 2}
#: What is asked for by the evaluator; the last of them are taught only later.
THEMES = (
    *WEIGHTS,
    counting.count_either_way,
    words.echo_sentence,
    structured.text_first_json,
)


@dataclass(frozen=True)
class Mix:
    """How often everything is drawn."""

    themes: Mapping[Theme, float] = field(default_factory=lambda: WEIGHTS)
    tools: float = 0.18  # of conversations; the others have none at hand
    manners: float = 0.12  # of conversations, that the system prompt asks for one
    recall: float = 0.12  # of conversations, that end with what was told in their first turn
    thoughts: float = 0.15  # of conversations, that there is a thought before the last reply
    names: float = 0.0  # of turns under another name, that ask for it
    pairs: float = 0.1  # of turns about tools, that want two calls


FIRST = Mix()
# What was learned by then comes less often, what was not comes more often: to spell and count, to
# compare and subtract, to do as the system prompt says.
SECOND = Mix(
    WEIGHTS
    | dict.fromkeys(TELL, 1.2)
    | dict.fromkeys(ASK, 2.0)
    | {
        smalltalk.smalltalk: 10,
        counting.count_up: 11,
        counting.count_down: 11,
        counting.count_either_way: 6,
        drills.count_up: 5,
        counting.count_far: 0.8,
        counting.too_far: 2,
        numbers.subtract: 24,
        numbers.sum_in_words: 8,
        numbers.multiply: 9,
        numbers.compare: 20,
        words.spell: 18,
        words.spell_joined: 8,
        words.spell_backwards: 13,
        words.letter_of: 15,
        words.count_letters: 8,
        words.occurrences: 20,
        words.echo: 14,
        valley.valley: 12,
        unknown.unknown: 14,
        memory.tell_name: 4,
        memory.ask_name: 6,
        memory.ask_never_told: 3,
        memory.ask_secret: 4,
    },
    tools=0.2,
    manners=0.25,
    recall=0.08,
)
# Then what still went wrong: long counts and where they end, thoughts, calls of tools.
THIRD = Mix(
    {
        **SECOND.themes,
        smalltalk.smalltalk: 12,
        counting.count_up: 20,
        counting.count_down: 18,
        counting.count_either_way: 12,
        drills.count_up: 12,
        drills.count_far: 1.5,
        counting.count_far: 3,
        counting.count_by: 10,
        numbers.add: 14,
        numbers.subtract: 16,
        numbers.below_zero: 9,
        drills.subtract: 5,
        drills.below_zero: 5,
        numbers.compare: 18,
        words.letter_of: 20,
        words.spell: 20,
        words.spell_joined: 20,
        words.spell_backwards: 16,
        words.occurrences: 24,
        tongues.emoji: 7,
        words.echo: 24,
        valley.valley: 16,
        structured.boolean_json: 8,
        structured.list_json: 8,
        stories.story: 6,
        stories.long_story: 0.7,
        unknown.unknown: 18,
    },
    tools=0.25,
    manners=0.22,
    recall=0.1,
    thoughts=0.3,
)
# After the first round what a model was asked then and got wrong: words whose letters are lost or
# doubled, counts that turn the wrong way or end at a ten, carries, differences below zero, JSON of
# a text that comes before the request, and the name that a system prompt gives.
FOURTH = Mix(
    {
        **THIRD.themes,
        smalltalk.smalltalk: 22,
        counting.count_down: 20,
        counting.count_far: 4,
        counting.count_by: 26,
        counting.count_either_way: 40,
        drills.count_far: 3,
        drills.count_up: 14,
        drills.number_neighbour: 10,
        drills.add: 7,
        drills.subtract: 10,
        drills.below_zero: 12,
        numbers.add: 16,
        numbers.subtract: 16,
        numbers.below_zero: 12,
        numbers.compare: 18,
        words.spell_joined: 45,
        words.letter_of: 24,
        words.count_letters: 16,
        words.occurrences: 32,
        words.echo: 26,
        words.echo_sentence: 10,
        tongues.word_home: 9,
        tongues.emoji: 9,
        structured.extract_json: 12,
        structured.boolean_json: 12,
        structured.text_first_json: 16,
        structured.list_json: 11,
        words.spell_backwards: 18,
        unknown.unknown: 22,
    },
    tools=0.34,
    manners=0.22,
    recall=0.1,
    thoughts=0.35,
    names=0.22,
)
# At last the tools that a model has never seen, two calls of them, and how it is, under any name
# and with unusual punctuation.
FIFTH = replace(
    FOURTH,
    themes={**FOURTH.themes, drills.how_are_you: 40, drills.odd_ending: 40},
    tools=0.5,
    names=0.08,
    pairs=0.3,
)
