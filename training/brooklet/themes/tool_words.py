"""What tools are about: their verbs, their objects, and the kinds of values that they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training.brooklet.text import phrases, words
from training.brooklet.themes.calendar import DAYS
from training.brooklet.themes.valley import VILLAGES
from training.brooklet.themes.vocabulary import COLOURS, WORDS, made_up_word, person_name

Value = str | int | bool

# What does something, and what looks something up.
ACTIONS = phrases(
    """
    open | close | start | stop | play | book | order | buy | sell | send | paint | clean | move |
    rent | call | save | delete | create | set | cancel | lock | unlock | print | repair | wash |
    turn on | turn off | feed | reserve | schedule | build | pack | ring | water | hide
    """
)
LOOKUPS = words("get find show check list read fetch track")
OBJECTS = words(
    """
    door window gate song timer table letter train ticket bus lamp room note picture message
    parcel meeting bicycle garden map recipe alarm price car robot boat bridge book shop hotel
    flight bell camera clock fan file game heater house invoice kettle light lesson
    market menu mill movie oven party phone photo pizza playlist radio report restaurant
    road route score shelf sign story tent tower toy tram tree video wheel account
    basket cake calendar contact coffee event horse horn lift machine museum pump seat
    """
)
CITIES = phrases(
    """
    Oslo | Paris | London | Berlin | Tokyo | New York | Rome | Madrid | Boston | Beijing | Vienna |
    San Francisco | Lisbon | Cairo | Delhi | Sydney | Prague | Athens | Dublin | Toronto | Lima |
    Los Angeles | Zürich | Chicago | Moscow | Seoul | Nairobi | Mumbai | Kyoto | Millow | Quenby |
    Hatherby | Hong Kong | San Francisco, CA | Boston, MA | São Paulo | Paris, France
    """
)


@dataclass(frozen=True)
class Slot:
    """A kind of parameter: the names it goes by and how prompts say its value.

    A phrase holds `{v}` where the value goes and perhaps `{n}` for the parameter's name; the two
    phrases of a boolean are those for false and for true. Options are the values of an enum.
    """

    names: tuple[str, ...]
    type: str
    phrases: tuple[str, ...]
    draw: Callable[[Random], Value]
    options: tuple[str, ...] = ()
    descriptions: tuple[str, ...] = ()  # to choose from, instead of those made from the name


def ascii_word(rng: Random) -> str:
    """Make up a word that the name of a tool may contain."""
    while not (word := made_up_word(rng)).isascii():
        pass
    return word


def city(rng: Random) -> str:
    """Draw a place; most are made up, so that it has to be copied."""
    if rng.random() < 0.15:  # one token each, and another one after a space
        return rng.choice(("Lowenmere", *VILLAGES))
    return rng.choice(CITIES) if rng.random() < 0.35 else made_up_word(rng).capitalize()


def title(rng: Random) -> str:
    """Draw one to four words, such as a title or a search has."""
    count = rng.randint(1, 4)
    drawn = [made_up_word(rng) if rng.random() < 0.4 else rng.choice(WORDS) for _ in range(count)]
    text = " ".join(drawn)
    return text.capitalize() if rng.random() < 0.3 else text


def _date(rng: Random) -> str:
    return f"{rng.randint(1990, 2039)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def clock_time(rng: Random) -> str:
    """Draw a time of day, as in 07:30."""
    return f"{rng.randrange(24):02}:{rng.randrange(60):02}"


def small(rng: Random) -> int:
    """Draw a number of things or minutes."""
    return rng.randint(2, 99)


def amount(rng: Random) -> int:
    """Draw a number of up to four digits, most often fewer."""
    return rng.randint(2, rng.choice((20, 100, 1000)))


def operand(rng: Random) -> int:
    """Draw a number to reckon with."""
    return rng.randint(1, rng.choice((20, 100, 1000, 10_000)))


def expression(rng: Random) -> str:
    """Draw an operation on two numbers, as in `12 * 7`; a quotient is whole."""
    sign = rng.choice("+-*/")
    second = rng.randint(2, rng.choice((9, 99, 999)))
    first = second * rng.randint(2, 99) if sign == "/" else rng.randint(2, 999)
    return f"{first} {sign} {second}"


def _one_of(options: tuple[str, ...]) -> Callable[[Random], Value]:
    return lambda rng: rng.choice(options)


def _flag(name: str, false: str, true: str) -> Slot:
    return Slot((name,), "boolean", (false, true), lambda rng: rng.random() < 0.5)


SIZES, UNITS = ("small", "medium", "large"), ("celsius", "fahrenheit")
PLACE = Slot(
    ("city", "city", "location", "location", "place", "town"),
    "string",
    ("in {v}",),
    city,
    descriptions=(
        "",
        "",
        "The {n}.",
        "The {n}",
        "Name of the {n}",
        "City and country e.g. Bogotá, Colombia",
        "The city and state, e.g. San Francisco, CA",
    ),
)
UNIT = Slot(("unit", "units"), "string", ("in {v}",), _one_of(UNITS), UNITS)
DATE = Slot(("date",), "string", ("on {v}",), _date)
TITLE = Slot(
    ("title", "text", "message", "query", "subject", "note", "label"),
    "string",
    ('with the {n} "{v}"', "with the {n} {v}", 'with {n} "{v}"', 'called "{v}"'),
    title,
)
SLOTS = (
    PLACE,
    PLACE,
    Slot(("name", "person", "recipient", "user", "guest"), "string", ("for {v}",), person_name),
    Slot(("name", "person", "recipient", "owner", "friend"), "string", ("to {v}",), person_name),
    Slot(("day", "weekday", "date"), "string", ("on {v}",), _one_of(tuple(DAYS))),
    DATE,
    Slot(("time", "start_time", "hour"), "string", ("at {v}",), clock_time),
    Slot(("minutes", "duration"), "integer", ("for {v} minutes",), small),
    Slot(("hours",), "integer", ("for {v} hours",), small),
    Slot(("people", "guests", "seats"), "integer", ("for {v} people",), small),
    Slot(("count", "times", "repeat"), "integer", ("{v} times",), small),
    Slot(("price", "amount", "budget"), "integer", ("for {v} euros",), amount),
    Slot(
        ("level", "volume", "speed", "number", "brightness"),
        "integer",
        ("with {n} {v}", "at {n} {v}", "with the {n} {v}"),
        amount,
    ),
    Slot(("colour", "color"), "string", ("in {v}",), _one_of(tuple(COLOURS))),
    Slot(("size",), "string", ("in size {v}",), _one_of(SIZES), SIZES),
    TITLE,
    TITLE,
    _flag("urgent", "as not urgent", "as urgent"),
    _flag("private", "in public", "in private"),
    _flag("quiet", "loudly", "quietly"),
    _flag("fast", "slowly", "fast"),
)
