"""Normalize each channel with given statistics."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen import vector
from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine
from dnnl.codegen.builder import Module, Value
from dnnl.codegen.epilogue import Arguments, Epilogue, refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.nest import Nest, emit_nest
from dnnl.codegen.point import Point
from dnnl.kernels.pointwise import letters, refuse_types, symbol
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp


@dataclass(frozen=True)
class Conf:
    """dst = post_ops(relu(scale * (src - mean) / sqrt(variance + epsilon) + shift)).

    ``scratchpad`` bytes hold the factor of each channel.
    """

    src: MemoryDesc
    dst: MemoryDesc
    epsilon: float
    scale: bool
    shift: bool
    relu: bool
    post_ops: tuple[PostOp, ...]

    @property
    def per_channel(self) -> MemoryDesc:
        """The descriptor of everything that has one value for each channel."""
        return MemoryDesc((self.dst.dims[1],), "f32")

    @property
    def scratchpad(self) -> int:
        """Bytes of temporary memory."""
        return self.per_channel.size


def configure(
    src: MemoryDesc,
    dst: MemoryDesc,
    epsilon: float,
    scale: bool,
    shift: bool,
    relu: bool,
    post_ops: tuple[PostOp, ...],
) -> Conf | Refusal:
    """Accept any two layouts of supported types."""
    conf = Conf(src, dst, epsilon, scale, shift, relu, post_ops)
    return refuse_types(src, dst) or refuse(post_ops, dst) or conf


def build(conf: Conf, isa: Isa) -> Kernel:
    """Two phases: the factor of each channel, then one nest over the data."""
    module = Module("batch_normalization", isa)
    arguments = Arguments()
    phases = (_factors(conf, module, arguments), _normalize(conf, module, arguments))
    return Kernel(module, phases, arguments.ids)


def _factors(conf: Conf, module: Module, arguments: Arguments) -> Phase:
    """scratchpad[c] = scale[c] / sqrt(variance[c] + epsilon)."""
    axes = letters(conf.per_channel.dims)
    index = (Affine.of(axes[0]),)

    def channel(arg: Arg) -> Operand:
        return Operand(arguments.slot(arg), conf.per_channel, index)

    variance, factor = channel(Arg.VARIANCE), channel(Arg.SCRATCHPAD)
    scale = channel(Arg.SCALE) if conf.scale else None

    def body(point: Point) -> None:
        b = point.e.b
        total = b.fadd(point.load(variance), point.constant(conf.epsilon))
        name = f"llvm.sqrt.{vector.suffix(total.type)}"
        deviation = point.e.intrinsic(name, total.type, [total])
        above = point.constant(1.0) if scale is None else point.load(scale)
        point.store(factor, b.fdiv(above, deviation))

    inputs = (variance,) if scale is None else (variance, scale)
    entry = symbol("batch_normalization_factors", [conf.per_channel], module.isa)
    return emit_nest(module, entry, Nest(axes, (), inputs, (factor,), body))


def _normalize(conf: Conf, module: Module, arguments: Arguments) -> Phase:
    axes = letters(conf.dst.dims)
    index = tuple(Affine.of(axis) for axis in axes)

    def channel(arg: Arg) -> Operand:
        return Operand(arguments.slot(arg), conf.per_channel, index[1:2])

    src = Operand(arguments.slot(Arg.SRC), conf.src, index)
    dst = Operand(arguments.slot(Arg.DST), conf.dst, index)
    mean, factor = channel(Arg.MEAN), channel(Arg.SCRATCHPAD)
    shift = channel(Arg.SHIFT) if conf.shift else None
    epilogue = Epilogue(conf.post_ops, dst, arguments)

    def body(point: Point) -> None:
        value = _affine(point, point.e.b.fsub(point.load(src), point.load(mean)))
        if conf.relu:
            value = vector.maximum(point.e, value, point.constant(0.0))
        point.store(dst, epilogue.apply(point, value))

    def _affine(point: Point, centred: Value) -> Value:
        if shift is None:
            return point.e.b.fmul(centred, point.load(factor))
        return vector.multiply_add(point.e, centred, point.load(factor), point.load(shift))

    inputs = [src, mean, factor, *epilogue.operands]
    if shift is not None:
        inputs.append(shift)
    entry = symbol("batch_normalization", [conf.src, conf.dst], module.isa)
    nest = Nest(axes, (), tuple(inputs), (dst,), body, reads_dst=epilogue.reads_dst)
    return emit_nest(module, entry, nest)
