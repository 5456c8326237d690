"""Presets: named ways to ask, each a TOML file; read and checked once, at the start."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from streamwell.core.errors import InvalidRequest
from streamwell.server.schemas.prompts import PRESET_NAME, Preset

DEFAULT_PRESET = "chat"
#: Of a folder of presets.
MAX_PRESETS, MAX_FILE_BYTES = 256, 1 << 18
_ENDING = ".toml"


class Presets:
    """The presets of this server, by name."""

    def __init__(self, presets: Mapping[str, Preset], default: str = DEFAULT_PRESET) -> None:
        """Raises `InvalidRequest`: there is no preset of the default's name."""
        self._presets = presets
        self._default = default
        if default not in presets:
            raise InvalidRequest(
                f"--prompt-preset {default}: there are {self._names}", "prompt_preset"
            )

    def find(self, name: str | None) -> Preset:
        """The preset of this name; `None` means the default. Raises `InvalidRequest`."""
        if name is not None and name not in self._presets:
            raise InvalidRequest(f"there is no preset {name}; there are {self._names}", "preset")
        return self._presets[name or self._default]

    def find_for_chat(self, name: str | None) -> Preset:
        """The same for a conversation, which has no place for a template.

        The default then gives way to none at all.

        Raises:
            InvalidRequest: there is no such preset, or it has a template.
        """
        preset = self.find(name)
        if preset.template is None:
            return preset
        if name is None:
            return Preset()
        message = f"{name} has a template for a single prompt, and this is a conversation"
        raise InvalidRequest(message, "preset")

    @property
    def _names(self) -> str:
        return ", ".join(sorted(self._presets))


def load_presets(folder: Path | None = None, default: str = DEFAULT_PRESET) -> Presets:
    """The presets in the box, and those of a folder, which may take the place of the former.

    Raises:
        InvalidRequest: there is no such folder, or a file is wrong; names the file and the field.
    """
    built_in = Path(str(files("streamwell") / "presets"))
    presets = dict(_read_folder(built_in))
    if folder is not None:
        if not folder.is_dir():
            raise InvalidRequest(f"--presets-dir {folder} is no folder", "presets_dir")
        presets |= dict(_read_folder(folder))
    return Presets(presets, default)


def _read_folder(folder: Path) -> Iterator[tuple[str, Preset]]:
    paths = sorted(path for path in folder.iterdir() if path.suffix == _ENDING)
    if len(paths) > MAX_PRESETS:
        raise InvalidRequest(f"{folder} has over {MAX_PRESETS} presets", "presets_dir")
    for path in paths:
        if re.fullmatch(PRESET_NAME, path.stem) is None:
            raise _wrong(path, f"the name must match {PRESET_NAME}")
        yield path.stem, _read(path)


def _read(path: Path) -> Preset:
    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            raise _wrong(path, f"is no file of at most {MAX_FILE_BYTES} bytes")
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
        return Preset.model_validate(fields)
    except OSError as error:
        raise _wrong(path, error.strerror or "cannot be read") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise _wrong(path, f"{field}: {first['msg'].removeprefix('Value error, ')}") from None
    except ValueError as error:
        raise _wrong(path, f"is no TOML: {error}") from None


def _wrong(path: Path, message: str) -> InvalidRequest:
    return InvalidRequest(f"{path}: {message}", "presets_dir")
