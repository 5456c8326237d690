"""Questions outside the model's world, which it should say it cannot answer."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.themes.vocabulary import made_up_word

DONT_KNOW = "I don't know. I am a small model and I only know a few things."

NOT_UNDERSTOOD = "I am sorry, I did not understand that."

SUBJECTS = (
    "France",
    "Japan",
    "Brazil",
    "the moon landing",
    "quantum physics",
    "the stock market",
    "photosynthesis",
    "Python",
    "chess",
    "the Roman empire",
    "electricity",
    "gravity",
    "bitcoin",
    "Mars",
    "the internet",
    "football",
    "dinosaurs",
    "algebra",
    "Shakespeare",
    "Paris",
    "London",
    "the weather",
    "climate change",
    "a black hole",
    "the human brain",
    "cooking rice",
    "Linux",
    "history",
    "machine learning",
    "democracy",
    "the president",
    "an atom",
    "New York",
    "jazz",
)
FORMS = (
    "What is {x}?",
    "Tell me about {x}.",
    "Explain {x}.",
    "What is the capital of {x}?",
    "Who invented {x}?",
    "How does {x} work?",
    "Where is {x}?",
    "Why is {x} important?",
    "Who is {x}?",
    "What do you know about {x}?",
    "Write an essay about {x}.",
    "How many people live in {x}?",
    "Why does {x} exist?",
    "Give me a recipe for {x}.",
    "What is the difference between {x} and water?",
    "How big is {x}?",
    "When did {x} begin?",
    "Can you explain {x}?",
    "Write a program about {x}.",
    "What is the history of {x}?",
    "Translate {x} into Latin.",
    "How do I get to {x}?",
    "How old is {x}?",
    "Who discovered {x}?",
    "Describe {x}.",
)
FIXED = (
    "What is the meaning of life?",
    "Why is the sky blue?",
    "Write a Python function.",
    "Tell me something interesting.",
    "Summarize this text.",
    "Fix my code.",
    "What time is it?",
    "What day is it today?",
    "What is the weather like today?",
    "Who won the football match?",
    "Write some code for me.",
    "What is the news today?",
    "How tall is the highest mountain?",
    "Solve this equation.",
    "What is the speed of light?",
    "Who wrote this book?",
    "How far away is the moon?",
    "How do I cook rice?",
    "What should I wear today?",
    "Will it rain tomorrow?",
    "What is the square root of two?",
    "Which phone should I buy?",
    "What is the date today?",
)


def unknown(rng: Random, facts: Facts) -> Exchange:
    """Ask something that was never taught."""
    if rng.random() < 0.25:
        prompt = rng.choice(FIXED)
    else:
        invented = made_up_word(rng)
        subject = rng.choice((rng.choice(SUBJECTS), invented, invented.capitalize()))
        prompt = rng.choice(FORMS).format(x=subject)
    return Exchange("don't know", prompt, DONT_KNOW, prompt, answer="I don't know")


def gibberish(rng: Random, facts: Facts) -> Exchange:
    """Type words that mean nothing."""
    text = " ".join(made_up_word(rng) for _ in range(rng.randint(2, 4)))
    return Exchange("gibberish", text, NOT_UNDERSTOOD, f"gibberish {text}")
