"""The stop filter: where it cuts, and what it holds back."""

from __future__ import annotations

import random

import pytest

from streamwell.text.stop import StopFilter


def run(stops: tuple[str, ...], pieces: list[str]) -> tuple[str, str | None]:
    stop = StopFilter(stops)
    text = "".join(stop.push(piece) for piece in pieces) + stop.flush()
    return text, stop.matched


def test_without_stop_strings_text_passes_through() -> None:
    """No stop strings: every push is released whole and at once."""
    stop = StopFilter(())

    assert ["one", " two", ""] == [stop.push("one"), stop.push(" two"), stop.flush()]
    assert stop.matched is None


@pytest.mark.parametrize(
    ("stops", "pieces", "text", "matched"),
    [
        (("END",), ["one END two"], "one ", "END"),
        (("END",), ["one E", "N", "D two"], "one ", "END"),
        (("END",), ["one EN"], "one EN", None),
        (("\n\n", "User:"), ["Hi\nUs", "er", ": x\n\n"], "Hi\n", "User:"),
        (("aab",), ["aaa", "ab"], "aa", "aab"),
        (("aabaaac",), ["aabaaabaaac"], "aaba", "aabaaac"),
        (("END", "END"), ["END"], "", "END"),
        (("😀",), ["so 😀"], "so ", "😀"),
    ],
)
def test_text_is_cut_before_the_stop_string(
    stops: tuple[str, ...], pieces: list[str], text: str, matched: str | None
) -> None:
    """Text before the stop string is released; the string and all after it never are."""
    assert (text, matched) == run(stops, pieces)


@pytest.mark.parametrize("pieces", [["abcd"], ["ab", "cd"], ["a", "b", "c", "d"]])
def test_the_stop_string_complete_first_wins(pieces: list[str]) -> None:
    """Of overlapping stop strings the one complete first counts, however the text is cut."""
    assert ("a", "bc") == run(("abcd", "bc"), pieces)


@pytest.mark.parametrize("stops", [("bc", "abc"), ("abc", "bc")])
def test_the_longest_of_two_that_end_together_wins(stops: tuple[str, ...]) -> None:
    """Of stop strings complete at the same character the longest counts."""
    assert ("x", "abc") == run(stops, ["xabc"])


def test_a_false_start_is_released_at_once() -> None:
    """What can no longer become a stop string is not held a push longer."""
    stop = StopFilter(("abac",))

    # "xab" | "a" goes on | "b" breaks it, but "ab" begins anew | "d" ends that too
    assert ["x", "", "ab", "abd"] == [stop.push(piece) for piece in ("xab", "a", "b", "d")]
    assert "" == stop.flush()


def test_nothing_follows_a_match() -> None:
    """After a match pushes and the flush give nothing, and the match stays."""
    stop = StopFilter(("END", "x"))
    stop.push("one END")

    assert ["", "", "END"] == [stop.push("x two"), stop.flush(), stop.matched]


def test_an_empty_stop_string_is_refused() -> None:
    """An empty stop string, which would end every text at once, is an error."""
    with pytest.raises(ValueError, match="must not be empty"):
        StopFilter(("END", ""))


def reference(stops: tuple[str, ...], text: str) -> tuple[str, str | None]:
    """What must be released of all text so far, by trying every end and every length."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    begun = {stop[:size] for stop in stops for size in range(1, len(stop))}
    held = max((len(start) for start in begun if text.endswith(start)), default=0)
    return text[: len(text) - held], None


def random_case(rng: random.Random) -> tuple[tuple[str, ...], str]:
    """Stop strings, and a text that has many beginnings of them."""
    count, size = rng.choice((1, 2, 4)), rng.randint(0, 30)
    stops = tuple("".join(rng.choices("ab", k=rng.randint(1, 8))) for _ in range(count))
    return stops, "".join(rng.choices("abc", weights=(6, 6, 1), k=size))


def test_every_push_agrees_with_a_plain_reference() -> None:
    """Thousands of random texts, cut at random: exactly what is certain is out, after each push."""
    rng = random.Random(7)
    for _ in range(2500):
        stops, text = random_case(rng)
        stop, released, end = StopFilter(stops), "", 0
        while end < len(text):
            start, end = end, min(len(text), end + rng.randint(1, 6))
            released += stop.push(text[start:end])
            assert reference(stops, text[:end]) == (released, stop.matched)
        cut, matched = reference(stops, text)
        assert (cut if matched else text, matched) == (released + stop.flush(), stop.matched)


def test_a_stop_string_may_begin_in_what_was_let_pass() -> None:
    """It stops where it ends, and takes back nothing; one that has ended there stops nothing."""
    rng = random.Random(8)
    for _ in range(2500):
        stops, text = random_case(rng)
        num_passed = rng.randint(0, len(text))
        stop, start = StopFilter(stops), 0
        released = ""
        while start < len(text):
            end = min(rng.randint(start + 1, start + 6), len(text))
            if start < num_passed:
                end = min(end, num_passed)
            take = stop.let_pass if start < num_passed else stop.push
            released, start = released + take(text[start:end]), end
        released += stop.flush()

        ends = [
            (at, -len(found))
            for at in range(num_passed + 1, len(text) + 1)
            for found in stops
            if text[:at].endswith(found)
        ]
        expected = text if not ends else text[: max(num_passed, sum(min(ends)))]
        assert (expected, bool(ends)) == (released, stop.matched is not None)
