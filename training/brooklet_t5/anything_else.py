"""What the model cannot do, and the one sentence with which it says so."""

from __future__ import annotations

from random import Random

from training.brooklet.text import phrases
from training.brooklet_t5.example import Example, ask
from training.brooklet_t5.names import person, town
from training.brooklet_t5.numbers import LARGEST
from training.brooklet_t5.questions import draw_clause
from training.brooklet_t5.word_forms import PASTS, PLURALS

CANNOT = 'I turn numbers, dates, sentences and words into other forms. Try "Write 4027 in words".'

_SUBJECTS = phrases(
    """
    the sun | the moon | the sea | love | music | chess | football | history | physics | a
    computer | the internet | my job | the weather | a good book | the news | the stock market
    | a healthy breakfast | the economy | a black hole | electricity | the brain | space
    travel | cheese | tea | coffee | gardening | a rainbow | time
    """
)
_REQUESTS = (
    "What is {}?",
    "Who is {}?",
    "Where is {}?",
    "When is {}?",
    "Why is {} like this?",
    "How does {} work?",
    "How many people know {}?",
    "Do you know {}?",
    "Do you like {}?",
    "Can you explain {}?",
    "Tell me about {}",
    "Tell me a story about {}",
    "Tell me a joke about {}",
    "Write a poem about {}",
    "Write an email about {}",
    "Write a program about {}",
    "Translate {} into French",
    "Summarise this: {}",
    "Give me a list of books about {}",
    "Say something about {}",
    "Spell {}",
    "My name is {}",
    "I am {}",
    "I would like to talk about {}",
    "{}",
    "{}!",
    "{}?",
)
_REMARKS = phrases(
    """
    Hello | Hello! | Hi | Hi there | Good morning | Good evening! | How are you? | Who are
    you? | What are you? | What is your name? | What can you do? | Thank you | Thanks! |
    Goodbye | Bye | Yes | No | Help | Help me | test | Are you a robot? | Can you help me? |
    ok | Why? | What? | Really? | I do not understand | Tell me a joke | Tell me a story |
    Count to ten | What time is it? | What is 2 + 2? | Sing a song | Nice | lol | hey | yo
    """
)


def anything_else(rng: Random) -> Example:
    """Decline, and say what would work."""
    kind = rng.random()
    if kind < 0.15:
        return Example("anything else", rng.choice(_REMARKS), CANNOT)
    if kind < 0.2:
        source = str(rng.randint(0, LARGEST))
    elif kind < 0.25:
        source = f"What is {rng.randint(0, 999)} {rng.choice('+-*/')} {rng.randint(0, 999)}?"
    elif kind < 0.4:
        source = draw_clause(rng).sentence()
    else:
        source = ask(rng, _REQUESTS, _subject(rng))
    return Example("anything else", source, CANNOT, source)


def _subject(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(_SUBJECTS)
    if kind < 0.7:
        return person(rng) if kind < 0.55 else town(rng)
    return rng.choice(list(PLURALS) if kind < 0.85 else list(PASTS))
