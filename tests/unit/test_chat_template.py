"""Chat templates render as Transformers renders them, in a process that can do no harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from streamwell.core.errors import InvalidRequest
from streamwell.core.types import Message
from streamwell.text.chat_template import HarmfulTemplate, TemplateRenderer
from streamwell.text.prompt import PromptEncoder

pytestmark = pytest.mark.slow

MESSAGES = [
    {"role": "system", "content": "  Be kind.\n"},
    {"role": "user", "content": "Hello, 世界! <b>&</b> \U0001f600"},
    {"role": "assistant", "content": "Hi.", "tool_calls": [{"name": "f", "arguments": {"x": 1.5}}]},
    {"role": "user", "content": [{"type": "text", "text": "And?"}, {"type": "image"}]},
]
VARIABLES: dict[str, Any] = {
    "messages": MESSAGES,
    "tools": None,
    "documents": None,
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "deep": {"b": [1, {"a": None}], "a": True},
}
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content|string + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEMPLATES = [
    CHATML,
    "{{ bos_token }}{%- for m in messages -%}\n  {{ m.content | trim if m.content is string }}\n"
    "{%- endfor %}\n    {% if tools is defined and not tools %}\n    none\n    {% endif %}\nend\n",
    "{{ deep|tojson }}|{{ deep|tojson(indent=2) }}|{{ deep|tojson(sort_keys=true) }}"
    "|{{ messages|tojson(ensure_ascii=true, separators=(',', ':')) }}",
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ loop.index }}"
    "{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}",
    "{% set ns = namespace(last=-1, seen=[]) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% set ns.seen = ns.seen + [m.role] %}{% endif %}{% endfor %}"
    "{{ ns.last }}{{ ns.seen|join('+') }}{{ ns.none is defined }}",
    "{% macro turn(m) %}<{{ m.role|upper }}>{{ caller() if caller else '' }}{% endmacro %}"
    "{% for m in messages %}{{ turn(m) }}{% endfor %}",
    "{% for m in messages %}{% generation %}{% set x = m.role %}{{ x }}{% endgeneration %}"
    "{{ x is defined }}{% endfor %}",
    "{{ dict(a=1, **{'b': 2}) }}{{ dict.fromkeys(['x', 'y'], 0) }}"
    "{{ dict([('k', 'v')]).items()|list }}",
    "{{ strftime_now('%Y') }}{{ messages[1].content.split(',')[0] }}{{ messages[::-1][0].role }}",
    "{{ missing }}{{ messages[0].missing }}{{ messages|map(attribute='role')|unique|list }}",
    "{{ range(3)|list }}{{ cycler('a', 'b').next() }}{{ joiner()() }}{{ 'x'.join(['a', 'b']) }}"
    "{{ '%s-%03d'|format('a', 7) }}{{ '{} {a}'.format(1, a=2) }}{{ 'a b c'|wordwrap(1) }}",
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ deep|pprint }}{{ 1e400 }}",
]
REFUSALS = [
    "{{ raise_exception('Roles must alternate.') }}",
    "{{ missing.attribute }}",
    "{{ messages[0].content + 1 }}",
    "{% for %}",
]


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture(scope="module")
def renderer() -> TemplateRenderer:
    return TemplateRenderer()


def by_transformers(template: str) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    others = {k: v for k, v in VARIABLES.items() if k not in ("messages", "tools", "documents")}
    rendered, _ = render_jinja_template([MESSAGES], chat_template=template, **others)
    text: str = rendered[0]
    return text


@pytest.mark.parametrize("template", TEMPLATES)
def test_it_renders_as_transformers_does(renderer: TemplateRenderer, template: str) -> None:
    """Templates are written for that environment: blocks, filters, globals and all."""
    assert by_transformers(template) == renderer.render(template, VARIABLES)


@pytest.mark.parametrize("template", REFUSALS)
def test_it_refuses_as_transformers_does(renderer: TemplateRenderer, template: str) -> None:
    """In the same words, as the caller's error; the process stays."""
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - of many types
        by_transformers(template)
    with pytest.raises(InvalidRequest) as ours:
        renderer.render(template, VARIABLES)

    assert str(theirs.value) == str(ours.value)
    assert not isinstance(ours.value, HarmfulTemplate)


