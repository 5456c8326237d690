"""What is sent, and when: prompts and arrivals, the same ones for the same seed."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

#: Short and common, so that most tokenizers have a token for each.
_WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work night point "
    "home water room mother area money story fact month lot right study book eye job word business "
    "issue side kind head house service friend father power hour game line end member law car city "
    "name team minute idea body back parent face level office door health person art war history "
    "party result change morning reason research girl guy moment air teacher force education"
)
#: Lengths in words of the two prompts that tell how a server counts.
PROBE_WORDS = (16, 80)


def arrival_times_s(rate: float, count: int, *, burstiness: float = 1.0, seed: str) -> list[float]:
    """Seconds from the first request on at which each is sent; the first is sent at once.

    Gaps are drawn from a gamma distribution whose mean is `1 / rate`, and whose shape is
    `burstiness`: with 1 they are exponential, which makes a Poisson process. No gaps if the rate
    is infinite.
    """
    if math.isinf(rate):
        return [0.0] * count
    chosen, scale_s = random.Random(seed), 1 / (rate * burstiness)
    gaps_s = (chosen.gammavariate(burstiness, scale_s) for _ in range(count - 1))
    return list(itertools.accumulate(gaps_s, initial=0.0))


def random_prompts(num_words: int, seed: str) -> Iterator[str]:
    """Without end; distinct from the first words on, so that no prefix cache has them."""
    chosen, words = random.Random(seed), _WORDS.split()
    while True:
        yield " ".join(chosen.choices(words, k=num_words))


def words_for(input_len: int, probe_tokens: Sequence[int]) -> int:
    """How many words make a prompt of about `input_len` tokens, at least one.

    Args:
        input_len: in tokens, with all that a chat template adds.
        probe_tokens: what the server counted in prompts of `PROBE_WORDS`.
    """
    (short, long), (less, more) = PROBE_WORDS, probe_tokens
    if more <= less:  # it does not count, or reads no further
        return input_len
    tokens_per_word = (more - less) / (long - short)
    added = less - short * tokens_per_word
    return max(1, round((input_len - added) / tokens_per_word))
