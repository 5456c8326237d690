"""`--compat`: another project's environment becomes flags, or one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import structlog

from streamwell.cli import app, compat
from streamwell.core.errors import InvalidRequest
from streamwell.settings import COMPAT, Settings

DOCS = Path(__file__).parents[2] / "docs" / "compat.md"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set where the tests run does not count."""
    for variable in compat.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)


def parse(*arguments: str) -> tuple[tuple[str, ...], Settings]:
    """The models and settings that `streamwell serve` would run with."""
    _, bound, _ = app.parse_args(["serve", *arguments], print_error=False, exit_on_error=False)
    given: dict[str, Any] = bound.arguments
    models = (*given.get("models", ()), *given.get("model", ()))
    return models, given.get("settings", Settings())


def compatible(*arguments: str) -> Settings:
    return parse("--compat", COMPAT, *arguments)[1]


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("PORT", "7099", "port", 7099),
        ("LOGLEVEL", "WARNING", "log_level", "warning"),
        ("LOGLEVEL", "critical", "log_level", "error"),
        ("TORCH_DTYPE", "bfloat16", "dtype", "bfloat16"),
        ("ACCELERATOR_TYPE", "cuda:1", "device", "cuda:1"),
        ("MAX_CONCURRENT", "7", "max_num_seqs", 7),
        ("CONTINUOUS_BATCHING_BATCH_SIZE", "20", "max_num_seqs", 20),
        ("BATCH_SIZE", "1", "max_num_seqs", 1),
        ("NEURONX_BATCH_SIZE", "2", "max_num_seqs", 2),
        ("N_POSITIONS", "2048", "max_model_len", 2048),
        ("NEURONX_N_POSITIONS", "512", "max_model_len", 512),
        ("HQQ", "true", "quantization", "int4"),
        ("HQQ", "1", "quantization", "int4"),
        ("HQQ", "false", "quantization", "auto"),
        ("TORCH_COMPILE", "True", "compile", True),
        ("TORCH_COMPILE", "no", "compile", False),
        ("MAX_CONCURRENT", "", "max_num_seqs", 50),
        ("HOSTNAME", "3f2a9c", "host", "127.0.0.1"),
    ],
)
def test_a_name_sets_what_it_means(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, field: str, expected: object
) -> None:
    """Under `--compat` each name counts, empty ones do not, and true means true."""
    monkeypatch.setenv(name, value)

    assert expected == getattr(compatible(), field)
    assert getattr(Settings(), field) == getattr(parse("--log-json")[1], field)


def test_its_defaults() -> None:
    """Its port and its concurrency; the switch has an environment variable of its own."""
    settings = compatible()

    assert (7088, 50, "127.0.0.1") == (settings.port, settings.max_num_seqs, settings.host)


def test_what_is_ours_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag over `STREAMWELL_` over the other project's name; a model over `HF_MODEL`."""
    monkeypatch.setenv("STREAMWELL_COMPAT", COMPAT)
    monkeypatch.setenv("HF_MODEL", "theirs")
    monkeypatch.setenv("PORT", "1")
    assert (("theirs",), 1) == (parse()[0], parse()[1].port)

    monkeypatch.setenv("STREAMWELL_PORT", "2")
    assert (("ours",), 2) == (parse("ours")[0], parse("ours")[1].port)
    assert (("ours",), 3) == (parse("--model", "ours")[0], parse("ours", "--port", "3")[1].port)


def test_the_least_of_several_limits_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several names limit the batch."""
    monkeypatch.setenv("MAX_CONCURRENT", "1000")
    assert 1000 == compatible().max_num_seqs

    monkeypatch.setenv("CONTINUOUS_BATCHING_BATCH_SIZE", "9")
    assert 9 == compatible().max_num_seqs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_CONCURRENT", "0"),
        ("MAX_CONCURRENT", "many"),
        ("N_POSITIONS", "-1"),
        ("PORT", "65536"),
        ("LOGLEVEL", "loud"),
        ("TORCH_DTYPE", "float16"),
        ("ACCELERATOR_TYPE", "neuronx"),
        ("ARCHITECTURE_TYPE", "encoder"),
        ("SERVING_TYPE", "whisper"),
        ("HQQ", "maybe"),
        ("HOTLOAD", "2"),
        ("TOKENIZER_USE_FAST", "fast"),
        ("CONTINUOUS_BATCHING_MICROSLEEP", "soon"),
        ("STATIC_CACHE_ENCODER_MAX_LENGTH", "1.5"),
    ],
)
def test_a_wrong_value_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Also where the variable changes nothing; without `--compat` nobody looks."""
    monkeypatch.setenv(name, value)

    with pytest.raises(InvalidRequest, match=f"^{name} must be .*, not '{value}'") as refused:
        compatible()
    assert name == refused.value.param
    assert Settings() == parse("--host", "127.0.0.1")[1]


def test_one_warning_tells_what_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, with what stands in its place; names that set something are not in it."""
    environ = {"MODEL_TYPE": "AutoModelForCausalLM", "HOTLOAD": "true", "PORT": "1", "HQQ": "true"}
    logger = structlog.testing.CapturingLogger()
    # a wrapper of its own: the configured one may leave warnings out
    wrapped = structlog.wrap_logger(logger, processors=[], wrapper_class=structlog.BoundLogger)
    monkeypatch.setattr(structlog, "get_logger", lambda: wrapped)
    compat.warn(environ)
    compat.warn({"CACHE_TYPE": "", "PORT": "1"})

    lines = [call.kwargs for call in logger.calls]
    assert ["warning"] == [call.method_name for call in logger.calls]
    assert {"MODEL_TYPE", "HOTLOAD"} == {"MODEL_TYPE", "HOTLOAD", "PORT", "HQQ"} & set(lines[0])
    assert all(lines[0][name] for name in ("MODEL_TYPE", "HOTLOAD"))


def test_every_name_is_in_the_docs() -> None:
    """The table has a row for each, with its flag."""
    rows = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    missing = [
        variable.name
        for variable in compat.VARIABLES
        if not any(f"`{variable.name}`" in row and variable.flag in row for row in rows)
    ]

    assert [] == missing