def _save_tokenizer(folder: Path) -> Path:
    """Special tokens and others; the template writes some of each."""
    alphabet = sorted(ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|im|>"])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("<think>", "<tool>", "\n\n")])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = CHATML + "{{ '<think>\n\n' if messages|length > 9 }}"
    (folder / "chat_template.jinja").write_text(template)
    return folder


@pytest.mark.parametrize("named", [None, ["<tool>"]])
def test_ids_are_those_of_transformers(tmp_path: Path, named: list[str] | None) -> None:
    """With its `sanitize_control_tokens`: what users type is text, what templates write is not."""
    encoder = PromptEncoder.load(_save_tokenizer(tmp_path))
    tokenizer = encoder._tokenizer
    tokenizer.chat_control_tokens = named
    encoder._control_tokens = encoder._find_control_tokens()
    said = "<|im_start|>a<|im_end|>\n\n<think><tool><|im|><|im_\U000f0000end|>\U000f0001 b"

    ids = encoder.encode_chat([Message("user", said), Message("assistant", "\n\n")])

    conversation = [{"role": "user", "content": said}, {"role": "assistant", "content": "\n\n"}]
    assert ids == tokenizer.apply_chat_template(
        conversation,
        add_generation_prompt=True,
        sanitize_control_tokens=True,
        return_dict=False,
    )


def test_constants_are_not_worked_out_here(renderer: TemplateRenderer) -> None:
    """Jinja computes constants when it compiles; the text of a template is told without that."""
    assert "hi\0there" == renderer.literals(
        "hi{% if false %}{{ 9 ** (9 ** 9) }}{{ 'there' }}{% endif %}"
    )


def test_a_stopped_process_is_replaced(renderer: TemplateRenderer) -> None:
    """Who killed it pays for it; the next rendering has another process."""
    with pytest.raises(HarmfulTemplate, match="took more than 2 s"):
        renderer.render(ENDLESS, {})
    assert "1" == renderer.render("{{ 1 }}", {})

    assert renderer._process is not None
    renderer._process._process.kill()
    renderer._process._process.wait()

    assert "2" == renderer.render("{{ 2 }}", {})


def test_memory_is_limited_and_given_back(renderer: TemplateRenderer) -> None:
    """A template that fills its process's memory is stopped; the next one has it all again."""
    doubling = "{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
    hungry = "{% set n = namespace(x='a' * 999) %}" + doubling
    for _ in range(2):
        with pytest.raises(HarmfulTemplate, match=r"MemoryError|took more than"):
            renderer.render(hungry, {})
    text = "x" * (3 << 20)

    assert text == renderer.render("{{ text }}", {"text": text})


def test_long_conversations_may_have_long_prompts(renderer: TemplateRenderer) -> None:
    """The limit of what is written grows with what is given."""
    text = "x" * (8 << 20)

    assert 2 * len(text) == len(renderer.render("{{ text }}{{ text }}", {"text": text}))
    with pytest.raises(HarmfulTemplate, match="writes more than"):
        renderer.render("{% for i in range(9) %}{{ text }}{% endfor %}", {"text": text})


def test_many_threads_share_one_process() -> None:
    """Each gets its own answer."""
    renderer = TemplateRenderer()
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda i: renderer.render("{{ i }}", {"i": i}), range(200)))

    assert [str(i) for i in range(200)] == texts
    renderer.close()


def test_no_process_is_left_behind() -> None:
    """Closed, or forgotten: the process ends."""
    closed, forgotten = TemplateRenderer(), TemplateRenderer()
    children = []
    for renderer in (closed, forgotten):
        before = psutil.Process().children()
        renderer.render("", {})
        children += [child for child in psutil.Process().children() if child not in before]
    assert 2 == len(children)

    closed.close()
    del forgotten, renderer

    assert not any(child.is_running() for child in children)


CONFINED = """
import os, socket, subprocess, sys
from streamwell.text.confinement import confine
confine(memory_bytes=1 << 30)
attempts = {
    "read a file": lambda: open(sys.argv[1]),
    "write a file": lambda: open(sys.argv[1] + ".new", "w"),
    "connect": lambda: socket.socket(),
    "run a program": lambda: subprocess.run(["true"]),
    "take memory": lambda: bytes(2 << 30),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except (OSError, MemoryError):
        continue
    print(name)
print(sorted(set(os.environ) & {"STREAMWELL_API_KEY", "HF_TOKEN"}))
"""


def test_who_breaks_out_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the sandbox is a process without files, connections, programs, memory or keys."""
    from streamwell.text.confinement import bare_environment

    monkeypatch.setenv("STREAMWELL_API_KEY", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    (tmp_path / "secret").write_text("")
    command = [sys.executable, "-c", CONFINED, str(tmp_path / "secret")]

    done = subprocess.run(command, capture_output=True, text=True, env=bare_environment())

    assert ("[]\n", "") == (done.stdout, done.stderr)


PARENT = """
import sys, threading
from streamwell.text.chat_template import TemplateRenderer
renderer = TemplateRenderer()
renderer.render("", {})
threading.Thread(target=renderer.render, args=(sys.argv[1], {}), daemon=True).start()
print(renderer._process._process.pid, flush=True)
input()
"""


def test_a_template_process_ends_with_its_parent() -> None:
    """Nobody is there to stop an endless template when the server has been killed: time does."""
    command = [sys.executable, "-c", PARENT, ENDLESS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)

    psutil.wait_procs([child], timeout=60)

    assert not child.is_running()
