"""Which server the commands talk to."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from streamwell.cli.address import Address
from streamwell.cli.remote import transport_of
from streamwell.core.errors import InvalidRequest


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("https://example.org/llm/v1/", "https://example.org/llm"),
        ("localhost:8000", "http://localhost:8000"),
    ],
)
def test_addresses_are_taken_as_they_are_known(url: str, base: str) -> None:
    """With the `/v1` that other clients want, and without a scheme."""
    assert base == Address(url=url).base


@pytest.mark.parametrize(
    ("port", "found"),
    [
        ("8123", "http://127.0.0.1:8123"),
        (" 8123 ", "http://127.0.0.1:8123"),
        ("abc", "STREAMWELL_PORT must be a number from 1 to 65535, not 'abc'"),
        ("", "STREAMWELL_PORT must be a number from 1 to 65535, not ''"),
        ("0", "STREAMWELL_PORT must be a number from 1 to 65535, not '0'"),
    ],
)
def test_the_port_of_a_shell_is_that_of_its_server(port: str, found: str) -> None:
    """`streamwell serve` takes its port from there; the commands find it, or say what is wrong."""
    code = (
        "from streamwell.cli.address import Address, InvalidRequest\n"
        "try: print(Address().base)\n"
        "except InvalidRequest as error: print(error)"
    )
    printed = subprocess.check_output(
        [sys.executable, "-c", code], env=os.environ | {"STREAMWELL_PORT": port}, text=True
    )

    assert f"{found}\n" == printed


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://[::1", "http://127.0.0.1:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    """By the flag's name: no server can answer there."""
    with pytest.raises(InvalidRequest, match=r"^--url must be an address such as"):
        _ = Address(url=url).base


def test_of_several_keys_the_first_is_sent() -> None:
    """In a header; without a key there is none."""
    assert {"authorization": "Bearer sk-1"} == Address(api_key=("sk-1", "sk-2")).headers
    assert {} == Address().headers


@pytest.mark.parametrize("key", ["", " \n", "sk\r1", "sk-1\x7f", "schlüssel", "\udcff"])
def test_keys_that_no_header_can_hold_are_refused(key: str) -> None:
    """By the flag's name, before anything is sent; what surrounds a key is no part of it."""
    with pytest.raises(InvalidRequest, match=r"^--api-key must be printable ASCII"):
        _ = Address(api_key=(key,)).headers
    assert {"authorization": "Bearer sk-1"} == Address(api_key=(" sk-1\r\n",)).headers


@pytest.mark.parametrize(
    ("url", "is_here"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://localhost", True),
        ("http://[::1]:8000", True),
        ("https://example.org/v1", False),
    ],
)
def test_this_machine_is_reached_without_a_proxy(url: str, is_here: bool) -> None:
    """The environment's is for others: it would ask itself for what it calls localhost."""
    assert {"verify": url.startswith("https"), "trust_env": not is_here} == transport_of(url)
