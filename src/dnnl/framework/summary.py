"""The summary of a model that ``print`` shows: inputs, outputs, operators, parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dnnl.graph.branches import graphs_in
from dnnl.graph.graph import SEQUENCE, UNRANKED, Array, Graph, Node, TensorType

_WIDTH, _TITLE = 80, 12
"""Columns of a line, which longer names exceed, and of the titles of lines."""


def page_of(graph: Graph) -> str:
    """Inputs with their open sizes, outputs, counts of operators, parameters.

    Subgraphs of branches and loops are included.
    """
    nodes, constants = list(_nodes(graph)), list(_constants(graph))
    counts = Counter(f"{node.domain}.{node.op}" if node.domain else node.op for node in nodes)
    elements, nbytes = sum(a.size for a in constants), sum(a.nbytes for a in constants)
    types = ", ".join(f"{kind} {size_of(n)}" for kind, n in _bytes_by_type(constants))
    operators = [f"{op} {count}" for op, count in counts.most_common()]
    lines = [
        *_listed("inputs", [f"{name}: {_typed(kind)}" for name, kind in graph.inputs.items()]),
        *_listed("defaults", [f"{name}: {_typed(kind)}" for name, kind in graph.defaults.items()]),
        *_listed("outputs", list(graph.outputs)),
        *_listed("operators", in_lines(operators, _WIDTH - _TITLE)),
        f"{'nodes':<{_TITLE}}{len(nodes)}",
        f"{'parameters':<{_TITLE}}{elements:,} in {len(constants)} tensors, {size_of(nbytes)}"
        + (f" ({types})" if constants else ""),
        f"{'opset':<{_TITLE}}{graph.opset}",
    ]
    return "\n".join(lines)


def size_of(nbytes: int) -> str:
    """A number of bytes in the largest unit that it reaches: ``97.5 MB``."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes} B"


def _typed(kind: TensorType) -> str:
    if kind.shape == UNRANKED:
        return f"{kind.dtype} of any rank"
    return f"list of {kind.dtype}" if kind.shape == SEQUENCE else str(kind)


def _listed(title: str, items: Sequence[str]) -> Iterator[str]:
    """A line for each item; the first begins with the title."""
    for place, item in enumerate(items):
        yield f"{'' if place else title:<{_TITLE}}{item}"


def in_lines(items: Sequence[str], width: int) -> list[str]:
    """Lines of at most ``width`` columns, if items allow it, of as many items as fit."""
    lines, line = list[str](), ""
    for item in items:
        joined = f"{line}, {item}" if line else item
        if line and len(joined) >= width:
            lines.append(f"{line},")
            joined = item
        line = joined
    return [*lines, line]


def _nodes(graph: Graph) -> Iterator[Node]:
    for inside in graphs_in(graph):
        yield from inside.nodes


def _constants(graph: Graph) -> Iterator[Array]:
    for inside in graphs_in(graph):
        yield from inside.constants.values()


def _bytes_by_type(constants: Sequence[Array]) -> list[tuple[str, int]]:
    found: Counter[str] = Counter()
    for array in constants:
        found[array.dtype.name] += array.nbytes
    return found.most_common()
