"""The gradient of a pooling: each element of diff_src gathers what the windows around it give back.

A window gives the gradient of its maximum to one tap, or equal shares to all. The windows that
contain an element follow from its place alone, so that nothing is added in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dnnl.codegen import vector
from dnnl.codegen.access import Bound, Number, Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.builder import Emitter, Module, Value, Values
from dnnl.codegen.epilogue import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.nest import Nest, emit_nest
from dnnl.codegen.point import Point
from dnnl.codegen.windows import Window, containing, tap_number
from dnnl.kernels.pointwise import FLOATS, letters, refuse_types, symbol
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp


@dataclass(frozen=True)
class Conf:
    """diff_src of a pooling; one number for each spatial dimension, dilation 0 is dense.

    Tap k of window o lies at ``o * stride + k * (dilation + 1) - padding``. ``workspace`` has the
    number of the tap that was the maximum; it is the zero descriptor for averages.
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
        """The windows along each spatial dimension; what pads a block is an element as well."""
        return tuple(
            Window(elements, windows, kernel, stride, dilation + 1, padding)
            for elements, windows, kernel, stride, dilation, padding in zip(
                self.diff_src.padded_dims[2:], self.diff_dst.dims[2:], self.kernel, self.strides,
                self.dilations, self.padding, strict=True,
            )
        )  # fmt: skip

    @property
    def counted(self) -> bool:
        """Whether windows differ in how many taps share a gradient."""
        sizes = zip(self.windows, self.diff_src.dims[2:], strict=True)
        hangs = any(
            dim.padding > 0
            or (dim.windows - 1) * dim.stride + (dim.kernel - 1) * dim.dilation - dim.padding
            >= elements
            for dim, elements in sizes
        )
        return self.alg is Alg.pooling_avg_exclude_padding and hangs

    @property
    def shares(self) -> MemoryDesc:
        """What an element gets of the gradient of each window, where that differs."""
        return MemoryDesc(self.diff_dst.dims[2:], "f32")

    @property
    def scratchpad(self) -> int:
        """The bytes that the shares take."""
        return self.shares.size if self.counted else 0


def configure(
    alg: Alg,
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    workspace: MemoryDesc,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilations: tuple[int, ...],
    _: tuple[PostOp, ...],
) -> Conf | Refusal:
    """Accept any window and any layouts of supported types."""
    conf = Conf(alg, diff_src, diff_dst, workspace, kernel, strides, padding, dilations)
    return refuse_types(diff_src, diff_dst, allowed=FLOATS) or conf


def build(conf: Conf, isa: Isa) -> Kernel:
    """The shares of windows where they differ, then one nest over diff_src."""
    module = Module("pooling", isa)
    arguments = Arguments()
    phases = [_emit_shares(module, conf, arguments)] if conf.counted else []
    phases.append(_emit_gradient(module, conf, arguments))
    return Kernel(module, tuple(phases), arguments.ids)


def _emit_shares(module: Module, conf: Conf, arguments: Arguments) -> Phase:
    """scratchpad[window] = 1 / its taps inside src, or 1 if there are none."""
    windows = letters(conf.shares.dims)
    taps = tuple(Axis(size, f"k{dim}") for dim, size in enumerate(conf.kernel))
    seen = tuple(
        Affine.of(window, dim.stride) + Affine.of(tap, dim.dilation) + -dim.padding
        for window, tap, dim in zip(windows, taps, conf.windows, strict=True)
    )
    space = MemoryDesc(conf.diff_src.dims[2:], "f32")
    src = Operand(arguments.slot(Arg.DIFF_SRC), space, seen, bare=frozenset(range(len(seen))))
    index = tuple(Affine.of(axis) for axis in windows)
    shares = Operand(arguments.slot(Arg.SCRATCHPAD), conf.shares, index)

    def body(point: Point) -> None:
        def step(p: Point, count: Value) -> Values:
            return (p.e.b.fadd(count, p.constant(1.0)),)

        (count,) = point.fold((0.0,), step, _total)
        count = vector.maximum(point.e, count, point.constant(1.0))
        point.store(shares, point.e.b.fdiv(point.constant(1.0), count))

    entry = f"pooling_shares__f32__{module.isa.lanes}x1__{module.isa.name}"
    return emit_nest(module, entry, Nest(windows, taps, (src,), (shares,), body))


def _total(e: Emitter, a: Values, b: Values) -> Values:
    return (e.b.fadd(a[0], b[0]),)


def _emit_gradient(module: Module, conf: Conf, arguments: Arguments) -> Phase:
    """diff_src[element] = the sum over the windows that contain it."""
    batch = letters(conf.diff_src.dims[:2])
    around = [containing(dim, f"d{number}") for number, dim in enumerate(conf.windows)]
    first = tuple(Affine.of(axis) for axis in batch)
    window = tuple(own.window for own in around)
    pairs = [bound for own in around for bound in own.pairs]
    # What pads a block gets nothing, though a window may reach it.
    whole = conf.diff_src.padded_dims[2:]
    ends = zip(around, conf.diff_src.dims[2:], whole, strict=True)
    pairs += [Bound(own.element, extent) for own, extent, padded in ends if extent < padded]
    diff_dst = Operand(
        arguments.slot(Arg.DIFF_DST), conf.diff_dst, (*first, *window), inside=tuple(pairs)
    )
    inputs = [diff_dst]
    if not conf.workspace.is_zero:
        place = Operand(
            arguments.slot(Arg.WORKSPACE), conf.workspace, (*first, *window), inside=tuple(pairs)
        )
        inputs.append(place)
    if conf.counted:
        shares = Operand(arguments.slot(Arg.SCRATCHPAD), conf.shares, window, inside=tuple(pairs))
        inputs.append(shares)
    diff_src = Operand(
        arguments.slot(Arg.DIFF_SRC), conf.diff_src, (*first, *(own.element for own in around))
    )
    number = Number(tap_number([own.tap for own in around], conf.kernel))

    def step(p: Point, total: Value) -> Values:
        value = p.load(diff_dst)
        if conf.alg is Alg.pooling_max:
            chosen = p.e.b.fcmp_ordered("==", p.load(place), p.number(number))
            value = p.e.b.select(chosen, value, p.constant(0.0))
        elif conf.counted:
            value = p.e.b.fmul(value, p.load(shares))
        return (p.e.b.fadd(total, value),)

    def body(point: Point) -> None:
        (total,) = point.fold((0.0,), step, _total)
        if conf.alg is not Alg.pooling_max and not conf.counted:
            total = point.e.b.fmul(total, point.constant(1 / prod(conf.kernel)))
        point.store(diff_src, total)

    nest = Nest(
        parallel=(*batch, *(axis for own in around for axis in own.parallel)),
        reduced=tuple(own.reduced for own in around),
        inputs=tuple(inputs), outputs=(diff_src,), body=body,
        where=tuple(bound for own in around for bound in own.where),
        numbers=(number,) if conf.alg is Alg.pooling_max else (),
    )  # fmt: skip
    entry = symbol("pooling_backward", [conf.diff_src, conf.diff_dst], module.isa)
    return emit_nest(module, entry, nest)
