"""`streamwell serve` has a descriptor for as many readers as the system lets it have."""

from __future__ import annotations

import resource

from streamwell.cli.serve import raise_file_limit


def test_the_limit_of_files_is_raised() -> None:
    """From whatever a shell gives to what it may have."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, hard = before
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        raise_file_limit()
        assert (hard, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
