"""Operators on matrices that NumPy computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dnnl.graph.graph import Array, ModelError, Node


def determinant(node: Node, given: Sequence[Array | None]) -> list[Array]:
    """The determinants of matrices [..., n, n], computed in float64."""
    source = given[0]
    if source is None or source.ndim < 2 or source.shape[-1] != source.shape[-2]:
        found = None if source is None else list(source.shape)
        raise ModelError(f"source {found} has no square matrices")
    return [np.asarray(np.linalg.det(source.astype(np.float64))).astype(source.dtype)]
