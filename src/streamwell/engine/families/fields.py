"""Reads a `config.json` without guessing: what is missing, odd or unknown is `NotKnownError`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")

#: Beyond these a config is a mistake, or means harm.
MAX_SIZE, _MAX_LAYERS, _MAX_NUMBER = 1 << 31, 10_000, 1e30
#: Fields that change any model in ways that no mapping knows.
FOREIGN = ("quantization_config", "per_layer_config")


class NotKnownError(Exception):
    """The mapping of a family does not understand all that a config says."""


class Fields:
    """The fields of a config under Llama's names, with Transformers' values for missing ones."""

    def __init__(
        self, config: Mapping[str, Any], defaults: Mapping[str, Any], names: Mapping[str, str]
    ) -> None:
        """Take a config as it is.

        Args:
            config: what the file says.
            defaults: of Transformers' config class of the family.
            names: what the family calls some of Llama's fields, by Llama's names.

        Raises:
            NotKnownError: a name is used in both meanings, or the weights are not plain ones.
        """
        require(not any(config.get(name) for name in FOREIGN))
        require(config.get("is_causal", True) is True)
        self._values = {**defaults, **config}
        for ours, theirs in names.items():
            require(ours not in config or config[ours] == config.get(theirs))
            if theirs in self._values:
                self._values[ours] = self._values[theirs]

    def get(self, *names: str) -> Any:  # noqa: ANN401 - as JSON has it
        """The value of a field that may go by several names."""
        values = [self._values[name] for name in names if name in self._values]
        require(values and all(value == values[0] for value in values))
        return values[0]

    def given(self, name: str) -> Any:  # noqa: ANN401 - as JSON has it
        """The value of a field; `None` if it is missing."""
        return self._values.get(name)

    @property
    def num_layers(self) -> int:
        """How many layers the model has; few enough to make lists of."""
        count = self.size("num_hidden_layers")
        require(count < _MAX_LAYERS)
        return count

    def size(self, *names: str, null: int | None = None) -> int:
        """A positive integer; `null` is what JSON's null stands for."""
        found = self.get(*names)
        value: Any = null if found is None else found
        require(type(value) is int and 0 < value < MAX_SIZE)
        return int(value)

    def optional_size(self, name: str) -> int | None:
        """A positive integer, or null."""
        return None if self.get(name) is None else self.size(name)

    def number(self, name: str) -> float:
        """Any number."""
        return number(self.get(name))

    def optional_number(self, name: str) -> float | None:
        """A number, or null."""
        return None if self.get(name) is None else self.number(name)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.get(name)
        require(isinstance(value, bool))
        return bool(value)

    def choice(self, name: str, known: Mapping[str, T]) -> T:
        """What a word stands for."""
        value = self.get(name)
        require(isinstance(value, str) and value in known)
        return known[value]


def require(is_understood: object) -> None:
    """Give up if something is not understood.

    Raises:
        NotKnownError: it is not.
    """
    if not is_understood:
        raise NotKnownError


def number(value: Any) -> float:  # noqa: ANN401 - as JSON has it
    """A number of JSON: integers stand for floats, booleans do not."""
    require(isinstance(value, int | float) and not isinstance(value, bool))
    require(abs(value) < _MAX_NUMBER)  # and it is one: NaN is below nothing
    return float(value)
