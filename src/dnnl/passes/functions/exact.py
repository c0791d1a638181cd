"""Chains of nodes that one kernel computes in the types of their elements.

A chain ends at a node and holds what only it needs: nodes with results of one shape. The values
that it begins at are its sources. Each step is rounded to its type, so that a chain has the results
of its nodes one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dnnl.graph.graph import EXACT, REAL, Graph, Node, blamed_on, is_whole
from dnnl.operators.exact import exact_function
from dnnl.passes.functions.joined import Regions, join_regions
from dnnl.passes.functions.regions import MOST_NODES, computed, is_traceable, replaced_by
from dnnl.types.dtype import DataType
from dnnl.types.expression import Step
from dnnl.types.scalar import Scalar, Trace, replayed
from dnnl.types.typed import FLOATS, FUNCTIONS, STEPS, TYPES

_MOST_SOURCES = 8
"""More tensors would be read than a processor has registers for their addresses."""


def join_integers(graph: Graph) -> Graph:
    """The graph with each chain of what is computed from integers alone as one node: integers,
    truth values, and floats between them."""
    return join_regions(_OfIntegers(graph))


def join_exact(graph: Graph) -> Graph:
    """The graph with each further chain of integers and truth values as one node."""
    return join_regions(_Chains(graph))


class _Chains(Regions):
    """Regions of what is computed exactly, whatever it is computed from."""

    def is_part(self, node: Node) -> bool:
        """Whether a typed expression can have a node as a step; a conversion between floats is
        left to those who read it."""
        is_left = node.op == "Cast" and self._kinds(node) <= REAL
        return node.op == EXACT or (self._is_exact(node) and not is_left)

    def is_real(self, node: Node) -> bool:
        """Whether all that a node reads and writes are floats."""
        return self._kinds(node) <= _FLOATS

    def _kinds(self, node: Node) -> set[np.dtype]:
        return {self.graph.type_of(v).dtype for v in (node.output, *filter(None, node.inputs))}

    def _is_exact(self, node: Node) -> bool:
        name = None if node.domain else exact_function(node, self.graph)
        if name is None or not self._kinds(node) <= _KINDS:
            return False
        row = STEPS[FUNCTIONS[name]]
        result, *sources = map(self._type, (node.output, *node.inputs))
        fits = len(sources) == row.signature.sources and row.signature.fits(result, *sources)
        return fits and sources[-1] in row.allowed

    def region(self, last: Node) -> list[Node]:
        """What only ``last`` needs, with as many sources as one kernel has."""
        region = super().region(last)
        while len(self.read(region)) > _MOST_SOURCES and len(region) > 1:
            region = region[1:]
        return region

    def joined(self, region: Sequence[Node]) -> Node | None:
        """A region as one node; None for a single one, and for floats alone."""
        size = sum(1 + len(node.fused) for node in region)
        if len(region) == 1 or size > MOST_NODES or all(map(self.is_real, region)):
            return None
        sources, trace = self.read(region), Trace()
        values = dict(zip(sources, trace.parameters(list(map(self._type, sources))), strict=True))
        for node in region:
            with blamed_on(node):
                values[node.output] = self._computed(node, values, trace)
        expression = trace.expression(len(sources), values[region[-1].output])
        return replaced_by(EXACT, expression, sources, region)

    def _computed(self, node: Node, values: dict[str, Scalar], trace: Trace) -> Scalar:
        """The result of a node; that of an operator of floats is rounded once."""
        kind = self._type(node.output)
        if node.op != EXACT and not self._is_exact(node):
            core = kind if kind is DataType.f64 else DataType.f32
            wide = {value: values[value].astype(core) for value in node.inputs if value in values}
            return computed(node, wide, self.graph).astype(kind)
        for value in node.inputs:
            if value not in values:
                number = self.graph.constants[value].reshape(()).item()
                values[value] = trace.constant(number, self._type(value))
        sources = [values[value] for value in node.inputs]
        if node.op == EXACT:
            return replayed(node.attrs["function"].expression, sources)
        step = FUNCTIONS[exact_function(node, self.graph) or ""]
        return trace.add(Step(step, tuple(source.index for source in sources), data_type=kind))

    def _type(self, value: str) -> DataType:
        return DataType.from_numpy(self.graph.type_of(value).dtype)


class _OfIntegers(_Chains):
    """Regions of what no float from elsewhere is part of."""

    def is_part(self, node: Node) -> bool:
        """Whether a node computes something from integers, or from what other parts made."""
        of_floats = not node.domain and is_traceable(node) and self.is_real(node)
        known = of_floats or self._is_exact(node)
        return known and all(map(self._is_of_integers, self.sources(node)))

    def _is_of_integers(self, value: str) -> bool:
        producer = self.producers.get(value)
        if value in self.graph.constants or (producer and producer.name in self.parts):
            return True
        dtype = self.graph.type_of(value).dtype
        of_floats = dtype == np.bool_ and producer is not None and self._is_exact(producer)
        return is_whole(dtype) and not of_floats


_KINDS = {kind.numpy for kind in TYPES}
_FLOATS = {kind.numpy for kind in FLOATS}
