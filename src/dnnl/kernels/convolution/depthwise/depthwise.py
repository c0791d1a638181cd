"""Depthwise convolution: every channel has its own filter, so that vectors of channels, or of
pixels, are multiplied element by element. If channels are contiguous, rows of outputs are computed
at a time; otherwise it is a nest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from dnnl.codegen.epilogue.post_ops import Epilogue
from dnnl.codegen.epilogue.quantization import Quantizer
from dnnl.codegen.ir.builder import Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.ir.vector import multiply_add
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Bound, Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.codegen.nest.fold_loop import added
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.product.multiply import as_f32
from dnnl.kernels.convolution.depthwise import bytes as convolution_depthwise_bytes
from dnnl.kernels.convolution.depthwise import planes, tile_plan
from dnnl.kernels.convolution.depthwise.rows import DepthwiseRowsConf, build_rows
from dnnl.kernels.convolution.direct.convolution import resolve_activations
from dnnl.kernels.convolution.direct.pieces import activation_index, weights_index
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem, refuse_quantization
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.kernels.product.plan.refusals import refuse_problem
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.shared.types import BYTES, core_of
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.kinds import FormatKind
from dnnl.types.tag import FormatTag

# The most products of bytes with zero points whose sums f32 represents exactly.
_MOST_EXACT = 2**24 // 255**2
# With many taps, several registers of outputs share each weight.
_UNROLL, _MANY_TAPS = 4, 64


@dataclass(frozen=True)
class DepthwiseConf:
    """The problem with every layout decided."""

    problem: ConvolutionProblem

    @property
    def scratchpad(self) -> int:
        """In bytes: nothing is copied."""
        return 0

    @property
    def summary(self) -> PlanSummary:
        """The decisions, for `dnnl explain`: products are in f32, whatever the stored types are."""
        return PlanSummary(as_f32())


def is_depthwise(problem: ConvolutionProblem) -> bool:
    """Whether every group has one channel of src and one of dst."""
    return problem.grouped and problem.weights.dims[1:3] == (1, 1)


def resolve(problem: ConvolutionProblem, isa: Isa) -> ConvolutionProblem:
    """Decide the layouts that are ``any``: all tensors with channels in blocks of a vector, but for
    weights of planes."""
    problem = resolve_activations(problem, isa)
    if is_depthwise(problem) and problem.weights.format_kind is FormatKind.any:
        letters = "bcdefg"[: problem.weights.ndims - 1]
        whole = problem.src.data_type in BYTES  # bytes are channels-last
        blocked = problem.weights.dims[0] >= isa.lanes > 1 and not whole
        tag = f"A{letters}{isa.lanes}a" if blocked else f"{letters}a"
        if planes.in_rows(problem.src) and not whole:
            tag = f"a{letters}"
        problem = replace(problem, weights=problem.weights.with_tag(FormatTag(tag)))
    return problem


def refuse(problem: ConvolutionProblem) -> Refusal | None:
    """Why a problem is no depthwise convolution, whatever its layouts, or None."""
    return None if is_depthwise(problem) else Refusal(Reason.SHAPE, "not one channel a group")


def opens(problem: ConvolutionProblem, isa: Isa) -> bool:
    """Whether the code for images whose sizes only an execution knows is as for known ones: tiles
    of channels, and nests unless it is transposed."""
    if not is_depthwise(problem):
        return False
    problem = resolve(problem, isa)
    if problem.transposed and tile_plan.plan(problem, isa) is None:
        return False
    return not (planes.in_rows(problem.src) and planes.in_rows(problem.dst))


def configure(problem: ConvolutionProblem, isa: Isa) -> DepthwiseConf | DepthwiseRowsConf | Refusal:
    """Accept any layout of a depthwise convolution."""
    refusal = refuse(problem)
    if refusal is not None:
        return refusal
    taps = prod(problem.weights.dims[3:])
    if problem.src.data_type in BYTES and taps > _MOST_EXACT:
        rule = f"f32 holds the sums of {_MOST_EXACT} exactly"
        return Refusal(Reason.SHAPE, f"{taps} taps of bytes; {rule}")
    refusal = refuse_problem(problem) or refuse_quantization(problem)
    if refusal is not None:
        return refusal
    return _in_rows(problem, isa) or DepthwiseConf(problem)


def _in_rows(problem: ConvolutionProblem, isa: Isa) -> DepthwiseRowsConf | None:
    """The convolution by rows, if there is code for it."""
    by_bytes = convolution_depthwise_bytes.plan(problem, isa)
    return by_bytes or tile_plan.plan(problem, isa) or planes.plan(problem, isa)


@dataclass(frozen=True, eq=False)
class Walk:
    """One spatial dimension: the axes of outputs (``parallel``) and of taps (``reduced``), and the
    index of an iteration in each tensor. Outputs exist inside ``where``, and are padding outside of
    ``filled``. Elements of src and taps contribute inside ``pairs`` only."""

    parallel: tuple[Axis, ...]
    reduced: Axis
    src: Affine
    tap: Affine
    dst: Affine
    pairs: tuple[Bound, ...] = ()
    where: tuple[Bound, ...] = ()
    filled: tuple[Bound, ...] = ()


def _walk(space: Spatial, name: str) -> Walk:
    out, tap = Axis(space.dst, f"o{name}"), Axis(space.kernel, f"k{name}")
    seen = Affine.of(out, space.stride) + Affine.of(tap, space.dilation) + -space.padding
    return Walk((out,), tap, seen, Affine.of(tap), Affine.of(out))


def build(conf: DepthwiseConf | DepthwiseRowsConf, isa: Isa) -> Kernel:
    """One nest over the output that sums the taps, unless rows are computed at a time."""
    if isinstance(conf, DepthwiseRowsConf):
        return build_rows("depthwise", conf, isa)
    return build_walk("depthwise", conf.problem, walks_of(conf.problem), isa)


def walks_of(problem: ConvolutionProblem) -> list[Walk]:
    """Depth, height and width of a convolution."""
    return [_walk(space, name) for space, name in zip(problem.space, "dhw", strict=True)]


def build_walk(name: str, problem: ConvolutionProblem, walks: Sequence[Walk], isa: Isa) -> Kernel:
    """The kernel ``name``, one nest along ``walks``: depth, height and width."""
    module, arguments = Module(name, isa), Arguments()
    phase = emit_walk(module, name, problem, walks, arguments)
    return Kernel(module, (phase,), arguments.ids)


def emit(module: Module, name: str, problem: ConvolutionProblem, arguments: Arguments) -> Phase:
    """Write the phase ``name`` of a convolution whose tensors are all read in place."""
    in_rows = _in_rows(problem, module.isa)
    if in_rows is None or in_rows.copies_in:
        return emit_walk(module, name, problem, walks_of(problem), arguments)
    (phase,) = in_rows.emit(module, name, arguments)
    return phase


def emit_walk(
    module: Module,
    name: str,
    problem: ConvolutionProblem,
    walks: Sequence[Walk],
    arguments: Arguments,
) -> Phase:
    """Write the phase ``name``, one nest along ``walks``: depth, height and width."""
    n, c = Axis(problem.dst.dims[0], "n"), Axis(problem.dst.dims[1], "c")
    of_src, of_weights, of_dst = problem.arguments
    outs = [axis for walk in walks for axis in walk.parallel]
    taps = [walk.reduced for walk in walks]
    pairs = tuple(bound for walk in walks for bound in walk.pairs)
    batch, channel = Affine.of(n), Affine.of(c)
    seen = activation_index(problem.src, batch, (channel,), [walk.src for walk in walks])
    bare = frozenset(range(2, problem.src.ndims))  # padding of a block is no tap
    src = Operand(arguments.slot(of_src), problem.src, seen, inside=pairs, bare=bare)
    offsets = [walk.tap for walk in walks]
    index = weights_index(problem.weights, True, channel, ZERO, ZERO, offsets)
    weights = Operand(arguments.slot(of_weights), problem.weights, index, inside=pairs)
    where = activation_index(problem.dst, batch, (channel,), [walk.dst for walk in walks])
    dst = Operand(arguments.slot(of_dst), problem.dst, where)
    inputs = [src, weights]
    bias = None
    if not problem.bias.is_zero:
        bias = Operand(arguments.slot(Arg.BIAS), problem.bias, (channel,))
        inputs.append(bias)
    epilogue = Epilogue(problem.post_ops, dst, arguments)
    factors = {int(Arg.SRC): src, int(Arg.WEIGHTS): weights}
    tensors = {**factors, int(Arg.DST): dst}
    quantizer = Quantizer(problem.quantization, tensors, arguments, requantizes=True)

    def tap(point: Point, total: Value) -> Values:
        a, w = (quantizer.centred(point, arg, point.load(op)) for arg, op in factors.items())
        return (multiply_add(point.e, a, w, total),)

    def body(point: Point) -> None:
        (value,) = point.fold((0.0,), tap, added)
        for argument in factors:
            value = quantizer.scaled(point, argument, value)
        if bias is not None:
            value = point.e.b.fadd(value, point.load(bias))
        value = epilogue.apply(point, value)
        point.store(dst, quantizer.quantize(point, Arg.DST, value))

    entry = symbol(name, (problem.src, problem.weights, problem.dst), module.isa)
    read = (*inputs, *epilogue.operands, *quantizer.operands)
    nest = Nest(
        (n, c, *outs),
        tuple(taps),
        read,
        (dst,),
        body,
        where=tuple(bound for walk in walks for bound in walk.where),
        filled=tuple(bound for walk in walks for bound in walk.filled),
        reads_dst=epilogue.reads_dst,
        core=core_of(problem.src, problem.weights, problem.dst),
        registers=_UNROLL if prod(s.kernel for s in problem.space) > _MANY_TAPS else 1,
    )
    return emit_nest(module, entry, nest)
