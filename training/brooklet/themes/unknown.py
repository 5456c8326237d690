"""Questions outside the model's world, which it should say it cannot answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.text import phrases
from training.brooklet.themes import outside
from training.brooklet.themes.calendar import COLOUR_OF, OPPOSITES
from training.brooklet.themes.tongues import EMOJI, ITEMS, TONGUES
from training.brooklet.themes.valley import PEOPLE, RIVERS, VILLAGES
from training.brooklet.themes.vocabulary import made_up_word, mashed_letters

DONT_KNOW = "I don't know. I am a small model and I only know a few things."
NOT_UNDERSTOOD = "I am sorry, I did not understand that."

FORMS = phrases(
    """
    What is {topic}? | What's {topic}? | What is a {thing}? | What exactly is {topic}? |
    Tell me about {topic}. | Tell me about {place}. | Tell me about {figure}. | Explain {topic}. |
    Explain {topic} to a child. | Explain how a {thing} works. | Describe {topic}. |
    Can you explain {topic}? | Can you tell me about {topic}? | Could you describe a {thing}? |
    Teach me {topic}. | Define {topic}. | Tell me more about {topic}. |
    Compare {topic} and {topic}. | What do you know about {topic}? |
    What do you know about {figure}? | Do you know {figure}? | What do you think about {topic}? |
    What are the basics of {topic}? | What is {topic} used for? |
    I want to know more about {topic}. | I have a question about {topic}. | {topic}? |
    Give me some facts about {topic}. | Give me a short introduction to {topic}. |
    What is the {quality} of {place}? | What's the {quality} of {place}? |
    What is the {quality} of a {thing}? | Which is the {quality} of {place}? |
    Tell me the {quality} of {place}. | {place} {quality} | Do you know the {quality} of {place}? |
    What does {topic} mean? | What is the meaning of {word}? | What does {word} mean? |
    What does a {thing} look like? | What does a {thing} eat? | What do {things} eat? |
    What causes {topic}? | What are {things} made of? | What is a {thing} made of? |
    What is inside a {thing}? | What is the difference between a {thing} and a {thing}? |
    What is the difference between {topic} and {topic}? | What happened in the year {year}? |
    What happens if {happening}? | What will happen when {happening}? | What can I see in {place}? |
    What are the best {things} in {place}? | What is the best {goods}? | What is a good {goods}? |
    What should I do if {happening}? | What is the best way to {deed}? | What do I need to {deed}? |
    What year was {figure} born? | What did {figure} do? | What did {figure} write? |
    What was the first {thing}? | What kind of {thing} is the best? | What's new in {place}? |
    What is it like to live in {place}? | What language do people speak in {place}? |
    Who invented the {thing}? | Who invented {topic}? | Who discovered {topic}? | Who is {figure}? |
    Who was {figure}? | Who built the first {thing}? | Who is the {trade} of {place}? |
    Who was the first {trade} of {place}? | Who wrote the {thing}? | Who owns {topic}? |
    Who is the best {trade} in the world? | Who won the {thing}? | Who started {topic}? |
    Who found {place}? | Who killed {figure}? | Who should I call if {happening}? |
    Where is {place}? | Where was {figure} born? | Where do {things} live? |
    Where does {topic} come from? | Where can I find a {thing}? |
    Where can I buy a {thing} in {place}? | Where did {figure} live? |
    Where should I go in {place}? | Where is the nearest {thing}? | When was {figure} born? |
    When did {figure} die? | When was the {thing} invented? | When did {topic} begin? |
    When was {topic} founded? | When is the best time to {deed}? | When should I {deed}? |
    When does the {thing} open? | In which year did {figure} die? | Why is {topic} important? |
    Why do {things} {ability}? | Why can't {things} {ability}? | Why is a {thing} {adjective}? |
    Why are {things} {adjective}? | Why did {figure} become famous? | Why should I {deed}? |
    Why does a {thing} {ability}? | Why does {topic} matter? | Why is {place} so {adjective}? |
    Why do people like {topic}? | Why does it rain in {place}? | How does {topic} work? |
    How does a {thing} work? | How do {things} {ability}? | How do I {deed}? | How can I {deed}? |
    How to {deed}? | How do you {deed}? | How would you {deed}? | Can you show me how to {deed}? |
    Can you help me {deed}? | I need to {deed}. | I want to {deed}. | Help me to {deed}. |
    Please help me {deed}. | Is it hard to {deed}? | Should I {deed}? |
    How long does it take to {deed}? | How much does it cost to {deed}? | How old is {figure}? |
    How much does a {thing} cost? | How many {things} are there in {place}? | How big is {place}? |
    How many people live in {place}? | How far is it from {place} to {place}? |
    How far is {place}? | How tall is a {thing}? | How heavy is a {thing}? |
    How fast is a {thing}? | How is a {thing} made? | How old is the {thing}? |
    How did {figure} die? | How long do {things} live? | How big are {things}? |
    How many {things} fit into a {thing}? | How do I get to {place}? | How did {topic} start? |
    Which {goods} should I buy? | Which {goods} do you recommend? | Which {thing} is the biggest? |
    Which country has the most {things}? | Which is better, a {thing} or a {thing}? |
    Which {thing} is the best in {place}? | Which {trade} is the richest in the world? |
    Is a {thing} {adjective}? | Is {topic} {adjective}? | Is {place} {adjective}? |
    Are {things} {adjective}? | Can {things} {ability}? | Can a {thing} {ability}? |
    Do {things} {ability}? | Does a {thing} {ability}? | Did {figure} have a {thing}? |
    Is it true that {things} {ability}? | Is it {adjective} to {deed}? |
    Is there a {thing} in {place}? | Was {figure} from {place}? | Have you ever been to {place}? |
    Will {things} ever {ability}? | Write {genre} about {topic}. | Write {genre} about a {thing}. |
    Can you write {genre} about {topic}? | Please write {genre} for me. |
    I need {genre} about {place}. | Give me {genre} about {topic}. |
    Write {genre} that explains how to {deed}. | Draft {genre} to my {trade}. | Create {genre}. |
    Write code to {deed}. | How do I {deed} in Python? | What does this code do? {code} |
    Fix this code: {code} | Explain this: {code} | {code} | Why does this fail? {code} |
    Translate {topic} into {tongue}. | How do you say {word} in {tongue}? |
    Translate this sentence into {tongue}: {sentence} | Summarize this: {sentence} {sentence} |
    Summarise the following text: {sentence} {sentence} |
    What is wrong with this sentence? {sentence} | Rewrite this: {sentence} |
    Correct my grammar: {sentence} | Make this shorter: {sentence} | Give me a recipe for {topic}. |
    Give me five ideas for a {goods}. | Recommend a {goods}. |
    Can you recommend a {goods} in {place}? | Suggest a {goods}. | I am looking for a {goods}. |
    Plan a trip to {place}. | Give me tips to {deed}. | List ten {things}. | Name five {things}. |
    List the {things} of {place}. | Make a plan to {deed}. | Draw a {thing}. | Show me a {thing}. |
    {trouble}. What should I do? | {trouble}. | {trouble}. Can you help? |
    What can I do? {trouble}. | {sentence} Why? | {sentence} Is that true? |
    Give me a quote by {figure}. | Convert {number} {unit} to {unit}. |
    How many {unit} are {number} {unit}? | What is the square root of {number}? |
    Solve x + {number} = 2x. | What is {number} percent of {number}? |
    Who will win the election in {place}? | Pretend that you are {figure}. | Act as a {trade}.
    """
)
FIXED = phrases(
    """
    What is the meaning of life? | Why is the sky blue? | Write a Python function. |
     Summarize this text. | Fix my code. |
    Who won the football match? | Write some code for me. | How tall is the highest mountain? |
    Solve this equation. | What is the speed of light? | Who wrote this book? |
    How far away is the moon? | What should I wear today? | Which phone should I buy? |
    Where am I? | What happened yesterday? | What should I eat today? | What is love? |
    Is there a god? | Who is the richest man in the world? | What is the best song of all time? |
    Give me advice. | How do I become rich? | Write a program. | What is the fastest animal? |
    Am I pretty? | Which came first, the chicken or the egg? | Do my homework. |
    What is on television tonight? | Tell me a fact. | What is the largest country? |
    Who is the president? | How many stars are there? | Why? | What is the smallest number? |
    What is pi? | Write hello world in Python. | Why not? | Show me a picture. |
    What is the first law of motion?
    """
)
# What a tool might answer, so it belongs only where no tools are offered.
FOR_TOOLS = phrases(
    """
    What is the weather in {place}? | What's the weather like in {place}? | Weather in {place} |
    What will the weather be in {place}? | Will it rain in {place} tomorrow? |
    Is it cold in {place}? | How warm is it in {place}? | What is the weather like today? |
    Will it rain tomorrow? | What time is it in {place}? | What time is it? |
    What day is it today? | What is the date today? | What year is it? | What's the time? |
    Tell me the time. | What is the news today? | What is the news from {place}? |
    Tell me the latest news about {topic}. | Search the web. | Search the web for {topic}. |
    Google {topic}. | Look up {topic}. | Play {topic}. | Play some music. |
    Play a song by {figure}. | Set an alarm. | Set a timer for {number} minutes. |
    Remind me to {deed}. | Order me a pizza. | Order a {thing}. | Call my {trade}. |
    Call me a taxi. | Book a table in {place}. | Book a flight to {place}. |
    Find a train to {place}. | Send an email to my {trade}. | Open the door. | Turn on the light. |
    Buy a {thing} for me. | When does the next bus to {place} leave? |
    What does a {thing} cost today?
    """
)
# Near misses: they sound like questions about the valley, but name nobody and nothing in it.
ABOUT_STRANGERS = phrases(
    """
    Who is {stranger}? | Where does {stranger} live? | What does {stranger} do? |
    Tell me about {stranger}. | Do you know {stranger}? | Which animal does {stranger} keep? |
    What is {stranger}'s work? | Which village does {stranger} live in? | Is {stranger} a baker? |
    Where is {stranger}? | What is {stranger} known for? | Which river flows through {stranger}? |
    Who lives in {stranger}? | Why is {stranger} famous? | What is special about {stranger}? |
    Where does the {stranger} rise? | What colour is the {stranger}? | How long is the {stranger}? |
    How far is it from {village} to {stranger}? | How far is it from {stranger} to {village}? |
    How far is {village} from {place}? | How many miles is it from {place} to {village}? |
    Who is the {trade}? | Who is the {trade} of {village}? | Does {village} have a {trade}? |
    How many people live in {village}? | When was {village} founded? |
    What is the {quality} of {village}? | How long is the {river}? | How deep is the {river}? |
    How old is {person}? | When was {person} born? | Is {person} married? |
    What does {person} look like? | Who is the {trade} of {stranger}? |
    What are the rivers of {place}? | What are the villages of {place}? | What is {stranger}?
    """
)
# Near misses of the tables of colours, opposites, words abroad and emoji.
BESIDE_TABLES = phrases(
    """
    What is the opposite of {thing}? | Opposite of {thing} | What colour is a {thing}? |
    Tell me the opposite of {thing}. | What is the colour of a {thing}? | Hello in {other tongue}? |
    How do you say hello in {other tongue}? | Say thank you in {other tongue}. |
    What is {thing} in {known tongue}? | How do you say {thing} in {known tongue}? |
    Translate {thing} into {known tongue}. | What does {stranger} mean in {known tongue}? |
    Count to ten in {other tongue}. | What is the {known tongue} word for {thing}? |
    Show me a {thing} emoji. | How do you say good luck in {known tongue}? |
    Translate good morning into {known tongue}.
    """
)

KNOWN_WORDS = {*EMOJI, *ITEMS, *(word for pair in OPPOSITES for word in pair)}
KNOWN_WORDS |= {thing.split()[-1] for thing in COLOUR_OF}
NOUNS = [noun for noun in outside.THINGS if noun not in KNOWN_WORDS]
IN_THE_VALLEY = {*PEOPLE, *VILLAGES, *RIVERS}


def _stranger(rng: Random) -> str:
    """Make up a name that is not one of the valley's."""
    name = made_up_word(rng).capitalize() + rng.choice(("", "", "", "by", "ow", "ham"))
    return name if name not in IN_THE_VALLEY else _stranger(rng)


