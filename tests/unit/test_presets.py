"""Presets: what stands around a prompt, what it is sampled with, and files that are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamwell.core.errors import InvalidRequest
from streamwell.core.types import Message, Prompt
from streamwell.server.convert.prompts import filled, prompt_run
from streamwell.server.presets import load_presets
from streamwell.server.schemas.prompts import PLACE, Preset, PromptRequest

BUILT_IN = ("chat", "few-shot", "human-assistant", "plain")


def _run(preset: Preset, **fields: Any) -> Any:  # noqa: ANN401
    body = PromptRequest.model_validate({"prompt": "Hello"} | fields)
    return prompt_run(body, body.prompt, preset, "")


def _filled(template: str, prompt: str) -> Prompt:
    return filled(Preset(template=template), prompt)


@pytest.mark.parametrize("name", BUILT_IN)
def test_those_in_the_box_are_there(name: str) -> None:
    """Each has a description, and a template or none."""
    preset = load_presets().find(name)

    assert preset.description
    assert (preset.template is None) == (name == "chat")


def test_what_those_of_the_articles_say() -> None:
    """The marks, the stop strings and the settings are those that the articles name."""
    presets = load_presets()
    human, few_shot = presets.find("human-assistant"), presets.find("few-shot")
    assert human.template is not None
    assert few_shot.template is not None

    assert human.template.endswith(f"\n###Human: {PLACE}\n###Assistant:")
    assert (64, 0.1) == (human.max_tokens, human.temperature)
    assert few_shot.template.endswith("<|assistant|> :")
    assert ["<|system|>", "<|user|>"] == few_shot.stop
    assert 0.9 == few_shot.frequency_penalty


@pytest.mark.parametrize(
    ("template", "prompt", "expected"),
    [
        ("{prompt}", "Hello", "Hello"),
        ("<{prompt}>", "{prompt}", "<{prompt}>"),
        ("{x} {prompt} {{0}} %s", "{x}", "{x} {x} {{0}} %s"),
        ("{prompt.__class__} {prompt}", "a", "{prompt.__class__} a"),
        ("{{ 7 * 7 }} {prompt}", "{{ 7 * 7 }}", "{{ 7 * 7 }} {{ 7 * 7 }}"),
    ],
)
def test_a_template_is_no_language(template: str, prompt: str, expected: str) -> None:
    """One place is replaced, once; braces in the template and in the prompt are text."""
    assert expected == _filled(template, prompt)


def test_without_a_template_the_prompt_is_a_message() -> None:
    """The model's own chat template says the rest."""
    assert (Message("user", "{prompt}"),) == filled(Preset(), "{prompt}")


def test_a_request_says_more_than_its_preset() -> None:
    """A field of the request wins, also with a zero; stop strings are those of both."""
    preset = Preset(temperature=0.1, max_tokens=64, top_k=5, stop=["a"], frequency_penalty=0.9)
    run = _run(preset, temperature=0.0, frequency_penalty=0.0, stop="b")

    assert (0.0, 64, 5) == (run.options.temperature, run.options.max_tokens, run.options.top_k)
    assert 0.0 == run.options.frequency_penalty
    assert ("a", "b") == run.stop
    assert _run(preset).options.frequency_penalty == 0.9
    assert _run(Preset()).options.temperature is None


def test_a_folder_adds_and_replaces(tmp_path: Path) -> None:
    """Files of the user's are beside those in the box, or in their place; others are left alone."""
    (tmp_path / "mine.toml").write_text('template = "Q: {prompt} A:"', encoding="utf-8")
    (tmp_path / "plain.toml").write_text('template = "> {prompt}"', encoding="utf-8")
    (tmp_path / "README.md").write_text("no preset", encoding="utf-8")
    presets = load_presets(tmp_path, "mine")

    assert "Q: {prompt} A:" == presets.find(None).template
    assert "> {prompt}" == presets.find("plain").template
    assert presets.find("few-shot").stop
    assert presets.find_for_chat(None) == Preset()


WRONG = [
    ("temperature = 1000", "temperature"),
    ("temperature = true", "temperature"),
    ('temperature = "0.1"', "temperature"),
    ("temperature = nan", "temperature"),
    ("max_tokens = 0", "max_tokens"),
    ('template = "Hello"', "template"),
    ('template = "{prompt} {prompt}"', "template"),
    ("template = 5", "template"),
    ('stop = ["a", "b", "c", "d", "e"]', "stop"),
    ('stop = [""]', "stop.0"),
    ("temprature = 0.1", "temprature"),
    ("[table]\na = 1", "table"),
    ("temperature", "is no TOML"),
    ("\x00", "is no TOML"),
]


@pytest.mark.parametrize(("content", "named"), WRONG)
def test_a_wrong_file_is_named_with_its_field(tmp_path: Path, content: str, named: str) -> None:
    """One line says which file and which field."""
    (tmp_path / "bad.toml").write_text(content, encoding="utf-8")
    with pytest.raises(InvalidRequest) as refused:
        load_presets(tmp_path)

    assert str(refused.value).startswith(f"{tmp_path / 'bad.toml'}: {named}")
    assert "\n" not in str(refused.value)
    assert "presets_dir" == refused.value.param


def test_what_is_no_file_of_text_is_refused(tmp_path: Path) -> None:
    """A folder, bytes that are no UTF-8, a file too large, a name that no request could give."""
    for make in (
        lambda: (tmp_path / "bad.toml").mkdir(),
        lambda: (tmp_path / "bad.toml").write_bytes(b"\xff"),
        lambda: (tmp_path / "bad.toml").write_bytes(b"#" * (1 << 19)),
        lambda: (tmp_path / "-bad name.toml").touch(),
    ):
        make()
        with pytest.raises(InvalidRequest, match=r"bad"):
            load_presets(tmp_path)
        path = next(tmp_path.iterdir())
        path.rmdir() if path.is_dir() else path.unlink()


def test_names_that_are_not_there(tmp_path: Path) -> None:
    """The folder, the default and a request's preset are each refused by their own name."""
    with pytest.raises(InvalidRequest, match="--presets-dir"):
        load_presets(tmp_path / "none")
    with pytest.raises(InvalidRequest, match="--prompt-preset x: there are chat, few-shot"):
        load_presets(default="x")
    with pytest.raises(InvalidRequest, match="there is no preset x") as refused:
        load_presets().find("x")
    assert "preset" == refused.value.param
    with pytest.raises(InvalidRequest, match="is a conversation") as refused:
        load_presets().find_for_chat("few-shot")
    assert "preset" == refused.value.param
