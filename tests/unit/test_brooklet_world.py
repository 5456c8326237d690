"""What the corpus of the built-in model says of its world, and what it must not say."""

from __future__ import annotations

import random
import re
from collections import defaultdict

import pytest
from theme_draws import drawn, numbers_in

from training.brooklet.corpus import NAME, NICKNAMES, draw_setting, draw_turns
from training.brooklet.exchange import Theme, draw, is_held_out
from training.brooklet.themes import (
    FIRST,
    FOURTH,
    Mix,
    calendar,
    counting,
    memory,
    numbers,
    tongues,
    unknown,
    words,
)
from training.brooklet.themes.distances import DISTANCES, distance, miles
from training.brooklet.themes.smalltalk import liking, smalltalk
from training.brooklet.themes.stories import LONG, long_story, story
from training.brooklet.themes.transcripts import SHAPES, raw_text, transcript
from training.brooklet.themes.unseen import UNSEEN, UNSEEN_NAMES
from training.brooklet.themes.valley import PEOPLE, RIVERS, VILLAGES, valley
from training.brooklet.themes.vocabulary import COMMON_NAMES

TELL_AND_ASK = [
    (memory.tell_name, memory.ask_name),
    (memory.tell_favourite, memory.ask_favourite),
    (memory.tell_town, memory.ask_town),
    (memory.tell_age, memory.ask_age),
    (memory.tell_pet, memory.ask_pet),
    (memory.tell_secret, memory.ask_secret),
    (memory.tell_lucky, memory.ask_lucky),
]
# Themes whose prompts have one right reply each.
CERTAIN: tuple[Theme, ...] = (
    *(calendar.amount, calendar.colour, calendar.list_of, calendar.neighbour, calendar.opposite),
    *(calendar.order, counting.count_by, counting.count_down, counting.count_up, counting.too_far),
    *(counting.count_either_way, counting.number_neighbour, distance, liking),
    *(numbers.add, numbers.below_zero, numbers.compare, numbers.even_or_odd, numbers.multiply),
    *(numbers.subtract, numbers.sum_in_words, numbers.too_hard, tongues.count_abroad),
    *(tongues.emoji, tongues.word_abroad, tongues.word_home, unknown.gibberish, unknown.near_miss),
    *(unknown.unknown, unknown.without_tools, valley, words.count_letters, words.letter_neighbour),
    *(words.letter_of, words.occurrences, words.spell, words.spell_backwards),
    *(memory.ask_never_told, words.spell_joined),
)
TOLD_AND_ASKED = (theme for pair in TELL_AND_ASK for theme in pair)
THEMES = (*CERTAIN, *TOLD_AND_ASKED, words.echo, words.echo_sentence, story)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.__name__)
def test_a_theme_repeats_itself_and_offers_both_sides(theme: Theme) -> None:
    """The same seed draws the same; items exist to learn from and to be held out."""
    facts = {"assistant": "Brooklet"}

    assert drawn(theme, 20) == drawn(theme, 20)
    for held_out in (False, True):
        exchange = draw(theme, random.Random(1), facts, held_out=held_out)
        assert held_out == is_held_out(exchange.key)


def test_a_question_has_one_answer() -> None:
    """No prompt gets two replies, neither within a theme nor from two of them."""
    replies: dict[str, set[str]] = defaultdict(set)
    for theme in CERTAIN:
        for exchange in drawn(theme, 400):
            replies[exchange.prompt.lower().rstrip(".!? ")].add(exchange.reply.lower())

    assert {} == {prompt: said for prompt, said in replies.items() if len(said) > 1}


@pytest.mark.parametrize(("tell", "ask"), TELL_AND_ASK, ids=lambda theme: theme.__name__)
def test_what_was_told_last_is_recalled(tell: Theme, ask: Theme) -> None:
    """The value stands in the prompt that tells it, and in the reply to a later question."""
    for first, last in zip(drawn(tell, 40), reversed(drawn(tell, 40)), strict=True):
        ((name, value),) = last.learned.items()
        facts = {"assistant": "Brooklet", **first.learned, **last.learned}
        asked = [ask(random.Random(seed), facts) for seed in range(8)]
        recalled = [each for each in asked if each.task.startswith("recall") and name in each.key]

        assert value in last.prompt
        assert value in last.reply
        assert recalled
        assert all(f" {value} " in each.reply.replace(".", " ") for each in recalled)


@pytest.mark.parametrize("ask", [ask for _, ask in TELL_AND_ASK], ids=lambda theme: theme.__name__)
def test_what_was_never_told_is_said_so(ask: Theme) -> None:
    """Nothing is learned from a question, and the reply names what is missing."""
    asked = [each for each in drawn(ask) if not each.learned]

    assert asked
    assert all(each.reply.startswith("You have not told me your ") for each in asked)


def unseen_by(forms: list[str]) -> list[str]:
    """Find the questions that one of the forms could give."""
    slots = {name: "|".join(map(re.escape, listed)) for name, listed in unknown.LISTED.items()}
    # A made-up name is none of the real ones.
    slots |= {"word": slots["thing"], "stranger": "(?!)", "sentence": r".+\."}
    slots |= dict.fromkeys(("number", "year"), r"\d+")
    given = []
    for form in forms:
        parts = re.split(r"\{([a-z ]+)\}", form.lower())
        pattern = "".join(
            f"(?:{slots[part].lower()})" if index % 2 else re.escape(part)
            for index, part in enumerate(parts)
        )
        given += [question for question in UNSEEN if re.fullmatch(pattern, question.lower())]
    return given


