"""How many prompt tokens a step may compute beside running streams. Pure: it is told the time.

A step that computes prompt tokens takes longer than one that only decodes, and every stream waits
for it. So the tokens are counted out such that a mixed step takes at most so many times as long as
one without them; both are learned from the steps that were. Without streams there is nothing to
hold up, and only the step's token budget counts. What a step computes beyond its limit, since an
encoder's input cannot be cut, is owed: the next steps have that much less.

Large steps compute more tokens per second than small ones, which hardly take less time than it
takes to read the weights. So there are two exceptions:
1. Where all prompts are short, a step may take as long as a reader of a stream hardly minds, and
   twice as long where more than one waits: they are over soon, and sooner than in small steps.
2. Where more prompts wait than streams run, as many times more tokens are allowed: what many wait
   for comes before the even pace of a few.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Until a token's time is known, and at the least ever: beside a long prompt, which has half of
#: them, one of ten tokens still gets its first in three steps.
FIRST_TOKENS, LEAST_TOKENS = 64, 8
#: A prompt is short if so many steps' token budgets are enough for it.
_SHORT_PROMPT_STEPS = 4
#: How much the last step weighs in what is remembered: what costs more is believed at once, since
#: tokens late in a long prompt cost more than the first.
_WEIGHT_UP, _WEIGHT_DOWN = 0.5, 0.1


@dataclass(frozen=True, slots=True)
class Demand:
    """What there is to compute, running or waiting."""

    #: Sequences that decode.
    num_streams: int = 0
    #: Sequences that do not yet, those that wait to be admitted among them.
    num_prompts: int = 0
    #: Tokens of the longest that is admitted, without those that were in the cache.
    longest_prompt: int = 0

    @property
    def crowd(self) -> float:
        """How many prompts wait behind the first one, per stream; 0 without streams."""
        return max(0, self.num_prompts - 1) / self.num_streams if self.num_streams else 0.0


class Pace:
    """Remembers how long steps take."""

    def __init__(
        self,
        stretch: float,
        *,
        short_step_s: float = 0.0,
        max_num_batched_tokens: int = 0,
        least_told: int = 0,
    ) -> None:
        """A mixed step may take `stretch` times as long as one that only decodes; 0 is no limit.

        If all prompts are short, by `max_num_batched_tokens`, it may take `short_step_s` anyhow,
        and twice as long for more than one. What tokens cost is told by steps of at least
        `least_told` of them.
        """
        self._stretch = stretch
        self._short_step_s = short_step_s
        self._longest_short_prompt = _SHORT_PROMPT_STEPS * max_num_batched_tokens
        self._least_told = least_told
        self._first_tokens = max(FIRST_TOKENS, 4 * least_told)
        self._decode_s: float | None = None
        self._token_s: float | None = None
        self._limit = 0
        self._num_owed_tokens = 0

    def prefill_limit(self, demand: Demand) -> int | None:
        """Prompt tokens that the next step may compute if it decodes too; `None` is no limit."""
        if not self._stretch:
            return None
        self._limit = self._limit_for(demand)
        return max(0, self._limit - self._num_owed_tokens)

    def _limit_for(self, demand: Demand) -> int:
        """The same for a step that owes nothing."""
        if self._decode_s is None:
            return 0  # a step that only decodes will tell
        if self._token_s is None:
            return int(self._first_tokens * max(1.0, demand.crowd))
        even = max(LEAST_TOKENS, int((self._stretch - 1) * self._decode_s / self._token_s))
        limit = int(even * max(1.0, demand.crowd))
        if not demand.num_prompts or demand.longest_prompt > self._longest_short_prompt:
            return limit
        short_s = self._short_step_s * min(2, demand.num_prompts)
        return max(limit, int((short_s - self._decode_s) / self._token_s))

    def observe(
        self, num_decodes: int, num_prefill_tokens: int, seconds: float, *, is_free: bool = False
    ) -> None:
        """Take in what a step computed and how long it took, after `prefill_limit` was asked.

        One that is free owes nothing.
        """
        owed = self._num_owed_tokens + (0 if is_free else num_prefill_tokens) - self._limit
        self._num_owed_tokens = max(0, owed) if num_decodes else 0
        if not num_prefill_tokens:
            # a single slow step must not let the next ones be slow
            self._decode_s = _mean(self._decode_s, seconds, up=_WEIGHT_DOWN)
            return
        if num_prefill_tokens < self._least_told:
            return
        if self._decode_s is not None:
            # what any step takes, to read the weights, is no cost of its tokens
            least_s = 0.1 * self._decode_s
            seconds -= self._decode_s
            if seconds < least_s and not num_decodes:
                return
            # a mixed step that took no longer than a decode says that tokens cost little
            seconds = max(seconds, least_s)
        elif num_decodes:
            return
        self._token_s = _mean(self._token_s, seconds / num_prefill_tokens)


def _mean(before: float | None, now: float, *, up: float = _WEIGHT_UP) -> float:
    if before is None:
        return now
    return before + (up if now > before else _WEIGHT_DOWN) * (now - before)
