"""Convolution on register tiles, for any layouts.

The compute phase broadcasts K groups of src and loads vectors of weights. So the channels of a K
group must be contiguous in src; otherwise its layout is free. Weights must have contiguous output
channels, and dst is best stored in vectors of channels. What does not fit is copied to and from the
scratchpad by phases of their own: weights into panels, src and dst into channels-last order.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dnnl.codegen.ir.kernel import Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.brgemm import max_rows
from dnnl.kernels.convolution.direct import open_rows
from dnnl.kernels.convolution.direct.compute import ConvolutionConf, products
from dnnl.kernels.convolution.direct.lines import flatten
from dnnl.kernels.convolution.direct.problem import (
    AnyConvolution,
    ConvolutionProblem,
    channels_last,
    refuse_quantization,
)
from dnnl.kernels.product.base.problem import LETTERS
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.plan.dot_kind import chosen_dot
from dnnl.kernels.product.plan.plan import plan
from dnnl.kernels.product.plan.refusals import refuse_problem
from dnnl.kernels.product.unit import tiles as product_tiles
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import BYTES
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc

_PANELS_OF_COPY = 8
"""The least number of panels for which a compact copy of strided pixels pays off."""


def resolve(problem: AnyConvolution, isa: Isa) -> AnyConvolution:
    """Decide the layouts that are ``any``.

    - Activations are channels-last if all rows of a tile fit in the first-level cache, whatever
      their stride is.
    - With higher tiles, channels are blocked by a vector, so that a tile reads consecutive lines.
    - With too few channels for either they are plain.
    - They are channels-last if groups would cut blocks, for bytes (as in quantized models), and for
      a matrix unit, which takes lines of channels.
    """
    problem = resolve_activations(problem, isa)
    dot, weights = chosen_dot(problem, isa), problem.weights
    if weights.format_kind is FormatKind.any and dot is not None:
        bordered = problem.bordered(dot)
        src = problem.packed(problem.src, dot) if bordered else problem.as_read(dot)
        if _compacts_strides(problem, isa):
            src = channels_last(src)
        panels = problem.panels(isa, src, weights, dot).desc
        problem = replace(problem, weights=panels.with_data_type(weights.data_type))
    return problem


def resolve_activations(problem: AnyConvolution, isa: Isa) -> AnyConvolution:
    """Decide src and dst only."""
    dot = chosen_dot(problem, isa)
    last = problem.src.data_type in BYTES or bool(dot and dot.tiles)
    decide = partial(_activation, groups=problem.groups, isa=isa, last=last)
    return replace(problem, src=decide(problem.src), dst=decide(problem.dst))


def _activation(desc: MemoryDesc, groups: int, isa: Isa, last: bool) -> MemoryDesc:
    if desc.format_kind is not FormatKind.any:
        return desc
    channels = desc.dims[1]
    spatial = LETTERS[2 : desc.ndims]
    cut = 1 < groups < channels and channels // groups % isa.lanes
    if last or cut:
        return channels_last(desc)
    if channels < isa.lanes or isa.lanes == 1:
        return desc.with_tag(f"ab{spatial}")
    if max_rows(isa, 2) <= isa.caches.l1_ways:
        return channels_last(desc)
    return desc.with_tag(f"aB{spatial}{isa.lanes}b")


def opens(problem: ConvolutionProblem, isa: Isa) -> bool:
    """Whether there may be code for images whose sizes only an execution knows, which `configure`
    decides."""
    dot = chosen_dot(problem, isa)
    return dot is not None


def refused(problem: ConvolutionProblem) -> Refusal | None:
    """Why types, tensors or attributes cannot be computed, or None."""
    return refuse_problem(problem) or refuse_quantization(problem)


def configure(problem: ConvolutionProblem, isa: Isa) -> ConvolutionConf | Refusal:
    """Plan a convolution whose layouts are all decided (see :func:`resolve`)."""
    refusal = refused(problem)
    if refusal is not None:
        return refusal
    if not _compacts_strides(problem, isa):
        if open_rows.has_open_windows(problem):
            return open_rows.configure(problem, isa)
        return plan(flatten(problem), isa)
    scratchpad, view = Scratchpad(), _strided_view(problem)
    slot, src = scratchpad.copy((problem.arguments[0], view), channels_last(view))
    d, h, w = (replace(own, src=own.dst, stride=1) for own in problem.space)
    compact = flatten(replace(problem, src=src, space=(d, h, w)))
    return plan(compact, isa, src=(slot, compact.src), scratchpad=scratchpad)


def _compacts_strides(problem: ConvolutionProblem, isa: Isa) -> bool:
    """Whether a 1x1 convolution reads a compact copy of the pixels at its stride. Compact pixels
    are one line, so that rows of few pixels leave no tile partly empty, and they fill whole cache
    lines. Enough panels must use the copy."""
    dot, (_, _, w) = chosen_dot(problem, isa), problem.space
    points = all(own.kernel == 1 and not own.padded for own in problem.space)
    strided = problem.step[1] == 1 and any(own.stride > 1 for own in problem.space)
    blocked = any(dim > 1 for dim, _ in problem.src.inner_blocks)
    if dot is None or not (points and strided) or blocked:
        return False
    if dot.tiles is not None:
        return w.dst < product_tiles.part_rows(isa)
    width = problem.panels(isa, problem.src, problem.weights, dot).vectors * isa.lanes
    return problem.outputs >= _PANELS_OF_COPY * width


def _strided_view(problem: ConvolutionProblem) -> MemoryDesc:
    """The pixels of src that a 1x1 convolution reads."""
    src, count = problem.src, problem.src.ndims - 2
    by = (1, 1, *(own.stride for own in problem.space[3 - count :]))
    strides = [stride * factor for stride, factor in zip(src.strides, by, strict=True)]
    dims = (*src.dims[:2], *problem.dst.dims[2:])
    return MemoryDesc(
        dims, src.data_type, strides, inner_blocks=src.inner_blocks, offset0=src.offset0
    )


def build(conf: ConvolutionConf, isa: Isa) -> Kernel:
    """The products, with the sums that compensate them."""
    return phases.build("convolution", conf, isa, products)