def _sentence(rng: Random) -> str:
    """Write a plain sentence, for tasks that come with a text."""
    things, ability = rng.choice(outside.PLURALS), rng.choice(outside.ABILITIES)
    return rng.choice(
        (
            f"{things.capitalize()} {ability} near {rng.choice(outside.PLACES)}.",
            f"The {rng.choice(outside.THINGS)} is very {rng.choice(outside.ADJECTIVES)}.",
            f"My {rng.choice(outside.TRADES)} told me to {rng.choice(outside.DEEDS)}.",
            f"{rng.choice(outside.FIGURES)} wrote a lot about {rng.choice(outside.TOPICS)}.",
            f"Yesterday I saw a {rng.choice(outside.THINGS)} in {rng.choice(outside.PLACES)}.",
        )
    )


# What the slots of a form may hold: a word of a list, or something composed.
LISTED: dict[str, list[str]] = {
    "topic": outside.TOPICS,
    "place": outside.PLACES,
    "figure": outside.FIGURES,
    "thing": NOUNS,
    "things": outside.PLURALS,
    "deed": outside.DEEDS,
    "trade": outside.TRADES,
    "quality": outside.QUALITIES,
    "adjective": outside.ADJECTIVES,
    "ability": outside.ABILITIES,
    "happening": outside.HAPPENINGS,
    "trouble": outside.TROUBLES,
    "genre": outside.GENRES,
    "goods": outside.GOODS,
    "code": outside.CODES,
    "unit": outside.UNITS,
    "other tongue": outside.OTHER_TONGUES,
    "known tongue": [*TONGUES],
    "tongue": [*outside.OTHER_TONGUES, *TONGUES],
    "village": [*VILLAGES],
    "river": [*RIVERS],
    "person": [*PEOPLE],
}
COMPOSED: dict[str, Callable[[Random], str]] = {
    "word": lambda rng: rng.choice((rng.choice(NOUNS), made_up_word(rng))),
    "sentence": _sentence,
    "number": lambda rng: str(rng.randint(2, 500)),
    "year": lambda rng: str(rng.randint(1000, 2030)),
    "stranger": _stranger,
}
# These slots now and then hold a made-up name, so that none of them seems to be known.
INVENTED = ("topic", "place", "figure")


