"""Joining arrays."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Out, Result
from dnnl.ops.call import Problem, call
from dnnl.ops.promotion import Rules, as_type, rules_of, target
from dnnl.ops.reading import Axes, read_axis
from dnnl.primitives.concat import ConcatDesc
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.layout_input import read_sequence
from dnnl.types.memory_desc import MemoryDesc


def concatenate(
    arrays: Sequence[ArrayLike],
    axis: int | None = None,
    out: Out = None,
    *,
    dim: int | None = None,
) -> Result:
    """Arrays one behind the other along ``axis``, or ``dim`` as PyTorch calls it, by default the
    first one.

    >>> concatenate([np.zeros(1, np.float32), np.ones(2, np.float32)])
    array([0., 1., 1.], dtype=float32)
    """
    rule = "expected a sequence of at least one array"
    given = read_sequence("arrays", arrays, rule)
    if not given:
        raise InvalidArguments("arrays", arrays, rule)
    names = tuple(f"arrays[{number}]" for number in range(len(given)))
    return call(_concat, given, (read_axis(axis, dim, 0), rules_of(*given)), out, names)


def _concat(
    descs: Sequence[MemoryDesc], dst: MemoryDesc | None, axis: Axes, rules: Rules
) -> Problem:
    first = descs[0]
    (along,) = axis.of(first.ndims)
    for number, desc in enumerate(descs):
        if desc.ndims != first.ndims:
            rule = f"expected {first.ndims} dimensions, as the first one has"
            raise InvalidArguments(f"arrays[{number}]", desc.dims, rule)
    whole = sum(desc.dims[along] for desc in descs)
    shape = (*first.dims[:along], whole, *first.dims[along + 1 :])
    names = [f"arrays[{number}]" for number in range(len(descs))]
    kind = rules.common_type(names, descs)
    given = [as_type(desc, kind) for desc in descs]
    described = ConcatDesc(along, given, target(dst, shape, kind))
    return Problem(described, tuple(map(Arg.multiple_src, range(len(descs)))), shape)
