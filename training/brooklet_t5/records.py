"""Text to JSON: sentences of five kinds, and the objects that say the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from training.brooklet.text import words
from training.brooklet_t5.example import Example, ask, typed
from training.brooklet_t5.names import person, town

TO_JSON = (
    "text to JSON: {}",
    "Turn this into JSON: {}",
    "Write this as JSON: {}",
    "Answer in JSON: {}",
    "JSON: {}",
)
_GOODS = words(
    """
    apple basket bell book bottle candle chair clock cup flute hat kite lamp map mirror pear
    pen plate ring rope shirt spoon table ticket wheel
    """
)
_PETS = words("cat dog horse goat rabbit parrot mouse hen pony duck turtle fox")
_COLOURS = words("black white brown grey red yellow green blue orange golden")
_SKIES = words("sunny cloudy rainy windy foggy snowy stormy dry")

Record = dict[str, Any]
Shape = Callable[[Random], tuple[tuple[str, ...], Record]]


def somebody(rng: Random) -> tuple[tuple[str, ...], Record]:
    """Name, age and town."""
    sentences = (
        "{name} is {age} years old and lives in {town}.",
        "{name}, who is {age}, lives in {town}.",
        "{name} from {town} is {age} years old.",
        "{name} lives in {town} and is {age}.",
        "My friend {name} is {age} and comes from {town}.",
    )
    return sentences, {"name": person(rng), "age": rng.randint(1, 99), "town": town(rng)}


def purchase(rng: Random) -> tuple[tuple[str, ...], Record]:
    """Who bought how many of what, and the price."""
    sentences = (
        "{buyer} bought {count} {item}s for {price} coins.",
        "{buyer} paid {price} coins for {count} {item}s.",
        "{count} {item}s were sold to {buyer} for {price} coins.",
        "For {price} coins {buyer} got {count} {item}s.",
    )
    return sentences, {
        "buyer": person(rng),
        "item": rng.choice(_GOODS),
        "count": rng.randint(2, 60),
        "price": rng.randint(1, 999),
    }


def weather(rng: Random) -> tuple[tuple[str, ...], Record]:
    """Place, weather and degrees, which may be below zero."""
    sentences = (
        "It is {weather} in {place} at {degrees} degrees.",
        "{place} is {weather} today, with {degrees} degrees.",
        "The weather in {place} is {weather}, {degrees} degrees.",
        "{degrees} degrees and {weather} in {place}.",
    )
    record = {"place": town(rng), "weather": rng.choice(_SKIES), "degrees": rng.randint(-20, 40)}
    return sentences, record


def train(rng: Random) -> tuple[tuple[str, ...], Record]:
    """From where to where, and when."""
    sentences = (
        "The train from {from} to {to} leaves at {time}.",
        "At {time} a train leaves {from} for {to}.",
        "You can go from {from} to {to} at {time}.",
        "The {time} train goes from {from} to {to}.",
    )
    time = f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
    return sentences, {"from": town(rng), "to": town(rng), "time": time}


def pet(rng: Random) -> tuple[tuple[str, ...], Record]:
    """An animal, and whether it is at home."""
    is_home = rng.random() < 0.5
    where = "at home" if is_home else "not at home"
    sentences = (
        f"{{name}} is a {{colour}} {{kind}} and is {where}.",
        f"The {{colour}} {{kind}} {{name}} is {where}.",
        f"Our {{colour}} {{kind}} is called {{name}} and is {where}.",
    )
    record = {
        "name": person(rng),
        "kind": rng.choice(_PETS),
        "colour": rng.choice(_COLOURS),
        "home": is_home,
    }
    return sentences, record


SHAPES: tuple[Shape, ...] = (somebody, purchase, weather, train, pet)


def text_to_json(rng: Random) -> Example:
    """Write as an object what a sentence says."""
    sentences, record = rng.choice(SHAPES)(rng)
    target = json.dumps(record, ensure_ascii=False)
    sentence = rng.choice(sentences).format(**record)
    source = ask(rng, TO_JSON, typed(rng, sentence))
    return Example("text to JSON", source, target, target)
