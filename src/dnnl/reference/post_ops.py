"""Post-ops: what happens to a result, in order, before it is quantized and stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dnnl.errors import Unimplemented
from dnnl.reference import eltwise
from dnnl.reference.arrays import Array, f64, overflowed
from dnnl.reference.binary import binary
from dnnl.reference.expression import evaluate
from dnnl.reference.prelu import prelu
from dnnl.reference.tolerance import Tolerance
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.post_ops import (
    PostOp,
    PostOpBinary,
    PostOpEltwise,
    PostOpFunction,
    PostOpPrelu,
    PostOpSum,
)

_COMPARISONS = frozenset(
    (Alg.binary_ge, Alg.binary_gt, Alg.binary_le, Alg.binary_lt, Alg.binary_eq, Alg.binary_ne)
)
_NEAR = 1e-4  # larger than the errors of all functions
# One more operation on a value that is already rounded.
_STEP = Tolerance(ulps=2, floor=None)


def apply_post_ops(
    values: ArrayLike,
    post_ops: Iterable[PostOp],
    operands: Mapping[int, ArrayLike],
    dst: ArrayLike | None = None,
    core: DataType = DataType.f64,
    dst_type: DataType | None = None,
    begin: int = 0,
) -> Array:
    """The result ``values`` after all ``post_ops``, the first of which has the number ``begin``.

    What leaves the range of ``core``, the type that a kernel computes in, is infinite for the
    post-ops that follow: swish of -inf is NaN where that of -1e39 is 0.

    ``operands`` has the logical values of the execution arguments, under the same keys; prelu
    weights have the rank of the result, 1 where their mask has no bit. ``dst`` is what the
    destination held, as elements of ``dst_type``: a sum with a data type of its own reads their
    bits as those of that type. Without ``dst_type`` it is what the sum reads.
    """
    result = f64(values)
    for index, entry in enumerate(post_ops, begin):
        held = dst
        if isinstance(entry, PostOpSum) and dst is not None and dst_type is not None:
            held = reread(dst, dst_type, entry.data_type or dst_type)
        result = _apply(entry, overflowed(result, core), operands, Arg.post_op(index), held)
    return result


def reread(values: ArrayLike, stored: DataType, read: DataType) -> Array:
    """What elements of the type ``stored`` are if their bits are read as those of another type of
    the same size."""
    if stored is read:
        return f64(values)
    codes = f64(values).astype(stored.numpy).view(f"u{stored.size}")
    if stored.bits == 4:
        codes = codes & 0xF
    return f64(codes.view(read.numpy))


def undecided(
    values: ArrayLike,
    post_ops: Sequence[PostOp],
    operands: Mapping[int, ArrayLike],
    dst: ArrayLike | None = None,
    dst_type: DataType | None = None,
    *,
    exact: bool,
    begin: int = 0,
) -> NDArray[np.bool_]:
    """Where a comparison or a rounding hangs on the last bits of what it is applied to.

    Arguments are those of `apply_post_ops`. ``exact``: what the first entry sees has no error.
    """
    found = np.zeros(np.shape(values), np.bool_)
    for index, entry in enumerate(post_ops):
        if index or not exact:
            before = apply_post_ops(
                values, post_ops[:index], operands, dst, dst_type=dst_type, begin=begin
            )
            jump = _jump(entry, before, operands, Arg.post_op(begin + index))
            found |= np.abs(before - jump) <= _NEAR * np.maximum(1, np.abs(jump))
    return found


def _jump(
    entry: PostOp, values: Array, operands: Mapping[int, ArrayLike], flag: int
) -> Array | float:
    """Where an entry jumps, next to the values; NaN where it never does."""
    if isinstance(entry, PostOpBinary) and entry.alg in _COMPARISONS:
        return f64(operands[flag | Arg.SRC_1])
    if isinstance(entry, PostOpEltwise) and entry.alg is Alg.eltwise_round:
        return np.floor(values) + 0.5
    return np.nan


def _apply(
    entry: PostOp,
    values: Array,
    operands: Mapping[int, ArrayLike],
    flag: int,
    dst: ArrayLike | None,
) -> Array:
    match entry:
        case PostOpSum() if dst is not None:
            return values + entry.scale * (f64(dst) - entry.zero_point)
        case PostOpEltwise():
            return eltwise.eltwise(entry.alg, values, entry.alpha, entry.beta)
        case PostOpBinary():
            return binary(
                entry.alg, values, operands[flag | Arg.SRC_1], operands.get(flag | Arg.SRC_2)
            )
        case PostOpFunction():
            others = (operands[flag | operand] for operand, _ in entry.operands)
            return evaluate(entry.function.expression, [values, *others])
        case PostOpPrelu():
            return prelu(values, operands[flag | Arg.WEIGHTS])
    raise Unimplemented(f"no reference for {entry!r} here")


def tolerance(of_result: Tolerance, post_ops: Iterable[PostOp]) -> Tolerance:
    """The tolerance of a result that has ``of_result`` before its post-ops."""
    total = of_result
    for entry in post_ops:
        step = eltwise.tolerance(entry.alg) if isinstance(entry, PostOpEltwise) else _STEP
        total = total.after(step)
    return total
