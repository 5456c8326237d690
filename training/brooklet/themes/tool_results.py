"""What tools give back, and the one way in which a reply states it."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from operator import add, floordiv, mul, sub
from random import Random
from typing import Any

from training.brooklet.themes.calendar import DAYS
from training.brooklet.themes.tool_words import PLACE, city, clock_time, title
from training.brooklet.themes.vocabulary import COLOURS, made_up_word, person_name

Arguments = dict[str, Any]

OPERATIONS = {"+": add, "-": sub, "*": mul, "/": floordiv}

FAILURES = ("not found", "not allowed", "too late", "no answer", "try again later", "closed")
STATES = ("done", "open", "closed", "ready", "sent", "booked", "full", "late", "on", "off", "ok")
SKIES = ("sunny", "cloudy", "rainy", "windy", "foggy", "clear", "snow", "light rain", "stormy")
SENTENCES = (
    "The {w} is {s}.",
    "It is {s} now.",
    "Number {i} is {s}.",
    "{w} is {s}.",
    "It will be {s} at {t}.",
)


def _number(rng: Random) -> int:
    return rng.randint(0, rng.choice((20, 100, 1000, 10_000)))


def _decimal(rng: Random) -> float:
    return rng.randint(1, 9999) / rng.choice((10, 100))


def _code(rng: Random) -> str:
    return "".join(rng.choice("ABCDEFGHKLMNPRSTX") for _ in range(2)) + str(rng.randint(10, 999))


def _made_up(rng: Random) -> str:
    return made_up_word(rng)


FIELDS: dict[str, Callable[[Random], Any]] = {
    "status": lambda rng: rng.choice(STATES),
    "state": lambda rng: rng.choice((*STATES, _made_up(rng))),
    "price": _number,
    "id": _number,
    "number": _number,
    "order_number": _number,
    "code": _code,
    "time": clock_time,
    "arrival_time": clock_time,
    "day": lambda rng: rng.choice(DAYS),
    "distance": _number,
    "length": _number,
    "weight": lambda rng: f"{rng.randint(1, 99)} kg",
    "temperature": lambda rng: rng.randint(-19, 39),
    "level": _number,
    "colour": lambda rng: rng.choice(COLOURS),
    "name": person_name,
    "owner": person_name,
    "title": title,
    "place": city,
    "platform": lambda rng: rng.randint(1, 20),
    "total": _decimal,
    "message": title,
    "word": _made_up,
}
# Whether a call worked is only said where it did not, or where there is nothing else to say.
WORKED = ("ok", "success")
FLAGS = ("open", "full", "ready", "late", "free", "new", "on", "available")


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def any_result(rng: Random, arguments: Arguments) -> str:
    """Make up what a tool of any kind gives back: most often a JSON object, or a sentence."""
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(('{"ok": true}', '{"success": true}', '{"ok": false}'))
    if kind < 0.15:
        return _dumped({"error": rng.choice((*FAILURES, f"{made_up_word(rng)} not found"))})
    if kind < 0.3:
        return sentence_result(rng, arguments)
    if kind < 0.38:
        return titles_result(rng, arguments)
    names = [name for name in FIELDS if name not in arguments]
    found: Arguments = {rng.choice(WORKED): True} if rng.random() < 0.08 else {}
    found |= {name: FIELDS[name](rng) for name in rng.sample(names, rng.randint(1, 3))}
    if rng.random() < 0.15:
        found[rng.choice(FLAGS)] = rng.random() < 0.5
    return _dumped(found)


def weather_result(rng: Random, arguments: Arguments) -> str:
    """Make up the weather, under the names that it has in the wild."""
    if rng.random() < 0.15:
        return f"{rng.choice(SKIES).capitalize()}, {rng.randint(-19, 39)} degrees."
    heat, sky = rng.choice(("temperature", "temperature", "temp")), rng.randint(-19, 39)
    found: Arguments = {heat: rng.choice((sky, sky, f"{sky} °C", f"{sky}°C"))}
    if rng.random() < 0.7:
        found[rng.choice(("condition", "sky", "weather", "description"))] = rng.choice(SKIES)
    if rng.random() < 0.25:
        found[rng.choice(("wind", "humidity", "wind_speed"))] = rng.randint(0, 99)
    fields = list(found.items())
    rng.shuffle(fields)
    place = [field for field in arguments.items() if field[0] in PLACE.names]
    return _dumped(dict([*place, *fields] if rng.random() < 0.3 else fields))


def time_result(rng: Random, arguments: Arguments) -> str:
    """Make up the time of day."""
    time = clock_time(rng)
    return rng.choice((f"It is {time}.", time, _dumped({"time": time}), _dumped({"time": time})))


def _numbered(rng: Random, name: str, value: float) -> str:
    """Give a number bare or in an object."""
    return rng.choice((str(value), _dumped({name: value})))


def temperature_result(rng: Random, arguments: Arguments) -> str:
    """Make up a temperature."""
    return _numbered(rng, "temperature", rng.randint(-19, 39))


def price_result(rng: Random, arguments: Arguments) -> str:
    """Make up a price."""
    return _numbered(rng, "price", _decimal(rng))


def number_result(rng: Random, arguments: Arguments) -> str:
    """Make up a number up to the one that the call gave."""
    return _numbered(rng, rng.choice(("result", "number")), rng.randint(1, *arguments.values()))


def sum_result(rng: Random, arguments: Arguments) -> str:
    """Add two numbers."""
    return _numbered(rng, "result", sum(arguments.values()))


def product_result(rng: Random, arguments: Arguments) -> str:
    """Multiply two numbers."""
    return _numbered(rng, "result", prod(arguments.values()))


def expression_result(rng: Random, arguments: Arguments) -> str:
    """Work out an operation on two whole numbers, as in `12 * 7`."""
    (text,) = arguments.values()
    first, sign, second = text.split()
    return _numbered(rng, "result", OPERATIONS[sign](int(first), int(second)))


def sentence_result(rng: Random, arguments: Arguments) -> str:
    """Make up a sentence."""
    return rng.choice(SENTENCES).format(
        w=made_up_word(rng).capitalize(),
        s=rng.choice(STATES),
        i=_number(rng),
        t=clock_time(rng),
    )


def titles_result(rng: Random, arguments: Arguments) -> str:
    """Make up a list of one to three things that were found."""
    name = rng.choice(("results", "titles", "names", "items"))
    return _dumped({name: [title(rng) for _ in range(rng.randint(1, 3))]})


def joined(parts: list[str]) -> str:
    """Join with commas and a last 'and'."""
    return " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)


def _part(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return f"it is {'' if value else 'not '}{words}"
    if isinstance(value, list):
        return f"the {words} are {joined([str(item) for item in value])}"
    return f"the {words} is {value}"


def _say_fields(found: Arguments, arguments: Arguments) -> str:
    """State the fields of an object in turn; those that the call gave need no saying."""
    if "error" in found:
        return f"That did not work: {found['error']}."
    if not all(found.get(name, True) for name in WORKED):
        return "That did not work."
    parts = [
        _part(name, value)
        for name, value in found.items()
        if name not in WORKED and arguments.get(name) != value
    ]
    if not parts:
        return "Done."
    place = next((arguments[name] for name in PLACE.names if name in arguments), "")
    text = f"in {place}, {joined(parts)}." if place else f"{joined(parts)}."
    return text[0].upper() + text[1:]


def say(result: str, arguments: Arguments) -> str:
    """State a result: a sentence as it is, another value by its name, and an object by field."""
    if result.endswith("."):
        return result
    try:
        found = json.loads(result)
    except json.JSONDecodeError:  # such as a time of day
        found = result
    if isinstance(found, dict):
        return _say_fields(found, arguments)
    return f"The result is {result}."
