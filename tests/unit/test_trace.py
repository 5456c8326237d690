"""The trace of the scheduler's steps, and the picture that `streamwell trace` makes of it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from scheduler_bench import Bench, a_seq

from streamwell.cli.trace import as_svg, as_text, rows_of, run
from streamwell.core.errors import InvalidRequest
from streamwell.engine import trace
from streamwell.engine.trace import StepTrace
from streamwell.settings import Settings

DOC = Path(__file__).parents[2] / "docs" / "scheduling.md"
#: By the step at which a request arrives: its name, and its tokens of prompt and answer.
ARRIVALS = {0: ("a", 6, 10), 1: ("b", 20, 8), 2: ("c", 4, 5), 3: ("d", 4, 6), 5: ("e", 12, 3)}
TEXT = """\
a  Pddddddddd
b   PPPPddddddd
c    Pdddd
d     ....Pddddd
e       .....PPdd
"""


def traced(**limits: int) -> str:
    """The trace of five requests, of which three may run at the same time."""
    limits = {"num_blocks": 64, "max_model_len": 64, "max_num_batched_tokens": 8} | limits
    bench, file = Bench(max_num_seqs=3, **limits), io.StringIO()
    steps = StepTrace(file)
    for number in range(100):
        if number in ARRIVALS:
            name, num_tokens, max_tokens = ARRIVALS[number]
            bench.scheduler.add(a_seq(name, num_tokens, max_tokens=max_tokens))
        if bench.scheduler.has_work:
            step = bench.plan()
            steps.write(step, bench.scheduler.waiting_ids)
            bench.finish(step)
    return file.getvalue()


def rows(text: str, first: int = 0, count: int = 100) -> dict[str, str]:
    return rows_of(map(json.loads, text.splitlines()), first, count)


def test_req_20_first_come_first_served_and_running_before_new() -> None:
    """Who came first starts first, who runs is not held up for who is new; the docs show it."""
    text = as_text(rows(traced()))

    assert text.startswith(TEXT)
    assert text in DOC.read_text(encoding="utf-8")


def test_what_is_preempted_waits_and_is_computed_again() -> None:
    """With room for less, the newest of those that run gives way, and starts again later."""
    rows_by_name = rows(traced(num_blocks=10, max_model_len=40))

    assert "P" in rows_by_name["c"].lstrip().lstrip("P").lstrip("d")
    assert "P" not in rows_by_name["a"].lstrip("P")


def test_part_of_a_trace_is_drawn() -> None:
    """Steps before and after are left out."""
    whole = rows(traced())

    expected = {name: row[4:8] for name, row in whole.items() if row[4:8].strip()}
    assert expected == rows(traced(), 4, 4)


def test_the_svg_has_a_cell_for_each_request_in_each_step() -> None:
    """It is XML, with names and cells; names of any kind are harmless in it."""
    whole = rows(traced())
    root = ElementTree.fromstring(as_svg(whole | {"<&>": "P"}))

    cells = [element for element in root if element.tag.endswith("rect")]
    assert sum(len(row.strip()) for row in whole.values()) + 1 == len(cells)
    assert "<&>" in [element.text for element in root]


def test_a_trace_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with a whole line, and the engine goes on."""
    monkeypatch.setattr(trace, "MAX_TRACE_CHARS", 500)
    text = traced()

    assert 400 < len(text) <= 500
    assert len(text.splitlines()) == len([json.loads(line) for line in text.splitlines()])


@pytest.mark.parametrize(
    "content", [b"", b"[]\n", b"no json\n", b"no end", b'{"step": 0}\n', b"\xff\n"]
)
def test_what_is_no_trace_is_refused(content: bytes, tmp_path: Path) -> None:
    """Whatever else is given, one line says so; an empty trace is an empty picture."""
    file = tmp_path / "trace"
    file.write_bytes(content)
    if not content:
        run(file, tmp_path / "out.svg", 0, 100)
        return
    with pytest.raises(InvalidRequest, match="is not what --trace writes"):
        run(file, None, 0, 100)


def test_a_last_line_that_is_cut_is_left_out(tmp_path: Path) -> None:
    """The engine may be writing it, or have died while it did."""
    file, expected = tmp_path / "trace.jsonl", tmp_path / "expected.svg"
    file.write_text(traced())
    run(file, expected, 0, 100)
    with file.open("a") as more:
        more.write('{"step": 99, "prefill": {"a"')
    run(file, tmp_path / "out.svg", 0, 100)

    assert expected.read_text() == (tmp_path / "out.svg").read_text()


def test_the_scripted_engine_has_no_steps_to_trace() -> None:
    """The flag would be ignored, so it is refused."""
    with pytest.raises(InvalidRequest, match="--trace"):
        Settings(engine="scripted", trace=Path("trace.jsonl"))
