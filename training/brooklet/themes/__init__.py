"""The themes of the corpus and how often each is drawn."""

from __future__ import annotations

from training.brooklet.exchange import Theme
from training.brooklet.themes.calendar import abroad, colour, list_of, neighbour, opposite
from training.brooklet.themes.memory import ask_favourite, ask_name, tell_favourite, tell_name
from training.brooklet.themes.numbers import (
    add,
    below_zero,
    count_down,
    count_up,
    number_neighbour,
    subtract,
    too_hard,
)
from training.brooklet.themes.smalltalk import joke, liking, smalltalk
from training.brooklet.themes.stories import poem, story
from training.brooklet.themes.unknown import gibberish, unknown
from training.brooklet.themes.valley import valley
from training.brooklet.themes.words import echo, letter_neighbour, letter_of, spell

# Recalling, counting, adding and spelling need the most practice; fixed phrases need little.
WEIGHTS: dict[Theme, int] = {
    smalltalk: 14,
    joke: 2,
    liking: 1,
    count_up: 9,
    count_down: 6,
    number_neighbour: 6,
    add: 12,
    subtract: 12,
    below_zero: 1,
    too_hard: 3,
    spell: 18,
    letter_of: 10,
    letter_neighbour: 2,
    echo: 10,
    neighbour: 4,
    list_of: 2,
    opposite: 4,
    colour: 3,
    abroad: 2,
    valley: 8,
    tell_name: 10,
    ask_name: 14,
    tell_favourite: 5,
    ask_favourite: 6,
    story: 4,
    poem: 1,
    unknown: 6,
    gibberish: 1,
}
THEMES = tuple(WEIGHTS)
