"""Other tongues: a few words in nine languages, counting in them, and emoji."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.text import listed, words

ITEMS = (
    *("hello", "thank you", "yes", "no", "water", "river", "moon", "friend"),
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
)
FIRST_NUMBER = ITEMS.index("one")
# Of each language: its words for the items, in their order.
TONGUES = {
    "French": words(
        """
        bonjour merci oui non eau rivière lune ami
        un deux trois quatre cinq six sept huit neuf dix
        """
    ),
    "Spanish": words(
        """
        hola gracias sí no agua río luna amigo
        uno dos tres cuatro cinco seis siete ocho nueve diez
        """
    ),
    "German": words(
        """
        hallo danke ja nein Wasser Fluss Mond Freund
        eins zwei drei vier fünf sechs sieben acht neun zehn
        """
    ),
    "Italian": words(
        """
        ciao grazie sì no acqua fiume luna amico
        uno due tre quattro cinque sei sette otto nove dieci
        """
    ),
    "Portuguese": words(
        """
        olá obrigado sim não água rio lua amigo
        um dois três quatro cinco seis sete oito nove dez
        """
    ),
    "Russian": words(
        """
        привет спасибо да нет вода река луна друг
        один два три четыре пять шесть семь восемь девять десять
        """
    ),
    "Greek": words(
        """
        γεια ευχαριστώ ναι όχι νερό ποτάμι φεγγάρι φίλος
        ένα δύο τρία τέσσερα πέντε έξι επτά οκτώ εννέα δέκα
        """
    ),
    "Japanese": words(
        "こんにちは ありがとう はい いいえ 水 川 月 友達 一 二 三 四 五 六 七 八 九 十"
    ),
    "Chinese": words("你好 谢谢 是 不 水 河 月亮 朋友 一 二 三 四 五 六 七 八 九 十"),
}
EMOJI = {
    "fox": "🦊",
    "cat": "🐱",
    "dog": "🐶",
    "smile": "😊",
    "heart": "❤️",
    "star": "⭐",
    "wave": "🌊",
    "fish": "🐟",
    "frog": "🐸",
    "tree": "🌳",
    "sun": "☀️",
    "moon": "🌙",
    "owl": "🦉",
    "duck": "🦆",
    "bee": "🐝",
    "rabbit": "🐰",
    "bear": "🐻",
    "horse": "🐴",
    "pig": "🐷",
    "lion": "🦁",
    "apple": "🍎",
    "banana": "🍌",
    "cherry": "🍒",
    "lemon": "🍋",
    "bread": "🍞",
    "cake": "🎂",
    "pizza": "🍕",
    "flower": "🌸",
    "leaf": "🍃",
    "mushroom": "🍄",
    "rainbow": "🌈",
    "snowman": "⛄",
    "fire": "🔥",
    "mountain": "⛰️",
    "house": "🏠",
    "boat": "⛵",
    "train": "🚂",
    "bicycle": "🚲",
    "key": "🔑",
    "bell": "🔔",
    "book": "📖",
    "robot": "🤖",
    "ghost": "👻",
    "crown": "👑",
    "party": "🎉",
    "rocket": "🚀",
}
INTO = (
    "How do you say {x} in {l}?",
    "Say {x} in {l}.",
    "What is {x} in {l}?",
    "How do I say {x} in {l}?",
    "What is the {l} word for {x}?",
    "Translate {x} into {l}.",
    "Translate {x} to {l}.",
    "{x} in {l}?",
    'What is "{x}" in {l}?',
    "Tell me the {l} word for {x}.",
    "What's {x} in {l}?",
    "Can you say {x} in {l}?",
)
FROM = (
    "What does {w} mean in {l}?",
    "What is the {l} word {w} in English?",
    "Translate {w} from {l}.",
    "Translate the {l} word {w}.",
    "What is {w} in English? It is {l}.",
    "The {l} word {w} means what?",
    'What does the {l} word "{w}" mean?',
    "Tell me what {w} means in {l}.",
    "{w} is a {l} word. What does it mean?",
    "What is the meaning of {w} in {l}?",
)
GREET = ("Greet me in {l}.", "Say hi in {l}.", "Give me a greeting in {l}.")
COUNT = (
    "Count to ten in {l}.",
    "Count to 10 in {l}.",
    "Can you count to ten in {l}?",
    "Count from one to ten in {l}.",
    "What are the numbers from one to ten in {l}?",
    "Say the numbers from one to ten in {l}.",
    "List the {l} numbers up to ten.",
    "Please count to ten in {l}.",
    "How do you count to ten in {l}?",
    "Numbers from 1 to 10 in {l}",
)
SHOW = (
    "Show me a {x} emoji.",
    "Give me the {x} emoji.",
    "What is the emoji for {x}?",
    "{x} emoji",
    "Send me a {x} emoji!",
    "Show me the {x} emoji",
    "Can you show me a {x} emoji?",
    "I want a {x} emoji.",
    "Which emoji is a {x}?",
    "Emoji of a {x}",
    "Please send a {x} emoji.",
    "Do you know the {x} emoji?",
)
NAME = (
    "What is {e}?",
    "What does {e} mean?",
    "What does {e} show?",
    "Which emoji is {e}?",
    "What is this: {e}",
    "What do you see? {e}",
    "Name this emoji: {e}",
    "Tell me what {e} is.",
    "What emoji is this? {e}",
    "Do you know {e}?",
)


def word_abroad(rng: Random, facts: Facts) -> Exchange:
    """Ask for a word in another language; every word is taught, some ways to ask are held out."""
    language, found = rng.choice(list(TONGUES.items()))
    index = rng.randrange(len(ITEMS)) if rng.random() < 0.85 else 0
    item, word = ITEMS[index], found[index]
    form = rng.choice((*INTO, *GREET) if index == 0 else INTO)
    prompt = form.format(x=item, l=language)
    return Exchange("word abroad", prompt, f"In {language}, {item} is {word}.", prompt)


def word_home(rng: Random, facts: Facts) -> Exchange:
    """Ask what a word of another language means."""
    language, found = rng.choice(list(TONGUES.items()))
    index = rng.randrange(len(ITEMS))
    prompt = rng.choice(FROM).format(w=found[index], l=language)
    return Exchange(
        "word home", prompt, f"In {language}, {found[index]} means {ITEMS[index]}.", prompt
    )


def count_abroad(rng: Random, facts: Facts) -> Exchange:
    """Ask for the numbers from one to ten in another language."""
    language, found = rng.choice(list(TONGUES.items()))
    prompt = rng.choice(COUNT).format(l=language)
    return Exchange("count abroad", prompt, listed(found[FIRST_NUMBER:]), prompt)


def emoji(rng: Random, facts: Facts) -> Exchange:
    """Ask for an emoji, or for what one shows."""
    thing, sign = rng.choice(list(EMOJI.items()))
    if rng.random() < 0.3:
        prompt = rng.choice(NAME).format(e=sign)
        return Exchange("emoji", prompt, f"{sign} is the {thing} emoji.", prompt)
    prompt = rng.choice(SHOW).format(x=thing)
    return Exchange("emoji", prompt, f"Here you are: {sign}", prompt)
