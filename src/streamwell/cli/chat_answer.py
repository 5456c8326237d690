"""The text of one answer to a conversation, as it comes; shared by `chat` and `run`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx2

from streamwell.cli.answer_stream import AnswerStream, ConnectionLost
from streamwell.cli.remote import understood
from streamwell.core.errors import InvalidRequest

_PATH = "/v1/chat/completions"


class ChatAnswer:
    """One answer; iterate once for its pieces of text."""

    def __init__(self, client: httpx2.Client, body: dict[str, Any]) -> None:
        """`body` is a chat completion without `stream`.

        Raises:
            InvalidRequest: it cannot be sent: bytes that are no text were typed or piped in.
        """
        try:
            json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidRequest("the prompt must be text in UTF-8", "prompt") from None
        self.finish_reason = ""
        self._client = client
        self._stream = AnswerStream(
            client, _PATH, body | {"stream": True}, resume_path=f"{_PATH}/{{run_id}}?stream=true"
        )

    @property
    def run_id(self) -> str:
        """Empty until the answer begins, and with servers of another make."""
        return self._stream.run_id

    def __iter__(self) -> Iterator[str]:
        """Raises what `AnswerStream` does."""
        for chunk in self._chunks():
            with understood(f"POST {_PATH}"):
                choices = chunk["choices"]
                text = "".join(choice["delta"].get("content") or "" for choice in choices)
                reasons = [choice.get("finish_reason") for choice in choices]
            self.finish_reason = next(filter(None, reasons), self.finish_reason)
            if text:
                # JSON may have halves of characters, which nobody can print, nor send back
                yield text.encode(errors="replace").decode()

    def _chunks(self) -> Iterator[dict[str, Any]]:
        """Of other makes some leave out `[DONE]`: an answer that gave its reason is whole."""
        try:
            yield from self._stream
        except ConnectionLost:
            if not self.finish_reason:
                raise

    def cancel(self) -> None:
        """End its run now, rather than when the server gives its reader up."""
        if self.run_id:
            with contextlib.suppress(httpx2.HTTPError):
                self._client.post(f"/v1/runs/{self.run_id}/cancel", timeout=5.0)
