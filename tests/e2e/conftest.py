"""Servers that several files share: starting one takes seconds, so they live for the session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Unpack

import pytest

sys.path.append(str(Path(__file__).parents[1] / "golden"))  # what writes tiny models

from harness import Places, ServerProcess, StartServer


def _serve(factory: pytest.TempPathFactory, *flags: str, **places: Unpack[Places]) -> ServerProcess:
    # one thread, so that a busy machine costs time but no waiting of threads for each other
    common = ("--log-level", "warning", "--num-threads", "1")
    return ServerProcess(factory.mktemp("server"), *common, *flags, **places)


@pytest.fixture(scope="session")
def brooklet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The built-in model with default settings."""
    with closing(_serve(tmp_path_factory)) as server:
        server.wait_until_ready()
        yield server


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The built-in model with eight places, so that requests queue."""
    with closing(_serve(tmp_path_factory, "--max-num-seqs", "8")) as server:
        server.wait_until_ready()
        yield server


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The scripted engine: a token every 10 ms, whatever else is asked."""
    flags = ("--engine", "scripted", "--scripted-step-s", "0.01")
    with closing(_serve(tmp_path_factory, *flags)) as server:
        server.wait_until_ready()
        yield server


@pytest.fixture(scope="session")
def guessing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The built-in model, which guesses by prompt lookup and computes every prompt anew."""
    flags = ("--speculative-ngram", "4", "--no-enable-prefix-caching")
    with closing(_serve(tmp_path_factory, *flags)) as server:
        server.wait_until_ready()
        yield server


@pytest.fixture(scope="session")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The scripted engine behind two keys, and a third one for who operates it."""
    flags = ("--engine", "scripted", "--api-key", "sk-one", "--api-key", "sk-two")
    with closing(_serve(tmp_path_factory, *flags, "--admin-key", "sk-operator")) as server:
        server.wait_until_ready()
        yield server


@pytest.fixture
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Start servers for one test alone; they are not waited for."""
    with ExitStack() as servers:

        def start(*flags: str, **places: Unpack[Places]) -> ServerProcess:
            return servers.enter_context(closing(_serve(tmp_path_factory, *flags, **places)))

        yield start