def test_the_unseen_questions_are_not_taught() -> None:
    """No form of the themes about the unknown gives one of them, whatever fills it."""
    forms = [*unknown.FORMS, *unknown.FIXED, *unknown.FOR_TOOLS]
    forms += [*unknown.ABOUT_STRANGERS, *unknown.BESIDE_TABLES]

    assert 80 == len(set(UNSEEN))
    assert [] == unseen_by(forms)


def test_the_unseen_names_are_not_taught() -> None:
    """A model that takes one of them has learned to take a name."""
    taught = {*NICKNAMES, *COMMON_NAMES, *PEOPLE, NAME}

    assert 40 < len(set(UNSEEN_NAMES))
    assert not taught & {*UNSEEN_NAMES}


def test_a_later_round_asks_for_the_names_that_it_gives() -> None:
    """Of conversations under another name a good part has it in a reply; before, hardly any."""

    def said(mix: Mix) -> float:
        settings = [draw_setting(random.Random(seed), mix) for seed in range(2000)]
        named = [setting for setting in settings if setting.name != NAME]
        turns = [
            draw_turns(random.Random(seed), setting, {"assistant": setting.name}, mix)
            for seed, setting in enumerate(named)
        ]
        answers = [
            setting.name in turn[-1].reply for setting, turn in zip(named, turns, strict=True)
        ]
        return sum(answers) / len(answers)

    assert said(FIRST) < 0.05
    assert 0.2 < said(FOURTH) < 0.4


def test_strangers_are_not_of_the_valley() -> None:
    """A near miss names nobody whom the model should know as if it did not."""
    known = {*PEOPLE, *VILLAGES, *RIVERS}
    facts = {exchange.prompt for exchange in drawn(valley, 2000)}

    assert not known & {unknown.COMPOSED["stranger"](random.Random(seed)) for seed in range(500)}
    assert not facts & {exchange.prompt for exchange in drawn(unknown.near_miss, 2000)}


def test_distances_are_symmetric_and_could_be_walked() -> None:
    """All fifteen pairs of villages; no way round is shorter than the way; replies agree."""
    pairs = [(a, b) for a in VILLAGES for b in VILLAGES if a != b]

    assert 15 == len(DISTANCES)
    for a, b in pairs:
        assert miles(a, b) == miles(b, a)
        assert all(miles(a, b) <= miles(a, c) + miles(c, b) for c in VILLAGES if c not in (a, b))
    for exchange in drawn(distance):
        a, b = re.findall("|".join(VILLAGES), exchange.reply)
        assert [miles(a, b)] == numbers_in(exchange.reply)
        assert exchange.prompt.index(a) != exchange.prompt.index(b)


def test_letters_are_counted_and_turned_around() -> None:
    """Each letter has its place, one asked for its count; backwards it is the same word."""
    for exchange in drawn(words.occurrences):
        spelled, _, walked = exchange.reply.split(". That")[0].partition(": ")
        steps = [step.split(" ", 1) for step in walked.split(", ")]
        places = [int(place.partition(":")[0]) for _, place in steps]
        counted = [(letter, place) for letter, place in steps if ":" in place]
        total = numbers_in(exchange.reply)[-1]
        assert spelled.replace("-", "") in exchange.prompt
        assert spelled.split("-") == [letter for letter, _ in steps]
        assert list(range(1, len(steps) + 1)) == places
        assert list(range(1, total + 1)) == [int(place.split(": ")[1]) for _, place in counted]
        assert len({letter.lower() for letter, _ in counted}) <= 1
    for exchange in drawn(words.spell_backwards):
        ahead, back = exchange.reply.removesuffix(".").split(" backwards is ")
        assert ahead.split("-") == back.split("-")[::-1]


def test_what_is_repeated_stands_in_the_prompt() -> None:
    """To the letter; some of it is accents, emoji and other scripts."""
    exchanges = drawn(words.echo, 400)

    assert all(exchange.reply in exchange.prompt for exchange in exchanges)
    for script in (r"[à-ö]", r"[\u4e00-\u9fff]", r"[\U0001f300-\U0001faff]"):
        assert any(re.search(script, exchange.reply) for exchange in exchanges)


def test_words_abroad_are_complete_and_unlike() -> None:
    """Each language has every item, no two alike, so that both directions have one answer."""
    for found in tongues.TONGUES.values():
        assert len(tongues.ITEMS) == len(found) == len(set(found))
    assert len(tongues.EMOJI) == len(set(tongues.EMOJI.values()))


def test_a_long_story_keeps_its_hero() -> None:
    """It is much longer than a story, and the first named hero is in it all the way."""
    for exchange in drawn(long_story, 20):
        hero = re.search(r"named (.+?) lived", exchange.reply)

        assert hero is not None
        assert LONG <= exchange.reply.count(hero[1])
        assert hero[1] in exchange.reply[-700:]
        assert len(exchange.reply) > 2000 > max(len(each.reply) for each in drawn(story, 20))


def test_a_transcript_holds_its_exchanges_in_turn() -> None:
    """In every shape each prompt comes before its reply, and the text ends with the last reply."""
    exchanges = drawn(smalltalk, 3)
    rng = random.Random(4)
    texts = [transcript(rng, exchanges) for _ in range(100)]

    for text in texts:
        places = [text.index(part, 0) for each in exchanges for part in (each.prompt, each.reply)]
        assert sorted(places) == places
        assert text.endswith(exchanges[-1].reply)
    assert all(any(shape.assistant in text for text in texts) for shape in SHAPES)


def test_raw_texts_repeat_themselves() -> None:
    """A seed is a text."""
    exchanges = drawn(valley, 2)
    first, second = random.Random(5), random.Random(5)

    assert [raw_text(first, exchanges) for _ in range(30)] == [
        raw_text(second, exchanges) for _ in range(30)
    ]
