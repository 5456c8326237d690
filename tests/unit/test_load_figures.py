"""`streamwell bench`: what is sent and when, figures of recorded times, how they are shown."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from streamwell.cli import chart
from streamwell.cli.address import Address
from streamwell.cli.bench.command import run
from streamwell.cli.bench.figures import failures_by_kind, figures_of, percentile
from streamwell.cli.bench.options import BenchOptions, Level
from streamwell.cli.bench.plan import PROBE_WORDS, arrival_times_s, random_prompts, words_for
from streamwell.cli.bench.plot import check_plot, write_plot
from streamwell.cli.bench.recording import Answer, Recording, RequestFailed
from streamwell.cli.bench.report import Result, as_json, print_comparison, print_level
from streamwell.core.errors import InvalidRequest

#: Two answers of 4 and 2 tokens; the first has two tokens in one of its events.
RECORDING = Recording(
    num_prompts=4,
    answers=[Answer((0.1, 0.2, 0.4), 10, 4), Answer((0.3, 0.5), 20, 2)],
    failures=[RequestFailed("status 503", "busy")],
    duration_s=2.0,
)
NOTHING = Recording(num_prompts=2, failures=[RequestFailed("ConnectError", "refused")] * 2)


@pytest.mark.parametrize("count", [1, 2, 3, 100, 101])
def test_percentiles_are_numpys(count: int) -> None:
    """Of any number of values, in any order."""
    chosen = random.Random(count)
    values = [chosen.expovariate(1) for _ in range(count)]

    for percent in (0, 1, 50, 99, 100):
        assert pytest.approx(np.percentile(values, percent)) == percentile(values, percent)


def test_figures_of_recorded_times() -> None:
    """Tokens are those that the server counted, time between tokens is that between events."""
    figures = figures_of(RECORDING)

    counts = {
        "completed": 2,
        "failed": 1,
        "unfinished": 1,
        "total_input_tokens": 30,
        "total_output_tokens": 6,
        "duration": 2.0,
        "request_throughput": 1.0,
        "output_throughput": 3.0,
        "total_token_throughput": 18.0,
    }
    assert counts == {key: figures[key] for key in counts}
    for key, values_ms in {
        "ttft": [100, 300],
        "tpot": [100, 200],
        "itl": [100, 200, 200],
        "e2el": [400, 500],
    }.items():
        assert pytest.approx(statistics.fmean(values_ms)) == figures[f"mean_{key}_ms"]
        assert pytest.approx(statistics.median(values_ms)) == figures[f"median_{key}_ms"]
        assert pytest.approx(np.std(values_ms)) == figures[f"std_{key}_ms"]
        assert pytest.approx(np.percentile(values_ms, 99)) == figures[f"p99_{key}_ms"]


def test_what_was_not_measured_is_no_zero() -> None:
    """One token has no time per further token; no answer has no latency at all."""
    one = figures_of(Recording(1, [Answer((0.1,), 5, 1)], duration_s=1.0))

    assert (None, None) == (one["mean_tpot_ms"], one["p99_itl_ms"])
    assert 100.0 == one["median_ttft_ms"]
    assert None is figures_of(NOTHING)["mean_e2el_ms"]
    assert 0.0 == figures_of(NOTHING)["request_throughput"]


def test_failures_are_counted_by_kind() -> None:
    """The most common kind first, each with what was said the first time."""
    failures = [RequestFailed(kind, f"{kind}{n}") for n, kind in enumerate("abb")]

    assert [("b", (2, "b1")), ("a", (1, "a0"))] == list(
        failures_by_kind(Recording(3, failures=failures)).items()
    )


def test_arrivals_follow_the_seed() -> None:
    """The first request is sent at once, and the others at the rate, by chance."""
    times_s = arrival_times_s(4.0, 5000, seed="1")

    assert arrival_times_s(4.0, 5000, seed="1") == times_s
    assert arrival_times_s(4.0, 5000, seed="2") != times_s
    assert (0.0, 5000) == (times_s[0], len(times_s))
    gaps_s = [b - a for a, b in itertools.pairwise(times_s)]
    assert pytest.approx(0.25, rel=0.05) == statistics.fmean(gaps_s)
    # of exponential gaps mean and deviation are the same
    assert pytest.approx(0.25, rel=0.05) == statistics.pstdev(gaps_s)


def test_burstiness_spreads_the_gaps() -> None:
    """At the same mean rate, by one over its square root."""
    for burstiness in (0.25, 4.0):
        times_s = arrival_times_s(1.0, 20_000, burstiness=burstiness, seed="1")
        gaps_s = [b - a for a, b in itertools.pairwise(times_s)]

        assert pytest.approx(1.0, rel=0.05) == statistics.fmean(gaps_s)
        assert pytest.approx(burstiness**-0.5, rel=0.05) == statistics.pstdev(gaps_s)


def test_an_infinite_rate_is_all_at_once() -> None:
    """Nobody waits."""
    assert [0.0] * 3 == arrival_times_s(math.inf, 3, seed="1")


def test_prompts_follow_the_seed() -> None:
    """As many words as asked for, and no two prompts that begin alike."""
    prompts = list(itertools.islice(random_prompts(12, "0 1"), 50))

    assert list(itertools.islice(random_prompts(12, "0 1"), 50)) == prompts
    assert next(random_prompts(12, "0 2")) != prompts[0]
    assert {12} == {len(prompt.split()) for prompt in prompts}
    assert 50 == len({tuple(prompt.split()[:4]) for prompt in prompts})


@pytest.mark.parametrize(
    ("input_len", "per_word", "added", "num_words"),
    [(128, 1, 0, 128), (128, 1.5, 8, 80), (5, 1, 20, 1)],
)
def test_words_are_what_the_server_counts(
    input_len: int, per_word: float, added: int, num_words: int
) -> None:
    """What a chat template adds is left out of the length that was asked for; a word is left."""
    counted = [round(added + per_word * words) for words in PROBE_WORDS]

    assert num_words == words_for(input_len, counted)


def test_a_server_that_does_not_count_gets_a_word_per_token() -> None:
    """Rather than none, or endlessly many."""
    assert 64 == words_for(64, [7, 7])


def test_levels() -> None:
    """A closed loop of three levels by default; what is asked for in its order."""
    assert ["1", "4", "16"] == [level.label for level in BenchOptions().levels()]
    rates = BenchOptions(request_rate=(0.5, math.inf)).levels()
    assert ["request rate 0.5", "request rate inf"] == [level.name for level in rates]


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        (BenchOptions(concurrency=(1,), request_rate=(1.0,)), "--concurrency"),
        (BenchOptions(concurrency=(1,) * 33), "32 levels"),
        (BenchOptions(request_rate=(math.nan,)), "--request-rate"),
        (BenchOptions(request_rate=(1.0,), burstiness=math.nan), "--burstiness must"),
        (BenchOptions(max_time_s=math.nan), "--max-time-s"),
        (BenchOptions(burstiness=2.0), "--burstiness wants"),
        (BenchOptions(prompt_file=Path("x"), input_len=5), "--prompt-file"),
        (BenchOptions(plot=Path("plot.pdf")), "--plot"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_contradictions_are_refused(options: BenchOptions, flag: str) -> None:
    """By the names of the flags, before anything is sent."""
    with pytest.raises(InvalidRequest, match=flag):
        options.levels()


def test_the_file_has_vllms_names() -> None:
    """A closed loop is an infinite rate with a greatest concurrency there."""
    results = [Result(Level(concurrency=4), RECORDING), Result(Level(request_rate=2.0), NOTHING)]
    file = json.loads(as_json(results, BenchOptions(num_prompts=4), {"x": 1}, {"model_id": "m"}))

    assert 1 == file["x"]
    closed, opened = file["levels"]
    assert ("inf", 4, "m") == (
        closed["request_rate"],
        closed["max_concurrency"],
        closed["model_id"],
    )
    assert (2.0, None) == (opened["request_rate"], opened["max_concurrency"])
    assert ({"status 503": 1}, {"ConnectError": 2}) == (closed["failures"], opened["failures"])
    assert figures_of(RECORDING).items() <= closed.items()


def test_tables_name_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    """By kind, with the first message; what would control the terminal is shown as a sign."""
    recording = Recording(1, failures=[RequestFailed("status 500", "\x1b[2Jbroken")])
    results = [Result(Level(concurrency=number), recording) for number in (1, 2)]
    print_level(results[0])
    print_comparison(results)
    shown = capsys.readouterr().out

    assert "1 failed by status 500, the first of them: ␛[2Jbroken" in shown
    assert "TPOT (ms)" not in shown
    assert "P99 ITL (ms)" in shown


def test_a_busy_load_generator_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own slowness would be taken for the server's."""
    for cpu_s in (1.0, 1.9):
        print_level(Result(Level(concurrency=1), Recording(1, duration_s=2.0, cpu_s=cpu_s)))
        assert (cpu_s > 1.5) == ("95% of a core" in capsys.readouterr().out)


