"""Settings: what cannot be right is refused, and flags and environment mean the same."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App, CoercionError

from streamwell.cli import app
from streamwell.core.errors import InvalidRequest
from streamwell.settings import Settings, default_data_dir


def _parse(*arguments: str) -> Settings:
    """The settings that `streamwell serve` would run with."""
    _, bound, _ = app.parse_args(["serve", *arguments], print_error=False, exit_on_error=False)
    settings: Settings = bound.arguments.get("settings", Settings())
    return settings


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of whoever runs the tests do not count."""
    for field in fields(Settings):
        monkeypatch.delenv(f"STREAMWELL_{field.name.upper()}", raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_loopback_needs_no_key(host: str) -> None:
    """Who is alone on the machine may do without."""
    assert host == Settings(host=host).host


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.0.2.1", "example.org", "127.0.0.1.evil"]
)
@pytest.mark.parametrize("keys", [(), ("",), ("  ",)])
def test_all_else_needs_a_key(host: str, keys: tuple[str, ...]) -> None:
    """Beyond loopback there must be a key, and nothing is not a key."""
    with pytest.raises(InvalidRequest, match="api-key") as refused:
        Settings(host=host, api_key=keys)

    assert "api_key" == refused.value.param
    assert host == Settings(host=host, api_key=("secret",)).host


@pytest.mark.parametrize("keys", [("",), ("secret", ""), (" ",)])
def test_an_empty_key_is_refused_everywhere(keys: tuple[str, ...]) -> None:
    """An unset variable in `--api-key "$KEY"` must not open the server to everybody."""
    with pytest.raises(InvalidRequest, match="api-key"):
        Settings(api_key=keys)