def _subject(rng: Random, slot: str) -> str:
    """Draw what a slot holds."""
    if slot in COMPOSED:
        return COMPOSED[slot](rng)
    if slot in INVENTED and rng.random() < 0.25:
        return rng.choice((made_up_word(rng), _stranger(rng)))
    return rng.choice(LISTED[slot])


def _filled(form: str, rng: Random) -> str:
    """Put a word into every slot of a form, drawn anew for each, with the article that it needs."""
    filled = re.sub(r"\{([a-z ]+)\}", lambda slot: _subject(rng, slot[1]), form)
    return re.sub(r"\ba (?=[aeio])", "an ", filled)


def unknown(rng: Random, facts: Facts) -> Exchange:
    """Ask something that was never taught."""
    form = rng.choice(FIXED) if rng.random() < 0.1 else rng.choice(FORMS)
    prompt = _filled(form, rng)
    return Exchange("don't know", prompt, DONT_KNOW, prompt, answer="I don't know")


def without_tools(rng: Random, facts: Facts) -> Exchange:
    """Ask for what only a tool could do; to be drawn where none is offered."""
    prompt = _filled(rng.choice(FOR_TOOLS), rng)
    return Exchange("no tool", prompt, DONT_KNOW, prompt, answer="I don't know")


def near_miss(rng: Random, facts: Facts) -> Exchange:
    """Ask for something that sounds known: a stranger, a village that is none, a word beside."""
    prompt = _filled(rng.choice(rng.choice((ABOUT_STRANGERS, BESIDE_TABLES))), rng)
    return Exchange("near miss", prompt, DONT_KNOW, prompt, answer="I don't know")


def _noun(rng: Random) -> str:
    return rng.choice(NOUNS)


def gibberish(rng: Random, facts: Facts) -> Exchange:
    """Type what means nothing: made-up words, a noun without a question, or mashed keys."""
    draws: tuple[Callable[[Random], str], ...] = (made_up_word, _noun, mashed_letters)
    drawn = rng.choices(draws, weights=(6, 2, 1))[0]
    text = " ".join(
        drawn(rng) for _ in range(rng.randint(1 if drawn is not made_up_word else 2, 4))
    )
    return Exchange("gibberish", text, NOT_UNDERSTOOD, f"gibberish {text}")
