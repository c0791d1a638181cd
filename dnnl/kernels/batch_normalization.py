"""Normalize each channel, with given statistics or with those of the batch."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen import vector
from dnnl.codegen.access import Operand, Place
from dnnl.codegen.address import Affine
from dnnl.codegen.builder import Module, Value, Values
from dnnl.codegen.epilogue import Arguments, Epilogue, refuse
from dnnl.codegen.folds import Fold, emit_fold, mean_and_variance, moments, room
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.nest import Nest, emit_nest, emit_planned
from dnnl.codegen.point import Point
from dnnl.codegen.resident import resident
from dnnl.kernels.pointwise import FLOATS, letters, refuse_types, symbol
from dnnl.kernels.scratchpad import Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import NormFlags
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

# Results of a reduction to moments.
_MOMENTS = 4


@dataclass(frozen=True)
class Conf:
    """dst = post_ops(relu(scale * (src - mean) / sqrt(variance + epsilon) + shift + added)).

    ``workspace`` is what the relu kept, if that is asked for. In ``training`` statistics of the
    batch are outputs. ``factor``, the one of each channel, lies in the ``scratchpad``, which has
    that many bytes, and where statistics of the batch are no outputs or must be shared out,
    their ``mean`` and ``partial`` results as well.
    """

    src: MemoryDesc
    dst: MemoryDesc
    epsilon: float
    flags: NormFlags
    workspace: MemoryDesc | None
    training: bool
    post_ops: tuple[PostOp, ...]
    factor: MemoryDesc
    mean: MemoryDesc
    partial: MemoryDesc
    scratchpad: int

    @property
    def given(self) -> bool:
        """Whether the statistics are."""
        return NormFlags.use_global_stats in self.flags

    @property
    def relu(self) -> bool:
        """Whether a relu ends the normalization."""
        return self.added or NormFlags.fuse_norm_relu in self.flags

    @property
    def added(self) -> bool:
        """Whether a second source is added."""
        return NormFlags.fuse_norm_add_relu in self.flags


def per_channel(data: MemoryDesc) -> MemoryDesc:
    """The descriptor of everything that has one value for each channel of ``data``."""
    return MemoryDesc((data.dims[1],), "f32")


def configure(
    src: MemoryDesc,
    dst: MemoryDesc,
    isa: Isa,
    epsilon: float,
    flags: NormFlags,
    workspace: MemoryDesc | None,
    training: bool,
    post_ops: tuple[PostOp, ...],
) -> Conf | Refusal:
    """Accept any two layouts of supported types."""
    given = NormFlags.use_global_stats in flags
    types = FLOATS | {DataType.s8} if given else FLOATS
    refusal = refuse_types(src, dst, allowed=types) or refuse(post_ops, dst)
    if refusal is not None:
        return refusal
    scratchpad, channels = Scratchpad(), per_channel(dst)
    _, factor = scratchpad.take(channels)
    mean = partial = MemoryDesc.zero()
    if not given:
        _, mean = scratchpad.take(channels)
        _, partial = scratchpad.take(room(isa, src.dims[1], reduced(src), _MOMENTS))
    size = factor.size if given else scratchpad.size
    return Conf(
        src, dst, epsilon, flags, workspace, training, post_ops, factor, mean, partial, size
    )


def reduced(data: MemoryDesc) -> int:
    """How many elements a channel has."""
    return data.nelems() // max(1, data.dims[1])


def build(conf: Conf, isa: Isa) -> Kernel:
    """Factors of each channel out of given statistics, or statistics and factors, then one nest
    over the data; or all in one nest, where a cache holds a channel."""
    module = Module("batch_normalization", isa)
    arguments = Arguments()
    phases = _given(conf, module, arguments) if conf.given else _computed(conf, module, arguments)
    return Kernel(module, phases, arguments.ids)


def _given(conf: Conf, module: Module, arguments: Arguments) -> tuple[Phase, ...]:
    scale = NormFlags.use_scale in conf.flags
    factors = emit_factors(module, arguments, conf.factor, conf.epsilon, scale)
    nest = _normalization(_Normalizer(conf, arguments))
    return factors, emit_nest(module, _entry(conf, module), nest)


def _entry(conf: Conf, module: Module) -> str:
    return symbol("batch_normalization", [conf.src, conf.dst], module.isa)


def emit_factors(
    module: Module, arguments: Arguments, factor: MemoryDesc, epsilon: float, scale: bool
) -> Phase:
    """Write the phase scratchpad[c] = scale[c] / sqrt(variance[c] + epsilon)."""
    desc = MemoryDesc(factor.dims, "f32")
    axes = letters(desc.dims)
    index = (Affine.of(axes[0]),)
    variance = Operand(arguments.slot(Arg.VARIANCE), desc, index)
    factors = Operand(arguments.slot(Arg.SCRATCHPAD), factor, index)
    above = Operand(arguments.slot(Arg.SCALE), desc, index) if scale else None

    def body(point: Point) -> None:
        point.store(factors, factor_of(point, point.load(variance), epsilon, above))

    inputs = (variance,) if above is None else (variance, above)
    entry = symbol("batch_normalization_factors", [desc], module.isa)
    return emit_nest(module, entry, Nest(axes, (), inputs, (factors,), body))


def factor_of(place: Place, variance: Value, epsilon: float, scale: Operand | None) -> Value:
    """What differences from the mean are multiplied by: scale / sqrt(variance + epsilon)."""
    b = place.e.b
    total = b.fadd(variance, place.constant(epsilon))
    name = f"llvm.sqrt.{vector.suffix(total.type)}"
    deviation = place.e.intrinsic(name, total.type, [total])
    above = place.constant(1.0) if scale is None else place.load(scale)
    return b.fdiv(above, deviation)


class _Normalizer:
    """The tensors of the forward pass, and what is done at one point of them."""

    def __init__(self, conf: Conf, arguments: Arguments) -> None:
        self.axes = letters(conf.dst.dims)
        index = tuple(Affine.of(axis) for axis in self.axes)

        def tensor(arg: Arg, desc: MemoryDesc) -> Operand:
            return Operand(arguments.slot(arg), desc, index)

        def channel(arg: Arg, desc: MemoryDesc | None = None) -> Operand:
            return Operand(arguments.slot(arg), desc or per_channel(conf.dst), index[1:2])

        self.src, self.dst = tensor(Arg.SRC, conf.src), tensor(Arg.DST, conf.dst)
        own = not (conf.given or conf.training)
        self.mean = channel(Arg.SCRATCHPAD, conf.mean) if own else channel(Arg.MEAN)
        self.variance = None if own else channel(Arg.VARIANCE)
        self.factor = channel(Arg.SCRATCHPAD, conf.factor)
        self.scale = channel(Arg.SCALE) if NormFlags.use_scale in conf.flags else None
        self.shift = channel(Arg.SHIFT) if NormFlags.use_shift in conf.flags else None
        self.added = tensor(Arg.SRC_1, conf.dst) if conf.added else None
        self.kept = None if conf.workspace is None else tensor(Arg.WORKSPACE, conf.workspace)
        self.epilogue = Epilogue(conf.post_ops, self.dst, arguments)
        self._conf = conf

    @property
    def beside(self) -> tuple[Operand, ...]:
        """What is read besides src, statistics and factors."""
        own = (self.shift, self.added)
        return (*self.epilogue.operands, *(operand for operand in own if operand is not None))

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """What is written for each element."""
        return (self.dst,) if self.kept is None else (self.dst, self.kept)

    @property
    def statistics(self) -> tuple[Operand, ...]:
        """The mean, and the variance where somebody wants it."""
        return (self.mean,) if self.variance is None else (self.mean, self.variance)

    def factor_of(self, point: Point, variance: Value) -> Value:
        """What differences from the mean are multiplied by."""
        return factor_of(point, variance, self._conf.epsilon, self.scale)

    def normalize(self, point: Point, mean: Value, factor: Value) -> None:
        """One vector of elements."""
        e = point.e
        value = e.b.fsub(point.load(self.src), mean)
        if self.shift is None:
            value = e.b.fmul(value, factor)
        else:
            value = vector.multiply_add(e, value, factor, point.load(self.shift))
        if self.added is not None:
            value = e.b.fadd(value, point.load(self.added))
        if self.kept is not None:
            positive = e.b.fcmp_unordered(">", value, point.constant(0.0))
            flags = e.b.select(positive, point.constant(1.0), point.constant(0.0))
            point.store(self.kept, flags)
        if self._conf.relu:
            value = vector.maximum(e, value, point.constant(0.0))
        point.store(self.dst, self.epilogue.apply(point, value))


def _normalization(own: _Normalizer) -> Nest:
    """What normalizes with the means and factors in memory."""

    def body(point: Point) -> None:
        own.normalize(point, point.load(own.mean), point.load(own.factor))

    inputs = (own.src, own.mean, own.factor, *own.beside)
    return Nest(own.axes, (), inputs, own.outputs, body, reads_dst=own.epilogue.reads_dst)


def _computed(conf: Conf, module: Module, arguments: Arguments) -> tuple[Phase, ...]:
    """Write the phases that find the statistics as well."""
    own = _Normalizer(conf, arguments)
    kept, rest = own.axes[1:2], (own.axes[0], *own.axes[2:])
    reduction = moments(lambda p: p.load(own.src))
    above = () if own.scale is None else (own.scale,)
    entry, second = _entry(conf, module), _normalization(own)

    def settle(point: Point, values: Values, stored: tuple[Operand, ...]) -> tuple[Value, Value]:
        """The mean and the factor, once the mean and the variance are stored."""
        mean, variance = mean_and_variance(point.e, values)
        for operand, value in zip(stored, (mean, variance), strict=False):
            point.store(operand, value)
        return mean, own.factor_of(point, variance)

    def at_once(point: Point) -> None:
        mean, factor = settle(point, reduction.partial(point), results)
        point.each(lambda p: own.normalize(p, mean, factor))

    def finish(point: Point, values: Values) -> None:
        _, factor = settle(point, values, own.statistics)
        point.store(own.factor, factor)

    results = own.statistics if conf.training else ()
    inputs, outputs = (own.src, *above, *own.beside), (*own.outputs, *results)
    reads_dst = own.epilogue.reads_dst
    nest = Nest(kept, rest, inputs, outputs, at_once, reads_dst=reads_dst)
    plan = resident(module.isa, nest, second)
    if plan is not None:
        return (emit_planned(module, entry, nest, plan),)
    outputs = (*own.statistics, own.factor)
    fold = Fold(kept, rest, (own.src,), outputs, reduction, finish, above)
    scratch = arguments.slot(Arg.SCRATCHPAD), conf.partial
    name = symbol("batch_normalization_statistics", [conf.src], module.isa)
    return *emit_fold(module, name, fold, scratch), emit_nest(module, entry, second)
