"""Memory: what the user said about themselves, asked for again turns later.

A later telling replaces an earlier one. What was never told is answered so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training.brooklet.exchange import Exchange, Facts, Theme
from training.brooklet.text import phrases
from training.brooklet.themes.vocabulary import (
    ANIMALS,
    COLOURS,
    FOODS,
    full_name,
    made_up_word,
    mashed_letters,
    person_name,
)

# How often a question about something untold is replaced by the telling.
TELL_FIRST = 0.6
# How often a favourite of another kind than those told is asked for.
ASK_ANOTHER = 0.2


def _favourite(things: list[str]) -> Callable[[Random], str]:
    """Draw a thing; sometimes an invented one, which has to be copied."""
    return lambda rng: made_up_word(rng) if rng.random() < 0.4 else rng.choice(things)


@dataclass(frozen=True)
class Memory:
    """Something to remember: how it is told and asked for, and the replies. {x} is its value."""

    name: str
    draw: Callable[[Random], str]
    tells: list[str]
    asks: list[str]
    heard: str
    recalled: str
    task: str = ""  # what its tasks are called; empty: like its name

    @property
    def about(self) -> str:
        """What the tasks of this memory are called."""
        return self.task or self.name


NAME = Memory(
    "name",
    full_name,
    phrases(
        """
        My name is {x}. | My name is {x} | I am {x}. | I'm {x}. | Call me {x}. | I am called {x}. |
        Hello, my name is {x}. | Hi, I'm {x}! | Hello! I am {x}. | You can call me {x}. |
        Hi! My name is {x}. | Please call me {x}. | My name's {x}. | The name is {x}. |
        Hello, I am {x}. Nice to meet you! | my name is {x} | Remember my name: {x}. |
        Actually, my name is {x}. | No, my name is {x}. | From now on, call me {x}. |
        Please remember that my name is {x}. | Hi, {x} here. | This is {x}. | It's {x}. |
        I changed my name. Now I am {x}.
        """
    ),
    phrases(
        """
        What is my name? | What's my name? | Do you remember my name? | Who am I? |
        Can you tell me my name? | Tell me my name. | What did I say my name was? |
        Do you know my name? | what is my name | What is my name | Say my name. |
        What am I called? | And what is my name? | Do you know who I am? |
        Do you still know my name? | What was my name again? | Can you remember my name?
        """
    ),
    "Nice to meet you, {x}!",
    "Your name is {x}.",
)
TOWN = Memory(
    "home town",
    lambda rng: person_name(rng).capitalize(),
    phrases(
        """
        I live in {x}. | I come from {x}. | My home town is {x}. | I am from {x}. | I'm from {x}. |
        My hometown is {x}. | My home is in {x}. | I grew up in {x}. | I moved to {x}. |
        Remember that I live in {x}. | Actually, I live in {x}. | I live in a town called {x}. |
        Hello, I am from {x}. | Now I live in {x}.
        """
    ),
    phrases(
        """
        Where do I live? | Where am I from? | Where do I come from? | What is my home town? |
        What is my hometown? | Do you remember where I live? | Which town do I live in? |
        Tell me where I live. | What's my home town? | In which town do I live? |
        Do you know where I live? | Which town am I from?
        """
    ),
    "I will remember that you live in {x}.",
    "You live in {x}.",
)
AGE = Memory(
    "age",
    lambda rng: str(rng.randint(5, 99)),
    phrases(
        """
        I am {x} years old. | I'm {x} years old. | My age is {x}. | I am {x}. | I'm {x}. |
        I turned {x} today. | Today I am {x} years old. | I will tell you my age: {x}. |
        Remember that I am {x} years old. | Actually, I am {x} years old. | I am aged {x}. |
        Now I am {x} years old.
        """
    ),
    phrases(
        """
        How old am I? | What is my age? | What's my age? | Do you remember how old I am? |
        Tell me my age. | Do you know my age? | Do you remember my age? | Say how old I am. |
        How many years old am I? | Can you tell me how old I am? | And how old am I?
        """
    ),
    "I will remember that you are {x} years old.",
    "You are {x} years old.",
)
PET = Memory(
    "pet's name",
    person_name,
    phrases(
        """
        My pet is called {x}. | My pet's name is {x}. | My dog is called {x}. |
        My cat is called {x}. | I have a dog named {x}. | I have a cat named {x}. |
        I have a pet named {x}. | The name of my pet is {x}. | My cat's name is {x}. |
        My dog's name is {x}. | Remember that my pet is called {x}. | I named my pet {x}. |
        Actually, my pet is called {x}.
        """
    ),
    phrases(
        """
        What is my pet called? | What is my pet's name? | What is the name of my pet? |
        Do you remember my pet? | What's my pet's name? | Do you remember my pet's name? |
        Tell me the name of my pet. | How is my pet called? | Which name has my pet? |
        Do you know my pet's name? | What did I call my pet?
        """
    ),
    "I will remember that your pet is called {x}.",
    "Your pet is called {x}.",
    "pet",
)
SECRET = Memory(
    "secret word",
    lambda rng: mashed_letters(rng) if rng.random() < 0.15 else made_up_word(rng),
    phrases(
        """
        The secret word is {x}. | My secret word is {x}. | Remember this word: {x} |
        Remember the word {x}. | Please remember the word {x}. | Keep this word in mind: {x} |
        The password is {x}. | My password is {x}. | Remember the secret word {x}. |
        Here is a secret word: {x} | Don't forget the word {x}. | Memorise this: {x} |
        The code word is {x}. | The new secret word is {x}.
        """
    ),
    phrases(
        """
        What is the secret word? | What's the secret word? | What was the secret word? |
        Which word did I tell you? | Do you remember the secret word? | What was the word? |
        What is my secret word? | Tell me the secret word. | What is the password? |
        Which word should you remember? | Say the secret word. | What is the code word? |
        What was the password? | Tell me the password. | Do you remember the password? |
        What's my password? | Do you know the secret word? | What was the code word?
        """
    ),
    "I will remember that the secret word is {x}.",
    "The secret word is {x}.",
)
LUCKY = Memory(
    "lucky number",
    lambda rng: str(rng.randint(0, rng.choice((20, 99, 999, 9999)))),
    phrases(
        """
        My lucky number is {x}. | My lucky number is {x} | Remember the number {x}. |
        Remember this number: {x} | {x} is my lucky number. | Please remember the number {x}. |
        My favourite number is {x}. | My favorite number is {x}. | Keep the number {x} in mind. |
        Don't forget the number {x}. | Actually, my lucky number is {x}. |
        My new lucky number is {x}.
        """
    ),
    phrases(
        """
        What is my lucky number? | What's my lucky number? | Do you remember my lucky number? |
        Tell me my lucky number. | Which number did I tell you? | What was the number? |
        What is my favourite number? | Which number is my lucky number? |
        Do you know my lucky number? | Which number should you remember? |
        What was my lucky number? | Say my lucky number.
        """
    ),
    "I will remember that your lucky number is {x}.",
    "Your lucky number is {x}.",
)


def _favourite_of(kind: str, things: list[str]) -> Memory:
    """Make a memory of the favourite of a kind."""
    tells = phrases(
        """
        My favourite {k} is {x}. | My favourite {k} is {x} | I like {x}. It is my favourite {k}. |
        My favorite {k} is {x}. | Remember that my favourite {k} is {x}. |
        {x} is my favourite {k}. | The {k} I like best is {x}. |
        Actually, my favourite {k} is {x}. | I changed my mind. My favourite {k} is {x}. |
        I love {x}, it is my favourite {k}. | Of all things my favourite {k} is {x}. |
        Now my favourite {k} is {x}.
        """
    )
    asks = phrases(
        """
        What is my favourite {k}? | What's my favourite {k}? | What is my favorite {k}? |
        Do you remember my favourite {k}? | Which {k} is my favourite? | Tell me my favourite {k}. |
        Which {k} do I like best? | Do you know my favourite {k}? | What was my favourite {k}? |
        What {k} do I like best? | And what is my favourite {k}?
        """
    )
    name = f"favourite {kind}"
    return Memory(
        name,
        _favourite(things),
        [form.replace("{k}", kind) for form in tells],
        [form.replace("{k}", kind) for form in asks],
        f"I will remember that your {name} is {{x}}.",
        f"Your {name} is {{x}}.",
        "favourite",
    )


# What no memory holds.
UNTOLD = phrases(
    """
    job | phone number | address | birthday | height | weight | shoe size | favourite song |
    favourite film | favourite book | favourite game | favourite season | favourite drink |
    mother's name | father's name | sister's name | brother's name | teacher's name | hobby |
    email | car | best friend's name | favourite sport | favourite band | favourite flower |
    native language | school | last name | hair colour | eye colour
    """
)
ASK_UNTOLD = phrases(
    """
    What is my {x}? | What's my {x}? | Do you remember my {x}? | Do you know my {x}? |
    Tell me my {x}. | Can you tell me my {x}? | And what is my {x}? | What was my {x}? |
    Do you still know my {x}? | Say my {x}.
    """
)
KINDS = {"colour": COLOURS, "animal": ANIMALS, "food": FOODS}
FAVOURITES = [_favourite_of(kind, things) for kind, things in KINDS.items()]


def _tell(memory: Memory, rng: Random) -> Exchange:
    """The user tells something about themselves."""
    value = memory.draw(rng)
    prompt = rng.choice(memory.tells).format(x=value)
    reply, key = memory.heard.format(x=value), f"{memory.name} {value}"
    return Exchange(f"hear {memory.about}", prompt, reply, key, value, {memory.name: value})


def _ask(memory: Memory, rng: Random, facts: Facts) -> Exchange:
    """The user asks for something about themselves, told or not."""
    value = facts.get(memory.name)
    prompt = rng.choice(memory.asks)
    if value is None:
        reply = f"You have not told me your {memory.name} yet."
        return Exchange(f"no {memory.about} told", prompt, reply, prompt)
    reply, key = memory.recalled.format(x=value), f"{memory.name} {value}"
    return Exchange(f"recall {memory.about}", prompt, reply, key)


def _theme_pair(about: str, memories: list[Memory]) -> tuple[Theme, Theme]:
    """Make the theme that tells one of the memories, and the theme that asks for one."""

    def tell(rng: Random, facts: Facts) -> Exchange:
        return _tell(rng.choice(memories), rng)

    def ask(rng: Random, facts: Facts) -> Exchange:
        told = [memory for memory in memories if memory.name in facts]
        if not told and rng.random() < TELL_FIRST:
            return tell(rng, facts)
        asked = told if told and rng.random() >= ASK_ANOTHER else memories
        return _ask(rng.choice(asked), rng, facts)

    tell.__name__, ask.__name__ = f"tell_{about}", f"ask_{about}"
    return tell, ask


tell_name, ask_name = _theme_pair("name", [NAME])
tell_favourite, ask_favourite = _theme_pair("favourite", FAVOURITES)
tell_town, ask_town = _theme_pair("town", [TOWN])
tell_age, ask_age = _theme_pair("age", [AGE])
tell_pet, ask_pet = _theme_pair("pet", [PET])
tell_secret, ask_secret = _theme_pair("secret", [SECRET])
tell_lucky, ask_lucky = _theme_pair("lucky", [LUCKY])


def ask_never_told(rng: Random, facts: Facts) -> Exchange:
    """The user asks for something about themselves that no theme ever tells."""
    prompt = rng.choice(ASK_UNTOLD).format(x=(untold := rng.choice(UNTOLD)))
    return Exchange("never told", prompt, f"You have not told me your {untold} yet.", prompt)
