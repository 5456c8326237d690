"""Sentences to questions: a closed grammar of who does what, where and when."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from training.brooklet.text import phrases
from training.brooklet_t5.example import Example, ask, typed
from training.brooklet_t5.names import person, town

# Each verb with its form after "she" and its past, then what it may be done to.
_VERBS = """
sleep sleeps slept
sit sits sat
sing sings sang
wait waits waited
rest rests rested
work works worked
walk walks walked
dance dances danced
hide hides hid
swim swims swam
live lives lived
laugh laughs laughed
feed feeds fed: the goat, the ducks, the old dog, her cat, a lamb
bake bakes baked: the bread, a cake, a pie, the apples, ten rolls
carry carries carried: the lamp, a ladder, the basket, two buckets, the wood
paint paints painted: the fence, a boat, the door, a picture, the wall
mend mends mended: the net, a shoe, the roof, the clock, an old chair
fold folds folded: a letter, the map, a shirt, the sheets, a paper bird
find finds found: the key, a coin, a feather, the ring, a white stone
buy buys bought: apples, a hat, the horse, some cheese, a blue cup
sell sells sold: wool, the eggs, a cow, honey, the red boat
play plays played: the flute, a game, the drum, an old song, chess
write writes wrote: a letter, a story, the list, a song, two books
cook cooks cooked: the soup, a fish, beans, dinner, the rice
open opens opened: the gate, a window, the box, the shop, a jar
clean cleans cleaned: the window, the stairs, a pot, the stable, his boots
catch catches caught: a fish, the ball, a cold, the thief, three mice
draw draws drew: a map, a tree, the bridge, a horse, the mill
watch watches watched: the birds, the stars, a film, the river, the rain
see sees saw: a fox, the moon, the ship, an owl, the king
"""
_SINGULAR = phrases(
    """
    the owl | the old owl | the fox | the cat | the black cat | the dog | the farmer | the
    baker | the young baker | the miller | the teacher | the king | the queen | the girl | the
    boy | the small boy | the bear | the doctor | a bird | a tall man | a woman | a child | my
    sister | my brother | her uncle | his aunt | our neighbour | their friend | the captain |
    the gardener
    """
)
_PLURAL = phrases(
    """
    the owls | the foxes | the cats | the dogs | the farmers | the bakers | the girls | the
    boys | the children | two birds | three men | my sisters | my friends | her parents | his
    cousins | our neighbours | the sailors | the old women | the twins | many people
    """
)
_PLACES = phrases(
    """
    in the barn | in the garden | in the house | in the forest | in the old mill | in the
    kitchen | at home | at school | at the market | by the river | by the sea | by the fire |
    under the bridge | under the tree | on the hill | on the roof | on the boat | near the
    church | behind the house | next to the well
    """
)
_TIMES = phrases(
    """
    at noon | at night | at dawn | at six | at midnight | in the morning | in the evening | in
    winter | in spring | in May | in October | on Monday | on Friday | on Sundays | after
    lunch | after dinner | before breakfast | before school
    """
)
_HABITS = ("every day", "every morning", "every night", "every Tuesday")
_PAST_TIMES = ("yesterday", "last night", "last summer", "two days ago", "on that day")


@dataclass(frozen=True)
class Clause:
    """A sentence in parts; a part that is not there is empty."""

    subject: str
    verb: tuple[str, str, str]  # base, after "she", past
    what: str
    where: str
    when: str
    is_plural: bool
    is_past: bool

    def sentence(self) -> str:
        """The statement, as `The owl sleeps in the barn.` is one."""
        base, third, past = self.verb
        present = base if self.is_plural else third
        verb = past if self.is_past else present
        return _written(self.subject, verb, self.what, self.where, self.when) + "."

    def question(self, about: str) -> str:
        """The question about a part, or, with "yes or no", about the whole."""
        base, third, past = self.verb
        parts = {"what": self.what, "where": self.where, "when": self.when}
        if about == "who":
            return _written("who", past if self.is_past else third, *parts.values()) + "?"
        present = "do" if self.is_plural else "does"
        helper = "did" if self.is_past else present
        rest = (part for name, part in parts.items() if name != about)
        opening = "" if about == "yes or no" else about
        return _written(opening, helper, self.subject, base, *rest) + "?"

    def parts(self) -> list[str]:
        """What can be asked about, in the order of the sentence."""
        there = {"who": self.subject, "what": self.what, "where": self.where, "when": self.when}
        return [name for name, part in there.items() if part]


TO_QUESTION = (
    "sentence to question: {}",
    "Turn this into a question: {}",
    "Make a question: {}",
    "Ask a question about this: {}",
)
ABOUT = (
    "ask ABOUT: {}",
    "Ask ABOUT about this: {}",
    "Make a ABOUT question: {}",
    "Turn this into a ABOUT question: {}",
)


def last_part(rng: Random) -> Example:
    """Ask about the last part of a sentence, when nobody says which."""
    clause = draw_clause(rng)
    source = ask(rng, TO_QUESTION, typed(rng, clause.sentence()))
    target = clause.question(clause.parts()[-1])
    return Example("sentence to question", source, target, clause.sentence())


def named_part(rng: Random) -> Example:
    """Ask about the part that is named."""
    clause = draw_clause(rng)
    about = rng.choice(clause.parts())
    return _about(rng, clause, about, "who, what, where, when")


def yes_or_no(rng: Random) -> Example:
    """Ask whether it is so."""
    return _about(rng, draw_clause(rng), "yes or no", "yes or no")


def draw_clause(rng: Random) -> Clause:
    """Draw a sentence."""
    verb, objects = rng.choice(VERBS)
    is_past = rng.random() < 0.4
    subject, is_plural = _subject(rng)
    what = rng.choice(objects) if objects else ""
    where = rng.choice((*_PLACES, f"in {town(rng)}")) if rng.random() < 0.6 else ""
    times = (*_TIMES, *(_PAST_TIMES if is_past else _HABITS))
    when = rng.choice(times) if rng.random() < 0.4 else ""
    return Clause(subject, verb, what, where, when, is_plural, is_past)


def _subject(rng: Random) -> tuple[str, bool]:
    kind = rng.random()
    if kind < 0.35:
        return person(rng), False
    if kind < 0.45:
        return f"{person(rng)} and {person(rng)}", True
    return (rng.choice(_SINGULAR), False) if kind < 0.75 else (rng.choice(_PLURAL), True)


def _about(rng: Random, clause: Clause, about: str, task: str) -> Example:
    phrasings = [phrasing.replace("ABOUT", about) for phrasing in ABOUT]
    source = ask(rng, phrasings, typed(rng, clause.sentence()))
    return Example(task, source, clause.question(about), clause.sentence())


def _written(*parts: str) -> str:
    text = " ".join(part for part in parts if part)
    return text[0].upper() + text[1:]


def _read_verbs() -> list[tuple[tuple[str, str, str], list[str]]]:
    verbs = []
    for line in _VERBS.strip().splitlines():
        forms, _, objects = line.partition(": ")
        base, third, past = forms.split()
        verbs.append(((base, third, past), objects.split(", ") if objects else []))
    return verbs


VERBS = _read_verbs()
