"""Which panels of weights are multiplied by pairs (`dnnl.codegen.product.pairs`): two products are
summed in 16 bits, which may saturate.

Weights are known at execution only. A phase examines each panel once, and the product reads its
flags. A panel in which no sum of two products can saturate is multiplied by pairs, any other one
exactly. Quantizers that reduce the range of weights to 7 bits, as is common for machines without
VNNI, produce only panels of the first kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dnnl.codegen.ir.builder import I32, Emitter, Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.product import pairs
from dnnl.codegen.product.multiply import Multiply
from dnnl.codegen.product.pairs import Pairs
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import typical

_GROUP = 4
_LEAST_USES, _LEAST_PRODUCTS = 32, 2**20
"""The least number of products per weight, and of all products, for which the examination pays
off."""


@dataclass(frozen=True, eq=False)
class Narrow:
    """The alternative path through a product: ``src`` as stored, multiplied by ``pairs``. It is
    taken for panels of ``size`` elements whose element of ``flags`` is zero."""

    src: Operand
    flags: Operand
    pairs: Pairs
    size: int

    def takes(
        self, e: Emitter, env: Env, flags: Value, weights: Affine, axes: tuple[Axis, ...]
    ) -> Value:
        """Whether the panel at ``axes`` takes this path. ``weights`` is the offset of the weights,
        ``flags`` the address of the flags."""
        steps = [(axis, weights.stride(axis)) for axis in axes]
        whole = {axis: step for axis, step in steps if step >= self.size}
        panel = Affine(whole).in_units(self.size) + self.flags.desc.offset0
        flag = e.element(flags, panel.along(env).emit(e, env), I32)
        return e.b.icmp_unsigned("==", e.b.load(flag, typ=I32, align=4), I32(0))


def take_flags(
    scratchpad: Scratchpad, isa: Isa, dot: Multiply, weights: MemoryDesc, products: int
) -> Argument | None:
    """Scratchpad for the flags of a product with ``products`` multiplications; None if it has no
    alternative path."""
    many = products >= max(_LEAST_USES * typical(weights.nelems()), _LEAST_PRODUCTS)
    if not many or Pairs.of(isa, dot) is None:
        return None
    return scratchpad.take(MemoryDesc((_panels(weights)[0],), "s32"))


def narrow(
    flags: Argument | None,
    src: Argument,
    weights: MemoryDesc,
    read: Operand,
    dot: Multiply,
    arguments: Arguments,
    isa: Isa,
) -> Narrow | None:
    """The alternative path of a product that reads ``read``, which is ``src`` or its up-converted
    copy."""
    by_pairs = Pairs.of(isa, dot)
    if flags is None or by_pairs is None:
        return None
    given = Operand(arguments.slot(src[0]), src[1], read.index)
    flag = Operand(arguments.slot(flags[0]), flags[1], ())
    return Narrow(given, flag, by_pairs, _panels(weights)[1])


def emit_flags(
    module: Module, symbol: str, weights: Argument, flags: Argument, arguments: Arguments
) -> Phase:
    """Write the phase that examines the panels of ``weights``."""
    count, size = _panels(weights[1])
    panel, k_group = Axis(count, "panel"), Axis(size // _GROUP, "k_group")
    as_s32 = MemoryDesc(
        (count, k_group.extent), "s32", (k_group.extent, 1), offset0=weights[1].offset0 // _GROUP
    )
    given = Operand(arguments.slot(weights[0]), as_s32, (Affine.of(panel), Affine.of(k_group)))
    flag = Operand(arguments.slot(flags[0]), flags[1], (Affine.of(panel),))

    def look(point: Point, *found: Value) -> Values:
        here = pairs.sums(point.e, point.load_stored(given))
        return pairs.extremes(point.e, found, here)

    def body(point: Point) -> None:
        found = point.fold((0, 0), look, pairs.extremes)
        point.store_stored(flag, pairs.exceeds(point.e, *found))

    nest = Nest((panel,), (k_group,), (given,), (flag,), body, core=I32)
    return emit_nest(module, symbol, nest)


def _panels(weights: MemoryDesc) -> tuple[int, int]:
    """The number of panels of packed weights, and their size in elements."""
    *_, (column, _), _ = weights.inner_blocks
    size = weights.strides[column]
    return prod(weights.padded_dims) // size, size
