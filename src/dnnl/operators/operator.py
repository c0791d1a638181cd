"""What there is to know about an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from dnnl.errors import Unimplemented
from dnnl.graph.graph import Node, PostOp
from dnnl.graph.scope import Infer
from dnnl.graph.writer import Writer
from dnnl.lowering.graphs import Lowering

Lower = Callable[[Lowering, Node], None]
"""Adds the steps of a node."""
Expand = Callable[[Writer], bool]
"""Writes a node as others; false where it stays."""

ANY_POST_OPS = frozenset({"eltwise", "binary", "function"})
ELTWISE_POST_OPS = frozenset({"eltwise", "function"})
BINARY_POST_OPS = frozenset({"binary", "function"})


class Role(Enum):
    """Which types of floats an operator's primitive can combine, and what its result is."""

    PRODUCT = "both factors have one type, the result any"
    FUNCTION = "each source and the result have any type"
    STATISTIC = "as a function; one number depends on many"
    MOVED = "sources and result have one type, nothing is computed"
    EXACT = "computed in the types of the elements, not in smaller ones"


def not_computed(lowering: Lowering, node: Node) -> NoReturn:
    """What the passes replace or remove, wherever it can be run at all."""
    raise Unimplemented(f"{node}: this form of the operator is not computed")


@dataclass(frozen=True, slots=True)
class Operator:
    """How an operator is typed and run, and which kinds of post-ops its primitive takes.

    ``infer`` gives the types of the results, ``expand`` writes the operator as nodes of others
    where it has to, ``lower`` makes primitives of what is left. ``inputs`` are the numbers of
    sources that it needs and that it takes at most (None: any), ``required`` the attributes that
    have no default. ``stores_bytes`` is false where a dst of bytes is refused, or decides on more
    than how the result is stored.
    """

    infer: Infer
    lower: Lower = not_computed
    expand: Expand | None = None
    post_ops: frozenset[str] = frozenset()
    inputs: tuple[int, int | None] = (1, 1)
    required: tuple[str, ...] = ()
    role: Role = Role.FUNCTION
    stores_bytes: bool = True

    def takes(self, post_op: PostOp) -> bool:
        """Whether the primitive has such post-ops; what takes no second source takes no operands
        of functions either."""
        kinds = {post_op.kind, "binary"} if post_op.operands else {post_op.kind}
        return kinds <= self.post_ops


def product(
    infer: Infer, lower: Lower, inputs: tuple[int, int], expand: Expand | None = None
) -> Operator:
    """The row of an operator that multiplies two sources."""
    return Operator(infer, lower, expand, post_ops=ANY_POST_OPS, inputs=inputs, role=Role.PRODUCT)


def moved(
    infer: Infer,
    lower: Lower,
    inputs: tuple[int, int | None] = (1, 1),
    *required: str,
    expand: Expand | None = None,
) -> Operator:
    """The row of an operator that only moves elements."""
    return Operator(infer, lower, expand, inputs=inputs, required=required, role=Role.MOVED)
