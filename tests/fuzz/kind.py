"""What a kind of cases is, and what can become of a case."""

from __future__ import annotations

import enum
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from hypothesis.strategies import SearchStrategy

import dnnl

_LIBRARY = f"{Path(dnnl.__file__).parent}/"


class State(enum.Enum):
    """What became of a case."""

    PASSED = "passed"
    UNIMPLEMENTED = "unimplemented"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """What became of a case; equal reasons are one finding, ``detail`` is what a reader needs."""

    state: State
    reason: str = ""
    detail: str = ""


PASSED = Outcome(State.PASSED)


def failed(reason: str, detail: str = "") -> Outcome:
    """A failure."""
    return Outcome(State.FAILED, reason, detail)


def raised(error: BaseException) -> Outcome:
    """A failure by an exception that nobody announced; its reason is where it was raised."""
    place = _innermost(error.__traceback__)
    text = "".join(traceback.format_exception(error))
    return failed(f"{type(error).__name__} at {place}", text)


def _innermost(trace: TracebackType | None) -> str:
    """The innermost function of the library, or of what was called at all."""
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if frame.filename.startswith(_LIBRARY)]
    if own:
        return f"{own[-1].filename.removeprefix(_LIBRARY)} {own[-1].name}"
    return f"{Path(frames[-1].filename).name} {frames[-1].name}" if frames else "?"


@dataclass(frozen=True)
class Kind:
    """One kind of cases.

    ``cases`` draws the texts of cases and ``run`` says what becomes of one; it may end the process.
    ``home`` is the module that holds the kind as ``KIND``. A case that takes longer than
    ``timeout`` seconds hangs. The processes of a kind live for ``lives`` cases, and the time of a
    run is shared out by ``weight``.
    """

    name: str
    summary: str
    cases: Callable[[], SearchStrategy[str]]
    run: Callable[[str], Outcome]
    home: str
    weight: int = 1
    timeout: float = 60.0
    lives: int = 400
