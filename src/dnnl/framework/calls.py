"""Sessions of a model that is called with inputs of any sizes.

The first sizes have a session of their own. Others share plans in which the sizes that the model
leaves open stay open: a plan serves all sizes that satisfy the conditions under which it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dnnl import forks, lazy
from dnnl.errors import Error, Unimplemented
from dnnl.framework.plan import Compiled
from dnnl.framework.requests import Budget
from dnnl.framework.session import Session
from dnnl.graph.graph import UNRANKED, Graph, Shape, TensorType, with_inputs
from dnnl.types.size import LEAST, Symbols

if TYPE_CHECKING:
    from dnnl.passes import specialize as specializing
else:
    specializing = lazy.Module("dnnl.passes.specialize")

KEPT_SESSIONS = 8
"""Sessions that a called model caches, those of its latest sizes."""

Shapes = tuple[tuple[str, Shape], ...]


@dataclass(frozen=True)
class Saved:
    """What a file has instead of compiled sessions. Without ``compiles`` nothing else is used.
    ``precision`` is that in which all is computed."""

    path: str
    plans: tuple[Compiled, ...]
    compiles: bool = True
    precision: str = "f32"


class Sessions:
    """The sessions of one graph; ``compiled(graph)`` makes one of a specialized graph.

    What is ``saved`` serves the sizes for which it has all kernels; ``budget`` bounds its memory.
    """

    def __init__(
        self,
        graph: Graph,
        compiled: Callable[[Graph], Session],
        saved: Saved | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._graph, self._compiled, self._saved = graph, compiled, saved
        self._known: dict[Shapes, Session] = {}
        self._open: list[tuple[tuple[str, ...], Session]] = []
        plans = () if saved is None else saved.plans
        self._from_file = [_Unmade(plan, budget) for plan in plans]
        self._lock = forks.Lock()

    @property
    def every(self) -> tuple[Session, ...]:
        """All sessions that there are now."""
        own = (*self._known.values(), *(session for _, session in self._open))
        return (*(plan.session for plan in self._from_file), *own)

    def find(self, shapes: Shapes) -> Session:
        """The session for inputs of these shapes, which is made where there is none."""
        with self._lock.own:
            found = self._known.get(shapes)
            if found is not None:
                return found
            named = dict(shapes)
            for names, session in reversed(self._open):
                if names == tuple(named) and session.numbers(named) is not None:
                    return session
            return self._in_file(named) or self._made(shapes)

    def _in_file(self, shapes: Mapping[str, Shape]) -> Session | None:
        """A session out of the file that has the kernels for these shapes.

        Raises Unimplemented where there is none and nothing may be compiled.
        """
        if self._saved is None:
            return None
        reasons: list[str] = []
        for plan in self._from_file:
            reason = plan.refusal(shapes)
            if not reason:
                return plan.session
            reasons.append(f"plan {len(reasons)}: {reason}")
        if self._saved.compiles:
            return None
        given = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise Unimplemented(f"{self._saved.path} has no kernels for {given}", reasons)

    def shared(self, shapes: Shapes) -> Session:
        """A session for inputs of these shapes and of others, as far as the model allows it."""
        with self._lock.own:
            return self._opened(self._graph_for(shapes), shapes)

    def _graph_for(self, shapes: Shapes) -> Graph:
        optional = [name for name, _ in shapes if name in self._graph.defaults]
        return with_inputs(self._graph, optional)

    def _made(self, shapes: Shapes) -> Session:
        graph = self._graph_for(shapes)
        if not self._known and self._saved is None:
            session = self._compiled(specializing.specialize(graph, dict(shapes)))
            self._known[shapes] = session
            return session
        return self._opened(graph, shapes)

    def _opened(self, graph: Graph, shapes: Shapes) -> Session:
        given = dict(shapes)
        try:
            session = self._compiled(with_open_sizes(graph, given))
        except Error:  # of these sizes, with numbers in the message, or only of open ones
            session = self._compiled(specializing.specialize(graph, given))
        if session.is_open:
            self._open = [*self._open, (tuple(given), session)][-KEPT_SESSIONS:]
        else:
            self._known = dict([*self._known.items(), (shapes, session)][-KEPT_SESSIONS:])
        return session


class _Unmade:
    """A plan of a file, whose session is made when it first serves."""

    def __init__(self, compiled: Compiled, budget: Budget | None) -> None:
        self._compiled, self._budget = compiled, budget
        self._names = tuple(compiled.plan.inputs)
        self._made: Session | None = None

    @property
    def session(self) -> Session:
        """The session."""
        if self._made is None:
            self._made = Session(self._compiled, budget=self._budget)
        return self._made

    def refusal(self, shapes: Mapping[str, Shape]) -> str:
        """Why the plan does not serve inputs of these shapes; empty if it does."""
        if tuple(shapes) != self._names:
            return f"it is for the inputs {', '.join(self._names)}"
        kinds = self._compiled.plan.inputs
        numbers = self.session.numbers(shapes)
        if numbers is None:
            return "it is for " + ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        try:
            self.session.prepare(numbers)
        except Unimplemented as error:
            return error.message
        return ""


def with_open_sizes(graph: Graph, given: Mapping[str, Shape]) -> Graph:
    """The graph for inputs of ``given`` shapes and of others, as far as the model leaves them
    open."""
    constants: set[str] = set()
    while True:
        symbols, names = Symbols(), list[str]()
        shapes = _opened(graph.inputs, given, symbols, names, constants)
        made = specializing.specialize(graph, shapes)
        settled = {names[place] for place in symbols.settled}
        if not settled:
            return made
        constants |= settled


def _opened(
    inputs: Mapping[str, TensorType],
    given: Mapping[str, Shape],
    symbols: Symbols,
    names: list[str],
    constants: Collection[str],
) -> dict[str, Shape]:
    """The shapes of inputs with a symbol for each size that has a name. What is 0 or 1 is a
    constant, and what has one of the names of ``constants``."""
    made: dict[str, int] = {}

    def size(declared: int | str, own: int) -> int:
        if isinstance(declared, int) or own < LEAST or declared in constants:
            return own
        if declared not in made:
            names.append(declared)
            made[declared] = symbols.size(own)
        return made[declared]

    return {
        name: tuple(map(size, kind.shape, given[name])) if kind.shape != UNRANKED else given[name]
        for name, kind in inputs.items()
    }
