"""Everything that can go wrong, as one tree. No HTTP here: `server/errors.py` maps it to statuses.

    StreamwellError
    ├── InvalidRequest        the caller's input is wrong; names the field
    │   ├── ContextLengthExceeded
    │   ├── AfterNotFound     a list cannot go on after an entry that it does not have
    │   └── PreviousResponseNotFound
    ├── ModelNotFound         no such model is served here
    ├── RunNotFound           no such run, or another tenant's
    ├── Unavailable           not now; says when to come back
    │   ├── Overloaded
    │   ├── ModelLoading
    │   ├── ModelUnloaded
    │   ├── EngineUnavailable
    │   ├── RunElsewhere      its server is another one, or it waits to be taken up
    │   └── ShuttingDown
    ├── EngineError           the engine failed
    │   ├── EngineDied        the whole engine; every live request of it ends
    │   └── SequenceFailed    one sequence; its neighbours go on
    ├── ConversationNotFound  no such conversation, or another tenant's
    ├── ItemNotFound          a conversation has no such item
    ├── RunNotEnded           what goes on from a run must wait for its end
    ├── IdempotencyConflict   the key was used for another request
    ├── StoreFailed           the run log cannot be written or read
    │   └── LeaseLost         another server has taken this one's runs over
    └── LoadError             a model cannot be loaded
        └── NotEnoughMemory   it does not fit beside what runs

The first line of a docstring is the default message.
"""

from __future__ import annotations

from collections.abc import Sequence

_FEW = 8  # names that a message lists


class StreamwellError(Exception):
    """Something went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])


class InvalidRequest(StreamwellError):
    """The request is not valid."""

    code: str | None = None

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        #: Dotted path of the offending field, e.g. `messages.0.content`.
        self.param = param


class ContextLengthExceeded(InvalidRequest):
    """The prompt does not fit into the model's context."""

    code = "context_length_exceeded"


class AfterNotFound(InvalidRequest):
    """The list has no entry with this id; it may have been deleted."""

    def __init__(self) -> None:
        super().__init__(self.__doc__ or "", "after")


class PreviousResponseNotFound(InvalidRequest):
    """There is no such response to go on from, or it is another tenant's."""

    code = "previous_response_not_found"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no response {run_id!r}", "previous_response_id")


class ModelNotFound(StreamwellError):
    """This model is not served here."""

    def __init__(self, model: str, served: Sequence[str] = ()) -> None:
        """`served` are the names to choose from; the first few of them are told."""
        few = ", ".join(served[:_FEW]) + (", ..." if len(served) > _FEW else "")
        choice = f" Served are: {few}." if few else ""
        super().__init__(f"The model {model!r:.200} is not served here.{choice}")


class RunNotFound(StreamwellError):
    """No run with this id."""


class ConversationNotFound(StreamwellError):
    """No conversation with this id."""


class ItemNotFound(StreamwellError):
    """The conversation has no item with this id."""


class RunNotEnded(StreamwellError):
    """The run has not ended yet."""


class IdempotencyConflict(StreamwellError):
    """The Idempotency-Key was used for another request."""


class Unavailable(StreamwellError):
    """The server cannot take this request now."""

    code = "unavailable"
    #: Seconds after which a retry makes sense.
    retry_after_s = 5


class Overloaded(Unavailable):
    """The request queue is full."""

    code = "overloaded"
    retry_after_s = 2


class ModelLoading(Unavailable):
    """The model is still loading."""

    code = "model_loading"
    retry_after_s = 2


class ModelUnloaded(Unavailable):
    """The model is not loaded."""

    code = "model_unloaded"
    retry_after_s = 30

    def __init__(self, model: str) -> None:
        super().__init__(
            f"The model {model!r} is not loaded; who runs this server can load it with "
            "POST /v1/models/load."
        )


class EngineUnavailable(Unavailable):
    """The engine is restarting."""

    code = "engine_restarting"
    retry_after_s = 2


class RunElsewhere(Unavailable):
    """The run is not in the hands of this server now."""

    code = "run_elsewhere"
    retry_after_s = 2


class ShuttingDown(Unavailable):
    """The server is shutting down."""

    code = "shutting_down"


class EngineError(StreamwellError):
    """The engine failed."""


class EngineDied(EngineError):
    """The engine stopped before it finished this request."""


class SequenceFailed(EngineError):
    """The engine could not go on with this sequence."""


class StoreFailed(StreamwellError):
    """The run log cannot be read or written."""


class LeaseLost(StoreFailed):
    """Another server has taken over the runs of this one."""


class LoadError(StreamwellError):
    """The model cannot be loaded."""


class NotEnoughMemory(LoadError):
    """There is not enough memory to load the model."""
