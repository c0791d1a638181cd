"""The gradient of a pooling, in gather form: each element of diff_src sums over the windows that
contain it.

A window gives its gradient to the tap of its maximum, or equal shares to all taps. The windows that
contain an element follow from its position, so that no atomic additions are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

from dnnl.codegen.ir.builder import Module, Type, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Bound, Number, Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.fold_loop import added
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.windows import Window, containing, tap_number
from dnnl.kernels.shared.types import WIDE_FLOATS, computed_in, core_of, refuse_types
from dnnl.kernels.windows.pooling import refuse_taps, registers
from dnnl.kernels.windows.pooling_blocks import Blocks, blocks, terms
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class PoolingBackwardConf:
    """diff_src of a pooling. There is one number for each spatial dimension; dilation 0 is dense.

    Tap k of window o is at ``o * stride + k * (dilation + 1) - padding``. ``workspace`` has the
    number of the tap of the maximum; it is the zero descriptor for averages.
    """

    alg: Alg
    diff_src: MemoryDesc
    diff_dst: MemoryDesc
    workspace: MemoryDesc
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows along each spatial dimension; padding of blocks counts as elements."""
        return tuple(
            Window(elements, windows, kernel, stride, dilation + 1, padding)
            for elements, windows, kernel, stride, dilation, padding in zip(
                self.diff_src.padded_dims[2:],
                self.diff_dst.dims[2:],
                self.kernel,
                self.strides,
                self.dilations,
                self.padding,
                strict=True,
            )
        )

    @property
    def has_shares(self) -> bool:
        """Whether windows differ in the number of taps that share a gradient."""
        if self.alg is not Alg.pooling_avg_exclude_padding:
            return False
        sizes = zip(self.windows, self.diff_src.dims[2:], strict=True)
        return any(
            dim.padding > 0
            or (dim.windows - 1) * dim.stride + (dim.kernel - 1) * dim.dilation - dim.padding
            >= elements
            for dim, elements in sizes
        )

    @property
    def shares(self) -> MemoryDesc:
        """The share of a tap in the gradient of each window, if shares differ."""
        held = computed_in(self.diff_src, self.diff_dst)
        return MemoryDesc(self.diff_dst.dims[2:], held)

    @property
    def core(self) -> Type:
        """The type of the computation."""
        return core_of(self.diff_src, self.diff_dst)

    @property
    def scratchpad(self) -> int:
        """The bytes of the shares."""
        return self.shares.size if self.has_shares else 0


def configure(
    alg: Alg,
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    workspace: MemoryDesc,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilations: tuple[int, ...],
) -> PoolingBackwardConf | Refusal:
    """Accept any window and any layouts of supported types."""
    conf = PoolingBackwardConf(
        alg, diff_src, diff_dst, workspace, kernel, strides, padding, dilations
    )
    refusal = refuse_types(diff_src, diff_dst, allowed=WIDE_FLOATS)
    if refusal is None and alg is Alg.pooling_max:
        refusal = refuse_taps(kernel)
    return refusal or conf


def build(conf: PoolingBackwardConf, isa: Isa) -> Kernel:
    """The shares of windows if they differ, then one nest over diff_src."""
    module = Module("pooling", isa)
    arguments = Arguments()
    phases = [_emit_shares(module, conf, arguments)] if conf.has_shares else []
    phases.append(_emit_gradient(module, conf, arguments))
    return Kernel(module, tuple(phases), arguments.ids)


def _emit_shares(module: Module, conf: PoolingBackwardConf, arguments: Arguments) -> Phase:
    """scratchpad[window] = 1 / the number of its taps inside src, or 1 if there are none."""
    windows = letters(conf.shares.dims)
    taps = tuple(Axis(len(dim.reached), f"k{number}") for number, dim in enumerate(conf.windows))
    seen = tuple(
        Affine.of(window, dim.stride)
        + (Affine.of(tap) + dim.reached.start) * dim.dilation
        + -dim.padding
        for window, tap, dim in zip(windows, taps, conf.windows, strict=True)
    )
    space = MemoryDesc(conf.diff_src.dims[2:], "f32")
    src = Operand(arguments.slot(Arg.DIFF_SRC), space, seen, bare=frozenset(range(len(seen))))
    index = tuple(Affine.of(axis) for axis in windows)
    shares = Operand(arguments.slot(Arg.SCRATCHPAD), conf.shares, index)

    def body(point: Point) -> None:
        count = point.divisor
        point.store(shares, point.e.b.fdiv(point.constant(1.0), count))

    entry = symbol("pooling_shares", [conf.shares], module.isa)
    return emit_nest(module, entry, Nest(windows, taps, (src,), (shares,), body, core=conf.core))


