"""Sessions of a saved model: the plans of its file, for the sizes for which it has all kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dnnl import forks
from dnnl.errors import Unimplemented
from dnnl.framework.plan import Compiled
from dnnl.framework.requests import Budget
from dnnl.framework.session import Session
from dnnl.graph.graph import Shape

_MOST_FOUND = 128
"""Shapes for which the plan that has all kernels is remembered."""


@dataclass(frozen=True)
class Saved:
    """What a file has instead of compiled sessions. Without ``compiles`` nothing else is used.
    ``precision`` is that in which all is computed."""

    path: str
    plans: tuple[Compiled, ...]
    compiles: bool = True
    precision: str = "f32"


class SavedSessions:
    """The sessions of what is ``saved``, whose memory ``budget`` bounds."""

    def __init__(self, saved: Saved, budget: Budget | None) -> None:
        self._saved = saved
        self._plans = [_Unmade(plan, budget) for plan in saved.plans]
        self._found: dict[tuple[tuple[str, Shape], ...], Session] = {}
        self._lock = forks.Lock()

    @property
    def every(self) -> tuple[Session, ...]:
        """All of them."""
        return tuple(plan.session for plan in self._plans)

    def find(self, shapes: Mapping[str, Shape]) -> Session | None:
        """A session that has the kernels for inputs of these shapes, None if there is none.

        Raises Unimplemented where nothing else may be compiled.
        """
        key, reasons = tuple(shapes.items()), list[str]()
        with self._lock.own:
            if key in self._found:
                return self._found[key]
            for plan in self._plans:
                reason = plan.refusal(shapes)
                if not reason:
                    if len(self._found) >= _MOST_FOUND:
                        self._found.clear()
                    self._found[key] = plan.session
                    return plan.session
                reasons.append(f"plan {len(reasons)}: {reason}")
        if self._saved.compiles:
            return None
        given = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise Unimplemented(f"{self._saved.path} has no kernels for {given}", reasons)


class _Unmade:
    """A plan of a file, whose session is made when it first serves."""

    def __init__(self, compiled: Compiled, budget: Budget | None) -> None:
        self._compiled, self._budget = compiled, budget
        self._made: Session | None = None

    @property
    def session(self) -> Session:
        """The session."""
        if self._made is None:
            self._made = Session(self._compiled, budget=self._budget)
        return self._made

    def refusal(self, shapes: Mapping[str, Shape]) -> str:
        """Why the plan does not serve inputs of these shapes; empty if it does."""
        kinds = self._compiled.plan.inputs
        if not shapes.keys() >= kinds.keys():
            return f"it is for the inputs {', '.join(kinds)}"
        numbers = self.session.numbers({name: shapes[name] for name in kinds})
        if numbers is None:
            return "it is for " + ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        try:
            self.session.prepare(numbers)
        except Unimplemented as error:
            return error.message
        return ""
