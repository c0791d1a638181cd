"""The gradient of a depthwise convolution's weights, and of its bias.

Sums are computed in parts, in the scratchpad, which a second phase adds up. Their number follows
from the sizes alone. If channels are contiguous, or are copied so, rows of diff_dst are computed at
a time (`weight_tiles`). Otherwise it is a nest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.row import FLOATS
from dnnl.codegen.memory.access import Bound, Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.codegen.nest.folds import Fold, emit_fold, exact_partials_desc
from dnnl.codegen.nest.windows import tap_number
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.depthwise import depthwise, weight_plan, weight_tiles
from dnnl.kernels.convolution.depthwise.weight_plan import Shape, Tiles, shape_of
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient
from dnnl.kernels.convolution.direct.pieces import activation_index, weights_index
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.shared.copies import emit_copies
from dnnl.kernels.shared.scratchpad import Argument, Relayout, Scratchpad
from dnnl.kernels.shared.sums import bias_gradient, sum_fold
from dnnl.kernels.shared.types import SMALL_FLOATS, WIDE_FLOATS, computed_in, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag


@dataclass(frozen=True)
class DepthwiseGradientConf:
    """What the phases read. Tiles of ``shape`` compute ``sums`` of ``parts``, (parts, channels,
    taps); without them nests compute everything. ``partials`` is scratchpad for parts of what nests
    sum, diff_weights and diff_bias, None where there are no parts."""

    problem: WeightsGradient
    src: Argument
    diff_dst: Argument
    tiles: Tiles | None
    partials: tuple[Argument | None, Argument | None]
    copies_in: tuple[Relayout, ...]
    scratchpad: int

    @property
    def summary(self) -> PlanSummary:
        """The decisions, for `dnnl explain`."""
        core = _computed(self.problem)
        multiply = Multiply(core, core, 1, FLOATS)
        if self.tiles is not None:
            multiply = self.tiles.multiply
        return PlanSummary(multiply, copies_in=self.copies_in)


def resolve(problem: WeightsGradient, isa: Isa) -> WeightsGradient:
    """Decide the layouts that are ``any`` as a forward convolution does."""
    forward = depthwise.resolve(
        ConvolutionProblem(
            problem.src,
            problem.diff_weights,
            problem.diff_bias,
            problem.diff_dst,
            (),
            narrow=problem.narrow,
            space=problem.space,
        ),
        isa,
    )
    bias = problem.diff_bias
    if bias.format_kind is FormatKind.any:
        bias = bias.with_tag(FormatTag("a"))
    return replace(
        problem,
        src=forward.src,
        weights=forward.dst,
        dst=forward.weights,
        diff_bias=bias,
    )


def refuse(problem: WeightsGradient) -> Refusal | None:
    """Why a problem is no depthwise convolution, whatever its layouts, or None."""
    depthwise_one = problem.grouped and (problem.outputs, problem.channels) == (1, 1)
    return None if depthwise_one else Refusal(Reason.SHAPE, "not one channel a group")


def opens(problem: WeightsGradient, isa: Isa) -> bool:
    """Whether there may be code for images that only an execution knows: tiles of channels."""
    known = problem.knows_channels and refuse(problem) is None
    return known and shape_of(problem, isa) is not None


def configure(problem: WeightsGradient, isa: Isa) -> DepthwiseGradientConf | Refusal:
    """Accept any layout of a depthwise convolution."""
    tensors = [problem.src, problem.diff_weights, problem.diff_dst]
    if not problem.diff_bias.is_zero:
        tensors.append(problem.diff_bias)
    refusal = refuse(problem) or refuse_types(*tensors, allowed=WIDE_FLOATS | SMALL_FLOATS)
    if refusal is not None:
        return refusal
    tiles, scratchpad = None, Scratchpad()
    read = [(problem.arguments[0], problem.src), (problem.arguments[1], problem.diff_dst)]
    shape = shape_of(problem, isa)
    if shape is not None:
        read = [_in_vectors(given, shape, isa, scratchpad) for given in read]
        tiles = weight_plan.plan(problem, read[1][1], shape, isa, scratchpad)
    src, diff = read
    conf = DepthwiseGradientConf(problem, src, diff, tiles, (None, None), (), 0)
    partials = []
    for fold in (_weights(conf, Arguments()), _bias(conf, Arguments())):
        desc = None if fold is None else exact_partials_desc(isa, fold)
        partials.append(scratchpad.take(desc) if desc is not None and desc.nelems() else None)
    return replace(
        conf,
        partials=(partials[0], partials[1]),
        copies_in=tuple(scratchpad.copies),
        scratchpad=scratchpad.size,
    )


def _computed(problem: WeightsGradient) -> DataType:
    return computed_in(problem.src, problem.diff_dst, problem.diff_weights, problem.diff_bias)


def _in_vectors(given: Argument, shape: Shape, isa: Isa, scratchpad: Scratchpad) -> Argument:
    """The tensor itself if vectors of its channels are contiguous, else a copy of which they
    are."""
    if weight_plan.walkable(given[1], shape, isa):
        return given
    spatial = "cde"[: given[1].ndims - 2]
    return scratchpad.copy(given, given[1].with_tag(FormatTag(f"a{spatial}b")))


def build(conf: DepthwiseGradientConf, isa: Isa) -> Kernel:
    """The copies, the sums of parts, and what adds them up."""
    name = "depthwise_by_weights"
    module, arguments, problem = Module(name, isa), Arguments(), conf.problem
    phases = emit_copies(module, name, conf.copies_in, arguments)
    if conf.tiles is not None:
        tensors = conf.src, conf.diff_dst
        phases.append(weight_tiles.emit(module, name, problem, tensors, conf.tiles, arguments))
    folds = _weights(conf, arguments), _bias(conf, arguments)
    for result, fold, partial in zip(("weights", "bias"), folds, conf.partials, strict=True):
        if fold is not None:
            scratch = (-1, MemoryDesc((0,), fold.reduction.data_type))
            if partial is not None:
                scratch = arguments.slot(partial[0]), partial[1]
            entry = symbol(f"{name}_{result}", [each.desc for each in fold.outputs], isa)
            phases.extend(emit_fold(module, entry, fold, scratch))
    return Kernel(module, tuple(phases), arguments.ids)


def _weights(conf: DepthwiseGradientConf, arguments: Arguments) -> Fold:
    """The sum of diff_weights."""
    problem = conf.problem
    g, named = Axis(problem.groups, "g"), list(zip(problem.space, "dhw", strict=True))
    taps = [Axis(space.kernel, f"k{name}") for space, name in named]
    forms, desc = list(map(Affine.of, taps)), problem.diff_weights
    # Blocks of the single channels of a group are padding, which the nest clears along their axes.
    o, i = Axis(1, "o"), Axis(1, "i")
    index = weights_index(desc, True, Affine.of(g), Affine.of(o), Affine.of(i), forms)
    result = Operand(arguments.slot(problem.arguments[2]), desc, index)
    if conf.tiles is not None:
        number = tap_number(forms, [tap.extent for tap in taps])
        part, parts = _parts(conf.tiles, Affine.of(g), number, arguments)
        return sum_fold((g, o, i, *taps), (part,), (parts,), result, _computed(problem))
    n = Axis(problem.diff_dst.dims[0], "n")
    outs = [Axis(space.dst, f"o{name}") for space, name in named]
    seen = [
        tap * space.dilation + Affine.of(out, space.stride) + -space.padding
        for tap, out, space in zip(forms, outs, problem.space, strict=True)
    ]
    pixels = zip(seen, problem.space, strict=True)
    inside = tuple(bound for at, space in pixels if (bound := Bound(at, space.src)).needed)
    head = Affine.of(n), (Affine.of(g),)
    src, diff = (
        Operand(
            arguments.slot(slot),
            desc,
            activation_index(desc, *head, places),
            inside=inside,
            bare=frozenset(range(2, desc.ndims)),  # padding of a block is no pixel
        )
        for (slot, desc), places in ((conf.src, seen), (conf.diff_dst, list(map(Affine.of, outs))))
    )
    return sum_fold((g, o, i, *taps), (n, *outs), (src, diff), result, _computed(problem))


def _bias(conf: DepthwiseGradientConf, arguments: Arguments) -> Fold | None:
    """The sum of diff_bias, if there is one."""
    problem = conf.problem
    if problem.diff_bias.is_zero:
        return None
    if conf.tiles is None or not conf.tiles.biased:
        given = conf.src if problem.of_src else conf.diff_dst
        return bias_gradient(given, problem.diff_bias, _computed(problem), arguments)
    g = Axis(problem.groups, "g")
    part, parts = _parts(conf.tiles, Affine.of(g), ZERO + conf.tiles.taps, arguments)
    result = Operand(arguments.slot(Arg.DIFF_BIAS), problem.diff_bias, (Affine.of(g),))
    return sum_fold((g,), (part,), (parts,), result, _computed(problem))


def _parts(
    tiles: Tiles, channel: Affine, number: Affine, arguments: Arguments
) -> tuple[Axis, Operand]:
    """The axis of the parts, and their sums."""
    slot, desc = tiles.sums
    part = Axis(desc.dims[0], "part")
    return part, Operand(arguments.slot(slot), desc, (Affine.of(part), channel, number))
