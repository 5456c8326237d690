"""A server that says what a test wants it to, for commands that talk to one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

JSON, SSE, HTML = "application/json", "text/event-stream; charset=utf-8", "text/html"
READY, MODELS, CHAT = "GET /ready", "GET /v1/models", "POST /v1/chat/completions"

#: Status, headers and body.
Answer = tuple[int, Mapping[str, str], str]
#: Status, content type and body, by method and path.
Answers = dict[str, tuple[int, str, str]]

NOT_FOUND = (404, HTML, "<h1>Not found</h1>")
OURS: Answers = {READY: (200, JSON, '{"status": "ready"}')}
HELLO = 'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n'


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], Answer]) -> Iterator[str]:
    """A server that asks for each answer; gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers["content-length"] or 0))
            status, headers, body = answer(self)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET  # noqa: N815 - as the base class wants it

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """A server that says what is in the table, and 404 to all else; gives its URL."""

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        status, kind, body = answers.get(f"{request.command} {request.path}", NOT_FOUND)
        return status, {"content-type": kind}, body

    with answering(answer) as url:
        yield url
