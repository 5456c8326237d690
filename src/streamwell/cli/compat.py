"""What `--compat transformers-openai-api` reads: that project's environment, as flags of ours.

Its names count only under `--compat`, and only where neither a flag nor a `STREAMWELL_` variable is
given. An empty value counts as none, since that is what compose files pass on for what is not set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cyclopts import App, Token
from cyclopts.argument import ArgumentCollection

from streamwell.core.errors import InvalidRequest
from streamwell.settings import COMPAT

#: A value as that project has it to one of a flag of ours; `None` leaves the flag alone.
#: Raises `ValueError` with what the value must be.
Read = Callable[[str], str | None]

#: What counts where its environment is silent too.
_DEFAULTS = {"--port": "7088", "--max-num-seqs": "50"}
_TRUTHS = {"true": True, "1": True, "yes": True, "on": True}
_FALSEHOODS = {"false": False, "0": False, "no": False, "off": False}
_DEVICE = re.compile(r"cpu|cuda(:[0-9]+)?")


def _any(value: str) -> str:
    return value


def _whole(value: str) -> str:
    if not re.fullmatch(r"[0-9]{1,9}", value) or not int(value):
        raise ValueError("must be a whole number of at least 1")
    return str(int(value))


def _port(value: str) -> str:
    if not re.fullmatch(r"[0-9]{1,5}", value) or int(value) > 65535:
        raise ValueError("must be a port, 0 to 65535")
    return value


def _seconds(value: str) -> str:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+(e-?[0-9]{1,2})?", value.lower()):
        raise ValueError("must be a number of seconds")
    return value


def _device(value: str) -> str:
    if not _DEVICE.fullmatch(value.lower()):
        raise ValueError("must be cpu, cuda or cuda:N")
    return value.lower()


def _one_of(**values: str) -> Read:
    """Their value, whatever its case, to ours; `_` in a name stands for `-`."""
    known = {name.replace("_", "-"): value for name, value in values.items()}

    def read(value: str) -> str:
        if value.lower() not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return known[value.lower()]

    return read


def _if_true(flag_value: str) -> Read:
    """A truth value; a false one leaves the flag alone."""
    known = _TRUTHS | _FALSEHOODS

    def read(value: str) -> str | None:
        if value.lower() not in known:
            raise ValueError("must be true or false")
        return flag_value if known[value.lower()] else None

    return read


_truth = _if_true("")
_log_level = _one_of(
    notset="debug",
    debug="debug",
    info="info",
    warn="warning",
    warning="warning",
    error="error",
    critical="error",
)


@dataclass(frozen=True, slots=True)
class Variable:
    """One of its environment variables."""

    name: str
    read: Read
    #: The flag that it sets; of several variables with one flag the least counts. Empty: none.
    flag: str = ""
    #: What makes it superfluous, for those without a flag.
    instead: str = ""


VARIABLES = (
    Variable("HF_MODEL", _any, "--model"),
    Variable("PORT", _port, "--port"),
    Variable("LOGLEVEL", _log_level, "--log-level"),
    Variable(
        "TORCH_DTYPE",
        _one_of(auto="auto", bfloat16="bfloat16", float32="float32"),
        "--dtype",
    ),
    Variable("ACCELERATOR_TYPE", _device, "--device"),
    Variable("MAX_CONCURRENT", _whole, "--max-num-seqs"),
    Variable("CONTINUOUS_BATCHING_BATCH_SIZE", _whole, "--max-num-seqs"),
    Variable("BATCH_SIZE", _whole, "--max-num-seqs"),
    Variable("NEURONX_BATCH_SIZE", _whole, "--max-num-seqs"),
    Variable("N_POSITIONS", _whole, "--max-model-len"),
    Variable("NEURONX_N_POSITIONS", _whole, "--max-model-len"),
    Variable("HQQ", _if_true("int4"), "--quantization"),
    Variable("TORCH_COMPILE", _if_true("true"), "--compile"),
    Variable("MODEL_TYPE", _any, instead="the model's config.json says what it is"),
    Variable(
        "ARCHITECTURE_TYPE",
        _one_of(decoder="", encoder_decoder=""),
        instead="the model's config.json says what it is",
    ),
    Variable("TOKENIZER_TYPE", _any, instead="the model's folder says which tokenizer it has"),
    Variable("TOKENIZER_USE_FAST", _truth, instead="tokenizer.json is used where there is one"),
    Variable("PROCESSOR_TYPE", _any, instead="only text is served"),
    Variable("SERVING_TYPE", _one_of(chat=""), instead="only chat is served"),
    Variable("HOTLOAD", _truth, instead="models load at the start; --idle-unload-s unloads"),
    Variable("ATTN_IMPLEMENTATION", _any, instead="--model-impl chooses what runs the model"),
    Variable("CACHE_TYPE", _any, instead="sequences share a paged cache, --kv-cache-mib"),
    Variable("STATIC_CACHE", _truth, instead="sequences share a paged cache, --kv-cache-mib"),
    Variable("STATIC_CACHE_ENCODER_MAX_LENGTH", _whole, instead="--max-model-len"),
    Variable("STATIC_CACHE_DECODER_MAX_LENGTH", _whole, instead="--max-model-len"),
    Variable("CONTINUOUS_BATCHING", _truth, instead="batching is always continuous"),
    Variable("CONTINUOUS_BATCHING_MICROSLEEP", _seconds, instead="--batch-wait-timeout-s"),
    Variable("TORCH_AUTOGRAD_PROFILING", _truth, instead="/metrics, and the log lines of runs"),
)


def flags_of(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """What its environment sets: by flag, the variable's name and the flag's value.

    Raises:
        InvalidRequest: names the variable whose value makes no sense.
    """
    found: dict[str, tuple[str, str]] = {}
    for variable in VARIABLES:
        if not (given := environ.get(variable.name, "").strip()):
            continue
        try:
            value = variable.read(given)
        except ValueError as error:
            raise InvalidRequest(f"{variable.name} {error}, not {given!r}", variable.name) from None
        flag = variable.flag
        if flag and value is not None and not (flag in found and _is_less(found[flag][1], value)):
            found[flag] = (variable.name, value)
    return found


def _is_less(one: str, other: str) -> bool:
    """Of those that share a flag; they are all numbers."""
    return int(one) < int(other)


def without_meaning(environ: Mapping[str, str]) -> dict[str, str]:
    """Its variables that are set and change nothing here, and what stands in their place."""
    return {
        variable.name: variable.instead
        for variable in VARIABLES
        if not variable.flag and environ.get(variable.name, "").strip()
    }


def warn(environ: Mapping[str, str]) -> None:
    """One line for all that is set and changes nothing."""
    if unused := without_meaning(environ):
        import structlog  # a tenth of a second, which no other command line has to wait for

        structlog.get_logger().warning(
            "environment variables that change nothing here", of=COMPAT, **unused
        )


def fill_in(_app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """A `config` of Cyclopts: adds the environment's flags, and the defaults, to what was given."""
    named = {name: argument for argument in arguments for name in argument.names}
    compat = named.get("--compat")
    if commands != ("serve",) or compat is None or not compat.tokens:
        return
    flags = {flag: (COMPAT, value) for flag, value in _DEFAULTS.items()}
    flags |= flags_of(os.environ)
    if any(argument.tokens for argument in arguments if argument.is_var_positional()):
        flags.pop("--model", None)
    for flag, (source, value) in flags.items():
        if not named[flag].tokens:
            named[flag].append(Token(keyword=source, value=value, source=COMPAT))
