"""`/ready` tells whether the run log can be written, in both directions."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import httpx2
import pytest
from harness import ServerProcess, StartServer, eventually

pytestmark = pytest.mark.slow


def _refusal(server: ServerProcess) -> httpx2.Response | None:
    response = server.client.get("/ready")
    return response if response.status_code == 503 else None


def test_a_locked_database_is_not_ready(start_server: StartServer) -> None:
    """Somebody holds the lock for longer than the server waits: 503, until it is let go."""
    server = start_server("--engine", "scripted")
    server.wait_until_ready()
    with closing(sqlite3.connect(server.database_path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refusal = eventually(lambda: _refusal(server), "/ready says that the log fails")
        other.execute("ROLLBACK")
    server.wait_until_ready()

    assert "store_failed" == refusal.json()["status"]
    assert int(refusal.headers["retry-after"]) > 0
    assert server.log().count("run log cannot be used") == 1
    assert 3 == len(server.text({"prompt": "Hello", "max_tokens": 3}))
