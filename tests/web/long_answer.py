"""A long answer with everything in it that a model writes, the same each time."""

from __future__ import annotations

from itertools import cycle, islice

_WORDS = (
    "a model writes one token after another and the page shows each of them when it comes while "
    "finished blocks of the text are left alone so that the last one is all that has to be made"
)
_LINE = "    total_{0} = weigh(values[{0}], scale={0}.5)  # the {1}th of them, `as it is`"


def _prose(start: int, num_words: int) -> str:
    words = list(islice(cycle(_WORDS.split()), start, start + num_words))
    words[3] = f"**{words[3]}**"
    words[7] = "`code`"
    words[11] = f"$x_{{{start}}}^2$"
    words[17] = f"[{words[17]}](https://example.com/{start})"
    return " ".join(words) + "."


def code(num_lines: int) -> str:
    """A fenced block of code."""
    lines = "\n".join(_LINE.format(at, at + 1) for at in range(num_lines))
    return f"```python\ndef weigh_all(values):\n{lines}\n```"


def _section(number: int) -> str:
    items = "\n".join(f"- {_prose(number + at, 24)}" for at in range(12))
    steps = "\n".join(f"{at}. {_prose(number + at, 20)}" for at in range(1, 9))
    rows = "\n".join(f"| {at} | {number * at} | $y_{at}$ | **{at}** |" for at in range(25))
    return "\n\n".join(
        (
            f"## Section {number}",
            *(_prose(number * 10 + at, 90) for at in range(7)),
            items,
            code(20),
            f"$$\\sum_{{i=1}}^{{{number}}} \\frac{{i^2}}{{n}} = \\int_0^1 x\\,dx$$",
            f"| a | b | c | d |\n|---|---|---|---|\n{rows}",
            f"> {_prose(number, 60)}",
            steps,
            "One formula in the middle: \\(a^2 + b^2\\). " + _prose(number, 400),
        )
    )


def long_answer(num_sections: int) -> str:
    """Sections of everything, in the middle of them 400 lines of code; and a last sentence."""
    sections = [_section(number) for number in range(1, num_sections + 1)]
    sections.insert(num_sections // 2, code(400))
    return "\n\n".join([*sections, "The end."])
