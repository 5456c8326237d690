"""Plurals and past tenses of closed lists; what is held out is a way of asking for a word."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from training.brooklet_t5.example import Example, ask

_IRREGULAR_PLURALS = (
    "man men,woman women,child children,foot feet,tooth teeth,goose geese,mouse mice,ox oxen,"
    "sheep sheep,fish fish,deer deer,person people,leaf leaves,wolf wolves,knife knives,life lives,"
    "wife wives,half halves,shelf shelves,thief thieves,loaf loaves,potato potatoes,"
    "tomato tomatoes,hero heroes"
)
_REGULAR_NOUNS = (
    "apple baby bell berry bird boat book box boy bridge brush bus bush cat cherry church city "
    "clock cow cup day dish dog door dress duck family farm flower fly fox friend garden gate girl "
    "glass goat hat hen hill horse house key king kiss lady lamp lantern letter lily match mill "
    "monkey owl party peach pen pony queen river road school ship shoe spoon star stone story "
    "table tree village watch well window witch year"
)
_IRREGULAR_PASTS = (
    "be was,become became,begin began,bite bit,blow blew,break broke,bring brought,build built,"
    "buy bought,catch caught,choose chose,come came,cut cut,dig dug,do did,draw drew,drink drank,"
    "drive drove,eat ate,fall fell,feed fed,feel felt,fight fought,find found,fly flew,"
    "forget forgot,freeze froze,get got,give gave,go went,grow grew,have had,hear heard,hide hid,"
    "hold held,keep kept,know knew,leave left,lose lost,make made,meet met,put put,read read,"
    "ride rode,ring rang,rise rose,run ran,say said,see saw,sell sold,send sent,shine shone,"
    "sing sang,sit sat,sleep slept,speak spoke,stand stood,steal stole,swim swam,take took,"
    "teach taught,tell told,think thought,throw threw,wake woke,wear wore,win won,write wrote"
)
_REGULAR_VERBS = (
    "answer ask bake call carry clean climb close cook count cry dance dry hope hurry jump laugh "
    "like listen live look love mend move open paint plant play pull push rain reply smile start "
    "stay study talk travel try turn use visit wait walk want wash watch work"
)

PLURAL = (
    "plural: {}",
    "plural of {}",
    "What is the plural of {}?",
    "Write the plural of {}",
    "Make {} plural",
    "One {}, two what?",
)
PAST = (
    "past tense: {}",
    "past tense of {}",
    "What is the past tense of {}?",
    "Write the past tense of {}",
    "Put {} in the past tense",
    "Today I {}, yesterday I what?",
)


def plural_of(noun: str) -> str:
    """The plural of a regular noun."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    ends_in_consonant_y = noun.endswith("y") and noun[-2] not in "aeiou"
    return noun[:-1] + "ies" if ends_in_consonant_y else noun + "s"


def past_of(verb: str) -> str:
    """The past tense of a regular verb that doubles no letter."""
    if verb.endswith("e"):
        return verb + "d"
    ends_in_consonant_y = verb.endswith("y") and verb[-2] not in "aeiou"
    return verb[:-1] + "ied" if ends_in_consonant_y else verb + "ed"


def _pairs(text: str) -> dict[str, str]:
    return {pair[0]: pair[1] for pair in map(str.split, text.split(","))}


PLURALS = _pairs(_IRREGULAR_PLURALS) | {noun: plural_of(noun) for noun in _REGULAR_NOUNS.split()}
PASTS = _pairs(_IRREGULAR_PASTS) | {verb: past_of(verb) for verb in _REGULAR_VERBS.split()}


def plural(rng: Random) -> Example:
    """The plural of a noun."""
    return _form(rng, "plural", PLURAL, PLURALS)


def past_tense(rng: Random) -> Example:
    """The past tense of a verb."""
    return _form(rng, "past tense", PAST, PASTS)


def _form(rng: Random, task: str, phrasings: tuple[str, ...], forms: Mapping[str, str]) -> Example:
    phrasing, word = rng.choice(phrasings), rng.choice(list(forms))
    return Example(task, ask(rng, (phrasing,), word), forms[word], f"{phrasing} {word}")
