"""A model of f32 in a smaller type of floats: what is stored in it, and where types are converted.

Products multiply what comes from data in the smaller type, and what follows from their results is
stored in it. Sums and functions are computed in f32 inside of the primitives. Four rules say what
stays f32:

- what comes from integers, truth values and constants alone: masks, positions, tables;
- reductions and what follows from nothing else: means, variances, their roots. They are small, and
  what is subtracted or divided by them needs their digits;
- what an integer, an angle or a step (floor, ceil, round) is computed from, up to the inputs, and
  what is compared, back to the product or reduction that it comes from;
- parameters that are no factor of a product and no table of rows: biases, scales, shifts.

Inputs and outputs of the model have their own types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum

import numpy as np

from dnnl.graph.graph import FUNCTION, JOINT, REAL, Graph, Node, TensorType
from dnnl.graph.rounding import Rounding
from dnnl.operators.operator import Role
from dnnl.operators.table import operator_of
from dnnl.types.dtype import DataType

_F32 = DataType.f32.numpy
_STEPS = frozenset(("sin", "cos", "floor", "ceil", "round"))
"""Functions whose result does not follow a small part of a large source."""


class _Origin(IntEnum):
    """What the digits of a value come from."""

    CONTROL = 0
    STATISTIC = 1
    DATA = 2


class _Need(IntEnum):
    """How much of a value its readers need."""

    ROUNDED = 0
    COMPARED = 1
    DIGITS = 2


def rounding_of(graph: Graph) -> Rounding | None:
    """The rounding of an optimized graph to types smaller than f32, None where there is none."""
    eps, depths = 0.0, dict.fromkeys((*graph.inputs, *graph.constants), 0)
    for node in graph.nodes:
        kinds = {graph.type_of(v).dtype for v in (*node.inputs[:2], *node.outputs) if v} & REAL
        small = [DataType.from_numpy(kind).eps for kind in kinds - {_F32}]
        moved = operator_of(node).role is Role.MOVED
        depth = max((depths[v] for v in node.reads), default=0) + (bool(small) and not moved)
        depths.update(dict.fromkeys(node.outputs, depth))
        eps = max(eps, *small, 0.0)
    depth = max((depths[v] for v in graph.outputs.values()), default=0)
    return Rounding(eps, depth) if depth else None


def within_range(graph: Graph, kind: DataType) -> Graph:
    """The graph with finite constants that ``kind`` would make infinite, such as a mask's least
    float, as the largest number that it holds; those that are compared stay."""
    compared = {
        value
        for node in graph.nodes
        if graph.type_of(node.output).dtype not in REAL
        for value in node.reads
    }
    constants = dict(graph.constants)
    for name, array in graph.constants.items():
        if array.dtype != _F32 or name in compared or not array.size:
            continue
        over = np.isfinite(array) & (np.abs(array) > kind.max)
        if over.any():
            constants[name] = np.where(over, np.copysign(array.dtype.type(kind.max), array), array)
    return replace(graph, constants=constants)


def in_precision(graph: Graph, kind: DataType) -> Graph:
    """An optimized graph that stores in ``kind`` what the rules above do not require in f32."""
    return _fused(_Narrower(graph, kind).graph(), again=True)


def fuse_conversions(graph: Graph) -> Graph:
    """Conversions between floats become the type in which a primitive writes its result, where
    nothing else reads that; views in between move no data in either type. A conversion behind one
    that rounds stays: whoever writes both wants the rounded numbers."""
    return _fused(graph, again=False)


def _fused(graph: Graph, *, again: bool) -> Graph:
    """`fuse_conversions`, of values that another conversion has rounded only if ``again``."""
    uses, types = graph.uses(), dict(graph.types)
    producers = {value: node for node in graph.nodes for value in node.outputs}
    names: dict[str, str] = {}
    rounded: set[str] = set()
    for node in graph.nodes:
        if not _is_conversion(node, graph):
            continue
        chain = _written(names.get(node.inputs[0], node.inputs[0]), producers, uses, graph)
        if not again and not rounded.isdisjoint(chain):
            continue
        result = graph.type_of(node.output).dtype
        for value in chain:
            if result != _F32 and result != types[value].dtype:
                rounded.add(value)
            types[value] = replace(types[value], dtype=result)
        if chain:
            names[node.output] = node.inputs[0]
    return replace(graph, types=types).renamed(names).pruned()


def _is_conversion(node: Node, graph: Graph) -> bool:
    kinds = {graph.type_of(value).dtype for value in (node.inputs[0], node.output)}
    return node.op == "Cast" and kinds <= REAL


def _written(
    value: str, producers: Mapping[str, Node], uses: Mapping[str, int], graph: Graph
) -> list[str]:
    """``value`` and what it is a view of, up to what a primitive writes in any type; empty if none
    does."""
    chain = []
    while uses[value] == 1 and value in producers:
        producer = producers[value]
        chain.append(value)
        role = operator_of(producer).role
        if role is not Role.MOVED:
            return [] if role is Role.EXACT or value != producer.output else chain
        moved = [v for v in producer.reads if graph.type_of(v).dtype in REAL]
        if len(moved) != 1 or len(producer.outputs) != 1:
            return []
        (value,) = moved
    return []


class _Narrower:
    """The nodes so far, with conversions before those that need them."""

    def __init__(self, graph: Graph, kind: DataType) -> None:
        self.before, self.kind = graph, kind
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.nodes: list[Node] = []
        self.needs = _needs(graph)
        self.origins: dict[str, _Origin] = {
            name: _Origin.DATA if kind_.dtype in REAL else _Origin.CONTROL
            for name, kind_ in graph.inputs.items()
        }

    def graph(self) -> Graph:
        """The whole graph."""
        for node in self.before.nodes:
            self._add(node)
        outputs = {
            public: self._converted(value, self.before.type_of(value).dtype)
            for public, value in self.before.outputs.items()
        }
        return replace(
            self.before,
            nodes=tuple(self.nodes),
            types=self.types,
            constants=self.constants,
            outputs=outputs,
        ).pruned()

    def _add(self, node: Node) -> None:
        origin = self._origin(node)
        self.origins.update(dict.fromkeys(node.outputs, origin))
        role, narrow = operator_of(node).role, False
        if self.before.type_of(node.output).dtype == _F32:
            narrow = self._is_narrow(node, role, origin)
        if narrow:
            for value in filter(None, node.outputs):
                self.types[value] = replace(self.types[value], dtype=self.kind.numpy)
        self.nodes.append(replace(node, inputs=self._sources(node, role, narrow=narrow)))

    def _origin(self, node: Node) -> _Origin:
        first = self.before.constants.get(node.input(0))
        if self.before.type_of(node.output).dtype not in REAL:
            return _Origin.CONTROL
        role = operator_of(node).role
        if role is Role.MOVED and first is not None and first.dtype in REAL:
            return _Origin.DATA  # rows of a table
        origin = max(self.origins.get(v, _Origin.CONTROL) for v in node.reads)
        if role is Role.STATISTIC:
            return min(origin, _Origin.STATISTIC)
        return _Origin.DATA if role is Role.PRODUCT and origin else origin

    def _is_narrow(self, node: Node, role: Role, origin: _Origin) -> bool:
        """Whether the result of a node, an f32, is stored in the smaller type."""
        if role is Role.EXACT or origin is not _Origin.DATA or self.needs.get(node.output):
            return False
        computed = [v for v in self._reals(node.inputs) if v not in self.constants]
        if role is Role.MOVED and computed:
            return any(self._dtype(value) == self.kind.numpy for value in computed)
        return True

    def _sources(self, node: Node, role: Role, *, narrow: bool) -> tuple[str, ...]:
        """The sources of a node in the types that its primitive can combine."""
        wanted: dict[str, np.dtype] = {}
        if role is Role.PRODUCT:
            factors = self._reals(node.inputs[:2])
            from_data = any(self.origins.get(value) for value in factors)
            exact = self.needs.get(node.output) is _Need.DIGITS or _has_steps(node)
            small = from_data and not exact
            wanted = dict.fromkeys(factors, self.kind.numpy if small else _F32)
        elif role is Role.MOVED:
            wanted = dict.fromkeys(self._reals(node.inputs), self.kind.numpy if narrow else _F32)
        elif role is Role.EXACT:
            wanted = dict.fromkeys(self._reals(node.inputs), _F32)
        return tuple(self._converted(v, wanted[v]) if v in wanted else v for v in node.inputs)

    def _reals(self, values: tuple[str, ...]) -> list[str]:
        """Those of the values that the model has in f32."""
        return [v for v in values if v and self.before.type_of(v).dtype == _F32]

    def _dtype(self, value: str) -> np.dtype:
        if value in self.constants:
            return self.constants[value].dtype
        return (self.types[value] if value in self.types else self.before.inputs[value]).dtype

    def _converted(self, value: str, dtype: np.dtype) -> str:
        """The name of a value in a data type."""
        if self._dtype(value) == dtype:
            return value
        name = f"{value}{JOINT}{DataType.from_numpy(dtype)}"
        if value in self.constants:
            if name not in self.constants:
                with np.errstate(over="ignore", under="ignore"):
                    self.constants[name] = self.constants[value].astype(dtype)
        elif name not in self.types:
            self.types[name] = TensorType(dtype, self.before.type_of(value).shape)
            self.nodes.append(Node("Cast", name, (value,), (name,)))
        return name


def _needs(graph: Graph) -> dict[str, _Need]:
    """What is compared or needed with all digits."""
    needs: dict[str, _Need] = {}
    for node in reversed(graph.nodes):
        need = max(needs.get(v, _Need.ROUNDED) for v in node.outputs)
        if need is _Need.COMPARED and operator_of(node).role in (Role.PRODUCT, Role.STATISTIC):
            need = _Need.ROUNDED
        result = graph.type_of(node.output).dtype
        if result == np.bool_:
            need = max(need, _Need.COMPARED)
        elif result not in REAL or _has_steps(node):
            need = _Need.DIGITS
        if need:
            for value in node.inputs:
                needs[value] = max(need, needs.get(value, _Need.ROUNDED))
    return needs


def _has_steps(node: Node) -> bool:
    """Whether a node or one of its post-ops computes one of `_STEPS`."""
    functions = [p.function for p in node.post_ops if p.function is not None]
    if node.op == FUNCTION:
        functions.append(node.attrs["function"])
    names = {step.name for function in functions for step in function.expression.steps}
    algs = {post_op.alg.removeprefix("eltwise_") for post_op in node.post_ops}
    return not _STEPS.isdisjoint({node.op.lower(), *names, *algs})
