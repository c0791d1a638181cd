"""The knobs of the library: one table, read from the environment when asked for.

An override made in the program (`set`, `override`) wins over the environment. An environment
variable that is set to the empty string counts as not set.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from dnnl.errors import InvalidArguments


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting: ``variables`` are looked at in order, ``parse`` turns text into the value.

    ``parse(source, text)`` raises `InvalidArguments` that names ``source``, the variable or the
    knob that the text came from. ``default()`` is taken when no variable is set. ``rule`` names a
    function of a module that knows what values mean, which raises the same for
    ``rule(source, value)``; it is imported when a value is to be checked. With ``functions`` a
    program may give a function in place of a text, which is taken as it is.
    """

    name: str
    variables: tuple[str, ...]
    default: Callable[[], Any]
    parse: Callable[[str, str], Any]
    help: str
    rule: str = ""
    functions: bool = False


#: More than any pool uses; a bound, so that every number that is taken fits a launch block.
MAX_NUM_THREADS = 1024
NUM_THREADS_RULE = f"a number of threads must be an integer >= 1 and <= {MAX_NUM_THREADS}"


def _integer(low: int, high: float, rule: str) -> Callable[[str, str], int]:
    def parse(source: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise InvalidArguments(source, text, rule) from None
        if not low <= value <= high:
            raise InvalidArguments(source, text, rule)
        return value

    return parse


def _num_threads(source: str, text: str) -> int:
    # OpenMP's variable may list a number for each level of nested regions; ours is the outermost.
    first = text.split(",", 1)[0] if source == "OMP_NUM_THREADS" else text
    return _integer(1, MAX_NUM_THREADS, NUM_THREADS_RULE)(source, first)


def _name(source: str, text: str) -> str:
    return text.strip().lower()


def _text(source: str, text: str) -> str:
    return text


def _path(source: str, text: str) -> Path:
    if not text.strip():  # which Path takes for the current folder
        raise InvalidArguments(source, text, "a path has characters; cache_limit = 0 keeps nothing")
    if "\0" in text:
        raise InvalidArguments(source, text, "a path has no NUL character")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise InvalidArguments(source, text, f"this user's folder is not known: {error}") from None


def _switch(source: str, text: str) -> bool:
    values = {"0": False, "off": False, "false": False, "1": True, "on": True, "true": True}
    try:
        return values[text.strip().lower()]
    except KeyError:
        raise InvalidArguments(source, text, "a switch is 0 or 1") from None


def _sink(source: str, text: str) -> str:
    name = _name(source, text)
    if name not in ("stdout", "logging"):
        rule = "verbose lines go to stdout or logging"
        raise InvalidArguments(source, text, rule, "or, in a program, to a function of one line")
    return name


def _frequency(source: str, text: str) -> str:
    name = _name(source, text)
    if name not in ("never", "often", "always"):
        raise InvalidArguments(source, text, "must be never, often or always")
    return name


def _user_cache_dir() -> Path | None:
    """The folder where this system wants programs to keep what they can compute again.

    None for a user without a home, as in containers that run under any user id.
    """
    try:
        return _system_cache_dir()
    except RuntimeError:
        return None


def _system_cache_dir() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return Path(base) / "dnnl" if base else Path.home() / "AppData" / "Local" / "dnnl"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dnnl"
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "dnnl" if base else Path.home() / ".cache" / "dnnl"


KNOBS: tuple[Knob, ...] = (
    Knob(
        "verbose",
        ("DNNL_VERBOSE",),
        lambda: "error",
        _text,
        "what to report on stdout: none (0), error, warn, check, dispatch, profile_create, "
        "profile_exec (1), profile (2), profile_externals, all, debuginfo=N; a comma list; "
        "filter=REGEX on primitive kinds",
        rule="dnnl.log.parse",
    ),
    Knob(
        "verbose_timestamp",
        ("DNNL_VERBOSE_TIMESTAMP",),
        lambda: False,
        _switch,
        "1 puts the time, in ms since 1970, into lines of what was done, warned or refused",
    ),
    Knob(
        "verbose_sink",
        ("DNNL_VERBOSE_SINK",),
        lambda: "stdout",
        _sink,
        "where these lines go: stdout, or logging, the logger 'dnnl' of Python's logging; a "
        "program may set a function that gets each line",
        functions=True,
    ),
    Knob(
        "max_cpu_isa",
        ("DNNL_MAX_CPU_ISA",),
        lambda: "default",
        _name,
        "the highest instruction set that generated code may use; default = all of the machine's",
        rule="dnnl.codegen.isa.check_limit",
    ),
    Knob(
        "num_threads",
        ("DNNL_NUM_THREADS", "OMP_NUM_THREADS"),
        lambda: None,
        _num_threads,
        "threads of an execution; by default, and at most, one per cpu that the process may use",
    ),
    Knob(
        "oversubscribe",
        ("DNNL_OVERSUBSCRIBE",),
        lambda: False,
        _switch,
        "1 lets executions have more threads than there are cpus, which takes many times as long",
    ),
    Knob(
        "cache_dir",
        ("DNNL_CACHE_DIR",),
        _user_cache_dir,
        _path,
        "folder of compiled kernels for later processes; without a home folder there is none",
    ),
    Knob(
        "cache_limit",
        ("DNNL_CACHE_LIMIT",),
        lambda: 256,
        _integer(0, math.inf, "the limit of the kernel cache must be an integer >= 0, in MiB"),
        "MiB of compiled kernels in that folder, about; those used least recently are removed; "
        "0 keeps none",
    ),
    Knob(
        "primitive_cache_capacity",
        ("DNNL_PRIMITIVE_CACHE_CAPACITY",),
        lambda: 1024,
        _integer(0, math.inf, "the capacity of the primitive cache must be an integer >= 0"),
        "primitives, and descriptions of them, that are stored in memory; 0 stores none",
    ),
    Knob(
        "primitive_cache_limit",
        ("DNNL_PRIMITIVE_CACHE_LIMIT",),
        lambda: 64,
        _integer(0, math.inf, "the limit of the primitive cache must be an integer >= 0, in MiB"),
        "MiB of machine code that these may take; those used least recently are given up",
    ),
    Knob(
        "special_kernels",
        ("DNNL_SPECIAL_KERNELS",),
        lambda: "often",
        _frequency,
        "which sizes of a model, or of functions on arrays, get kernels of their own beside those "
        "for open sizes: never, often (sizes of long runs or of many calls), always",
    ),
    Knob(
        "winograd",
        ("DNNL_WINOGRAD",),
        lambda: True,
        _switch,
        "0 computes the convolutions of models by the direct algorithm alone, which rounds less "
        "and does not spread infinities and NaN over the 6x6 pixels of a tile",
    ),
    Knob(
        "jit_dump",
        ("DNNL_JIT_DUMP",),
        lambda: False,
        _switch,
        "1 writes IR, assembly and object of every kernel to the current folder, cached or not",
    ),
)

_KNOBS = {knob.name: knob for knob in KNOBS}
_overrides: dict[str, Any] = {}

#: Grows with every override, so that a hot path can keep what it derived from a knob.
generation = 0


def _knob(name: str) -> Knob:
    try:
        return _KNOBS[name]
    except (KeyError, TypeError, ValueError):  # what cannot be hashed is no name
        rule = f"no such knob; there are {', '.join(_KNOBS)}"
        raise InvalidArguments("name", name, rule) from None


def _read(knob: Knob, source: str, text: str) -> Any:
    value = knob.parse(source, text)
    if knob.rule:
        module, _, name = knob.rule.rpartition(".")
        getattr(import_module(module), name)(source, value)
    return value


def parsed(name: str, source: str, value: object) -> Any:
    """The parsed value of a knob.

    Raises `InvalidArguments`, which names ``source``, for an invalid value.
    """
    return _read(_knob(name), source, str(value))


def get(name: str) -> Any:
    """The present value of a knob: the override, else the environment's, else the default.

    Raises `InvalidArguments`, which names the variable and what it holds, where its text is bad.
    """
    knob = _knob(name)
    if name in _overrides:
        return _overrides[name]
    for variable in knob.variables:
        text = os.environ.get(variable)
        if text:
            return _read(knob, variable, text)
    return knob.default()


def set(name: str, value: object) -> None:
    """Override a knob for this process; ``None`` gives it back to the environment.

    The value is checked by the knob's own rule, whether given as text or as what it stands for.
    """
    global generation  # noqa: PLW0603 - a counter of this module
    knob = _knob(name)
    if value is None:
        _overrides.pop(name, None)
    elif knob.functions and callable(value):
        _overrides[name] = value
    else:
        text = str(int(value)) if isinstance(value, bool) else str(value)
        _overrides[name] = _read(knob, name, text)
    generation += 1


def environment() -> dict[str, str]:
    """Environment variables that give another process the knobs of this one.

    Knobs that are set to a Python function are left out.
    """
    found = dict(os.environ)
    for name, value in _overrides.items():
        for variable in _KNOBS[name].variables:
            found.pop(variable, None)
        if not callable(value):
            text = str(int(value)) if isinstance(value, bool) else str(value)
            found[_KNOBS[name].variables[0]] = text
    return found


@contextmanager
def override(name: str, value: object) -> Iterator[None]:
    """`set` for the length of a ``with`` block; process-wide, not only for this thread."""
    before = _overrides.get(name)
    set(name, value)
    try:
        yield
    finally:
        set(name, before)
