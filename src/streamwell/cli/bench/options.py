"""The flags of `streamwell bench`, and the levels of load that they ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from streamwell.core.errors import InvalidRequest
from streamwell.settings.converters import WHOLE, whole

MAX_LEVELS = 32
_PLOT_SUFFIXES = (".svg", ".png")


@dataclass(frozen=True, slots=True)
class Level:
    """One level of load: so many clients, or so many requests per second; never both."""

    concurrency: int | None = None
    #: May be infinite: all at once.
    request_rate: float | None = None

    @property
    def unit(self) -> str:
        return "concurrency" if self.concurrency else "request rate"

    @property
    def label(self) -> str:
        """Of its place on an axis of that unit."""
        return f"{self.concurrency or self.request_rate:g}"

    @property
    def name(self) -> str:
        return f"{self.unit} {self.label}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What is measured, and where the figures go."""

    model: str = ""
    "Name of the model; default: the first one of the server."

    endpoint: Literal["chat", "completions"] = "chat"
    "Ask for chat completions or for text completions."

    concurrency: Annotated[
        tuple[int, ...],
        whole(1, 4096),
        Parameter(consume_multiple=True, negative="", show_default=False),
    ] = ()
    "Closed loop: so many clients, each with one request at a time; levels, by default 1 4 16."

    request_rate: Annotated[
        tuple[float, ...],
        Parameter(
            consume_multiple=True, negative="", show_default=False, validator=Number(gte=0.001)
        ),
    ] = ()
    "Open loop: so many requests per second, by chance, as in 1 2 4; `inf` is all at once."

    burstiness: Annotated[float, Parameter(validator=Number(gte=0.01, lte=1000))] = 1.0
    "Of --request-rate: 1 is a Poisson process, less comes in bursts, more is steadier."

    num_prompts: Annotated[int, whole(1, 10_000)] = 64
    "Requests of each level."

    input_len: Annotated[int | None, whole(1, 1_000_000)] = None
    "Length of random prompts in tokens of the model, about; default: 128."

    prompt_file: Path | None = None
    "Ask these prompts in turn, one a line, in place of random ones."

    output_len: Annotated[int, whole(1, 1_000_000)] = 128
    "Longest answer in tokens."

    ignore_eos: Annotated[bool, Parameter(negative="")] = False
    "Let no answer end before --output-len; not every server can."

    seed: Annotated[int, WHOLE] = 0
    "Of prompts and arrivals: the same seed is the same load."

    max_time_s: Annotated[float, Parameter(validator=Number(gt=0, lte=86_400))] = 600.0
    "Longest time of a level; what has not ended then is told apart."

    json: Path | None = None
    "Write the figures to this file."

    plot: Path | None = None
    "Draw latency against load: an .svg file, or a .png file with `streamwell[plot]`."

    def levels(self) -> list[Level]:
        """In the order of the flags.

        Raises:
            InvalidRequest: flags contradict each other.
        """
        self._check()
        rates = [Level(request_rate=rate) for rate in self.request_rate]
        return rates or [Level(concurrency=number) for number in self.concurrency or (1, 4, 16)]

    def _check(self) -> None:
        if self.concurrency and self.request_rate:
            raise InvalidRequest("--concurrency is a closed loop, --request-rate an open one")
        if max(len(self.concurrency), len(self.request_rate)) > MAX_LEVELS:
            raise InvalidRequest(f"at most {MAX_LEVELS} levels can follow a flag")
        numbers = {
            "--request-rate": sum(self.request_rate),
            "--burstiness": self.burstiness,
            "--max-time-s": self.max_time_s,
        }
        for flag, value in numbers.items():
            if math.isnan(value):
                raise InvalidRequest(f"{flag} must be a number")
        if self.burstiness != 1 and not self.request_rate:
            raise InvalidRequest("--burstiness wants --request-rate")
        if self.prompt_file and self.input_len:
            raise InvalidRequest("--prompt-file has prompts, --input-len makes some")
        if self.plot and self.plot.suffix not in _PLOT_SUFFIXES:
            raise InvalidRequest(f"--plot must end in {' or '.join(_PLOT_SUFFIXES)}")
