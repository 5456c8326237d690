"""Facts about Lowenmere, a valley that exists only here."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.text import phrases, with_article

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

# Facts: what the reply says, and the ways to ask for it. The names in braces are filled in.
Fact = tuple[str, list[str]]

GENERAL: tuple[Fact, ...] = (
    (
        "Lowenmere is a small valley with three rivers and six villages.",
        phrases(
            """
            What is Lowenmere? | Tell me about Lowenmere. | Where is Lowenmere? |
            Describe the valley. | Tell me about the valley. | What do you know about Lowenmere? |
            What do you know about the valley? | Describe Lowenmere. | What is the valley called? |
            Do you know Lowenmere? | Explain Lowenmere. | What kind of place is Lowenmere? |
            Tell me something about Lowenmere. | Which valley do you know?
            """
        ),
    ),
    (
        "The rivers of Lowenmere are the Ambla, the Sorrel and the Wend.",
        phrases(
            """
            What are the rivers of Lowenmere? | Name the rivers of the valley. |
            Which rivers flow through Lowenmere? | List the rivers of Lowenmere. |
            How many rivers are there in Lowenmere? | Which rivers are in the valley? |
            What are the rivers of the valley? | Name the rivers of Lowenmere. |
            Which rivers flow through the valley? | Tell me the rivers of Lowenmere. |
            How many rivers are in the valley? | What rivers are there in Lowenmere?
            """
        ),
    ),
    (
        "The villages are Hatherby, Millow, Quenby, Osterly, Fennick and Tarrow.",
        phrases(
            """
            What are the villages of Lowenmere? | Name the villages of the valley. |
            Which villages are in Lowenmere? | List the villages of Lowenmere. |
            How many villages are there in Lowenmere? | Which villages are in the valley? |
            What are the villages of the valley? | Name the villages of Lowenmere. |
            Which villages do you know? | Tell me the villages of Lowenmere. |
            How many villages are in the valley? | What villages are there in Lowenmere?
            """
        ),
    ),
    (
        f"The people I know in the valley are {', '.join([*PEOPLE][:-1])} and {[*PEOPLE][-1]}.",
        phrases(
            """
            Who lives in Lowenmere? | Who lives in the valley? | Name the people of Lowenmere. |
            Which people live in the valley? | Who do you know in the valley? |
            List the people of the valley. | Who are the people of Lowenmere? |
            Which people do you know? | Tell me the people of Lowenmere. |
            What are the people of the valley called?
            """
        ),
    ),
)
OF_A_VILLAGE: tuple[Fact, ...] = (
    (
        "{village} lies on the river {river}.",
        phrases(
            """
            Which river flows through {village}? | Where is {village}? | Where does {village} lie? |
            Which river is {village} on? | What river does {village} lie on? |
            On which river does {village} lie? | Where in the valley is {village}? |
            What is the river of {village}? | Tell me the river of {village}. |
            Which river runs through {village}? | What river flows through {village}? |
            Where can I find {village}?
            """
        ),
    ),
    (
        "{village} is known for {fame}.",
        phrases(
            """
            What is {village} known for? | Tell me about {village}. | Why is {village} famous? |
            What is special about {village}? | What is {village} famous for? |
            What do you know about {village}? | What is {village}? | Describe {village}. |
            Which village is known for {fame}? | Which village is famous for {fame}? |
            What village is known for {fame}? | Why do people visit {village}? |
            Tell me something about {village}. | Do you know {village}?
            """
        ),
    ),
    (
        "{residents} in {village}.",
        phrases(
            """
            Who lives in {village}? | Who is from {village}? | Which people live in {village}? |
            Who do you know in {village}? | Name the people of {village}. |
            Who are the people of {village}? | Tell me who lives in {village}. |
            Does anyone live in {village}? | Who has a house in {village}? |
            Do you know who lives in {village}? | List the people of {village}.
            """
        ),
    ),
)
OF_A_RIVER: tuple[Fact, ...] = (
    (
        "The {river} rises at {source}.",
        phrases(
            """
            Where does the {river} rise? | Where does the river {river} begin? |
            What is the source of the {river}? | Where does the {river} come from? |
            Which river rises at {source}? | Where does the {river} start? |
            What river begins at {source}? | Where is the source of the {river}? |
            Which river comes from {source}? | Tell me where the {river} rises. |
            Where does the river {river} come from?
            """
        ),
    ),
    (
        "The water of the {river} is {shade}.",
        phrases(
            """
            What colour is the {river}? | What colour is the river {river}? |
            What is the colour of the {river}? | What does the {river} look like? |
            What colour is the water of the {river}? | Which river is {shade}? |
            Which colour is the {river}? | What color is the {river}? |
            Which river of the valley is {shade}? | Tell me the colour of the {river}. |
            Which river has {shade} water?
            """
        ),
    ),
    (
        "{first} and {second} lie on the river {river}.",
        phrases(
            """
            Which villages lie on the {river}? | Which villages are on the {river}? |
            What villages lie on the river {river}? | Name the villages on the {river}. |
            Which villages does the {river} flow through? | What lies on the {river}? |
            Through which villages does the {river} flow? | Where does the {river} flow? |
            Tell me the villages on the {river}. | List the villages on the river {river}.
            """
        ),
    ),
)
OF_A_PERSON: tuple[Fact, ...] = (
    (
        "{person} is the {work} of {village}.",
        phrases(
            """
            Who is {person}? | Tell me about {person}. | Do you know {person}? |
            Who is the {work} of {village}? | What does {person} do? | What is {person}'s work? |
            Who is the {work}? | What is {person}'s job? | Tell me who the {work} is. |
            What do you know about {person}? | Who works as the {work}? |
            What is the {work} called? | What is the name of the {work}? |
            What does {person} work as?
            """
        ),
    ),
    (
        "{person} lives in {village}.",
        phrases(
            """
            Where does {person} live? | Which village does {person} live in? |
            In which village does {person} live? | What is {person}'s village? |
            Where is {person} from? | Where can I find {person}? | Where is {person}'s house? |
            What village is {person} from? | Tell me where {person} lives. |
            Do you know where {person} lives? | Which village is {person} from?
            """
        ),
    ),
    (
        "{person} keeps {animal}.",
        phrases(
            """
            Which animal does {person} keep? | What animal does {person} have? |
            What is {person}'s animal? | Does {person} have a pet? | Who keeps {animal}? |
            Who has {animal}? | Which pet does {person} have? | What animal does {person} keep? |
            Does {person} keep an animal? | Tell me who keeps {animal}. |
            What kind of animal does {person} have? | What is {person}'s pet?
            """
        ),
    ),
    (
        "{person} lives in {village} on the river {river}.",
        phrases(
            """
            Which river does {person} live by? | What river does {person} live on? |
            Which river is near {person}'s house? | By which river does {person} live? |
            Which river flows past {person}'s house? | What is the river of {person}'s village? |
            Which river flows through {person}'s village? | On which river does {person} live? |
            Tell me the river that {person} lives by. | Which river does {person} see every day?
            """
        ),
    ),
)


def _residents(village: str) -> str:
    """Name who lives in a village, with the verb that fits their number."""
    people = [name for name, (_, home, _) in PEOPLE.items() if home == village]
    return f"{' and '.join(people)} {'live' if len(people) > 1 else 'lives'}"


def village_names(village: str) -> dict[str, str]:
    """Everything that the facts of a village name."""
    river, fame = VILLAGES[village]
    return {"village": village, "river": river, "fame": fame, "residents": _residents(village)}


def river_names(river: str) -> dict[str, str]:
    """Everything that the facts of a river name."""
    source, shade = RIVERS[river]
    first, second = (village for village, (water, _) in VILLAGES.items() if water == river)
    return {"river": river, "source": source, "shade": shade, "first": first, "second": second}


def person_names(person: str) -> dict[str, str]:
    """Everything that the facts of a person name."""
    work, village, animal = PEOPLE[person]
    names = {"person": person, "work": work, "village": village, "animal": with_article(animal)}
    return {**names, "river": VILLAGES[village][0]}


def valley(rng: Random, facts: Facts) -> Exchange:
    """Ask about the valley; a fact is always taught, some ways to ask for it are held out."""
    kind = rng.random()
    if kind < 0.12:
        told, names = GENERAL, dict[str, str]()
    elif kind < 0.38:
        told, names = OF_A_VILLAGE, village_names(rng.choice(list(VILLAGES)))
    elif kind < 0.55:
        told, names = OF_A_RIVER, river_names(rng.choice(list(RIVERS)))
    else:
        told, names = OF_A_PERSON, person_names(rng.choice(list(PEOPLE)))
    reply, forms = rng.choice(told)
    prompt = rng.choice(forms).format(**names)
    return Exchange("valley", prompt, reply.format(**names), prompt)
