"""What is repeated to the letter: words and sentences, with accents, emoji and other scripts."""

from __future__ import annotations

from random import Random

from training.brooklet.text import words
from training.brooklet.themes.lexicon import LEXICON
from training.brooklet.themes.tongues import EMOJI, TONGUES
from training.brooklet.themes.vocabulary import (
    ANIMALS,
    COLOURS,
    COMMON_NAMES,
    FOODS,
    made_up_word,
    mashed_letters,
    person_name,
)

ACCENTED = words(
    """
    café naïve señor crème brûlée déjà façade fiancée jalapeño piñata résumé über Straße Köln
    Zürich São Málaga garçon élève forêt île hôtel cœur niño mañana corazón canção maçã Österreich
    Ærø Łódź Gdańsk Praha čaj žába dobrý večer ışık çay göl sjö fjäll smørrebrød
    """
)
SCRIPTS = words(
    """
    世界 小明 东京 学生 猫 狗 山 火 花 雨 谢谢大家 早上好 日本語 ありがとう さくら ねこ
    テスト コーヒー
    한국 안녕하세요 물 мир дом солнце кошка хорошо Γειά ήλιος θάλασσα שלום مرحبا नमस्ते
    """
)
FOREIGN = [*ACCENTED, *SCRIPTS, *(word for found in TONGUES.values() for word in found)]
FACES = [*EMOJI.values(), *words("😀 😂 😍 😎 😢 👍 👋 🙏 💧 🌍 ✨ 💡 ✅ ❌ 🎵 ☕ 🐢 🐳 🦋 🌲")]
SENTENCES = (
    "{name} has {number} {colour} {food}.",
    "The {colour} {animal} runs to {name}.",
    "Hello, {name}! How are you?",
    "I like {food} and {food}.",
    "Where is the {animal}, {name}?",
    "{word}, {word} and {word}",
    "{face} {word} {face}",
    "{foreign} means {word}",
    "{foreign} {foreign} {foreign}",
    "{foreign} {face}",
    "{name} and {name} eat {food} {face}",
    "My {animal} weighs {number} grams.",
    "{word} {number} {word} {number}",
    "The code is {letters}.",
    "{foreign}, {name}!",
    "{face}{face}{face}",
    "I am a {colour} {animal}",
    "{word}: {foreign} {number}",
)
#: Where a first word of two or three letters is easily taken for the beginning of a long one.
PLAIN_SENTENCES = (
    "the {one} is {other}",
    "the {one} and the {other}",
    "a {one} in the {other}",
    "my {one} is on the {other}",
    "this is the {one} of the {other}",
    "it is a {one} and not a {other}",
    "if {one} or {other} is near",
    "we see the {one} near the {other}",
    "is the {one} your {other}?",
    "no {one} has a {other}",
    "all of the {one} is in {other}",
    "he has a {one} for her {other}",
    "to be a {one} is to be a {other}",
    "one {one} is not two {other}",
    "she likes {one} and {other}",
    "do not take the {one} to the {other}",
)


def _mixed(rng: Random) -> str:
    """Put a few words in a row, whatever they are."""
    pool = rng.choice((LEXICON, LEXICON, COMMON_NAMES, FOREIGN))
    one = rng.choice(pool) if rng.random() < 0.6 else made_up_word(rng)
    return one.upper() if rng.random() < 0.05 else one


def _sentence(rng: Random) -> str:
    """Fill a form of a sentence; a slot that occurs twice holds the same twice."""
    return rng.choice(SENTENCES).format(
        name=person_name(rng).capitalize(),
        number=rng.randint(0, 999),
        colour=rng.choice(COLOURS),
        animal=rng.choice(ANIMALS),
        food=rng.choice(FOODS),
        word=rng.choice((made_up_word(rng), rng.choice(LEXICON))),
        foreign=rng.choice(FOREIGN),
        face=rng.choice(FACES),
        letters=mashed_letters(rng),
    )


def plain_sentence(rng: Random) -> str:
    """Draw a sentence of small words around two others."""
    one, other = rng.choice(LEXICON), rng.choice(LEXICON)
    text = rng.choice(PLAIN_SENTENCES).format(one=one, other=other)
    if rng.random() < 0.5:
        text = text[0].upper() + text[1:]
    return text + rng.choice(("", "", "."))


def saying(rng: Random) -> str:
    """Draw a text of one to eight words to be repeated."""
    if rng.random() < 0.3:
        return _sentence(rng)
    text = " ".join(_mixed(rng) for _ in range(rng.randint(1, 6)))
    return text + rng.choice(("", "", "", "", "!", ".", "?", f" {rng.choice(FACES)}"))