@pytest.mark.parametrize("name", ["STREAMWELL_API_KEY", "STREAMWELL_ADMIN_KEY"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_variable_for_a_key_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """As an unset one that a unit or a compose file passes on; beside a key it opens nothing."""
    started: list[Settings] = []
    program = import_module("streamwell.cli.serve")  # its package has a function of that name
    monkeypatch.setattr(program, "run", lambda _models, settings: started.append(settings))
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidRequest, match=name):
        app(["serve"], exit_on_error=False)
    app(["serve", "--api-key", "secret"], exit_on_error=False, result_action="return_value")

    assert [("secret",)] == [settings.api_key for settings in started]


def test_hosts_are_checked_where_no_key_guards() -> None:
    """Without a key always; with one only if names are given, which are those of a URL's host."""
    names = ("chat.example", "[fd00::7]")

    assert Settings().checks_hosts
    assert not Settings(api_key=("secret",)).checks_hosts
    assert Settings(api_key=("secret",), allowed_hosts=names).checks_hosts
    assert names == _parse("--allowed-hosts", *names).allowed_hosts


@pytest.mark.parametrize("name", ["", "http://a", "a:8000", "a/b", "fd00::7", "*", "a b"])
def test_what_is_no_name_of_a_host_is_refused(name: str) -> None:
    """It would never match, and nobody would know why."""
    with pytest.raises(InvalidRequest, match="--allowed-hosts") as refused:
        Settings(allowed_hosts=("chat.example", name))

    assert "allowed_hosts" == refused.value.param


def test_a_step_must_hold_a_token_of_every_sequence() -> None:
    """Fewer tokens per step than sequences would starve some."""
    with pytest.raises(InvalidRequest, match="max-num-batched-tokens"):
        Settings(max_num_seqs=64, max_num_batched_tokens=63)


@pytest.mark.parametrize("model_impl", ["native", "transformers"])
def test_only_our_pytorch_code_is_compiled(model_impl: Any) -> None:  # noqa: ANN401 - a literal
    """What `--compile` would not touch is refused, and both flags are named."""
    with pytest.raises(InvalidRequest, match=f"--compile .* --model-impl {model_impl}"):
        Settings(compile=True, model_impl=model_impl)

    assert _parse("--compile", "--model-impl", "torch").compile
    assert not Settings().compile


def test_a_database_is_not_for_what_is_kept_in_memory() -> None:
    """It would not be written to, and nobody would be told."""
    with pytest.raises(InvalidRequest, match="--database-url does not go with --durability memory"):
        Settings(database_url="postgresql://x", durability="memory")


def test_an_empty_database_url_is_refused() -> None:
    """A variable that was left empty is not taken for a database, nor for none."""
    with pytest.raises(InvalidRequest, match="--database-url is empty") as refused:
        Settings(database_url="")

    assert "database_url" == refused.value.param


@pytest.mark.parametrize("name", ["api_key", "admin_key"])
def test_a_key_that_no_header_can_hold_is_refused(name: str) -> None:
    """Clients send it in one encoding or another, or not at all: nobody would get in."""
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(InvalidRequest, match=f"{flag} has characters beyond ASCII") as refused:
        _parse(flag, "ü" * 20)

    assert name == refused.value.param


def test_cuda_graphs_are_of_our_engine() -> None:
    """vLLM has graphs of its own; the flag that turns ours off is named as it is given."""
    assert not _parse("--no-cuda-graphs").cuda_graphs
    assert Settings().cuda_graphs
    with pytest.raises(InvalidRequest, match="--no-cuda-graphs does not work with --engine vllm"):
        Settings(engine="vllm", cuda_graphs=False)


@pytest.mark.parametrize("others", [{"compile": True}, {"model_impl": "transformers"}], ids=str)
def test_adapters_need_our_decoders_as_they_are(others: dict[str, Any]) -> None:
    """What knows no adapters is refused beside `--enable-lora`; the limits are finite."""
    with pytest.raises(InvalidRequest, match="--enable-lora does not work with --"):
        Settings(enable_lora=True, **others)

    settings = _parse("--enable-lora", "--max-loras", "3", "--max-lora-rank", "256")
    assert (True, 3, 256) == (settings.enable_lora, settings.max_loras, settings.max_lora_rank)
    assert (False, 8, 64) == (
        Settings().enable_lora,
        Settings().max_loras,
        Settings().max_lora_rank,
    )


def test_one_thing_guesses() -> None:
    """A draft model or the text before, not both."""
    with pytest.raises(InvalidRequest, match="--speculative-ngram") as refused:
        Settings(speculative_model="small", speculative_ngram=4)

    assert "speculative_model" == refused.value.param
    assert 4 == Settings(speculative_model="small").speculative_tokens


def test_flags_set_what_they_name() -> None:
    """Flags have the fields' names, and a repeated one gathers."""
    arguments = ["--port", "0", "--max-num-seqs", "3", "--api-key", "a", "--api-key", "b"]
    settings = _parse(*arguments, "--data-dir", "d", "--engine", "scripted", "--drain-s", "0")

    assert (0, 3, ("a", "b")) == (settings.port, settings.max_num_seqs, settings.api_key)
    assert (Path("d"), "scripted", 0) == (settings.data_dir, settings.engine, settings.drain_s)


def test_the_prefix_cache_is_on_unless_it_is_switched_off() -> None:
    """The flag has vLLM's name, and its negative."""
    flags = ["--enable-prefix-caching", "--no-enable-prefix-caching"]

    assert [True, True, False] == [
        _parse(*arguments).enable_prefix_caching for arguments in ([], *([flag] for flag in flags))
    ]


def test_the_environment_stands_in_for_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """`STREAMWELL_<FLAG>` counts where the flag is not given."""
    monkeypatch.setenv("STREAMWELL_MAX_NUM_SEQS", "3")
    monkeypatch.setenv("STREAMWELL_PORT", "1234")

    assert (3, 99) == (_parse("--port", "99").max_num_seqs, _parse("--port", "99").port)
    assert 1234 == _parse().port


BAD_ARGUMENTS: list[list[str]] = [
    ["--port", "-1"],
    ["--port", "65536"],
    ["--port", "http"],
    ["--max-num-seqs", "0"],
    ["--max-num-batched-tokens", "0"],
    ["--max-queue", "-1"],
    ["--max-model-len", "1"],
    ["--max-model-len", "100000000000000000000"],
    ["--max-num-seqs", "100000000000000000000"],
    ["--kv-cache-mib", "0"],
    ["--block-size", "0"],
    ["--num-threads", "0"],
    ["--speculative-ngram", "-1"],
    ["--speculative-ngram", "65"],
    ["--speculative-tokens", "0"],
    ["--speculative-tokens", "17"],
    ["--max-loras", "0"],
    ["--max-lora-rank", "257"],
    ["--sse-ping-s", "0"],
    ["--send-timeout-s", "0"],
    ["--drain-s", "-1"],
    ["--engine-hang-s", "0.5"],
    ["--engine-hang-s", "inf"],
    ["--retention-h", "0"],
    ["--max-body-mib", "0"],
    ["--log-level", "loud"],
    ["--engine", "steam"],
    ["--dtype", "float8"],
    ["--scripted-step-s", "-1"],
    ["--sse-ping-s", "nan"],
    ["--drain-s", "nan"],
    ["--no-such-flag"],
]


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS, ids=" ".join)
def test_values_without_sense_are_refused(arguments: list[str]) -> None:
    """Each flag refuses what it cannot mean."""
    with pytest.raises(Exception, match=r"."):
        _parse(*arguments)


