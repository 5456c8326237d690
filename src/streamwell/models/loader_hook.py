"""`--loader module:function`: the operator's own function makes the model that is served.

The function runs once, in a process of its own, and what it returns is saved as a model folder
(docs/decisions/0030). It is code that the operator chose, and has all rights of the server.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from streamwell.core.errors import LoadError

_MAX_MESSAGE_CHARS = 500


class _UnfitError(Exception):
    """What the function is or returns cannot be served."""


def call_loader(spec: str, folder: Path) -> Path:
    """Call `module:function` and save its model and tokenizer below `folder`; returns where.

    What an earlier call saved there is replaced. Takes as long as the function; what that prints
    goes to standard error. Modules are found as by `python -m` in the current folder.

    Raises:
        LoadError: the function failed, what it returned is not a model and its tokenizer, or there
            is no place to save them.
    """
    try:
        return _save_in_process(spec, folder)
    except OSError as error:
        raise LoadError(f"--loader {spec}: its model cannot be saved: {error}") from error


def _save_in_process(spec: str, folder: Path) -> Path:
    target = folder / spec.replace(":", ".")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as new:
        command = [sys.executable, "-m", __name__, spec, new]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if done.returncode:
            reason = done.stdout.decode(errors="replace") or f"it ended with {done.returncode}"
            raise LoadError(f"--loader {spec}: {reason}")
        shutil.rmtree(target, ignore_errors=True)
        (Path(new) / "model").rename(target)
    return target


def _main(spec: str, folder: str) -> None:
    """The process: saves the model, or writes one line of what is wrong and exits with 1."""
    report = os.dup(1)
    os.dup2(2, 1)  # standard output is for our line: what others print goes elsewhere
    try:
        _save(*_call(spec), Path(folder) / "model")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the function raises
        os.write(report, _line(error, spec.partition(":")[0]).encode())
        sys.exit(1)


def _call(spec: str) -> tuple[Any, Any]:
    module_name, _, name = spec.partition(":")
    function = getattr(importlib.import_module(module_name), name, None)
    if not callable(function):
        raise _UnfitError(f"the module {module_name} has no function {name}")
    returned = function()
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise _UnfitError(f"it returned {_kind(returned)}, not (model, tokenizer)")
    return returned[0], returned[1]


def _save(model: Any, tokenizer: Any, folder: Path) -> None:  # noqa: ANN401 - whatever was returned
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    if hasattr(model, "merge_and_unload"):  # one of PEFT's: saved as it is, it is an adapter alone
        model = model.merge_and_unload()
    if not isinstance(model, PreTrainedModel):
        raise _UnfitError(f"the model it returned is {_kind(model)}, not one of Transformers")
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise _UnfitError(f"the tokenizer it returned is {_kind(tokenizer)}, not Transformers' own")
    if getattr(model, "_hf_peft_config_loaded", False):
        raise _UnfitError("the model has adapters inside: return PeftModel.from_pretrained(…)")
    if not type(model).__module__.startswith("transformers.") and not model._auto_class:
        raise _UnfitError(
            f"the model it returned is {_kind(model)}, whose code is not saved with its weights: "
            "call register_for_auto_class on the class, and serve with --trust-remote-code"
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _kind(value: object) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _line(error: BaseException, module_name: str) -> str:
    """What went wrong, and where in the operator's module, in one line."""
    message = " ".join(str(error).split())[:_MAX_MESSAGE_CHARS]
    if isinstance(error, _UnfitError):
        return message
    file = getattr(sys.modules.get(module_name), "__file__", None)
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    where = f" ({Path(file).name}, line {lines[-1]})" if file and lines else ""
    return f"{type(error).__name__}: {message}{where}"


if __name__ == "__main__":
    _main(*sys.argv[1:])
