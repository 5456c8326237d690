"""Proof of life by a locked file beside the database; the kernel unlocks it when its process ends.

A file's name carries the id of a lease, which is never given twice. Files are made, looked at and
swept only by whoever holds the database's write lock, so nobody sees one that is not locked yet.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from sqlalchemy import Connection

from streamwell.core.errors import StoreFailed

_SUFFIX = ".lease-"


class LockFiles:
    """A `Proof` beside the database at `path`, for processes of one machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own: tuple[Path, int] | None = None

    def give(self, _connection: Connection, lease_id: int) -> None:
        """Lock a new file, and remove those of the dead.

        Raises:
            StoreFailed: the file is there and locked.
            OSError: the folder cannot be written.
        """
        for file in self._path.parent.iterdir():
            if file.name.startswith(f"{self._path.name}{_SUFFIX}"):
                _remove_if_unlocked(file)
        path = self._path_of(lease_id)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, mode=0o600)
        try:
            # `flock` and not `lockf`: that one would let go whenever anybody in this process
            # closed the file, and would not keep two stores of one process apart.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StoreFailed(
                f"A server still runs on a database that was at {self._path} before: stop it."
            ) from None
        self._own = path, descriptor

    def is_gone(self, _connection: Connection, lease_id: int) -> bool:
        """Whether the file is unlocked; then it is removed."""
        return _remove_if_unlocked(self._path_of(lease_id))

    def end(self, _connection: Connection | None) -> None:
        """Remove the file and unlock it; idempotent."""
        if self._own is not None:
            (path, descriptor), self._own = self._own, None
            try:
                path.unlink(missing_ok=True)
            finally:
                os.close(descriptor)

    def _path_of(self, lease_id: int) -> Path:
        return self._path.with_name(f"{self._path.name}{_SUFFIX}{lease_id}")


def _remove_if_unlocked(path: Path) -> bool:
    """Whether the file is gone now; one that cannot be opened counts as locked."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
