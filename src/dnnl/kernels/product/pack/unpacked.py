"""Panels of bytes from weights of 4 bits in the same panels, for a src of bytes::

weights   | k0 k1 k2 k3 | k0 k1 k2 k3 |     16 bits a K group, read once
unpacked  | k0 | k1 | k2 | k3 | k0 | k1 | k2 | k3 |     32 bits
"""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.conversion import nibbles
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, I32, Value, i64
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.product.brgemm import PREFETCH_DISTANCE
from dnnl.codegen.product.multiply import Multiply
from dnnl.codegen.product.pairs import Pairs
from dnnl.kernels.product.base.problem import Panels, ProductProblem
from dnnl.kernels.product.pack.on_the_fly import (
    BoundPacking,
    IndexOf,
    PanelBuffer,
    PanelPacking,
    Span,
    Writer,
    in_one_stream,
)
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.dtype import DataType

_BYTES = {DataType.s4: (DataType.s8,), DataType.u4: (DataType.u8, DataType.s8)}
_GROUP = 4  # elements of a K group
_SIGN = 8  # the sign bit of a code


@dataclass(frozen=True)
class UnpackedPacking(PanelPacking):
    """Weights in panels with K groups of ``group`` elements."""

    group: int

    def bound(self, arguments: Arguments, at: IndexOf) -> BoundPacking:
        argument, desc = self.weights
        k_groups = Axis(-(-self.terms // self.group), "k_group")
        index = at(Affine.of(k_groups, self.group))
        return BoundUnpacked(self, Operand(arguments.slot(argument), desc, index), k_groups)


def plan_unpacked(
    isa: Isa, weights: Argument, dot: Multiply, wanted: Panels, problem: ProductProblem
) -> UnpackedPacking | None:
    """How threads unpack weights into the ``wanted`` panels. None if the weights have another
    layout, or panels are examined before (`pairs`)."""
    (_, desc), terms = weights, problem.terms
    if problem.simple or terms == 0 or dot.group != _GROUP or Pairs.of(isa, dot) is not None:
        return None
    if dot.b not in _BYTES.get(desc.data_type, ()):
        return None
    summed = range(desc.ndims)[problem.summed[1]]
    if len(summed) != 1 or not in_one_stream(wanted.desc, summed):
        return None
    alike = wanted.desc.with_data_type(desc.data_type) == desc
    return UnpackedPacking(weights, terms, dot.group) if alike else None


@dataclass(frozen=True, eq=False)
class BoundUnpacked(BoundPacking):
    """The stored weights along ``source_k_groups``."""

    plan: UnpackedPacking
    weights: Operand
    source_k_groups: Axis

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.weights,)

    def least_k_groups(self, dot: Multiply) -> int:
        return 1

    def writer(self, buffer: PanelBuffer) -> Writer:
        return _UnpackedWriter(self, buffer)


class _UnpackedWriter(Writer):
    """Unpacks one K group of a vector of columns at a time."""

    def __init__(self, packing: BoundUnpacked, buffer: PanelBuffer) -> None:
        super().__init__(buffer)
        self._packing = packing
        form = packing.weights.offset(packing.weights.index)
        assert form is not None, "panels are affine"
        self._form = form.in_units(2)

    def write_panel(self, env: Env, k_groups: Span, start: Value) -> None:
        e, buffer, packing = self.e, self.buffer, self._packing
        panel = self._form.along(env).emit(e, env)
        step, columns = self._form.stride(packing.source_k_groups), buffer.columns
        pairs = vector.vector_type(I8, columns.lane.extent * _GROUP // 2)

        def k_group(number: Value) -> None:
            first = e.add(panel, e.mul(number, step))
            source = e.element(buffer.pointers[packing.weights], first, I8)
            vector.prefetch(e, e.element(source, i64(PREFETCH_DISTANCE), I8), second_level=True)
            for v in range(columns.vector.extent):
                at = e.element(source, i64(self._form.stride(columns.vector) * v), I8)
                codes = nibbles.unpack(e, vector.load(e, at, pairs))
                kind = vector.vector_type(I32, columns.lane.extent)
                value = e.b.bitcast(self._signed(codes), kind)
                vector.store(e, value, buffer.row(start, number, v))

        e.loop(*k_groups, k_group, name="k_group")

    def _signed(self, codes: Value) -> Value:
        """The values of the codes."""
        if self._packing.weights.desc.data_type is DataType.u4:
            return codes
        sign = vector.splat_constant(codes.type, _SIGN)
        return self.e.b.sub(self.e.b.xor(codes, sign), sign)
