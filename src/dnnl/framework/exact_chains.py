"""Chains of integers and truth values that one kernel computes.

A chain ends at a node and holds what only it needs: nodes that are computed in the types of their
elements, all with results of one shape. The values that it begins at are its sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dnnl.framework.exact import exact_function
from dnnl.framework.functions import MOST_NODES
from dnnl.framework.graph import EXACT, REAL, Graph, Node, blamed_on
from dnnl.framework.joined import Regions, join_regions
from dnnl.types.dtype import DataType
from dnnl.types.expression import Function, Step
from dnnl.types.scalar import Trace
from dnnl.types.typed import FUNCTIONS, TYPES

_MOST_SOURCES = 8
"""More tensors would be read than a processor has registers for their addresses."""


def join_exact(graph: Graph) -> Graph:
    """The graph with each such chain as one node."""
    return join_regions(_Chains(graph))


class _Chains(Regions):
    """Regions of what is computed exactly."""

    def is_part(self, node: Node) -> bool:
        """Whether a typed expression can have a node as a step; a conversion between floats is
        left to those who read it."""
        if node.domain or exact_function(node, self.graph) is None:
            return False
        given = {self.graph.type_of(value).dtype for value in (*node.inputs, node.output)}
        if not given <= _KINDS or (node.op == "Cast" and given <= REAL):
            return False
        row = FUNCTIONS[exact_function(node, self.graph) or ""]
        result, *sources = (self._type(value) for value in (node.output, *node.inputs))
        fits = len(sources) == row.signature.sources and row.signature.fits(result, *sources)
        return fits and sources[-1] in row.allowed

    def sources(self, node: Node) -> list[str]:
        """The values that a node reads besides single numbers."""
        known = self.graph.constants
        return [value for value in node.inputs if value not in known or known[value].size != 1]

    def region(self, last: Node) -> list[Node]:
        """What only ``last`` needs, with as many sources as one kernel has."""
        region = super().region(last)
        while len(self.read(region)) > _MOST_SOURCES and len(region) > 1:
            region = region[1:]
        return region

    def joined(self, region: Sequence[Node]) -> Node | None:
        """A region as one node; None for a single one."""
        if not 1 < len(region) <= MOST_NODES:
            return None
        last, sources = region[-1], self.read(region)
        trace = Trace()
        values = dict(zip(sources, trace.parameters(list(map(self._type, sources))), strict=True))
        for node in region:
            with blamed_on(node):
                name = exact_function(node, self.graph) or ""
            for value in node.inputs:
                if value not in values:
                    number = self.graph.constants[value].reshape(()).item()
                    values[value] = trace.constant(number, self._type(value))
            places = tuple(values[value].index for value in node.inputs)
            step = Step(FUNCTIONS[name].step, places, data_type=self._type(node.output))
            values[node.output] = trace.add(step)
        expression = trace.expression(len(sources), values[last.output])
        before = (name for node in region[:-1] for name in (*node.fused, node.name))
        return replace(
            last,
            op=EXACT,
            inputs=tuple(sources),
            domain=EXACT,
            attrs={"function": Function(expression, last.name)},
            fused=(*before, *last.fused),
        )

    def _type(self, value: str) -> DataType:
        return DataType.from_numpy(self.graph.type_of(value).dtype)


_KINDS = {kind.numpy for kind in TYPES}
