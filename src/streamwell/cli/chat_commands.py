"""The commands of `streamwell chat`, and the conversation that they change."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamwell.core.errors import InvalidRequest

HELP = """\
/system [TEXT]  say how the model shall behave; without a text: nothing
/model [NAME]   talk to another model; without a name: list them
/save FILE      write the conversation as JSON
/load FILE      go on with a conversation that was saved
/retry          another answer to the last question, or the first one if none came
/stop           end the answer, typed while it comes; so does Ctrl-C
/clear          begin a new conversation
/help           this
/quit           leave; so does Ctrl-D
A line that ends in \\ goes on in the next one; so do lines between \"\"\" and \"\"\".
A line that begins with a space is no command."""

_ROLES = ("user", "assistant")


@dataclass(slots=True)
class Conversation:
    """What was said, and whom it is said to."""

    model: str = ""
    system: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)

    def body(self) -> dict[str, Any]:
        """The request for the next answer."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        model = {"model": self.model} if self.model else {}
        return {"messages": [*first, *self.messages]} | model

    @property
    def is_answered(self) -> bool:
        return not self.messages or self.messages[-1]["role"] == "assistant"

    def ask(self, content: str) -> None:
        """In the place of a question that got no answer."""
        if not self.is_answered:
            self.messages.pop()
        self.messages.append({"role": "user", "content": content})

    def answered(self, content: str) -> None:
        self.messages.append({"role": "assistant", "content": content})

    def take_back(self) -> bool:
        """Drop the last answer, for another one; false if nothing was asked."""
        while self.messages and self.is_answered:
            self.messages.pop()
        return bool(self.messages)

    def save(self, path: Path) -> None:
        """Raises `InvalidRequest` if it cannot be written."""
        saved = {"model": self.model, "system": self.system, "messages": self.messages}
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode=0o600)
            with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
                json.dump(saved, file, ensure_ascii=False, indent=2)
        except OSError as error:
            raise InvalidRequest(f"cannot write {path}: {error.strerror}") from None

    def load(self, path: Path) -> None:
        """Become what was saved. Raises `InvalidRequest` if it is no conversation of ours."""
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            messages = [
                {"role": _role(message["role"]), "content": _text(message["content"])}
                for message in saved["messages"]
            ]
            model, system = _text(saved.get("model", "")), _text(saved.get("system", ""))
        except OSError as error:
            raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise InvalidRequest(f"{path} is no conversation that /save wrote") from None
        self.model, self.system, self.messages = model, system, messages


class Commands:
    """What lines that begin with `/` do."""

    def __init__(
        self,
        conversation: Conversation,
        *,
        answer: Callable[[], None],
        list_models: Callable[[], list[str]],
    ) -> None:
        """`answer` asks for an answer to the conversation, `list_models` for what is served."""
        self._conversation = conversation
        self._answer = answer
        self._list_models = list_models
        self._by_name: dict[str, Callable[[str], str]] = {
            "system": self._system,
            "model": self._model,
            "save": self._save,
            "load": self._load,
            "retry": self._retry,
            "stop": lambda _: "no answer is coming",
            "clear": self._clear,
            "help": lambda _: HELP,
        }

    def run(self, line: str) -> str:
        """Carry one out; returns what it has to say.

        Raises:
            EOFError: it is `/quit`.
            InvalidRequest: there is no such command, or it cannot be done.
        """
        name, _, rest = line.removeprefix("/").partition(" ")
        if name in ("quit", "exit", "bye"):
            raise EOFError
        if name not in self._by_name:
            raise InvalidRequest(f"there is no command /{name}; /help lists them")
        return self._by_name[name](rest.strip())

    def _system(self, text: str) -> str:
        self._conversation.system = text
        return "the system prompt is set" if text else "there is no system prompt"

    def _model(self, name: str) -> str:
        names = self._list_models()
        if not name:
            current = self._conversation.model or next(iter(names), "")
            return "\n".join(f"{'*' if each == current else ' '} {each}" for each in names)
        if name not in names:
            raise InvalidRequest(f"there is no model {name!r}; there are {', '.join(names)}")
        self._conversation.model = name
        return f"the next answer is from {name}"

    def _save(self, file: str) -> str:
        path = _path(file, "/save")
        self._conversation.save(path)
        return f"{len(self._conversation.messages)} messages are in {path}"

    def _load(self, file: str) -> str:
        self._conversation.load(_path(file, "/load"))
        return f"{len(self._conversation.messages)} messages were read"

    def _retry(self, _rest: str) -> str:
        before = list(self._conversation.messages)
        if not self._conversation.take_back():
            raise InvalidRequest("nothing was asked yet")
        try:
            self._answer()
        finally:
            if not self._conversation.is_answered:
                self._conversation.messages[:] = before
        return ""

    def _clear(self, _rest: str) -> str:
        self._conversation.messages.clear()
        return "a new conversation"


def _path(file: str, command: str) -> Path:
    if not file:
        raise InvalidRequest(f"{command} wants the name of a file")
    return Path(file).expanduser()


def _role(value: object) -> str:
    if value not in _ROLES:
        raise ValueError
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
