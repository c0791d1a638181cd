"""Which operators of a model run, and why others are refused, without building kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dnnl.errors import Error, Unimplemented
from dnnl.framework.compiler import lower, optimize
from dnnl.framework.parts import divided
from dnnl.framework.steps import Between, Part, Step
from dnnl.graph.branches import graphs_in, is_branching
from dnnl.graph.graph import JOINT, SEQUENCE, Graph, Node, Shape
from dnnl.operators.table import row_name
from dnnl.passes.specialize import specialize, unknown_operators
from dnnl.runtime.engine import Engine
from dnnl.types.dtype import DataType

_UNKNOWN = "the operator is not known"
_NOT_SEEN = "sizes and types are checked only if all operators are known"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The nodes of one operator that are refused for one reason."""

    operator: str
    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking a model.

    ``operators`` counts the nodes of each operator, including those in branches and loops.
    ``refusals`` has those that do not run. ``steps`` is the number of steps of a run, 0 if unknown.
    ``unseen`` says why some nodes were not checked; it is empty if all were.
    """

    operators: Mapping[str, int]
    refusals: tuple[Refusal, ...]
    steps: int = 0
    unseen: str = ""

    @property
    def runs(self) -> bool:
        """Whether nothing is refused."""
        return not self.refusals


def checked(
    graph: Graph,
    shapes: Mapping[str, Shape],
    engine: Engine,
    layout: str = "propagate",
    kind: DataType = DataType.f32,
) -> Checked:
    """Check a graph for inputs of these shapes, without compiling it."""
    operators = Counter(row_name(node) for inside in graphs_in(graph) for node in inside.nodes)
    counts = dict(operators.most_common())
    unknown = _unknown(graph)
    if unknown:
        return Checked(counts, unknown, unseen=_NOT_SEEN)
    found: list[tuple[str, str, str]] = []
    try:
        program = divided(graph)
        first = program.steps[0] if program.steps else None
        if program.whole:
            steps = _lowered(graph, shapes, engine, layout, kind, found)
            return Checked(counts, _merged(found), steps)
        if isinstance(first, Part) and not first.contents:
            part = replace(first.graph(), inputs={n: graph.inputs[n] for n in first.inputs})
            own = {name: shapes[name] for name in first.inputs}
            _lowered(part, own, engine, layout, kind, found)
    except Error as error:
        found.append((*_place(error, graph), _text(error)))
        return Checked(counts, _merged(found), unseen="nodes behind it were not looked at")
    nodes = tuple(node for step in program.steps for node in _decided_by_runs(step))
    unknown = _unknown(replace(graph, nodes=nodes), branches=True)
    if unknown:
        return Checked(counts, (*_merged(found), *unknown), unseen=_NOT_SEEN)
    parts = sum(isinstance(step, Part) for step in program.steps)
    unseen = f"the model runs in {parts} parts: only the first can be checked before a run"
    return Checked(counts, _merged(found), unseen=unseen)


def _decided_by_runs(step: Step) -> list[Node]:
    """Nodes of which only a run knows which of their graphs it takes."""
    if isinstance(step, Between):
        return [step.node]
    nodes = step.graph().nodes if step.contents else ()
    return [node for node in nodes if is_branching(node) and node.inputs[0] in step.contents]


def _unknown(graph: Graph, *, branches: bool = False) -> tuple[Refusal, ...]:
    """The operators that are not known; with ``branches`` also those in branches of If."""
    found = unknown_operators(graph, branches=branches)
    return tuple(Refusal(own, tuple(nodes), _UNKNOWN) for own, nodes in found.items())


def _lowered(
    graph: Graph,
    shapes: Mapping[str, Shape],
    engine: Engine,
    layout: str,
    kind: DataType,
    found: list[tuple[str, str, str]],
) -> int:
    """The number of steps. Appends (operator, node, reason) to ``found`` for each node without
    one."""

    def refuse(node: Node, error: Error) -> None:
        found.append((node.op, node.name.partition(JOINT)[0], _text(error)))

    tensors = {n: own for n, own in shapes.items() if graph.inputs[n].shape != SEQUENCE}
    optimized = optimize(specialize(replace(graph, defaults={}), tensors), kind)
    return len(lower(optimized, engine, layout, refuse).steps)


def _place(error: Error, graph: Graph) -> tuple[str, str]:
    """The operator and the node that an error names, each empty if it names none."""
    named = (
        node for inside in graphs_in(graph) for node in inside.nodes if str(node) in str(error)
    )
    node = next(named, None)
    return ("", "") if node is None else (row_name(node), node.name)


def _text(error: Error) -> str:
    """The message of an error without the name of the node."""
    if isinstance(error, Unimplemented):
        message, reasons = error.message, "; ".join(map(str, error.reasons))
        text = f"{message}: {reasons}" if reasons else message
    else:
        text = str(error)
    if text.startswith("node '"):
        text = text.partition("): ")[2] or text
    return text


def _merged(found: Iterable[tuple[str, str, str]]) -> tuple[Refusal, ...]:
    """One refusal for each operator and reason, with all its nodes."""
    nodes: dict[tuple[str, str], dict[str, None]] = {}
    for operator, node, reason in found:
        nodes.setdefault((operator, reason), {})[node] = None
    return tuple(Refusal(own, tuple(names), why) for (own, why), names in nodes.items())
