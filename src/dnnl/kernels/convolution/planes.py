"""A 1x1 convolution of planes, as in nchw, as a product of matrices whose columns are pixels::

    dst[n][o, pixel] = sum over i of weights[o, i] * src[n][i, pixel]

A tile of pixels by channels is transposed before it is stored in planes. If a tile has fewer rows
than a vector has elements, that leaves part of each vector empty, and a line of src is read by
several tiles. So pixels are loaded in vectors, and weights broadcast.
"""

from __future__ import annotations

from dataclasses import replace

from dnnl.codegen.ir.kernel import Kernel, Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.brgemm import max_rows
from dnnl.errors import InvalidArguments
from dnnl.kernels.convolution.direct.lines import flatten
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.matmul import matmul
from dnnl.kernels.matmul.matmul import MatmulConf
from dnnl.kernels.matmul.problem import MatmulProblem
from dnnl.kernels.product.base.problem import NONE, plain
from dnnl.kernels.product.loops import phases
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc

_VECTORS = 2
_FILLED, _OF = 3, 4
"""A transposed tile that fills more of a vector than this is faster."""
_LEAST_PIXELS = 64
"""Fewer pixels leave too many columns of the last panel empty."""
_LINE_NDIMS = 3


def refuse(isa: Isa, problem: ConvolutionProblem) -> Refusal | None:
    """Why the convolution is no product of such matrices, or not a faster one."""
    if isa.lanes == 1 or _OF * max_rows(isa, _VECTORS) > _FILLED * isa.lanes:
        detail = f"{isa.name}, whose tiles of pixels fill vectors: brgemm is as fast"
        return Refusal(Reason.ISA, detail)
    for desc in (problem.src, problem.weights):
        if desc.data_type is not DataType.f32:
            return Refusal(Reason.DATA_TYPE, f"{desc.data_type}; it takes f32")
    if problem.quantization != NONE:
        return Refusal(Reason.ATTRIBUTE, "scales and zero points")
    if FormatKind.any in (problem.src.format_kind, problem.dst.format_kind):
        return Refusal(
            Reason.LAYOUT, "src or dst with the layout any; it takes plain ones, as nchw"
        )
    if _matrices(resolve(problem, isa)) is None:
        pixels = f"of {_LEAST_PIXELS} pixels and more"
        return Refusal(Reason.SHAPE, f"it takes 1x1 kernels, stride 1, planes {pixels}")
    return None


def resolve(problem: ConvolutionProblem, isa: Isa) -> ConvolutionProblem:
    """Decide the layout of weights, which are broadcast: row-major."""
    if problem.weights.format_kind is not FormatKind.any:
        return problem
    return replace(problem, weights=plain(problem.weights))


def configure(problem: ConvolutionProblem, isa: Isa) -> MatmulConf | Refusal:
    """Plan a convolution that `refuse` does not refuse."""
    matrices = _matrices(problem)
    assert matrices is not None, "refused before"
    return matmul.configure(matrices, isa)


def build(conf: MatmulConf, isa: Isa) -> Kernel:
    """One product, with the images as its batch."""
    return phases.build("convolution", conf, isa, matmul.products)


def _matrices(problem: ConvolutionProblem) -> MatmulProblem | None:
    """The product that computes ``problem``, if the layouts allow it."""
    line = flatten(problem)
    _, _, pixels = line.space
    points = (pixels.kernel, pixels.stride, pixels.padding) == (1, 1, 0)
    if problem.grouped or line.src.ndims != _LINE_NDIMS or not points:
        return None
    if not _LEAST_PIXELS <= pixels.src == pixels.dst:
        return None
    if not (_in_planes(line.src) and _in_planes(line.dst)) or line.weights.inner_blocks:
        return None
    try:
        weights = line.weights.reshape((1, line.outputs, line.channels))
    except InvalidArguments:
        return None
    bias = line.bias if line.bias.is_zero else line.bias.reshape((1, line.outputs, 1))
    of_src, of_weights, of_dst = problem.arguments
    return MatmulProblem(
        weights,
        line.src,
        bias,
        line.dst,
        line.post_ops,
        narrow=line.narrow,
        arguments=(of_weights, of_src, of_dst),
    )


def _in_planes(desc: MemoryDesc) -> bool:
    """Whether the pixels of a channel are contiguous."""
    return not desc.inner_blocks and desc.strides[2] == 1 and desc.dims == desc.padded_dims
