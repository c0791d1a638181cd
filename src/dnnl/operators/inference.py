"""Types of results that operators of several families have."""

from __future__ import annotations

from dnnl.graph.graph import TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import broadcast


def same(scope: Scope) -> list[TensorType]:
    """Elementwise operators of one source."""
    return scope.result(scope.shape())


def elementwise(scope: Scope) -> list[TensorType]:
    """Elementwise operators of several sources, broadcast."""
    return scope.result(broadcast([scope.shape(i) for i in range(len(scope.node.inputs))]))
