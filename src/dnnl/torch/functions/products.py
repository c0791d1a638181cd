"""Linear layers and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import torch

from dnnl.errors import InvalidArguments
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.inner_product import InnerProductDesc
from dnnl.torch.functions.checks import (
    Sizes,
    check_like,
    check_source,
    empty_like,
    format_of,
    packed,
    read_integer,
    read_sizes,
)
from dnnl.torch.functions.execution import Descs, run, undecided
from dnnl.torch.functions.gradients import only_once
from dnnl.torch.functions.operators import operator
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

_TRAINING, _DIRECT = "forward_training", "convolution_direct"
_Two: TypeAlias = tuple[torch.Tensor, torch.Tensor]


@operator("linear")
def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    result = x.new_empty((x.shape[0], weight.shape[0]))
    operands = {Arg.SRC: x.contiguous(), Arg.WEIGHTS: _matrix(weight), Arg.DST: result}
    run(_linear_forward, operands | {Arg.BIAS: _row_major(bias)})
    return result


@_linear.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty((x.shape[0], weight.shape[0]))


@operator("linear_backward_data")
def _linear_data(gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    result = gradient.new_empty((gradient.shape[0], weight.shape[1]))
    given = gradient.contiguous(), _matrix(weight)
    run(_linear_backward_data, dict(zip(_DATA, (*given, result), strict=True)))
    return result


@_linear_data.register_fake
def _(gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return gradient.new_empty((gradient.shape[0], weight.shape[1]))


@operator("linear_backward_weights")
def _linear_weights(
    x: torch.Tensor, gradient: torch.Tensor, bias: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    weights, biases = made = _weights_made(x, gradient, (), 1, bias)
    operands: dict[int, torch.Tensor | None] = {
        Arg.SRC: x.contiguous(),
        Arg.DIFF_DST: gradient.contiguous(),
        Arg.DIFF_WEIGHTS: weights,
        Arg.DIFF_BIAS: biases if bias else None,
    }
    run(_linear_backward_weights, operands)
    return made


@_linear_weights.register_fake
def _(x: torch.Tensor, gradient: torch.Tensor, bias: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return _weights_made(x, gradient, (), 1, bias)


@operator("convolution")
def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> torch.Tensor:
    result = empty_like(x, _spatial(x, weight, stride, padding, dilation))
    operands = {Arg.SRC: packed(x), Arg.WEIGHTS: _grouped(weight, groups), Arg.DST: result}
    run(_forward, operands | {Arg.BIAS: _row_major(bias)}, *_window(stride, padding, dilation))
    return result


@_convolution.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, _bias: Any, *window: Any) -> torch.Tensor:
    return empty_like(x, _spatial(x, weight, *window[:-1]))


@operator("convolution_backward_data")
def _convolution_data(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    x: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> torch.Tensor:
    result = empty_like(x, x.shape)
    given = _formatted(gradient, x), _grouped(weight, groups), result
    window = _window(stride, padding, dilation)
    run(_backward_data, dict(zip(_DATA, given, strict=True)), *window)
    return result


@_convolution_data.register_fake
def _(_gradient: Any, _weight: Any, x: torch.Tensor, *_params: Any) -> torch.Tensor:
    return empty_like(x, x.shape)


@operator("convolution_backward_weights")
def _convolution_weights(
    x: torch.Tensor,
    gradient: torch.Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    bias: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    weights, biases = made = _weights_made(x, gradient, kernel, groups, bias)
    operands: dict[int, torch.Tensor | None] = {
        Arg.SRC: packed(x),
        Arg.DIFF_DST: _formatted(gradient, x),
        Arg.DIFF_WEIGHTS: _grouped(weights, groups),
        Arg.DIFF_BIAS: biases if bias else None,
    }
    run(_backward_weights, operands, *_window(stride, padding, dilation))
    return made


@_convolution_weights.register_fake
def _(x: torch.Tensor, gradient: torch.Tensor, kernel: list[int], *params: Any) -> _Two:
    return _weights_made(x, gradient, kernel, *params[-2:])


def _weights_made(
    x: torch.Tensor, gradient: torch.Tensor, kernel: Sequence[int], groups: int, bias: bool
) -> _Two:
    """New tensors for the gradients of weights and biases, which are empty where there are none."""
    channels = gradient.shape[1]
    weights = x.new_empty((channels, x.shape[1] // groups, *kernel))
    return weights, x.new_empty((channels if bias else 0,))


for _operator in (_linear_data, _linear_weights):
    only_once(_operator, "linear")
for _operator in (_convolution_data, _convolution_weights):
    only_once(_operator, "convolutions")

_DATA = Arg.DIFF_DST, Arg.WEIGHTS, Arg.DIFF_SRC


def _saved(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weight, bias, *ctx.params = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, weight)


def _linear_gradient(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    data, weights, biases = None, None, None
    if ctx.needs_input_grad[0]:
        data = _linear_data(gradient, weight)
    if any(ctx.needs_input_grad[1:3]):
        weights, biases = _linear_weights(x, gradient, ctx.has_bias)
    return data, weights, biases if ctx.has_bias else None


def _convolution_gradient(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    data, weights, biases = None, None, None
    if ctx.needs_input_grad[0]:
        data = _convolution_data(gradient, weight, x, *ctx.params)
    if any(ctx.needs_input_grad[1:3]):
        kernel = weight.shape[2:]
        weights, biases = _convolution_weights(x, gradient, kernel, *ctx.params, ctx.has_bias)
    return data, weights, biases if ctx.has_bias else None, None, None, None, None


_linear.register_autograd(_linear_gradient, setup_context=_saved)
_convolution.register_autograd(_convolution_gradient, setup_context=_saved)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x weight^T + bias, as `torch.nn.functional.linear` has it.

    ``x`` is [..., inputs], ``weight`` [outputs, inputs], ``bias`` [outputs], all floats of
    one type. Raises InvalidArguments where types or sizes do not agree.
    """
    check_source("x", x)
    if check_source("weight", weight).dim() != 2:
        raise InvalidArguments("weight", tuple(weight.shape), "expected [outputs, inputs]")
    outputs, inputs = weight.shape
    if x.dim() == 0 or x.shape[-1] != inputs:
        raise InvalidArguments("x", tuple(x.shape), f"expected [..., {inputs}], as weight has")
    check_like("weight", weight, x, weight.shape)
    if bias is not None:
        check_like("bias", bias, x, (outputs,))
    rows = x.numel() // inputs if inputs else prod(x.shape[:-1])
    result: torch.Tensor = _linear(x.reshape(rows, inputs), weight, bias)
    return result.reshape(*x.shape[:-1], outputs)


