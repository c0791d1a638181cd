"""Sessions of a model that is called with inputs of any sizes.

The first sizes have a session of their own. Others share plans in which the sizes that the model
leaves open stay open: a plan serves all sizes that satisfy the conditions under which it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from dnnl import forks
from dnnl.errors import Error
from dnnl.framework.session import Session
from dnnl.graph.graph import UNRANKED, Graph, Shape, TensorType, with_inputs
from dnnl.passes.specialize import specialize
from dnnl.types.size import LEAST, Symbols

KEPT_SESSIONS = 8
"""Sessions that a called model caches, those of its latest sizes."""

Shapes = tuple[tuple[str, Shape], ...]


class Sessions:
    """The sessions of one graph; ``compiled(graph)`` makes one of a specialized graph."""

    def __init__(self, graph: Graph, compiled: Callable[[Graph], Session]) -> None:
        self._graph, self._compiled = graph, compiled
        self._known: dict[Shapes, Session] = {}
        self._open: list[tuple[tuple[str, ...], Session]] = []
        self._lock = forks.Lock()

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
            return self._made(shapes)

    def _made(self, shapes: Shapes) -> Session:
        optional = [name for name, _ in shapes if name in self._graph.defaults]
        graph, given = with_inputs(self._graph, optional), dict(shapes)
        if not self._known:
            session = self._compiled(specialize(graph, given))
            self._known[shapes] = session
            return session
        try:
            session = self._compiled(with_open_sizes(graph, given))
        except Error:  # of these sizes, with numbers in the message, or only of open ones
            session = self._compiled(specialize(graph, given))
        if session.is_open:
            self._open = [*self._open, (tuple(given), session)][-KEPT_SESSIONS:]
        else:
            self._known = dict([*self._known.items(), (shapes, session)][-KEPT_SESSIONS:])
        return session


def with_open_sizes(graph: Graph, given: Mapping[str, Shape]) -> Graph:
    """The graph for inputs of ``given`` shapes and of others, as far as the model leaves them
    open."""
    constants: set[str] = set()
    while True:
        symbols, names = Symbols(), list[str]()
        shapes = _opened(graph.inputs, given, symbols, names, constants)
        made = specialize(graph, shapes)
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
