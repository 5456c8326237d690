"""What flags say, taken at its word: by itself Cyclopts rounds fractions, and takes '' for `.`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_origin

from cyclopts import CoercionError, Parameter, Token
from cyclopts.validators import Number

__all__ = ["FILE", "MOST", "WHOLE", "whole"]

#: No number is larger: the engine is told them in 64 bits, some of them in bytes instead of MiB.
MOST = 2**31 - 1


def _numbers(kind: Any, tokens: Sequence[Token]) -> int | tuple[int, ...]:  # noqa: ANN401 - a type
    """One number, or those of a tuple."""
    numbers = tuple(map(_number, tokens))
    return numbers if get_origin(kind) is tuple else numbers[0]


def _number(token: Token) -> int:
    try:
        return int(token.value)
    except ValueError:
        message = f"{token.value[:40]!r} is not a whole number"
    raise CoercionError(message, token=token)


def _file(_kind: Any, tokens: Sequence[Token]) -> Path:  # noqa: ANN401 - a type
    """An unset variable in `--data-dir "$FOLDER"` must not be the folder one happens to be in."""
    if not tokens[0].value:
        raise CoercionError("it is empty", token=tokens[0])
    return Path(tokens[0].value)


#: Any whole number.
WHOLE = Parameter(converter=_numbers)
#: A file or folder that has a name.
FILE = Parameter(converter=_file)


def whole(least: int, most: int = MOST) -> Parameter:
    """A whole number within bounds, both included."""
    return Parameter(converter=_numbers, validator=Number(gte=least, lte=most))
