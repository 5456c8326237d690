"""A stand-in for the hub on loopback: as much of its protocol as a download of a model takes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

#: What `main` stands for, and another branch.
MAIN, OTHER = "a" * 40, "b" * 40


@dataclass(slots=True)
class Repository:
    """A model on the hub."""

    #: Files by their names, for each commit.
    commits: Mapping[str, Mapping[str, bytes]]
    #: Whether its files want a token that has access.
    is_gated: bool = False


@dataclass(slots=True)
class Hub:
    """What is there, and what was asked for."""

    repositories: dict[str, Repository]
    token: str | None = None
    #: Method, path and `Authorization` of each request.
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    url: str = ""

    def fetched(self, repository: str) -> list[str]:
        """The names of files that were sent of a repository, each as often as it was."""
        paths = [
            path
            for method, path, _ in self.requests
            if method == "GET" and path.startswith(f"/{repository}/resolve/")
        ]
        return [path.rpartition("/")[2] for path in paths]


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - silence
        pass

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        authorization = self.headers.get("Authorization")
        self.hub.requests.append((self.command, path, authorization))
        parts = path.removeprefix("/api/models/").strip("/").split("/")
        repository = self.hub.repositories.get("/".join(parts[:2]))
        if repository is None:
            self._refuse(404, "RepoNotFound")
        elif path.startswith("/api/models/"):
            self._about("/".join(parts[:2]), repository, parts[2:])
        elif repository.is_gated and authorization != f"Bearer {self.hub.token}":
            self._refuse(403 if authorization else 401, "GatedRepo")
        else:
            self._file(repository, parts[3], "/".join(parts[4:]), with_body=with_body)

    def _about(self, name: str, repository: Repository, rest: list[str]) -> None:
        revision = rest[1] if len(rest) > 1 else "main"
        commit = {"main": MAIN, "other": OTHER}.get(revision, revision)
        if commit not in repository.commits:
            self._refuse(404, "RevisionNotFound")
            return
        files = repository.commits[commit]
        if rest[:1] == ["tree"]:
            entries = [
                {"type": "file", "path": n, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                for n, c in files.items()
            ]
            self._send(200, json.dumps(entries).encode())
        else:
            siblings = [{"rfilename": file} for file in files]
            about = {"id": name, "sha": commit, "siblings": siblings, "tags": []}
            self._send(200, json.dumps(about).encode())

    def _file(self, repository: Repository, commit: str, file: str, *, with_body: bool) -> None:
        content = repository.commits[commit].get(file)
        if content is None:
            self._refuse(404, "EntryNotFound")
            return
        etag = hashlib.sha256(content).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": commit}
        self._send(200, content, headers, with_body=with_body)

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})

    def _send(
        self,
        status: int,
        content: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        with_body: bool = True,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body and self.command == "GET":
            self.wfile.write(content)


@contextmanager
def serving(hub: Hub, host: str = "127.0.0.1") -> Iterator[Hub]:
    """The hub, on a port of its own at this address of the machine."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer((host, 0), handler) as server:
        hub.url = f"http://{host}:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield hub
        server.shutdown()
        thread.join()


def files_of(folder: Path) -> dict[str, bytes]:
    """What a folder would be on the hub."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
