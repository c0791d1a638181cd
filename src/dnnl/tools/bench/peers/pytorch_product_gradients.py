"""Gradients of products on PyTorch: by the operator that its autograd calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dnnl.primitives.inner_product import InnerProductDesc
from dnnl.primitives.sliding import SlidingDesc
from dnnl.tools.bench.peers.pytorch_program import Program, Tensors, Values, plain_views
from dnnl.tools.bench.peers.pytorch_tensors import Run, Tensor, Torch, View
from dnnl.types.arg import Arg
from dnnl.types.kinds import PropKind


def geometry(desc: SlidingDesc) -> tuple[list[int], list[int], list[int], int]:
    """Strides, padding, dilations and groups."""
    grouped = desc.weights.ndims > desc.src.ndims
    groups = desc.weights.dims[0] if grouped else 1
    dilations = [value + 1 for value in desc.dilations]
    return list(desc.strides), list(desc.padding_l), dilations, groups


def sliding_gradients(
    desc: SlidingDesc, views: Mapping[int, View], behind: Sequence[int] | None
) -> Program:
    """convolution_backward; ``behind`` is the output padding of a transposed one, None of
    others."""
    strides, padding, dilations, groups = geometry(desc)
    place = (strides, padding, dilations, behind is not None, behind or [0] * len(strides), groups)
    grouped = desc.weights.ndims > desc.src.ndims
    by_data = desc.propagation is PropKind.backward_data
    channels = [desc.dst.dims[1]]

    def theirs(weights: Tensor) -> Tensor:
        """Output channels first, of a transposed one input channels; groups are a part of
        these."""
        if behind is None:
            return weights.flatten(0, 1) if grouped else weights
        return weights.transpose(1, 2).flatten(0, 1) if grouped else weights.transpose(0, 1)

    def ours(weights: Tensor) -> Tensor:
        split = weights.unflatten(0, (groups, -1)) if grouped else weights
        if behind is None:
            return split
        return split.transpose(1, 2) if grouped else split.transpose(0, 1)

    def build(torch: Torch, tensors: Tensors, _: Values, __: Tensor) -> Run:
        call, diff_dst = torch.ops.aten.convolution_backward, tensors[Arg.DIFF_DST]
        src = tensors[Arg.DIFF_SRC if by_data else Arg.SRC]  # only its sizes count by data
        weights = theirs(tensors[Arg.WEIGHTS if by_data else Arg.DIFF_WEIGHTS]).contiguous()
        if by_data:
            wanted = [True, False, False]
            return lambda: call(diff_dst, src, weights, None, *place, wanted)[0]
        wanted = [False, True, Arg.DIFF_BIAS in tensors]

        def run() -> dict[int, Tensor]:
            _, own, bias = call(diff_dst, src, weights, channels, *place, wanted)
            made = {int(Arg.DIFF_WEIGHTS): ours(own), int(Arg.DIFF_BIAS): bias}
            return {argument: made[argument] for argument in made if argument in tensors}

        return run

    return Program("convolution_backward", views, build)


def inner_product_gradients(desc: InnerProductDesc) -> Program:
    """mm of flattened images, and a sum."""
    _, *inputs = desc.src.dims
    outputs = desc.weights.dims[0]
    flat = desc.weights.nelems() // max(1, outputs)

    def build(torch: Torch, tensors: Tensors, _: Values, __: Tensor) -> Run:
        diff_dst = tensors[Arg.DIFF_DST]
        if desc.propagation is PropKind.backward_data:
            weights = tensors[Arg.WEIGHTS].reshape(outputs, flat)
            return lambda: torch.mm(diff_dst, weights).reshape(-1, *inputs)
        src = tensors[Arg.SRC].reshape(-1, flat)

        def run() -> dict[int, Tensor]:
            made = {int(Arg.DIFF_WEIGHTS): torch.mm(diff_dst.t(), src).reshape(-1, *inputs)}
            if Arg.DIFF_BIAS in tensors:
                made[int(Arg.DIFF_BIAS)] = diff_dst.sum(0)
            return made

        return run

    return Program("mm", plain_views(desc), build)
