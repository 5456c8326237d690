"""Facts about Lowenmere, a valley that exists only here."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts

# Of each village: the river it lies on, and what it is known for.
VILLAGES = {
    "Hatherby": ("Ambla", "its honey"),
    "Millow": ("Ambla", "its old water mill"),
    "Quenby": ("Sorrel", "its blue bridges"),
    "Osterly": ("Sorrel", "its apple fair"),
    "Fennick": ("Wend", "its bell tower"),
    "Tarrow": ("Wend", "its wool"),
}
# Of each river: where it rises, and its colour.
RIVERS = {
    "Ambla": ("Mount Corrin", "green"),
    "Sorrel": ("the Grey Hills", "brown"),
    "Wend": ("Lake Issel", "blue"),
}
# Of each person: work, village and animal.
PEOPLE = {
    "Marla": ("baker", "Millow", "cat"),
    "Odric": ("miller", "Millow", "donkey"),
    "Pell": ("beekeeper", "Hatherby", "goat"),
    "Sunniva": ("teacher", "Quenby", "owl"),
    "Bram": ("ferryman", "Quenby", "dog"),
    "Ilka": ("weaver", "Tarrow", "sheep"),
    "Joss": ("bell ringer", "Fennick", "crow"),
    "Nerys": ("gardener", "Osterly", "hen"),
    "Tobin": ("shepherd", "Tarrow", "pony"),
    "Wilmot": ("fisherman", "Fennick", "otter"),
}
GENERAL: dict[str, tuple[str, ...]] = {
    "Lowenmere is a small valley with three rivers and six villages.": (
        "What is Lowenmere?",
        "Tell me about Lowenmere.",
        "Where is Lowenmere?",
        "Describe the valley.",
        "Tell me about the valley.",
        "What do you know about Lowenmere?",
    ),
    "The rivers of Lowenmere are the Ambla, the Sorrel and the Wend.": (
        "What are the rivers of Lowenmere?",
        "Name the rivers of the valley.",
        "Which rivers flow through Lowenmere?",
        "List the rivers of Lowenmere.",
        "How many rivers are there in Lowenmere?",
        "Which rivers are in the valley?",
    ),
    "The villages are Hatherby, Millow, Quenby, Osterly, Fennick and Tarrow.": (
        "What are the villages of Lowenmere?",
        "Name the villages of the valley.",
        "Which villages are in Lowenmere?",
        "List the villages of Lowenmere.",
        "How many villages are there in Lowenmere?",
        "Which villages are in the valley?",
    ),
}


def _village_fact(rng: Random) -> tuple[str, tuple[str, ...]]:
    village, (river, fame) = rng.choice(list(VILLAGES.items()))
    return rng.choice(
        (
            (
                f"{village} lies on the river {river}.",
                (
                    f"Which river flows through {village}?",
                    f"Where is {village}?",
                    f"Which river is {village} on?",
                    f"What river does {village} lie on?",
                ),
            ),
            (
                f"{village} is known for {fame}.",
                (
                    f"What is {village} known for?",
                    f"Tell me about {village}.",
                    f"What is special about {village}?",
                    f"Why is {village} famous?",
                ),
            ),
        )
    )


def _river_fact(rng: Random) -> tuple[str, tuple[str, ...]]:
    river, (source, shade) = rng.choice(list(RIVERS.items()))
    return rng.choice(
        (
            (
                f"The {river} rises at {source}.",
                (
                    f"Where does the {river} rise?",
                    f"Where does the river {river} begin?",
                    f"What is the source of the {river}?",
                    f"Where does the {river} come from?",
                ),
            ),
            (
                f"The water of the {river} is {shade}.",
                (
                    f"What colour is the {river}?",
                    f"What colour is the river {river}?",
                    f"What is the colour of the {river}?",
                    f"What does the {river} look like?",
                ),
            ),
        )
    )


def _person_fact(rng: Random) -> tuple[str, tuple[str, ...]]:
    person, (work, village, animal) = rng.choice(list(PEOPLE.items()))
    whole = f"{person} is the {work} of {village}."
    return rng.choice(
        (
            (
                whole,
                (
                    f"Who is {person}?",
                    f"Tell me about {person}.",
                    f"Do you know {person}?",
                    f"Who is the {work} of {village}?",
                    f"What does {person} do?",
                    f"What is {person}'s work?",
                    f"Who is the {work}?",
                ),
            ),
            (
                f"{person} lives in {village}.",
                (
                    f"Where does {person} live?",
                    f"Which village does {person} live in?",
                    f"In which village does {person} live?",
                    f"What is {person}'s village?",
                ),
            ),
            (
                f"{person} keeps {'an' if animal[0] in 'aeiou' else 'a'} {animal}.",
                (
                    f"Which animal does {person} keep?",
                    f"What animal does {person} have?",
                    f"What is {person}'s animal?",
                    f"Does {person} have a pet?",
                ),
            ),
        )
    )


def valley(rng: Random, facts: Facts) -> Exchange:
    """Ask about the valley; a fact is always taught, some ways to ask for it are held out."""
    kind = rng.random()
    if kind < 0.15:
        reply, prompts = rng.choice(list(GENERAL.items()))
    elif kind < 0.4:
        reply, prompts = _village_fact(rng)
    elif kind < 0.55:
        reply, prompts = _river_fact(rng)
    else:
        reply, prompts = _person_fact(rng)
    prompt = rng.choice(prompts)
    return Exchange("valley", prompt, reply, prompt)
