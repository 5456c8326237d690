"""English dates to ISO 8601 and back."""

from __future__ import annotations

from calendar import month_name, monthrange
from datetime import date
from random import Random

from training.brooklet_t5.example import Example, ask

TO_ISO = (
    "date to ISO: {}",
    "Write {} as an ISO date",
    "Write the date {} in ISO format",
    "{} in ISO format",
    "What is {} as an ISO date?",
    "ISO date of {}",
)
TO_ENGLISH = (
    "ISO to date: {}",
    "Write {} as a date",
    "Write {} in words",
    "{} in plain English",
    "Which date is {}?",
    "What day is {}?",
)


def date_to_iso(rng: Random) -> Example:
    """Write a date of any of the usual English forms in ISO's."""
    day = _day(rng)
    form = rng.choice(
        (
            "{day} {month} {year}",
            "{month} {day}, {year}",
            "the {ordinal} of {month} {year}",
            "{ordinal} {month} {year}",
            "{month} {ordinal}, {year}",
            "{day} {short} {year}",
            "{short} {day}, {year}",
        )
    )
    month = month_name[day.month]
    said = form.format(
        day=day.day, ordinal=ordinal(day.day), month=month, short=month[:3], year=day.year
    )
    if rng.random() < 0.1:
        said = said.lower()
    return Example("date to ISO", ask(rng, TO_ISO, said), day.isoformat(), _key(day))


def iso_to_date(rng: Random) -> Example:
    """Write an ISO date as day, month and year."""
    day = _day(rng)
    said = f"{day.day} {month_name[day.month]} {day.year}"
    return Example("ISO to date", ask(rng, TO_ENGLISH, day.isoformat()), said, _key(day))


def ordinal(number: int) -> str:
    """The number with its ending, e.g. `22nd`, for days of a month."""
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _day(rng: Random) -> date:
    year = rng.randint(*rng.choice(((1000, 2199), (1900, 2049))))
    month = rng.randint(1, 12)
    return date(year, month, rng.randint(1, monthrange(year, month)[1]))


def _key(day: date) -> str:
    return f"date {day.isoformat()}"
