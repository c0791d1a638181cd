"""A run as a graph: the executed steps, their arguments, and the data flow between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

import numpy as np

from dnnl.framework.plan import Layer, Plan, PlannedStep
from dnnl.framework.planning import layout_name
from dnnl.framework.session import PlanRun, Session, Spans
from dnnl.graph.expressions import Form, SizedDesc
from dnnl.graph.graph import SEQUENCE, UNRANKED, Array, Graph, Node, TensorType
from dnnl.primitives.operation import Operation
from dnnl.primitives.registry import OPERATIONS
from dnnl.types.arg import Arg, name_of
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc

Values: TypeAlias = Array | Sequence[Array]
"""An input or an output: a tensor or a list of them."""
_SYMBOL = re.compile(r"\bs\d+\b")
INPUT, STEP, OUTPUT, NUMBERS = "input", "step", "output", "numbers"


@dataclass(frozen=True, slots=True)
class Tensor:
    """An argument of a step. ``sizes`` are texts, with expressions of open sizes. ``source`` is the
    vertex that wrote it before the step, or -1 if it is ``constant`` or new.
    """

    role: str
    data_type: str
    sizes: tuple[str, ...]
    layout: str
    nbytes: int
    constant: bool = False
    source: int = -1


@dataclass(frozen=True, slots=True)
class Vertex:
    """A step with its layer, or an input or output of the model, which has no layer.

    ``nbytes`` counts the bytes that a step reads and writes, each argument once; 0 if unknown.
    """

    kind: str
    name: str
    tensors: tuple[Tensor, ...] = ()
    layer: Layer | None = None
    nbytes: int = 0

    @property
    def is_reorder(self) -> bool:
        """Whether the step only moves data to another layout or type."""
        operation = None if self.layer is None else _operation(self.layer)
        return operation is not None and operation.only_moves


@dataclass(frozen=True, slots=True)
class Edge:
    """Vertex ``target`` reads a tensor of vertex ``source`` as the arguments ``roles``."""

    source: int
    target: int
    roles: str


@dataclass
class RunGraph:
    """The vertices of a run, with steps in execution order, and the edges between them."""

    vertices: list[Vertex] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    @property
    def steps(self) -> list[int]:
        """The numbers of the vertices that are steps, in execution order."""
        return [number for number, own in enumerate(self.vertices) if own.kind == STEP]

    def add(self, vertex: Vertex) -> int:
        """Add a vertex with an edge from each source of its tensors; returns its number."""
        number = len(self.vertices)
        self.vertices.append(vertex)
        roles: dict[int, list[str]] = {}
        for own in vertex.tensors:
            if own.source >= 0:
                roles.setdefault(own.source, []).append(own.role)
        self.edges += [Edge(source, number, ", ".join(own)) for source, own in roles.items()]
        return number


def graph_of(
    session: Session,
    spans: Spans,
    opened: Graph,
    feeds: Mapping[str, Values],
    outputs: Mapping[str, Values],
) -> RunGraph:
    """The graph of a timed run of a session that read ``feeds`` and returned ``outputs``.

    ``opened`` is the graph of the model, with names for its open sizes.
    """
    graph, written = RunGraph(), dict[str, int]()
    for name in session.inputs:
        names = opened.inputs[name].shape if name in opened.inputs else ()
        tensor = _outside("input", feeds[name], names)
        written[name] = graph.add(Vertex(INPUT, name, (tensor,)))
    for run in spans.of:
        if isinstance(run, Node):
            _add_node(graph, written, run, session.layers[len(graph.steps)])
        else:
            _PlanSteps(graph, run, opened.inputs).add(written)
    for name in session.outputs:
        # A plan of the whole model names outputs as the model does, one of a part as values.
        source = written.get(name, written.get(opened.outputs[name], -1))
        graph.add(Vertex(OUTPUT, name, (_outside("output", outputs[name], (), source),)))
    return graph


def _add_node(graph: RunGraph, written: dict[str, int], node: Node, layer: Layer) -> None:
    """Add a node that is computed on arrays between parts."""
    read = dict.fromkeys(name for name in node.reads if name in written)
    tensors = tuple(Tensor(name, "", (), "", 0, source=written[name]) for name in read)
    number = graph.add(Vertex(STEP, layer.name, tensors, layer))
    written.update((name, number) for name in node.outputs if name)


class _PlanSteps:
    """Adds the steps of one run of a plan to a graph."""

    def __init__(self, graph: RunGraph, run: PlanRun, declared: Mapping[str, TensorType]) -> None:
        self._graph, self._run = graph, run
        self._plan: Plan = run.compiled.plan
        self._names = _open_names(self._plan, declared)
        self._written: dict[int, int] = {}  # the vertex that last wrote each storage

    def add(self, written: dict[str, int]) -> None:
        """Add the steps; ``written`` maps values to the vertices that wrote them, and is
        updated."""
        plan, graph = self._plan, self._graph
        for name in plan.inputs:
            if name in plan.tensors and name in written:
                self._written[plan.tensors[name].storage] = written[name]
        for counted in plan.counted:
            vertex = Vertex(NUMBERS, "numbers")
            self._written[counted.storage] = graph.add(vertex)
        for step, layer in zip(plan.steps, plan.layers, strict=True):
            tensors = tuple(self._tensors(step, layer))
            nbytes = _moved(layer, tensors) if step.forms else 0
            number = graph.add(Vertex(STEP, layer.name, tensors, layer, nbytes))
            self._written[step.storages[Arg.DST]] = number
        for public, value in plan.outputs.items():
            own = plan.tensors.get(value)
            if own is not None and own.storage in self._written:
                written[public] = self._written[own.storage]

    def _tensors(self, step: PlannedStep, layer: Layer) -> Iterator[Tensor]:
        """The arguments of a step, in the order of their numbers."""
        constants = self._run.compiled.constants
        read = {storage for arg, storage in step.storages.items() if arg != Arg.DST}
        for arg, storage in sorted(step.storages.items()):
            constant, role = storage in constants, _role(arg)
            source = self._written.get(storage, -1)
            # A dst that was written before is accumulated to, unless it is in place.
            if arg == Arg.DST and storage in read:
                source = -1
            form = step.forms.get(arg)
            if form is None:
                layout = layer.layouts.get(role, "")
                yield Tensor(role, "", (), layout, 0, constant, source)
                continue
            desc = SizedDesc(form).of(self._run.values)
            kind, layout = str(desc.data_type), layout_name(desc)
            yield Tensor(
                role, kind, self._sizes(desc, form), layout, nbytes_of(desc), constant, source
            )

    def _sizes(self, desc: MemoryDesc, form: Form) -> tuple[str, ...]:
        """The sizes of a tensor as texts, with expressions for open ones."""
        if not form.places:
            return tuple(map(str, desc.dims))
        texts = [self._plan.expressions[place] for place in form.places[: desc.ndims]]
        return tuple(
            str(size) if text.isdecimal() else f"{self._named(text)}={size}"
            for size, text in zip(desc.dims, texts, strict=True)
        )

    def _named(self, text: str) -> str:
        """An expression with symbols replaced by the names of sizes."""
        if text in self._names:
            return self._names[text]
        return _SYMBOL.sub(lambda found: self._names.get(found[0], found[0]), text)


def _open_names(plan: Plan, declared: Mapping[str, TensorType]) -> dict[str, str]:
    """Names for the symbols of a plan: of sizes of the model, or of axes of the inputs of a
    part."""
    names: dict[str, str] = {}
    for name, kind in plan.inputs.items():
        own = declared[name].shape if name in declared else ()
        for axis, size in enumerate(kind.shape):
            if isinstance(size, str):
                known = own[axis] if len(own) == len(kind.shape) else None
                names.setdefault(size, known if isinstance(known, str) else f"{name}[{axis}]")
    return names


def _role(arg: int) -> str:
    """The name of an argument, such as src or post_op(0)|src_1."""
    return name_of(arg).lower().replace("multiple_src+", "src ")


def nbytes_of(desc: MemoryDesc) -> int:
    """The bytes of a tensor that a step reads or writes: elements and padding, without gaps between
    strides; a broadcast element (stride 0) counts once."""
    if desc.format_kind is not FormatKind.blocked:
        return desc.size
    elements = prod(desc.padded_dims)
    return min(desc.size, -(-elements * desc.data_type.bits // 8))


def _operation(layer: Layer) -> Operation | None:
    """The record of what a layer executes; None of what runs on arrays between parts."""
    desc = OPERATIONS.get(layer.primitive)
    return None if desc is None else desc.operation


def _moved(layer: Layer, tensors: Sequence[Tensor]) -> int:
    """The bytes that a step reads and writes: each argument once, an accumulated dst twice."""
    dst = sum(own.nbytes for own in tensors if own.role == "dst")
    operation, total = _operation(layer), 0
    for own in tensors:
        nbytes = own.nbytes
        if own.role == "dst" and own.source >= 0:
            nbytes *= 2
        if own.role == "src" and operation is not None and operation.reads_indexed:
            nbytes = min(nbytes, dst)
        total += nbytes
    return total


def _outside(role: str, given: Values, names: Sequence[int | str], source: int = -1) -> Tensor:
    """An input or an output of the model; open sizes show their ``names``."""
    if not isinstance(given, np.ndarray):
        kind = given[0].dtype.name if given else ""
        nbytes = sum(own.nbytes for own in given)
        return Tensor(f"list of {len(given)}", kind, (), "", nbytes, source=source)
    if len(names) != given.ndim or tuple(names) in (UNRANKED, SEQUENCE):
        names = given.shape
    sizes = tuple(
        str(size) if isinstance(name, int) else f"{name}={size}"
        for name, size in zip(names, given.shape, strict=True)
    )
    return Tensor(role, given.dtype.name, sizes, "", given.nbytes, source=source)
