"""How far the layouts that primitives choose go: a policy, which is asked for each node."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

STRICT = frozenset(
    {
        *("Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Gemm"),
        *("LogSoftmax", "MatMul", "Pad", "Range", "Reshape", "Slice", "Softmax", "Split"),
        *("Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze"),
        *("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
        *("ReduceSum", "ReduceSumSquare"),
        *("dnnl.Attention", "dnnl.CompressedMatMul", "dnnl.MaskedSoftmax"),
        *("dnnl.QuantizedMatMul", "dnnl.QuantizedSoftmax"),
    }
)
"""Operators that give meaning to axes by their numbers, whatever computed their sources. All others
are convolutions, poolings, normalizations, changes of an image's size, and elementwise."""


@dataclass(frozen=True, slots=True)
class LayoutPolicy:
    """Layouts propagate through all operators but those in ``stops``.

    A primitive of such an operator neither chooses layouts of activations nor sees any that another
    one chose: its sources are brought to row-major, or are views of row-major tensors; its results
    are row-major.
    """

    name: str
    stops: Container[str]

    def propagates(self, op: str) -> bool:
        """Whether a node of this operator takes and chooses layouts."""
        return op not in self.stops


class _Everything:
    def __contains__(self, op: object) -> bool:
        return True


PROPAGATE = LayoutPolicy("propagate", frozenset())
PLAIN = LayoutPolicy("plain", _Everything())
MIDDLE = LayoutPolicy("middle", STRICT)
POLICIES = {policy.name: policy for policy in (PROPAGATE, PLAIN, MIDDLE)}
