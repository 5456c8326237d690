"""The tools that everybody tries first: the weather, the time, sums, a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training.brooklet.text import phrases
from training.brooklet.themes import tool_results as results
from training.brooklet.themes.tool_offers import Tool, draw_parameter
from training.brooklet.themes.tool_words import (
    PLACE,
    UNIT,
    Slot,
    amount,
    expression,
    operand,
    small,
    title,
)
from training.brooklet.themes.vocabulary import made_up_word, person_name

CALCULATING = frozenset(phrases("add | add_numbers | sum | multiply | calculate | calculator"))
SIGNS = phrases("Aries | Taurus | Gemini | Cancer | Leo | Virgo | Libra | Pisces | Aquarius")


@dataclass(frozen=True)
class Classic:
    """A well-known tool, in its usual spellings; the fields are those of a Tool."""

    names: list[str]
    descriptions: list[str]
    required: tuple[Slot, ...]
    request: str
    questions: list[str]
    result: Callable[[Random, results.Arguments], str]
    optional: tuple[Slot, ...] = ()

    def tool(self, rng: Random) -> Tool:
        """Choose among the spellings; a parameter that is optional may be missing."""
        extra = [slot for slot in self.optional if rng.random() < 0.5]
        parameters = [draw_parameter(rng, slot) for slot in self.required]
        parameters += [draw_parameter(rng, slot, required=False) for slot in extra]
        return Tool(
            rng.choice(self.names),
            rng.choice(self.descriptions),
            tuple(parameters),
            self.request,
            tuple(self.questions),
            result=self.result,
        )


def _two_numbers(first: str, second: str) -> tuple[Slot, Slot]:
    texts = ("", "A number")
    return (
        Slot((first,), "number", (), operand, descriptions=(*texts, "The first number")),
        Slot((second,), "number", (), operand, descriptions=(*texts, "The second number")),
    )


def _adder(first: str, second: str) -> Classic:
    questions = """
        What is {a} + {b}? | What is {a} plus {b}? | How much is {a} + {b}? | {a} + {b} |
        What is the sum of {a} and {b}? | What is {a} + {b}
    """
    return Classic(
        phrases("add | add | add_numbers | sum"),
        phrases("Add two numbers. | Adds two numbers | Add two numbers together"),
        _two_numbers(first, second),
        f"add {{{first}}} and {{{second}}}",
        phrases(questions.replace("{a}", f"{{{first}}}").replace("{b}", f"{{{second}}}")),
        results.sum_result,
    )


WEATHER = Classic(
    phrases("get_weather | get_weather | get_current_weather | weather | getWeather"),
    phrases(
        """
        Get the weather. | Get the current weather in a given location | Get current weather |
        Get the weather for a city. | Returns the weather | Get the current weather for a location.
        """
    ),
    (PLACE,),
    "get the weather{}",
    phrases(
        """
        What is the weather{}? | What's the weather{}? | What is the weather like{}? |
        What's the weather like{} today? | How is the weather{}? | What is the weather{} now? |
        Tell me the weather{}. | Weather{} | How is the weather{} today? | What's the weather{} |
        What is the weather like{} right now? | What is the weather like{} today?
        """
    ),
    results.weather_result,
    (UNIT,),
)
CLASSICS = (
    WEATHER,
    WEATHER,
    WEATHER,
    Classic(
        phrases("get_temperature | get_current_temperature | get_temperature"),
        phrases("Get the temperature. | Get the current temperature at a location."),
        (PLACE,),
        "get the temperature{}",
        phrases(
            """
            What is the temperature{}? | What's the temperature{} right now? | How warm is it{}? |
            What's the temperature{}? | How cold is it{}? | Temperature{}
            """
        ),
        results.temperature_result,
        (UNIT,),
    ),
    Classic(
        phrases("get_time | get_current_time | current_time | time"),
        phrases("Get the time. | Get the current time in a city. | Tells the time"),
        (PLACE,),
        "get the time{}",
        phrases(
            """
            What time is it{}? | What is the time{}? | What's the time{}? | Tell me the time{}. |
            What time is it{} now? | What time is it{} right now? | How late is it{}?
            """
        ),
        results.time_result,
    ),
    *(_adder(*names) for names in (("a", "b"), ("x", "y"))),
    Classic(
        phrases("multiply | multiply | multiply_numbers"),
        phrases("Multiply two numbers. | Multiplies two numbers"),
        _two_numbers("a", "b"),
        "multiply {a} by {b}",
        phrases("What is {a} * {b}? | What is {a} times {b}? | How much is {a} times {b}?"),
        results.product_result,
    ),
    Classic(
        phrases("calculator | calculate | calculate"),
        phrases("Calculate an expression. | Evaluates a math expression | A calculator."),
        (Slot(("expression",), "string", (), expression, descriptions=("", "The expression")),),
        "calculate {expression}",
        phrases(
            """
            What is {expression}? | How much is {expression}? | {expression} |
            Compute {expression}. | What is the result of {expression}?
            """
        ),
        results.expression_result,
    ),
    Classic(
        phrases("search | search | web_search | search_web"),
        phrases("Search the web. | Search for something | Searches the internet."),
        (
            Slot(
                ("query", "query", "q", "text"),
                "string",
                ("for {v}", 'for "{v}"'),
                title,
                descriptions=("", "What to search for"),
            ),
        ),
        "search{}",
        phrases("Search the web{}. | Look{} on the web. | Do a search{}. | Search the internet{}."),
        results.titles_result,
    ),
    Classic(
        phrases("set_timer | start_timer | set_timer"),
        phrases("Set a timer. | Set a timer for some minutes."),
        (Slot(("minutes", "duration"), "integer", ("for {v} minutes",), small),),
        "set a timer{}",
        phrases("Start a timer{}. | Timer{} | I need a timer{}."),
        results.any_result,
    ),
    Classic(
        phrases("send_email | send_email | send_mail"),
        phrases("Send an email. | Sends an email to somebody"),
        (
            Slot(("to", "recipient"), "string", ("to {v}",), person_name),
            Slot(("body", "text", "message"), "string", ('saying "{v}"',), title),
        ),
        "send an email{}",
        phrases("Write an email{}. | Mail{}."),
        results.any_result,
        (Slot(("subject",), "string", ('with the subject "{v}"',), title),),
    ),
    Classic(
        phrases("play_song | play_music | play_song"),
        phrases("Play a song. | Plays a song by its title"),
        (Slot(("title", "song", "name"), "string", ('"{v}"', 'the song "{v}"'), title),),
        "play{}",
        phrases("I want to hear{}. | Let me hear{}."),
        results.any_result,
        (Slot(("artist",), "string", ("by {v}",), person_name),),
    ),
    Classic(
        phrases("get_stock_price | get_price"),
        phrases("Get the price of a stock. | Get the current stock price"),
        (
            Slot(
                ("symbol", "ticker"),
                "string",
                ("of {v}",),
                lambda rng: made_up_word(rng)[:4].upper(),
            ),
        ),
        "get the stock price{}",
        phrases("What is the stock price{}? | What is the price{}? | How high is the price{}?"),
        results.price_result,
    ),
    Classic(
        phrases("roll_dice | roll_die"),
        phrases("Roll a die. | Rolls a die with some sides"),
        (Slot(("sides",), "integer", ("with {v} sides",), amount),),
        "roll a die{}",
        phrases("Throw a die{}. | Roll a dice{}."),
        results.number_result,
    ),
    Classic(
        phrases("get_horoscope | horoscope"),
        phrases("Get today's horoscope. | Get today's horoscope for an astrological sign."),
        (Slot(("sign",), "string", ("for {v}",), lambda rng: rng.choice(SIGNS)),),
        "get the horoscope{}",
        phrases("What is the horoscope{}? | What's the horoscope{} today? | Horoscope{}"),
        results.sentence_result,
    ),
)
