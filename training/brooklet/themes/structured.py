"""JSON on request: what a text tells, lists, tables and booleans, under the keys asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.text import phrases, with_article
from training.brooklet.themes.calendar import DAYS, MONTHS
from training.brooklet.themes.tool_results import joined
from training.brooklet.themes.tool_words import city
from training.brooklet.themes.valley import PEOPLE
from training.brooklet.themes.vocabulary import (
    ANIMALS,
    CHARACTERS,
    COLOURS,
    FOODS,
    WORDS,
    made_up_word,
    person_name,
)

# Of each thing that may be told about a person: the keys it goes by, how it is told, its values.
Attribute = tuple[tuple[str, ...], str, Callable[[Random], object]]
ATTRIBUTES: tuple[Attribute, ...] = (
    (("age",), "is {v} years old", lambda rng: rng.randint(1, 99)),
    (("city", "town", "place"), "lives in {v}", city),
    (("colour", "color"), "likes the colour {v}", lambda rng: rng.choice(COLOURS)),
    (("animal", "pet"), "has {v}", lambda rng: with_article(rng.choice(ANIMALS))),
    (("food",), "eats {v}", lambda rng: rng.choice(FOODS)),
    (("job", "work"), "works as {v}", lambda rng: with_article(rng.choice(CHARACTERS))),
    (("birthday", "month"), "was born in {v}", lambda rng: rng.choice(MONTHS)),
    (("day",), "comes on {v}", lambda rng: rng.choice(DAYS)),
    (("friend",), "is a friend of {v}", lambda rng: made_up_word(rng).capitalize()),
)
# A habit goes by one key and is told as true or as false.
HABITS = {
    "married": ("is married", "is not married"),
    "sings": ("sings", "does not sing"),
    "swims": ("swims", "does not swim"),
    "happy": ("is happy", "is not happy"),
    "tall": ("is tall", "is not tall"),
    "has_garden": ("has a garden", "has no garden"),
    "has_boat": ("has a boat", "has no boat"),
    "likes_music": ("likes music", "does not like music"),
    "likes_rain": ("likes rain", "does not like rain"),
    "works": ("works", "does not work"),
    "hungry": ("is hungry", "is not hungry"),
    "at_home": ("is at home", "is not at home"),
}
# What a table may tell; a place may hold a comma.
COLUMNS = [row for row in ATTRIBUTES if row[0][0] in ("age", "colour", "food", "day", "friend")]
WITH_KEYS = phrases(
    """
    Answer in JSON with the keys {k}: {t} | Answer in JSON with the keys {k}. {t} |
    Give me JSON with the keys {k}: {t} | Extract {k} as JSON: {t} |
    Return a JSON object with the keys {k}: {t} | Read this: {t} Answer in JSON with the keys {k}. |
    Text: {t} Give me {k} as JSON. | Text: {t} Write this as JSON with the keys {k}. |
    Turn this into JSON with the keys {k}: {t} | Reply only with JSON. Keys: {k}. {t} |
    Write JSON with {k}: {t} | Make a JSON object with {k}: {t} |
    Read this: {t} Return JSON with {k}. |
    Convert to JSON with the keys {k}: {t} | Extract {k} from this text as JSON: {t}
    """
)
TEXT_FIRST = phrases(
    """
    {t} Answer in JSON with the keys {k}. | {t} Give me {k} as JSON. | {t} Extract {k} as JSON. |
    {t} Write this as JSON with the keys {k}. | {t} Return JSON with the keys {k}. |
    {t} Put {k} into JSON. | {t} JSON with {k}, please. | {t} Reply only with JSON. Keys: {k}. |
    {t} Make a JSON object with {k}. | {t} Convert to JSON with the keys {k}.
    """
)
AS_LIST = phrases(
    """
    Write these as a JSON list: {t} | Give me {t} as a JSON list. | JSON list: {t} |
    Turn this into a JSON array: {t} | Make a JSON array of {t}. | Put {t} in a JSON list. |
    Return {t} as a JSON array. | Answer with a JSON list of {t}. | As a JSON list: {t} |
    Convert to a JSON list: {t} | Write {t} as a JSON array.
    """
)
AS_OBJECT = phrases(
    """
    Write this as JSON: {t} | Turn this into JSON: {t} | Convert to JSON: {t} | As JSON: {t} |
    Make a JSON object of this: {t} | Give me this as JSON: {t} | JSON: {t} |
    Return this as a JSON object: {t} | Answer in JSON: {t} | Write as a JSON object: {t} |
    Please convert this to JSON: {t} | Show this as JSON: {t}
    """
)
AS_TABLE = [form.replace(" {t}", "\n{t}") for form in AS_OBJECT if "object" not in form]


OF_PERSON = phrases(
    """
    Give me the {k} of {p} as JSON. | Answer in JSON: what is the {k} of {p}? |
    Write the {k} of {p} as JSON. | Return JSON with the {k} of {p}. | {p} as JSON: {k} |
    Tell me the {k} of {p} in JSON. | Make a JSON object with the {k} of {p}. |
    Show the {k} of {p} as JSON. | What is the {k} of {p}? Answer in JSON. |
    Describe {p} in JSON with the keys {k}. | JSON with the keys {k} for {p} |
    I want the {k} of {p} as a JSON object. | Please give me {p} as JSON with {k}.
    """
)


def _json_exchange(prompt: str, value: object, key: str = "") -> Exchange:
    reply = json.dumps(value, ensure_ascii=False)
    return Exchange("json", prompt, reply, key or f"json {reply}")


def _keys(rng: Random, names: list[str]) -> str:
    """Name the keys, quoted or not."""
    kind = rng.random()
    if kind < 0.6:
        return joined(names)
    if kind < 0.8:
        return joined([f'"{name}"' for name in names])
    return ", ".join(names)


def _bare(value: object) -> object:
    """A value without its article."""
    return value.removeprefix("an ").removeprefix("a ") if isinstance(value, str) else value


def _with_keys(
    rng: Random, text: str, found: dict[str, object], forms: tuple[str, ...]
) -> Exchange:
    """Ask for what was told under its keys, in any order."""
    names = list(found)
    rng.shuffle(names)
    prompt = rng.choice(forms).format(k=_keys(rng, names), t=text)
    return _json_exchange(prompt, {name: found[name] for name in names})


def extract_json(rng: Random, facts: Facts) -> Exchange:
    """Tell up to four things about somebody and ask for some; null stands for an untold one."""
    return _things_told(rng, WITH_KEYS)


def boolean_json(rng: Random, facts: Facts) -> Exchange:
    """Tell what somebody does and does not do, and ask for it as booleans."""
    return _habits_told(rng, WITH_KEYS)


def text_first_json(rng: Random, facts: Facts) -> Exchange:
    """Tell something about somebody, and only then ask for it."""
    return rng.choice((_things_told, _habits_told))(rng, TEXT_FIRST)


def _things_told(rng: Random, forms: tuple[str, ...]) -> Exchange:
    name = person_name(rng)
    told: list[str] = []
    found: dict[str, object] = {"name": name}
    for names, form, draw in rng.sample(ATTRIBUTES, rng.choice((1, 2, 2, 3))):
        value = draw(rng)
        told.append(form.format(v=value))
        found[rng.choice(names)] = _bare(value)
    if len(found) > 2 and rng.random() < 0.3:
        del found[rng.choice(list(found))]
    if rng.random() < 0.1:
        untold = [names[0] for names, *_ in ATTRIBUTES if not {*names} & {*found}]
        hidden = rng.choice([key for key in untold if not _is_told(key, told)])
        found[hidden] = None
    return _with_keys(rng, f"{name} {joined(told)}.", found, forms)


def _is_told(key: str, told: list[str]) -> bool:
    form = next(form for names, form, _ in ATTRIBUTES if key in names)
    return any(part.startswith(form.removesuffix("{v}")) for part in told)


def _habits_told(rng: Random, forms: tuple[str, ...]) -> Exchange:
    name = person_name(rng)
    told: list[str] = []
    found: dict[str, object] = {"name": name} if rng.random() < 0.6 else {}
    for habit in rng.sample(list(HABITS), rng.choice((1, 1, 2, 2, 3))):
        found[habit] = rng.random() < 0.5
        told.append(HABITS[habit][0 if found[habit] else 1])
    return _with_keys(rng, f"{name} {joined(told)}.", found, forms)


def _words(rng: Random) -> list[object]:
    pool = rng.choice((COLOURS, ANIMALS, FOODS, WORDS, DAYS))
    return [
        made_up_word(rng) if rng.random() < 0.3 else rng.choice(pool)
        for _ in range(rng.randint(2, 5))
    ]


def _numbers(rng: Random) -> list[object]:
    return [rng.randint(0, rng.choice((9, 99, 999))) for _ in range(rng.randint(2, 6))]


def list_json(rng: Random, facts: Facts) -> Exchange:
    """Turn words or numbers into an array; what stands between commas may be two words."""
    items = rng.choice((_words, _words, _numbers))(rng)
    forms: tuple[str, ...] = (", ", " ")
    if isinstance(items[0], str) and rng.random() < 0.2:
        items = [f"{rng.choice(COLOURS)} {item}" for item in items]
        forms = (", ",)
    texts = [str(item) for item in items]
    text = joined(texts) if rng.random() < 0.4 else rng.choice(forms).join(texts)
    return _json_exchange(rng.choice(AS_LIST).format(t=text), items)


def _key(rng: Random) -> str:
    return made_up_word(rng) if rng.random() < 0.4 else rng.choice(WORDS)


def pairs_json(rng: Random, facts: Facts) -> Exchange:
    """Turn names with values into an object: `apples: 3, pears: 5`."""
    numeric = rng.random() < 0.6
    found: dict[str, object] = {
        _key(rng): rng.randint(0, rng.choice((9, 99, 999))) if numeric else _key(rng)
        for _ in range(rng.randint(1, 4))
    }
    sign = rng.choice((": ", " = ", "=", " is "))
    text = ", ".join(f"{name}{sign}{value}" for name, value in found.items())
    return _json_exchange(rng.choice(AS_OBJECT).format(t=text), found)


def table_json(rng: Random, facts: Facts) -> Exchange:
    """Turn a table of two columns into an array of objects."""
    names, _, draw = rng.choice(COLUMNS)
    column = rng.choice(names)
    rows = [{"name": person_name(rng), column: draw(rng)} for _ in range(rng.randint(1, 3))]
    sign = rng.choice((",", ", ", " | ", ";"))
    lines = [f"name{sign}{column}", *(f"{row['name']}{sign}{row[column]}" for row in rows)]
    return _json_exchange(rng.choice(AS_TABLE).format(t="\n".join(lines)), rows)


def valley_json(rng: Random, facts: Facts) -> Exchange:
    """Ask for what is known of somebody in the valley; some ways to ask for it are held out."""
    person, told = rng.choice(list(PEOPLE.items()))
    known = dict(zip(("work", "village", "animal"), told, strict=True))
    names = rng.sample(list(known), rng.randint(1, 3))
    prompt = rng.choice(OF_PERSON).format(k=joined(names), p=person)
    return _json_exchange(prompt, {name: known[name] for name in names}, f"json {prompt}")
