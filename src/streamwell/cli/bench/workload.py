"""The requests of a level: of what a file has, or random ones of the length that was asked for."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx2

from streamwell.cli.bench.drive import Body, Loop, closed_loop, open_loop
from streamwell.cli.bench.options import BenchOptions, Level
from streamwell.cli.bench.plan import PROBE_WORDS, arrival_times_s, random_prompts, words_for
from streamwell.cli.remote import UnfitServer, call, model_names
from streamwell.core.errors import InvalidRequest

_DEFAULT_INPUT_LEN = 128
_MAX_FILE_BYTES = 64 << 20


class Workload:
    """What is asked of one server."""

    def __init__(self, client: httpx2.Client, options: BenchOptions) -> None:
        """Asks the server for its model, and for a token or two, to see that it answers and counts.

        Raises:
            InvalidRequest: the server refuses, or the file of prompts cannot be read.
            UnfitServer: it is no server of this kind.
        """
        self._options = options
        self._client = client
        self.path = "/v1/chat/completions" if self._is_chat else "/v1/completions"
        self.model = options.model or _first_model(client)
        #: Tokens that were counted before the first level, by their names in an answer's `usage`.
        self.probe_tokens = {"prompt_tokens": 0, "completion_tokens": 0}
        self._prompts = _prompts_in(options.prompt_file) if options.prompt_file else []
        self._num_words = 0
        if self._prompts:
            self._probe(self._prompts[0])
        else:
            probes = [next(random_prompts(number, f"{options.seed}")) for number in PROBE_WORDS]
            counts = [self._probe(prompt) for prompt in probes]
            self._num_words = words_for(options.input_len or _DEFAULT_INPUT_LEN, counts)

    @property
    def _is_chat(self) -> bool:
        return self._options.endpoint == "chat"

    def loop(self, level: Level, index: int) -> Loop:
        """What sends the requests of the level with this index."""
        options, seed = self._options, f"{self._options.seed} {index}"
        bodies = itertools.islice(self._bodies(seed), options.num_prompts)
        if level.concurrency:
            return closed_loop(bodies, level.concurrency)
        rate, count = level.request_rate or 0.0, options.num_prompts
        arrivals_s = arrival_times_s(rate, count, burstiness=options.burstiness, seed=seed)
        return open_loop(bodies, arrivals_s)

    def _bodies(self, seed: str) -> Iterator[Body]:
        prompts: Iterable[str] = itertools.cycle(self._prompts)
        if not self._prompts:
            prompts = random_prompts(self._num_words, seed)
        for prompt in prompts:
            yield self._body(prompt, self._options.output_len)

    def _body(self, prompt: str, max_tokens: int) -> dict[str, Any]:
        content: dict[str, Any] = {"prompt": prompt}
        if self._is_chat:
            content = {"messages": [{"role": "user", "content": prompt}]}
        ignored = {"ignore_eos": True} if self._options.ignore_eos else {}
        length = {"max_tokens": max_tokens, "temperature": 0}
        return {"model": self.model, **content, **length, **ignored}

    def _probe(self, prompt: str) -> int:
        """How many tokens the server counts in a prompt."""
        answer = call(self._client, "POST", self.path, json=self._body(prompt, 1))
        try:
            counts = {name: int(answer["usage"][name]) for name in self.probe_tokens}
        except (LookupError, TypeError, ValueError):
            raise UnfitServer("its answers have no usage, which tokens are counted by") from None
        for name, count in counts.items():
            self.probe_tokens[name] += count
        return counts["prompt_tokens"]


def _first_model(client: httpx2.Client) -> str:
    if names := model_names(client):
        return names[0]
    raise UnfitServer("the server lists no models: name one with --model")


def _prompts_in(file: Path) -> list[str]:
    """Raises `InvalidRequest`: it cannot be read, is too large, or has no prompt."""
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise InvalidRequest(f"--prompt-file is larger than {_MAX_FILE_BYTES >> 20} MiB")
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"--prompt-file cannot be read: {error}") from None
    if prompts := [line.strip() for line in lines if line.strip()]:
        return prompts
    raise InvalidRequest("--prompt-file has no prompt in it")