def test_a_plot_has_a_line_per_statistic(tmp_path: Path) -> None:
    """Levels without an answer are left out of the lines, not drawn as zero."""
    levels = [Level(request_rate=rate) for rate in (1.0, 2.0, math.inf)]
    recordings = (RECORDING, NOTHING, RECORDING)
    results = [Result(*pair) for pair in zip(levels, recordings, strict=True)]
    write_plot(tmp_path / "plot.svg", results)
    root = ElementTree.parse(tmp_path / "plot.svg").getroot()

    lines = [element.get("points", "").split() for element in root.iter() if element.get("points")]
    assert [2, 2, 2, 2] == [len(points) for points in lines]
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"1", "2", "inf", "median", "p99", "request rate"} <= set(texts)


def test_a_chart_of_nothing_is_a_chart() -> None:
    """Names are escaped, and a line without values, or at zero, divides by nothing."""
    svg = chart.draw({"<a>": {"b": [None, None], "c": [0.0, 0.0]}, "empty": {}}, ["x", ""])

    assert "&lt;a&gt;" in svg
    ElementTree.fromstring(svg)


def test_png_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib, before anything is measured; SVG needs nothing."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    check_plot(Path("plot.svg"))

    with pytest.raises(InvalidRequest, match=r"streamwell\[plot\]"):
        check_plot(Path("plot.png"))


def test_png_is_drawn_by_matplotlib(tmp_path: Path) -> None:
    """Of levels without an answer too."""
    pytest.importorskip("matplotlib")
    results = [Result(Level(concurrency=1), RECORDING), Result(Level(concurrency=2), NOTHING)]
    write_plot(tmp_path / "plot.png", results)

    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("flag", ["json", "plot"])
def test_what_could_not_be_written_in_the_end_is_told_at_the_beginning(
    flag: str, tmp_path: Path
) -> None:
    """A folder, a file in no folder, or in what is none; nobody is asked for a token before."""
    (folder := tmp_path / "folder.svg").mkdir()
    (file := tmp_path / "file.svg").touch()
    nobody = Address(url="http://127.0.0.1:1")
    for path in (folder, tmp_path / "nowhere" / "x.svg", file / "x.svg"):
        with pytest.raises(InvalidRequest, match=f"--{flag} cannot be written: "):
            run(nobody, BenchOptions(**{flag: path}))
    for path in (file, tmp_path / "new.svg"):
        with pytest.raises(SystemExit, match="no server answers"):
            run(nobody, BenchOptions(**{flag: path}))
