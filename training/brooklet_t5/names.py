"""Names of people and towns: known ones, and made-up ones that have to be copied."""

from __future__ import annotations

from random import Random

from training.brooklet.text import words

PEOPLE = words(
    """
    Ada Alan Alice Amir Ana Anna Ben Bella Carl Clara Dan Dora Ella Emil Emma Eva Fay Felix
    Finn Grace Hana Henry Ida Igor Ivy Jack Jane Jonas Julia Kai Karl Lena Leo Lily Luca Lucy
    Maja Maria Mark Max Maya Mei Mia Mila Nadia Nina Noah Nora Olga Oscar Otto Paul Peter Pia
    Rosa Rosie Sam Sara Sofia Tara Theo Tim Tom Uma Vera Viktor Wanda Will Yara Yusuf Zara Zoe
    Bjørn Chloé Inés José Jürgen Łucja Renée Søren Zoë Åsa
    """
)
TOWNS = words(
    """
    Athens Berlin Bern Bristol Cairo Cork Delhi Dublin Florence Geneva Ghent Hamburg Kyoto
    Leeds Lima Lisbon London Lyon Madrid Milan Oslo Oxford Paris Porto Prague Quito Riga Rome
    Seoul Sofia Tokyo Turin Vienna Warsaw York Zurich Besançon Málaga Malmö Zürich
    """
)
_STARTS = words("b br c ch cl d dr f fl g gl h j k l m n p pr r s sh st t tr v w y z")
_VOWELS = words("a e i o u a e i o u ai ea ee ie oa oo ou")
_ENDS = ("", "", "", "l", "n", "r", "s", "t", "ck", "ld", "m", "nd", "rn", "th", "x")
_TOWN_STARTS = ("East", "Great", "Little", "New", "Old", "Port", "San", "Upper", "West")
_TOWN_ENDS = ("bridge", "bury", "dale", "field", "ford", "ham", "mere", "ton", "well", "wick")


def made_up(rng: Random) -> str:
    """Make up a name of two or three syllables."""
    syllables = (
        rng.choice(_STARTS) + rng.choice(_VOWELS) + rng.choice(_ENDS)
        for _ in range(rng.choice((2, 2, 2, 3)))
    )
    return "".join(syllables).capitalize()


def person(rng: Random) -> str:
    """The name of somebody; one in ten has a surname."""
    name = rng.choice(PEOPLE) if rng.random() < 0.4 else made_up(rng)
    return f"{name} {made_up(rng)}" if rng.random() < 0.1 else name


def town(rng: Random) -> str:
    """The name of a town."""
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(TOWNS)
    if kind < 0.4:
        return f"{rng.choice(_TOWN_STARTS)} {made_up(rng)}"
    return made_up(rng) + (rng.choice(_TOWN_ENDS) if kind < 0.6 else "")
