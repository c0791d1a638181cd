"""Shuffle: along one axis, groups of neighbours are interleaved, as a matrix is transposed.

dst[u + v * C / G] = src[u * G + v] along an axis of C elements, in groups of G

Three groups of four become four of three: 0 1 2 3 | 4 5 6 7 | 8 9 10 11 becomes 0 4 8 | 1 5 9 | 2 6
10 | 3 7 11. PyTorch's ``channel_shuffle`` wants the number of groups, C / G.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import byte_range, generator, integers
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values, inputs, zero_limit
from dnnl.reference.tolerance import EXACT
from dnnl.types.arg import Arg

TOLERANCE = EXACT


def shuffle(src: ArrayLike, axis: int, group_size: int) -> Array:
    """``group_size`` divides the extent of ``axis``; any other data moves along."""
    data = f64(src)
    groups = data.shape[axis] // group_size
    split = (*data.shape[:axis], groups, group_size, *data.shape[axis + 1 :])
    return np.swapaxes(data.reshape(split), axis, axis + 1).reshape(data.shape)


def shuffle_backward(diff_dst: ArrayLike, axis: int, group_size: int) -> Array:
    """Return diff_src: each gradient goes to where its element has come from."""
    data = f64(diff_dst)
    extent = data.shape[axis]
    come_from = shuffle(np.arange(extent), 0, group_size).astype(int)
    diff_src = np.empty_like(data)
    np.moveaxis(diff_src, axis, 0)[come_from] = np.moveaxis(data, axis, 0)
    return diff_src


class _Shuffle(Specification):
    """Numbers that every type holds."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Whole numbers of a byte."""
        return {
            argument: integers(
                generator("shuffle", tensor.dims), tensor.dims, *byte_range(tensor.data_type)
            )
            for argument, tensor in inputs(desc)
        }

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The same elements."""
        if desc.propagation.is_forward:
            return {Arg.DST: shuffle(values[Arg.SRC], desc.axis, desc.group_size)}
        moved = shuffle_backward(values[Arg.DIFF_DST], desc.axis, desc.group_size)
        return {Arg.DIFF_SRC: moved}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality."""
        return Rule(0.0, zero_limit(desc.desc_of(argument).data_type))


SPECIFICATION = _Shuffle()
