"""Verbose lines on stdout: ``dnnl_verbose,v1,...``, switched by the knob ``verbose``.

Ask `enabled` before a line is put together: it is cheap when the level is off.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable

from dnnl import config
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
}
LEVELS["all"] = frozenset().union(*LEVELS.values())
LEVELS |= {"0": LEVELS["none"], "1": LEVELS["profile_exec"], "2": LEVELS["profile"]}

_FILTER = "filter="
_VERSION = "version"  # the key of the first line of the header
_lock = threading.Lock()
_descriptions: dict[str, Callable[[], str]] = {}
_printed: set[str] = set()

_generation = -1  # of the configuration that the next two were read from
_levels: frozenset[str] = frozenset()
_filter: re.Pattern[str] | None = None


def parse(text: str) -> tuple[frozenset[str], re.Pattern[str] | None]:
    """Levels and component filter that a value of ``DNNL_VERBOSE`` asks for.

    Of several filters the last one counts. Raises `InvalidArguments` for an unknown level and for
    a filter that is no regular expression.
    """
    levels: set[str] = set()
    pattern = None
    for item in filter(None, (part.strip() for part in text.split(","))):
        if item.startswith(_FILTER):
            try:
                pattern = re.compile(item.removeprefix(_FILTER))
            except re.error as error:
                rule = f"the filter is no regular expression: {error}"
                raise InvalidArguments("DNNL_VERBOSE", text, rule) from None
        elif item.lower() in LEVELS:
            levels |= LEVELS[item.lower()]
        else:
            rule = f"no such level: {item!r}"
            raise InvalidArguments("DNNL_VERBOSE", text, rule, f"there are {', '.join(LEVELS)}")
    return frozenset(levels), pattern


def _refresh() -> None:
    global _generation, _levels, _filter  # noqa: PLW0603 - one setting per process
    generation = config.generation
    _levels, _filter = parse(config.get("verbose"))
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


def describe(key: str, text: Callable[[], str]) -> None:
    """Give a line ``info,<text()>`` for the header, which is printed before the first line.

    A key that was given before keeps its text.
    """
    with _lock:
        _descriptions.setdefault(key, text)


def line(*fields: object) -> None:
    """Print one verbose line of these fields; times (floats) with six digits."""
    texts = (f"{field:.6g}" if isinstance(field, float) else str(field) for field in fields)
    wanted = ",".join(texts)
    # Not under the lock: a text may ask an engine, which has locks of its own.
    described = {key: text() for key, text in list(_descriptions.items()) if key not in _printed}
    with _lock:
        lines = [] if _VERSION in _printed else [f"info,dnnl v{_version()}"]
        lines += [f"info,{text}" for key, text in described.items() if key not in _printed]
        _printed.update(described, {_VERSION})
        sys.stdout.write("".join(f"dnnl_verbose,v1,{line}\n" for line in [*lines, wanted]))
        sys.stdout.flush()


def _after_fork() -> None:
    """In a child of a fork: the thread that held the lock is not there to free it."""
    global _lock  # noqa: PLW0603 - one lock per process
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _version() -> str:
    """The version that the package states; it is imported before any of its modules."""
    return str(sys.modules[__package__].__version__)
