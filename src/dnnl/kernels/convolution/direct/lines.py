"""Convolutions whose pixels are one line, over the ends of rows."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels.convolution.direct.problem import AnyConvolution, ConvolutionProblem
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.types.layout import Layout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpPrelu
from dnnl.types.size import is_known, surely_equal

OPEN = Refusal(Reason.RUNTIME_DIM, "of an image; it has a kernel for each size")
"""Of kernels that are planned for known sizes."""


def flatten(problem: AnyConvolution) -> AnyConvolution:
    """A 1x1 convolution along a single line of pixels, if the layouts allow it."""
    plain = all((s.kernel, s.stride, s.padding, s.src) == (1, 1, 0, s.dst) for s in problem.space)
    if not (plain and fits_line(problem)) or problem.src.ndims == 3:
        return problem
    try:
        src, dst = in_line(problem.src), in_line(problem.dst)
        post_ops = tuple(entry.mapped(in_line) for entry in problem.post_ops)
        weights = in_line(problem.weights, 3 if problem.grouped else 2)
    except InvalidArguments:
        return problem
    line = Spatial(src.dims[2], dst.dims[2], 1, 1, 0, 1)
    one = Spatial(1, 1, 1, 1, 0, 1)
    return replace(
        problem, src=src, dst=dst, weights=weights, post_ops=post_ops, space=(one, one, line)
    )


def fits_line(problem: ConvolutionProblem) -> bool:
    """Whether post-ops, scales and zero points treat all pixels alike or each by itself, not rows
    or columns."""
    given = problem.quantization
    specs = (*given.scales, *given.zero_points)
    return all(spec.mask <= 3 for _, spec in specs) and all(
        _pixel_by_pixel(problem.dst, entry) for entry in problem.post_ops
    )


def _pixel_by_pixel(dst: MemoryDesc, entry: PostOp) -> bool:
    if isinstance(entry, PostOpPrelu):
        return entry.mask <= 3
    found = (desc.dims[2:] for _, desc in entry.operands)
    return all(spatial == dst.dims[2:] or set(spatial) == {1} for spatial in found)


def in_line(desc: MemoryDesc, leading: int = 2) -> MemoryDesc:
    """The tensor with one dimension behind the ``leading`` ones; raises InvalidArguments where its
    rows have gaps, or may have for sizes that only an execution knows."""
    pixels, places = prod(desc.dims[leading:]), desc.strides[leading:]
    if all(map(is_known, (pixels, *places))):
        return desc.reshape((*desc.dims[:leading], pixels))
    sizes = desc.dims[leading:]
    dense = (prod(sizes[dim + 1 :]) * places[-1] for dim in range(len(sizes)))
    blocked = any(dim >= leading for dim, _ in desc.inner_blocks)
    if blocked or not all(map(surely_equal, places, dense)):
        rule = "the rows of an image must follow each other without gap"
        raise InvalidArguments("strides", desc.strides, rule)
    return with_pixels(desc, (pixels,), places[-1])


def with_pixels(desc: MemoryDesc, sizes: tuple[int, ...], stride: int) -> MemoryDesc:
    """An activation with pixels of these ``sizes``, which are ``stride`` apart."""
    strides = tuple(prod(sizes[dim + 1 :]) * stride for dim in range(len(sizes)))
    layout = Layout(
        (*desc.dims[:2], *sizes),
        (*desc.padded_dims[:2], *sizes),
        (*desc.strides[:2], *strides),
        desc.inner_blocks,
        desc.offset0,
    )
    return MemoryDesc.of_layout(desc, layout)
