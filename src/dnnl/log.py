"""Verbose lines, ``dnnl_verbose,v1,...``: which there are the knob ``verbose`` says, and where they
go ``verbose_sink``.

Ask `enabled` before a line is put together: it is cheap when the level is off.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial

from dnnl import config, forks
from dnnl.errors import InvalidArguments

#: Each name that `DNNL_VERBOSE` takes and the levels that it switches on.
LEVELS: dict[str, frozenset[str]] = {
    "none": frozenset(),
    "error": frozenset({"error"}),
    "warn": frozenset({"error", "warn"}),
    "check": frozenset({"error", "check"}),
    "dispatch": frozenset({"error", "dispatch"}),
    "profile_create": frozenset({"error", "profile_create"}),
    "profile_exec": frozenset({"error", "profile_exec"}),
    "profile": frozenset({"error", "profile_create", "profile_exec"}),
    "profile_externals": frozenset({"error", "profile_externals"}),
}
LEVELS["all"] = frozenset().union(*LEVELS.values())
LEVELS |= {"0": LEVELS["none"], "1": LEVELS["profile_exec"], "2": LEVELS["profile"]}

_FILTER = "filter="
_DEBUG = "debuginfo="
_MAX_DEBUG = 127
_VERSION = "version"  # the key of the first line of the header
_LOGGED: dict[object, int] = {"warn": logging.WARNING, "debuginfo": logging.DEBUG}
_lock = forks.Lock()
_descriptions: dict[str, Callable[[], str]] = {}
_printed: set[str] = set()

_generation = -1  # of the configuration that the next two were read from
_levels: frozenset[str] = frozenset()
_filter: re.Pattern[str] | None = None
_stamped = False
_sink: str | Callable[[str], object] = "stdout"
_busy = threading.local()  # ``with_line`` where a sink of this thread is at work


def parse(source: str, text: str) -> tuple[frozenset[str], re.Pattern[str] | None]:
    """Levels and component filter that a value of ``DNNL_VERBOSE`` asks for.

    ``debuginfo=N`` switches on the levels ``debuginfo=1`` to ``debuginfo=N``. Of several filters
    the last one counts. Raises `InvalidArguments` in the name of ``source`` for an unknown level
    and for a filter that is no regular expression.
    """
    levels: set[str] = set()
    pattern = None
    for item in filter(None, (part.strip() for part in text.split(","))):
        if item.startswith(_FILTER):
            try:
                pattern = re.compile(item.removeprefix(_FILTER))
            except re.error as error:
                rule = f"the filter is no regular expression: {error}"
                raise InvalidArguments(source, text, rule) from None
        elif item.startswith(_DEBUG):
            levels |= {"error", *_debug_levels(source, text, item.removeprefix(_DEBUG))}
        elif item.lower() in LEVELS:
            levels |= LEVELS[item.lower()]
        else:
            rule = f"no such level: {item!r}"
            hint = f"there are {', '.join(LEVELS)}, {_DEBUG}N, {_FILTER}REGEX"
            raise InvalidArguments(source, text, rule, hint)
    return frozenset(levels), pattern


def _debug_levels(source: str, text: str, level: str) -> list[str]:
    if not level.isdecimal() or len(level) > len(str(_MAX_DEBUG)) or int(level) > _MAX_DEBUG:
        rule = f"the level of debuginfo must be an integer of 0..{_MAX_DEBUG}"
        raise InvalidArguments(source, text, rule)
    return [f"{_DEBUG}{number + 1}" for number in range(int(level))]


def _refresh() -> None:
    global _generation, _levels, _filter, _stamped, _sink  # noqa: PLW0603 - one per process
    generation = config.generation
    _levels, _filter = parse("verbose", config.get("verbose"))
    _stamped = config.get("verbose_timestamp")
    _sink = config.get("verbose_sink")
    _generation = generation


def enabled(level: str, component: str | None = None) -> bool:
    """Whether lines of ``level`` are wanted, of this component (a primitive kind) if given.

    The environment is read at the first call and after every change of a knob by the program.
    """
    if _generation != config.generation:
        _refresh()
    if level not in _levels:
        return False
    return component is None or _filter is None or _filter.search(component) is not None


def warn(text: str) -> None:
    """Log what failed without consequences."""
    if enabled("warn"):
        line("common", "warn", text)


def describe(key: str, text: Callable[[], str]) -> None:
    """Give a line ``info,<text()>`` for the header, which is printed before the first line.

    A key that was given before keeps its text.
    """
    with _lock.own:
        _descriptions.setdefault(key, text)


def line(*fields: object, ms: float | None = None) -> None:
    """Write one verbose line of these fields; the time that something took ends it.

    The timestamp, if there is to be one, is of now, or of when that began.
    """
    stamp = [f"{time.time() * 1e3 - (ms or 0):.3f}"] if _stamped else []
    wanted = ",".join(map(str, [*stamp, *fields, *([] if ms is None else [f"{ms:.6g}"])]))
    # Not under the lock: a text may ask an engine, which has locks of its own.
    described = {key: text() for key, text in list(_descriptions.items()) if key not in _printed}
    sink = _sink
    with _lock.own:
        lines = [] if _VERSION in _printed else [f"info,dnnl v{_version()}"]
        lines += [f"info,{text}" for key, text in described.items() if key not in _printed]
        _printed.update(described, {_VERSION})
        lines = [f"dnnl_verbose,v1,{line}" for line in [*lines, wanted]]
        if not callable(sink) and sink == "stdout":
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()
            return
    # Not under the lock: what takes the lines has locks of its own, which others may have while
    # they write a line.
    if not callable(sink):
        level = next((_LOGGED[field] for field in fields[1:2] if field in _LOGGED), logging.INFO)
        sink = partial(logging.getLogger(__package__).log, level, "%s")
    _hand_over(sink, lines)


def _hand_over(sink: Callable[[str], object], lines: Sequence[str]) -> None:
    """Give lines to logging or to the user's function, whose errors end nothing but themselves.

    What these do with the library meanwhile writes no lines: each would be followed by another.
    """
    if getattr(_busy, "with_line", False):
        return
    _busy.with_line = True
    try:
        for text in lines:
            sink(text)
    except Exception:  # of code that is not ours, in the midst of an execution
        traceback.print_exc()
    finally:
        _busy.with_line = False


def _version() -> str:
    """The version that the package states; it is imported before any of its modules."""
    return str(sys.modules[__package__].__version__)