def _serve() -> App:
    command: Any = app["serve"]
    assert isinstance(command, App)
    return command


_FLAGS = list(_serve().assemble_argument_collection())
_WHOLE_FLAGS = [argument.name for argument in _FLAGS if argument.hint in (int, int | None)]


@pytest.mark.parametrize("flag", _WHOLE_FLAGS)
@pytest.mark.parametrize("value", ["2.5", "2.0", "x"])
def test_fractions_are_not_rounded(flag: str, value: str) -> None:
    """Where a whole number is wanted a fraction is refused by name: rounded, it is another one."""
    with pytest.raises(CoercionError, match=f"{flag}: '{value}' is not a whole number"):
        _parse(flag, value)


def test_several_whole_numbers_are_taken_one_by_one() -> None:
    """Levels of load are whole numbers too, and the one that is not is told."""
    _, bound, _ = app.parse_args(["bench", "--concurrency", "1", "2"])
    assert (1, 2) == bound.arguments["options"].concurrency

    with pytest.raises(CoercionError, match=r"--concurrency: '2\.5' is not a whole number"):
        app.parse_args(
            ["bench", "--concurrency", "1", "2.5"], print_error=False, exit_on_error=False
        )


@pytest.mark.parametrize("flag", ["--data-dir", "--models-dir", "--presets-dir", "--trace"])
def test_a_folder_without_a_name_is_refused(flag: str) -> None:
    """An unset variable in `--data-dir "$FOLDER"` does not mean the folder one is in."""
    with pytest.raises(CoercionError, match=f"{flag}: it is empty"):
        _parse(flag, "")


def test_every_setting_is_explained() -> None:
    """`--help` says something about each flag."""
    argument_help = {
        name: argument.parameter.help
        for argument in _serve().assemble_argument_collection(parse_docstring=True)
        for name in argument.names
    }
    flags = [f"--{field.name.replace('_', '-')}" for field in fields(Settings)]

    assert [] == [f for f in flags if f != "--models" and not argument_help.get(f)]


def test_the_data_folder_follows_the_platform(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`XDG_DATA_HOME` counts, and without it the home folder's usual place."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert tmp_path / "streamwell" == default_data_dir()

    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / ".local" / "share" / "streamwell" == default_data_dir()


@pytest.mark.parametrize(
    "origin", ["*", "null", "example.org", "http://", "https://example.org/", "file:///page.html"]
)
def test_what_is_no_origin_is_refused(origin: str) -> None:
    """Origins are compared as browsers send them, so nothing may stand behind the port."""
    with pytest.raises(InvalidRequest, match="--cors-origin"):
        Settings(cors_origin=("http://127.0.0.1:9000", origin))


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("device", "cuda"),
        ("quantization", "int8"),
        ("block_size", 32),
        ("step_stretch", 1.0),
        ("short_step_s", 0.0),
        ("speculative_ngram", 4),
        ("lora", ("x=y",)),
        ("enable_lora", True),
        ("model_impl", "native"),
    ],
)
def test_what_vllm_does_not_know_is_refused(flag: str, value: object) -> None:
    """No flag is silently ignored: the one that vLLM has no use for is named."""
    with pytest.raises(InvalidRequest, match=flag.replace("_", "-")) as refused:
        Settings(engine="vllm", **{flag: value})  # type: ignore[arg-type]

    assert flag == refused.value.param
    assert "vllm" == Settings(engine="vllm", model_impl="transformers", max_num_seqs=8).engine
    assert "vllm" == Settings(engine="vllm", quantization="none").engine


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("idle_unload_s", {"idle_unload_s": 5.0}),
        ("models_dir", {"models_dir": Path()}),
        ("durability", {"durability": "memory", "ray_gateways": 2}),
    ],
)
def test_what_does_not_go_together_with_ray_is_refused(field: str, values: dict[str, Any]) -> None:
    """Without `--ray` the same settings are fine."""
    with pytest.raises(InvalidRequest) as refused:
        Settings(ray=True, **values)

    assert field == refused.value.param
    assert not Settings(**values).ray