class _Windows:
    """The operands that describe windows."""

    def __init__(self, conf: PoolingBackwardConf, arguments: Arguments) -> None:
        self.conf = conf
        self._sources = [(arguments.slot(Arg.DIFF_DST), conf.diff_dst)]
        if self.largest:
            self._sources.append((arguments.slot(Arg.WORKSPACE), conf.workspace))
        self._shares = arguments.slot(Arg.SCRATCHPAD) if conf.has_shares else None

    @property
    def largest(self) -> bool:
        """Whether a window gives all to the tap of the maximum."""
        return self.conf.alg is Alg.pooling_max

    def operands(
        self, batch: Sequence[Affine], window: Sequence[Affine], inside: Sequence[Bound]
    ) -> tuple[Operand, ...]:
        """The gradient of a window, and the number of its tap, or the share of each tap."""
        index, inside = (*batch, *window), tuple(inside)
        found = [Operand(slot, desc, index, inside=inside) for slot, desc in self._sources]
        if self._shares is not None:
            shares = Operand(self._shares, self.conf.shares, tuple(window), inside=inside)
            found.append(shares)
        return tuple(found)

    def loaded(self, p: Point, operands: Sequence[Operand]) -> Values:
        """The gradient of each tap; for a maximum, that of one tap and its number."""
        first, *others = operands
        values = (p.load_or_zero(first), *map(p.load, others))
        return (p.e.b.fmul(*values),) if self._shares is not None else values

    def given(self, p: Point, loaded: Values, number: Number) -> Value:
        """The gradient that a window gives to the tap of a number."""
        value, *taps = loaded
        if not taps:
            return value
        chosen = p.e.b.fcmp_ordered("==", taps[0], p.number(number))
        return p.e.b.select(chosen, value, p.constant(0.0))

    def finished(self, p: Point, total: Value) -> Value:
        """The gradient of an element from the sum over its windows."""
        if self.largest or self._shares is not None:
            return total
        return p.e.b.fmul(total, p.constant(1 / prod(self.conf.kernel)))


def _emit_gradient(module: Module, conf: PoolingBackwardConf, arguments: Arguments) -> Phase:
    """diff_src[element] = the sum over the windows that contain it."""
    windows, slot = _Windows(conf, arguments), arguments.slot(Arg.DIFF_SRC)
    dims = blocks(conf.windows) if _same_order(conf.diff_src, conf.diff_dst) else None
    nest = _summed(conf, windows, slot) if dims is None else _written_out(windows, slot, dims)
    entry = symbol("pooling_backward", [conf.diff_src, conf.diff_dst], module.isa)
    return emit_nest(module, entry, nest)


def _same_order(diff_src: MemoryDesc, diff_dst: MemoryDesc) -> bool:
    """Whether both tensors have the same order of dimensions and blocks, and no block cuts the
    image, as padding would then count as elements."""
    inner = diff_src.inner_blocks
    order = [sorted(range(d.ndims), key=lambda dim: -d.strides[dim]) for d in (diff_src, diff_dst)]
    simple = not inner or (len(inner) == 1 and inner[0][0] < 2)
    return simple and inner == diff_dst.inner_blocks and order[0] == order[1]


def _written_out(windows: _Windows, slot: int, dims: Sequence[Blocks]) -> Nest:
    """Blocks of elements with all windows around each unrolled."""
    conf = windows.conf
    axes = letters(conf.diff_src.dims[:2])
    batch = tuple(map(Affine.of, axes))
    elements = terms(dims, conf.kernel)
    read = {
        term.key: windows.operands(batch, term.window, term.inside)
        for _, met in elements
        for term in met
    }
    written = [Operand(slot, conf.diff_src, (*batch, *place)) for place, _ in elements]
    numbers = {term: Number(term.number) for _, met in elements for term in met}

    def body(point: Point) -> None:
        loaded = {key: windows.loaded(point, operands) for key, operands in read.items()}
        results = []
        for _, met in elements:
            given = [windows.given(point, loaded[term.key], numbers[term]) for term in met]
            total = reduce(point.e.b.fadd, given) if given else point.constant(0.0)
            results.append(windows.finished(point, total))
        count = len(dims[-1].elements)
        for first in range(0, len(written), count):
            row = slice(first, first + count)
            point.store_interleaved(written[row], results[row])

    return Nest(
        parallel=(*axes, *(dim.axis for dim in dims)),
        reduced=(),
        inputs=tuple(operand for operands in read.values() for operand in operands),
        outputs=tuple(written),
        body=body,
        core=conf.core,
        numbers=tuple(numbers.values()) if windows.largest else (),
    )


def _summed(conf: PoolingBackwardConf, windows: _Windows, slot: int) -> Nest:
    """Elements by residues, with a loop over the windows around each."""
    axes = letters(conf.diff_src.dims[:2])
    batch = tuple(map(Affine.of, axes))
    around = [containing(dim, f"d{number}") for number, dim in enumerate(conf.windows)]
    pairs = [bound for own in around for bound in own.pairs]
    sizes = zip(around, conf.diff_src.dims[2:], conf.diff_src.padded_dims[2:], strict=True)
    pairs += [Bound(own.element, extent) for own, extent, padded in sizes if extent < padded]
    read = windows.operands(batch, [own.window for own in around], pairs)
    diff_src = Operand(slot, conf.diff_src, (*batch, *(own.element for own in around)))
    number = Number(tap_number([own.tap for own in around], conf.kernel))

    def step(p: Point, total: Value) -> Values:
        given = windows.given(p, windows.loaded(p, read), number)
        return (p.e.b.fadd(total, given),)

    def body(point: Point) -> None:
        (total,) = point.fold((0.0,), step, added, absent=0.0)
        point.store(diff_src, windows.finished(point, total))

    return Nest(
        parallel=(*axes, *(axis for own in around for axis in own.parallel)),
        reduced=tuple(own.reduced for own in around),
        inputs=read,
        outputs=(diff_src,),
        body=body,
        where=tuple(bound for own in around for bound in own.where),
        numbers=(number,) if windows.largest else (),
        registers=registers(conf.kernel),
        core=conf.core,
    )