def conv1d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> torch.Tensor:
    """The convolution of [N, C, W] or [C, W]; see `conv2d`."""
    return _convolved(1, x, weight, bias, stride, padding, dilation, groups)


def conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> torch.Tensor:
    """The convolution of images [N, C, H, W] or [C, H, W] as `torch.nn.functional.conv2d` has it.

    ``weight`` is [O, C / groups, KH, KW], ``bias`` [O], all floats of one type.
    ``padding`` is numbers, "valid" or "same". Images are row-major or channels-last, and the result
    is as they are. Raises InvalidArguments where types or sizes do not agree.
    """
    return _convolved(2, x, weight, bias, stride, padding, dilation, groups)


def conv3d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> torch.Tensor:
    """The convolution of [N, C, D, H, W] or [C, D, H, W]; see `conv2d`."""
    return _convolved(3, x, weight, bias, stride, padding, dilation, groups)


def _convolved(
    count: int,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
) -> torch.Tensor:
    if check_source("x", x).dim() not in (count + 1, count + 2):
        rule = f"expected {count + 2} dimensions, or {count + 1} without a batch"
        raise InvalidArguments("x", tuple(x.shape), rule)
    if check_source("weight", weight).dim() != count + 2:
        raise InvalidArguments("weight", tuple(weight.shape), f"expected {count + 2} dimensions")
    check_like("weight", weight, x, weight.shape)
    if x.dim() == count + 1:
        given = x[None], weight, bias, stride, padding, dilation, groups
        return _convolved(count, *given)[0]
    outputs, inputs, *kernel = weight.shape
    groups = read_integer("groups", groups)
    if groups < 1 or outputs % groups:
        rule = f"must be positive and divide the {outputs} channels of weight"
        raise InvalidArguments("groups", groups, rule)
    if x.shape[1] != inputs * groups:
        rule = f"expected {inputs * groups} channels, as weight and groups have"
        raise InvalidArguments("x", tuple(x.shape), rule)
    if min(x.shape[2:]) < 1:
        raise InvalidArguments("x", tuple(x.shape), "expected elements in each spatial dimension")
    if bias is not None:
        check_like("bias", bias, x, (outputs,))
    strides = read_sizes("stride", stride, count, 1)
    dilations = read_sizes("dilation", dilation, count, 1)
    if isinstance(padding, str):
        x, paddings = _padded(x, kernel, padding, strides, dilations)
    else:
        paddings = read_sizes("padding", padding, count, 0)
    if min(_spatial(x, weight, strides, paddings, dilations)[2:]) < 1:
        rule = "the dilated kernel must fit into x and its padding"
        raise InvalidArguments("weight", tuple(weight.shape), rule)
    result: torch.Tensor = _convolution(x, weight, bias, strides, paddings, dilations, groups)
    return result


