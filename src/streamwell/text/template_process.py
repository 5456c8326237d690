"""The process that renders chat templates: `python -m streamwell.text.template_process FD`.

A template comes with a model and may be anything: a loop without an end, a text of a billion
letters, an attempt on Jinja's sandbox. Here it costs no more than this process, which `confinement`
has left little to take.

Messages stand behind a four-byte length (big endian). To here: JSON, a template's source, and
either the variables to render it with, or none to be told what text the template itself may write.
From here: a byte that says what came of it, and a text. The environment is the one that templates
are written for, which is that of Transformers
(https://huggingface.co/docs/transformers/chat_templating_writing).
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any, NoReturn

import jinja2
from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from streamwell.text.confinement import confine, cpu_limit

#: CPU time of one rendering; the first one has compiling the template in it, too.
RENDER_CPU_S = 2.0
MEMORY_BYTES = 1 << 30
#: What a template may write beyond twice what it is given, in characters.
MAX_OUTPUT_CHARS = 4 << 20

LENGTH_BYTES = 4
#: What came of a message: a text; the template's own no, or mistake; an end by force.
TEXT, REFUSAL, HARM = b"t", b"r", b"h"
#: Jinja imports these when they are needed; then it is too late to open a file.
_IMPORTED_LATE = (
    "encodings.unicode_escape",
    "jinja2.constants",
    "jinja2.debug",
    "pprint",
    "textwrap",
)
#: What no template of an honest model does.
_HARM = (SecurityError, MemoryError, OverflowError, RecursionError)
_OTHER_FILES = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


class _GenerationBlock(Extension):
    """`{% generation %}` marks what the assistant said, for training; here it is just its body."""

    tags = {"generation"}  # noqa: RUF012 - declared so by the base class

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


class _Namespace(Namespace):
    """Jinja's, but it takes no names that Python's own attributes have."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - `self` may be a name
        Namespace.__init__(*args, **kwargs)
        for name in dict(*args[1:], **kwargs):
            _refuse_private(name)

    def __setitem__(self, name: str, value: object) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no attribute {name!r}: it is not safe")


class _Dict:
    """`dict` without the ways on that the class itself has."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:  # noqa: ANN401
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:  # noqa: ANN401
        return dict.fromkeys(*args)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - as templates call it
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)  # noqa: DTZ005 - local time is what is asked for


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, LoopControlExtension],
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment


class _Template:
    """A parsed template; compiled when it is rendered first."""

    def __init__(self, source: str) -> None:
        self._environment = _environment()
        self._source = source
        tree = self._environment.parse(source)
        if any(tree.find_all(_OTHER_FILES)):
            raise SecurityError("it wants other files, which is not safe")
        #: All text that it holds, pieces apart from each other.
        self.literals = "\0".join(
            [node.data for node in tree.find_all(nodes.TemplateData)]
            + [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
        )

    @cached_property
    def _compiled(self) -> jinja2.Template:
        return self._environment.from_string(self._source)

    def render(self, variables: Mapping[str, Any], max_chars: int) -> str:
        pieces, num_chars = [], 0
        for piece in self._compiled.generate(variables):
            pieces.append(piece)
            num_chars += len(piece)
            if num_chars > max_chars:
                raise OverflowError(f"it writes more than {max_chars} characters")
        return "".join(pieces)


@lru_cache(maxsize=8)
def _template(source: str) -> _Template:
    return _Template(source)


def _answer(body: bytes) -> tuple[bytes, str]:
    """What came of a message, and the text or the reason."""
    try:
        message = json.loads(body)
        template = _template(message["source"])
        if (variables := message["variables"]) is None:
            return TEXT, template.literals
        return TEXT, template.render(variables, MAX_OUTPUT_CHARS + 2 * len(body))
    except _HARM as error:
        return HARM, str(error) or f"it ran into a {type(error).__name__}"
    except Exception as error:  # noqa: BLE001 - whatever a template does wrong is told to who asked
        return REFUSAL, str(error) or type(error).__name__


def _serve(connection: socket.socket) -> None:
    with connection.makefile("rb") as stream:
        while len(header := stream.read(LENGTH_BYTES)) == LENGTH_BYTES:
            body = stream.read(int.from_bytes(header))
            with cpu_limit(RENDER_CPU_S):
                kind, text = _answer(body)
                answer = kind + text.encode("utf-8", "surrogatepass")
            connection.sendall(len(answer).to_bytes(LENGTH_BYTES) + answer)


def main() -> None:
    """Entry point of the process; it ends when its parent has."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(
            number, signal.SIG_IGN
        )  # often sent to the whole group; they are the parent's
    time.tzset()
    for name in _IMPORTED_LATE:
        import_module(name)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        confine(memory_bytes=MEMORY_BYTES)
        _serve(connection)


if __name__ == "__main__":
    main()
