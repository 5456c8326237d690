"""Who may come in: a bounded number of choices at a time, refused at once when full."""

from __future__ import annotations

from streamwell.core.errors import InvalidRequest, Overloaded, ShuttingDown


class Admission:
    """Counts live choices (running and queued); never parks a request."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._num_live = 0
        self._is_closed = False

    @property
    def num_live(self) -> int:
        return self._num_live

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Admit nobody from now on."""
        self._is_closed = True

    def admit(self, num_choices: int, field: str) -> None:
        """Take room for a run's choices, of which `field` asks for so many; see `release`.

        Raises:
            ShuttingDown: admission is closed.
            Overloaded: there is not enough room.
            InvalidRequest: there never will be.
        """
        self.check_open()
        if num_choices > self._limit:
            raise InvalidRequest(f"{num_choices} choices; at most {self._limit} are served", field)
        if self._num_live + num_choices > self._limit:
            raise Overloaded
        self._num_live += num_choices

    def readmit(self, num_choices: int) -> None:
        """Take room for a run that was accepted before: it is not refused, whatever is there."""
        self._num_live += num_choices

    def check_open(self) -> None:
        """Raises `ShuttingDown` when admission is closed."""
        if self._is_closed:
            raise ShuttingDown

    def release(self, num_choices: int) -> None:
        self._num_live -= num_choices
