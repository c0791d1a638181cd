"""Sums of tensors, and of products of two, among them the gradient of a bias."""

from __future__ import annotations

from dnnl.codegen.ir.builder import Value, Values
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.ir.vector import multiply_add
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.folds import Fold, sums
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc


def sum_fold(
    parallel: tuple[Axis, ...],
    reduced: tuple[Axis, ...],
    factors: tuple[Operand, ...],
    result: Operand,
    computed: DataType,
) -> Fold:
    """The sums, in the type ``computed``, of one operand or of the products of two."""

    def add(point: Point, total: Value) -> Values:
        values = [point.load(operand) for operand in factors]
        if len(values) == 1:
            return (point.e.b.fadd(total, values[0]),)
        return (multiply_add(point.e, values[0], values[1], total),)

    def store(point: Point, values: Values) -> None:
        point.store(result, *values)

    return Fold(parallel, reduced, factors, (result,), sums(add, 1, computed), store)


def bias_gradient(
    given: Argument, diff_bias: MemoryDesc, computed: DataType, arguments: Arguments
) -> Fold:
    """The gradient of a bias: the sum of ``given`` over all dimensions but that of channels, the
    second one."""
    slot, desc = given
    batch, channel, *pixels = letters(desc.dims)
    index = tuple(Affine.of(axis) for axis in (batch, channel, *pixels))
    read = Operand(arguments.slot(slot), desc, index)
    bias = Operand(arguments.slot(Arg.DIFF_BIAS), diff_bias, (index[1],))
    return sum_fold((channel,), (batch, *pixels), (read,), bias, computed)
