"""The gradient of a convolution's weights: a product that sums over images and pixels.

Its rows are channels of src, at one tap or at several, its columns are the channels of diff_dst::

    diff_weights[tap, i, o] = sum over n, p of src[n, p * stride + tap, i] * diff_dst[n, p, o]

What a tap is to a convolution, a pixel of diff_dst is here, and vice versa: the strides are those
of taps, the dilations those of pixels. Sums are long and results are few. A work item holds the
sums of some channels and all taps, and goes through the images a few rows at a time, so that both
operands come from memory once. If there are too few results for all threads, images are divided
into parts whose sums are added up at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.folds import Fold, at_once, emit_fold, exact_partials_desc
from dnnl.codegen.nest.nest import emit_nest
from dnnl.codegen.product.multiply import Multiply
from dnnl.errors import InvalidArguments
from dnnl.kernels.convolution.direct.copied_gradient import CopiedGradient, is_copied
from dnnl.kernels.convolution.direct.gradient_blocking import Cut, OpenCut
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient
from dnnl.kernels.convolution.direct.gradient_products import (
    GradientProduct,
    diff_weights,
    is_direct,
    products,
    result,
)
from dnnl.kernels.convolution.direct.lines import OPEN
from dnnl.kernels.convolution.direct.open_gradient import in_lines, is_open
from dnnl.kernels.convolution.direct.unit_gradient import UnitGradient
from dnnl.kernels.product.base.problem import LETTERS, Panels
from dnnl.kernels.product.base.types import refuse_tensors
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.plan.dot_kind import chosen_dot
from dnnl.kernels.product.plan.plan import plan
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.shared.copies import emit_k_groups
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.kernels.shared.sums import bias_gradient, sum_fold
from dnnl.kernels.shared.types import computed_in
from dnnl.runtime.image import Phase
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_LINE = LINE // 4  # f32


@dataclass(frozen=True)
class WeightsGradientConf:
    """The ``problem``, the product, whose sums are ``cut``, and ``bias_partial``: scratchpad for
    parts of the bias. ``scratchpad`` is in bytes."""

    problem: WeightsGradient
    product: GradientProduct
    cut: Cut | OpenCut
    bias_partial: Argument | None
    scratchpad: int

    @property
    def summary(self) -> PlanSummary:
        """The decisions, with those about the sums."""
        copied = isinstance(self.product.problem, CopiedGradient)
        said = "; threads copy what a block reads" if copied else ""
        return replace(self.product.summary, cut=f"{self.cut}{said}")


def resolve(problem: WeightsGradient, isa: Isa) -> WeightsGradient:
    """Decide the layouts that are ``any``: f32 in blocks of a cache line of channels (nChw16c);
    others with channels last, or plain for a matrix unit if sizes are known. Output channels are
    last in weights."""
    of_unit = not is_open(problem) and UnitGradient.of(problem, isa) is not None

    def decided(desc: MemoryDesc, tag: str) -> MemoryDesc:
        return desc.with_tag(FormatTag(tag)) if desc.format_kind is FormatKind.any else desc

    def activation(desc: MemoryDesc, channels: int) -> MemoryDesc:
        blocked = desc.data_type is DataType.f32 is problem.narrow and isa.lanes > 1
        spatial = LETTERS[2 : desc.ndims]
        if blocked and isa.thread_memory and channels % _LINE == 0:
            return decided(desc, f"aB{spatial}{_LINE}b")
        if of_unit:
            return decided(desc, f"ab{spatial}")
        return decided(desc, f"a{spatial}b")

    first = 1 if problem.grouped else 0
    taps = LETTERS[first + 2 : problem.diff_weights.ndims]
    weights = f"{LETTERS[:first]}{taps}{LETTERS[first + 1]}{LETTERS[first]}"
    return replace(
        problem,
        src=activation(problem.src, problem.channels),
        weights=activation(problem.diff_dst, problem.outputs),
        dst=decided(problem.diff_weights, weights),
        diff_bias=decided(problem.diff_bias, "a"),
    )


def opens(problem: WeightsGradient, isa: Isa) -> bool:
    """Whether there may be code for images that only an execution knows, which `configure` decides:
    not channel by channel, which leaves tiles empty."""
    dense = problem.groups == 1 or 1 not in (problem.channels, problem.outputs)
    return problem.knows_channels and dense


def configure(problem: WeightsGradient, isa: Isa) -> WeightsGradientConf | Refusal:
    """Plan a gradient whose layouts are all decided (see :func:`resolve`)."""
    src, diff_dst = problem.src, problem.diff_dst
    refusal = refuse_tensors(src, diff_dst, problem.diff_bias, problem.diff_weights)
    if refusal is not None:
        return refusal
    dot, scratchpad = chosen_dot(problem, isa), Scratchpad()
    assert dot is not None, "refused before"
    if is_open(problem):
        try:
            lines = in_lines(problem, isa, scratchpad)
        except InvalidArguments:  # rows of some tensor have gaps
            return OPEN
        line = plan(
            lines.problem, isa, src=lines.src, weights=lines.weights, scratchpad=scratchpad,
            whole=False,
        )  # fmt: skip
        return _configured(problem, isa, replace(line, unfolded=lines.unfolded), scratchpad)
    product = plan(_suited(problem, isa, dot), isa, scratchpad=scratchpad)
    return _configured(problem, isa, product, scratchpad)


def _suited(problem: WeightsGradient, isa: Isa, dot: Multiply) -> WeightsGradient:
    """The gradient in the form that suits its sizes."""
    of_unit = UnitGradient.of(problem, isa)
    if of_unit is not None:
        return of_unit
    if is_copied(problem, isa, dot):
        return CopiedGradient.of(problem)
    if dot.group > 1 and problem.channels > problem.outputs and problem.pointwise:
        # Of operands in K groups src alone is always copied: that should be the smaller one.
        return problem.exchanged()
    return problem


def _configured(
    problem: WeightsGradient, isa: Isa, product: GradientProduct, scratchpad: Scratchpad
) -> WeightsGradientConf:
    """The configuration with a planned product."""
    panels = Panels(product.weights[1], product.blocking.tile.vectors)
    cut, parts = product.problem.cut(isa, product.multiply, product.src[1], panels), None
    if not problem.diff_bias.is_zero:
        wanted = exact_partials_desc(isa, _bias(problem, Arguments()))
        parts = scratchpad.take(wanted) if wanted.nelems() else None
    return WeightsGradientConf(problem, product, cut, parts, scratchpad.size)


def build(conf: WeightsGradientConf, isa: Isa) -> Kernel:
    """The product, the sum of its parts, and the gradient of the bias."""
    name, product, problem = "convolution_by_weights", conf.product, conf.problem
    module, arguments = Module(name, isa), Arguments()
    found: list[Phase] = []
    if not problem.diff_weights.has_zero_dim:
        found += _copies(module, product, arguments)
        given = replace(product, copies_in=())
        found += phases.emit(module, given, arguments, partial(products, conf.cut))
        found += () if is_direct(product) else _finished(module, product, arguments)
    if not problem.diff_bias.is_zero:
        fold, scratch = _bias(problem, arguments), (-1, MemoryDesc.zero())
        if conf.bias_partial is not None:
            scratch = arguments.slot(conf.bias_partial[0]), conf.bias_partial[1]
        symbol = f"{name}_bias__{problem.diff_bias.data_type}__{isa.lanes}x1__{isa.name}"
        found.extend(emit_fold(module, symbol, fold, scratch))
    return Kernel(module, tuple(found), arguments.ids)


def _copies(module: Module, conf: GradientProduct, arguments: Arguments) -> Iterator[Phase]:
    """Write the copies of whole tensors."""
    name, isa = module.ir.name, module.isa
    for number, (given, copy) in enumerate(conf.copies_in):
        symbol = f"{name}_in{number}__{copy[1].data_type}__{isa.lanes}x1__{isa.name}"
        yield emit_k_groups(module, symbol, given, copy, arguments)


def _finished(module: Module, conf: GradientProduct, arguments: Arguments) -> tuple[Phase, ...]:
    """Add up the parts, and store them as diff_weights."""
    image, row, groups, *taps, channels, outputs = conf.dst[1].dims
    parts, g = (Axis(image, "images"), Axis(row, "rows")), Axis(groups, "g")
    of_taps = [Axis(extent, f"k{name}") for extent, name in zip(taps, "dhw", strict=True)]
    ic, oc = Axis(channels, "ic"), Axis(outputs, "oc")
    given = (parts, g, of_taps, Affine.of(ic), Affine.of(oc))
    read = result(conf, arguments, *given)
    written = diff_weights(conf, arguments, *given[1:])
    axes = (g, oc, ic, *of_taps)
    fold = sum_fold(axes, parts, (read,), written, _computed(conf.problem))
    problem, isa = conf.problem, module.isa
    symbol = f"{module.ir.name}_sum__{problem.diff_weights.data_type}__{isa.lanes}x1__{isa.name}"
    return (emit_nest(module, symbol, at_once(fold)),)


def _bias(problem: WeightsGradient, arguments: Arguments) -> Fold:
    """The sum of diff_dst, or of src, over images and pixels."""
    of_src, of_dst, _ = problem.arguments
    given = (of_src, problem.src) if problem.of_src else (of_dst, problem.diff_dst)
    return bias_gradient(given, problem.diff_bias, _computed(problem), arguments)


def _computed(problem: WeightsGradient) -> DataType:
    return computed_in(problem.diff_weights, problem.diff_dst)
