"""Convolutions and products of matrices on PyTorch, with weights packed beforehand."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import NamedTuple

from dnnl.errors import Unimplemented
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.deconvolution import DeconvolutionDesc
from dnnl.primitives.inner_product import InnerProductDesc
from dnnl.primitives.matmul import MatmulDesc
from dnnl.tools.bench.peers.pytorch_product_gradients import (
    geometry,
    inner_product_gradients,
    sliding_gradients,
)
from dnnl.tools.bench.peers.pytorch_program import (
    Program,
    Tensors,
    Values,
    equal_floats,
    plain_views,
)
from dnnl.tools.bench.peers.pytorch_tensors import Run, Tensor, Torch
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.encoding import Csr, Grouped
from dnnl.types.kinds import Alg
from dnnl.types.post_ops import PostOpEltwise, PostOpSum

_IMAGE = 2
_MATRIX = 2


def convolution(desc: ConvolutionDesc, attr: PrimitiveAttr) -> Program:
    """conv1d, conv2d or conv3d.

    In two dimensions it is the operator that PyTorch's own compiler takes, which has packed
    weights, and the addition of dst and a relu in it.
    """
    equal_floats(desc)
    _check_padding(desc)
    views = plain_views(desc, channels_last=True)
    space = len(desc.strides)
    if not desc.propagation.is_forward:
        return sliding_gradients(desc, views, None)
    fused = _FUSED.get(tuple(map(_step, attr.post_ops)))
    kind = desc.src_desc.data_type
    if space == _IMAGE and kind in (DataType.f32, DataType.bf16) and fused is not None:
        name = "mkldnn._convolution_pointwise"
        return Program(name, views, _Packed(desc, fused), complete=True)

    def build(torch: Torch, tensors: Tensors, _: Values, __: Tensor) -> Run:
        weights, bias = _weights(desc, tensors), tensors.get(Arg.BIAS)
        call = getattr(torch.nn.functional, f"conv{space}d")
        src = tensors[Arg.SRC]
        return lambda: call(src, weights, bias, *geometry(desc))

    return Program(f"conv{space}d", views, build)


def deconvolution(desc: DeconvolutionDesc, _: PrimitiveAttr) -> Program:
    """conv_transpose1d, 2d or 3d."""
    equal_floats(desc)
    space = len(desc.strides)
    behind = _output_padding(desc)
    if not desc.propagation.is_forward:
        return sliding_gradients(desc, plain_views(desc, channels_last=True), behind)

    def build(torch: Torch, tensors: Tensors, _: Values, __: Tensor) -> Run:
        strides, padding, dilations, groups = geometry(desc)
        weights, bias = tensors[Arg.WEIGHTS], tensors.get(Arg.BIAS)
        # The source's channels come first, those of all groups one behind the other.
        grouped = desc.weights_desc.ndims > desc.src_desc.ndims
        transposed = weights.transpose(1, 2).flatten(0, 1) if grouped else weights.transpose(0, 1)
        own, src = transposed.contiguous(), tensors[Arg.SRC]
        call = getattr(torch.nn.functional, f"conv_transpose{space}d")
        return lambda: call(src, own, bias, strides, padding, behind, groups, dilations)

    return Program(f"conv_transpose{space}d", plain_views(desc, channels_last=True), build)


def _output_padding(desc: DeconvolutionDesc) -> list[int]:
    """What dst has beyond the size that the same padding at both ends leaves."""
    space = len(desc.strides)
    columns = zip(
        desc.src.dims[2:],
        desc.dst.dims[2:],
        desc.weights.dims[-space:],
        desc.strides,
        desc.padding_l,
        desc.dilations,
        strict=True,
    )
    behind = []
    for i, o, k, s, p, d in columns:
        behind.append(o - ((i - 1) * s + (k - 1) * (d + 1) + 1 - 2 * p))
        if not 0 <= behind[-1] < max(s, d + 1):
            raise Unimplemented("PyTorch cuts both ends alike, and adds less than a step behind")
    return behind


def _step(entry: object) -> str:
    """The name of a post-op that the operator may have in it."""
    match entry:
        case PostOpEltwise(alg=Alg.eltwise_relu, alpha=0.0):
            return "relu"
        case PostOpSum(scale=1.0, zero_point=0, data_type=None):
            return "sum"
    return "other"


class _Fused(NamedTuple):
    """What follows the convolution inside of the operator."""

    adds: bool
    relu: bool


_FUSED = {
    (): _Fused(False, False), ("relu",): _Fused(False, True),
    ("sum",): _Fused(True, False), ("sum", "relu"): _Fused(True, True),
}  # fmt: skip


class _Packed:
    """A convolution with weights in the layout that oneDNN inside PyTorch likes."""

    def __init__(self, desc: ConvolutionDesc, fused: _Fused) -> None:
        self._desc, self._fused = desc, fused

    def __call__(self, torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        desc, src = self._desc, tensors[Arg.SRC]
        strides, padding, dilations, groups = geometry(desc)
        place = (padding, strides, dilations, groups)
        weights = _weights(desc, tensors).contiguous().to_mkldnn()
        packed = torch._C._nn.mkldnn_reorder_conv2d_weight(weights, *place, list(src.shape))
        bias, operators = tensors.get(Arg.BIAS), torch.ops.mkldnn
        relu = "relu" if self._fused.relu else None
        if self._fused.adds:
            add = operators._convolution_pointwise_.binary
            return lambda: add(out, src, packed, bias, *place, "add", 1.0, relu, [], None)
        call, follows = operators._convolution_pointwise, relu or "none"
        return lambda: call(src, packed, bias, *place, follows, [], "")


def _weights(desc: ConvolutionDesc, tensors: Tensors) -> Tensor:
    """The weights with the groups as a part of the output channels."""
    weights = tensors[Arg.WEIGHTS]
    grouped = desc.weights_desc.ndims > desc.src_desc.ndims
    return weights.flatten(0, 1) if grouped else weights


def _check_padding(desc: ConvolutionDesc) -> None:
    """Raise unless the same padding at both ends gives the same sizes."""
    space = len(desc.strides)
    columns = zip(
        desc.src.dims[2:],
        desc.dst.dims[2:],
        desc.weights.dims[-space:],
        desc.strides,
        desc.padding_l,
        desc.dilations,
        strict=True,
    )
    for i, o, k, s, p, d in columns:
        if (i + 2 * p - (k - 1) * (d + 1) - 1) // s + 1 != o:
            raise Unimplemented("PyTorch pads both ends alike")


def inner_product(desc: InnerProductDesc, _: PrimitiveAttr) -> Program:
    """addmm of flattened images."""
    equal_floats(desc)
    if not desc.propagation.is_forward:
        return inner_product_gradients(desc)
    inputs = prod(desc.src_desc.dims[1:])

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        src, bias = tensors[Arg.SRC], tensors.get(Arg.BIAS)
        weights = tensors[Arg.WEIGHTS].reshape(-1, inputs).t()
        if bias is None:
            return lambda: torch.mm(src.reshape(-1, inputs), weights, out=out)
        return lambda: torch.addmm(bias, src.reshape(-1, inputs), weights, out=out)

    return Program("mm" if desc.bias_desc.is_zero else "addmm", plain_views(desc), build)


def matmul(desc: MatmulDesc, _: PrimitiveAttr) -> Program:
    """matmul, with the bias added inside where PyTorch can."""
    if desc.is_encoded:
        return _encoded(desc)
    kinds = [desc.src_desc.data_type, desc.weights_desc.data_type, desc.dst_desc.data_type]
    whole = kinds == [DataType.s8, DataType.s8, DataType.s32]
    if not whole:
        equal_floats(desc)
    elif desc.src_desc.ndims != _MATRIX or not desc.bias_desc.is_zero:
        raise Unimplemented("PyTorch multiplies integers without batch and bias only")
    rows = desc.bias_desc.dims[:-1] if desc.bias_desc.ndims == _MATRIX else (0,)
    fused = set(rows) == {1}

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        src, weights, bias = (tensors.get(a) for a in (Arg.SRC, Arg.WEIGHTS, Arg.BIAS))
        if whole:
            return lambda: torch._int_mm(src, weights, out=out)
        if bias is None:
            return lambda: torch.matmul(src, weights, out=out)
        if fused:
            return lambda: torch.addmm(bias, src, weights, out=out)
        return lambda: torch.matmul(src, weights, out=out).add_(bias)

    name = "_int_mm" if whole else "addmm" if fused else "matmul"
    return Program(name, plain_views(desc), build)


def _encoded(desc: MatmulDesc) -> Program:
    """A product with one sparse factor in the layout csr or coo, or one for each group."""
    equal_floats(desc)
    given = {Arg.SRC: desc.src_desc, Arg.WEIGHTS: desc.weights_desc}
    if any(isinstance(own.encoding, Grouped) for own in given.values()):
        return _each_group(desc)

    def build(torch: Torch, tensors: Tensors, _: Values, __: Tensor) -> Run:
        bias, factors = tensors.get(Arg.BIAS), []
        for argument, own in given.items():
            dense = tensors[argument]
            csr = isinstance(own.encoding, Csr)
            sparse = dense.to_sparse_csr if csr else dense.to_sparse_coo
            factors.append(dense if own.encoding is None else sparse())
        if bias is None:
            return lambda: factors[0] @ factors[1]
        return lambda: factors[0] @ factors[1] + bias

    return Program("sparse", plain_views(desc), build)


def _each_group(desc: MatmulDesc) -> Program:
    """A product for each group."""

    def build(torch: Torch, tensors: Tensors, values: Values, __: Tensor) -> Run:
        src, weights, bias = tensors[Arg.SRC], tensors[Arg.WEIGHTS], tensors.get(Arg.BIAS)
        ends = [0, *map(int, values[Arg.part(Arg.SRC, 1)])]
        sizes = [last - first for first, last in pairwise(ends)]
        if desc.dst_desc.ndims > _MATRIX:
            pairs = list(zip(src.split(sizes, 1), weights.split(sizes), strict=True))
            return lambda: torch.stack([a @ b for a, b in pairs])
        pairs = list(zip(src.split(sizes), weights, strict=True))
        if bias is None:
            return lambda: torch.cat([a @ b for a, b in pairs])
        rows = list(bias)
        return lambda: torch.cat(
            [torch.addmm(c, a, b) for c, (a, b) in zip(rows, pairs, strict=True)]
        )

    return Program("matmul for each group", plain_views(desc), build)