def _padded(
    x: torch.Tensor, kernel: list[int], padding: str, strides: list[int], dilations: list[int]
) -> tuple[torch.Tensor, list[int]]:
    """The source and its padding on both sides; where these differ, the source has the rest."""
    if padding not in ("valid", "same"):
        raise InvalidArguments("padding", padding, 'expected numbers, "valid" or "same"')
    if padding == "valid":
        return x, [0] * len(kernel)
    if max(strides) > 1:
        raise InvalidArguments("padding", padding, "goes with a stride of 1 alone")
    total = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    if any(number % 2 for number in total):
        x = torch.nn.functional.pad(x, [n for own in reversed(total) for n in (0, own % 2)])
    return x, [number // 2 for number in total]


def _spatial(x: torch.Tensor, weight: torch.Tensor, *window: list[int]) -> list[int]:
    """The sizes of a result."""
    rows = zip(x.shape[2:], weight.shape[2:], *window, strict=True)
    sizes = [(i + 2 * p - (k - 1) * d - 1) // s + 1 for i, k, s, p, d in rows]
    return [x.shape[0], weight.shape[0], *sizes]


def _window(
    stride: list[int], padding: list[int], dilation: list[int]
) -> tuple[tuple[int, ...], ...]:
    """Strides, paddings and dilations as descriptions have them."""
    return tuple(stride), tuple(padding), tuple(own - 1 for own in dilation)


def _row_major(bias: torch.Tensor | None) -> torch.Tensor | None:
    return None if bias is None else bias.contiguous()


def _matrix(weight: torch.Tensor) -> torch.Tensor:
    """Weights whose rows or columns are contiguous."""
    return weight if weight.t().is_contiguous() else weight.contiguous()


def _grouped(weight: torch.Tensor, groups: int) -> torch.Tensor:
    weight = packed(weight)
    if groups == 1:
        return weight
    shape, strides = weight.shape, weight.stride()
    each = shape[0] // groups
    return weight.as_strided((groups, each, *shape[1:]), (each * strides[0], *strides))


def _formatted(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The gradient, laid out as the source is."""
    return gradient.contiguous(memory_format=format_of(x))


def _linear_forward(descs: Descs) -> InnerProductDesc:
    """Weights are packed as they are multiplied."""
    src, weights, dst = descs[Arg.SRC], descs[Arg.WEIGHTS], descs[Arg.DST]
    return InnerProductDesc.forward(_TRAINING, src, weights, dst, descs.get(Arg.BIAS))


def _linear_backward_data(descs: Descs) -> InnerProductDesc:
    return InnerProductDesc.backward_data(
        descs[Arg.DIFF_SRC], descs[Arg.WEIGHTS], descs[Arg.DIFF_DST]
    )


def _linear_backward_weights(descs: Descs) -> InnerProductDesc:
    biases = descs.get(Arg.DIFF_BIAS)
    return InnerProductDesc.backward_weights(
        descs[Arg.SRC], descs[Arg.DIFF_WEIGHTS], descs[Arg.DIFF_DST], biases
    )


def _images(desc: MemoryDesc) -> MemoryDesc:
    """Row-major images of many channels are brought into the layout of the implementation."""
    plain = desc.ndims < 4 or desc == MemoryDesc(desc.dims, desc.data_type)
    return undecided(desc) if plain else desc


def _forward(descs: Descs, strides: Any, paddings: Any, dilations: Any) -> ConvolutionDesc:
    return ConvolutionDesc.forward(
        _TRAINING, _DIRECT, _images(descs[Arg.SRC]), undecided(descs[Arg.WEIGHTS]),
        _images(descs[Arg.DST]), strides, paddings, paddings, dilations, descs.get(Arg.BIAS),
    )  # fmt: skip


def _backward_data(descs: Descs, strides: Any, paddings: Any, dilations: Any) -> ConvolutionDesc:
    return ConvolutionDesc.backward_data(
        _DIRECT, _images(descs[Arg.DIFF_SRC]), undecided(descs[Arg.WEIGHTS]),
        _images(descs[Arg.DIFF_DST]), strides, paddings, paddings, dilations,
    )  # fmt: skip


def _backward_weights(descs: Descs, strides: Any, paddings: Any, dilations: Any) -> ConvolutionDesc:
    """Images are read as they are: kernels copy what they multiply, block by block."""
    return ConvolutionDesc.backward_weights(
        _DIRECT, descs[Arg.SRC], undecided(descs[Arg.DIFF_WEIGHTS]), descs[Arg.DIFF_DST],
        strides, paddings, paddings, dilations, descs.get(Arg.DIFF_BIAS),
    )  # fmt: skip
