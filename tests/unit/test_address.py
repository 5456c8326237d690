"""Which server the commands talk to."""

from __future__ import annotations

import pytest

from streamwell.cli.address import Address


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


def test_of_several_keys_the_first_is_sent() -> None:
    """In a header; without a key there is none."""
    assert {"authorization": "Bearer sk-1"} == Address(api_key=("sk-1", "sk-2")).headers
    assert {} == Address().headers
