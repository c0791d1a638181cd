"""Conversions between floats and integers that represent them, as torchao's PT2E programs have
them: between the conversions such a program computes in floats, like a QDQ model of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch

from dnnl.errors import Unimplemented
from dnnl.graph.graph import Array
from dnnl.torch.aten.writer import Translate, Value, Writer, require_floats

_QUANTIZED = (torch.uint8, torch.int8, torch.int16)
"""The integers that QuantizeLinear writes."""

Number: TypeAlias = Value | float
"""A scale or a zero point: a number of the program, or a tensor that it has or computes."""


def _quantize(
    w: Writer, x: Value, scale: Number, zero: Number, low: int, high: int, dtype: torch.dtype
) -> str:
    """round(x / scale) + zero between ``low`` and ``high``, with one scale."""
    return _quantized(w, x, (scale, zero), None, (low, high), dtype)


def _quantize_channels(
    w: Writer,
    x: Value,
    scales: Value,
    zeros: Value,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> str:
    """The same with a scale and a zero point for each index along an axis."""
    return _quantized(w, x, (scales, zeros), x.axis(axis), (low, high), dtype)


def _dequantize(
    w: Writer,
    x: Value,
    scale: Number,
    zero: Number,
    low: int,
    high: int,
    dtype: torch.dtype,
    out_dtype: torch.dtype | None,
) -> str:
    """(x - zero) * scale, with one scale."""
    return _dequantized(w, x, (scale, zero), None, dtype)


def _dequantize_channels(
    w: Writer,
    x: Value,
    scales: Value,
    zeros: Value | None,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    out_dtype: torch.dtype | None,
) -> str:
    """The same with a scale and a zero point for each index along an axis."""
    return _dequantized(w, x, (scales, 0 if zeros is None else zeros), x.axis(axis), dtype)


def _quantized(
    w: Writer,
    x: Value,
    parameters: tuple[Number, Number],
    axis: int | None,
    ends: tuple[int, int],
    dtype: torch.dtype,
) -> str:
    require_floats(x)
    if dtype not in _QUANTIZED:
        known = ", ".join(map(str, _QUANTIZED))
        rule = f"these are: {known}; convert_pt2e(fold_quantize=True) folds weights and biases"
        raise Unimplemented(f"floats are not quantized to {dtype}; {rule}")
    limits = torch.iinfo(dtype)
    if not limits.min <= ends[0] <= ends[1] <= limits.max:
        rule = f"{dtype} has {limits.min} to {limits.max}"
        raise Unimplemented(f"quant_min = {ends[0]}, quant_max = {ends[1]}: {rule}")
    weights = _folded(w, x, parameters, axis, ends)
    if weights is not None:
        return w.constant(weights, dtype)
    source = w.to(x, torch.float32)
    # QuantizeLinear saturates at the ends of the type, and a narrower range before it: the float
    # that an end stands for is rounded to that end.
    if ends[0] > limits.min:
        source = w.add("Max", source, _bound(w, x.rank, parameters, axis, ends[0]))
    if ends[1] < limits.max:
        source = w.add("Min", source, _bound(w, x.rank, parameters, axis, ends[1]))
    scale, zero = _scale(w, parameters[0]), _zero(w, parameters[1], dtype)
    return w.add("QuantizeLinear", source, scale, zero, axis=axis)


def _folded(
    w: Writer,
    x: Value,
    parameters: tuple[Number, Number],
    axis: int | None,
    ends: tuple[int, int],
) -> Array | None:
    """The integers of weights, multiplied by the inverse of the scale as PyTorch does: symmetric
    scales put the largest weight of a channel in the middle between two integers. None where a run
    computes one of the sources."""
    found = [_known(w, own) for own in (x, *parameters)]
    if any(own is None for own in found):
        return None
    floats, scale, zero = (np.asarray(own) for own in found)
    inverse = (1 / scale).astype(np.float32)
    if axis is not None:
        inverse, zero = (own.reshape(_along(x.rank, axis)) for own in (inverse, zero))
    whole: Array = np.rint(floats.astype(np.float32) * inverse) + zero
    return whole.clip(*ends)


def _known(w: Writer, own: Number) -> Array | float | None:
    """What the program has as a number or as contents."""
    return w.constants.get(own.name) if isinstance(own, Value) else own


def _bound(
    w: Writer, rank: int, parameters: tuple[Number, Number], axis: int | None, end: int
) -> str:
    """The floats that an integer stands for, in the shape in which they are broadcast."""
    scale, zero = parameters
    if not isinstance(scale, Value) and not isinstance(zero, Value):
        return w.scalar((end - zero) * scale, torch.float32)
    (whole,) = w.promoted(torch.float32, zero)
    distance = w.add("Sub", w.scalar(end, torch.float32), whole)
    bound = w.add("Mul", distance, w.promoted(torch.float32, scale)[0])
    return w.reshape(bound, () if axis is None else _along(rank, axis))


def _dequantized(
    w: Writer, x: Value, parameters: tuple[Number, Number], axis: int | None, dtype: torch.dtype
) -> str:
    if x.dtype != dtype:
        raise Unimplemented(f"integers of {x.dtype} that are said to be {dtype}")
    scale, zero = _scale(w, parameters[0]), parameters[1]
    if dtype in _QUANTIZED:
        value = w.add("DequantizeLinear", x, scale, _zero(w, zero, dtype), axis=axis)
    elif dtype == torch.int32:  # a bias, which no zero point of ONNX belongs to
        (whole,) = w.promoted(torch.int32, zero)
        if axis is not None:
            scale = w.reshape(scale, _along(x.rank, axis))
            whole = w.reshape(whole, _along(x.rank, axis)) if isinstance(zero, Value) else whole
        value = w.add("Mul", w.to(w.add("Sub", x, whole), torch.float32, dtype), scale)
    else:
        raise Unimplemented(f"integers of {dtype}: dequantized are int8, uint8, int16 and int32")
    return w.to(value, w.dtype, torch.float32)


def _along(rank: int, axis: int) -> Sequence[int]:
    """The shape of numbers along one axis that are broadcast to a tensor."""
    return [-1 if own == axis else 1 for own in range(rank)]


def _scale(w: Writer, scale: Number) -> str:
    return _single(w, scale, w.promoted(torch.float32, scale)[0])


def _zero(w: Writer, zero: Number, dtype: torch.dtype) -> str:
    """A zero point in the type of its integers, which has it where the program says which."""
    limits = torch.iinfo(dtype)
    known = np.asarray([] if (own := _known(w, zero)) is None else own)
    if np.any((known < limits.min) | (known > limits.max)):
        rule = f"{dtype} has {limits.min} to {limits.max}"
        raise Unimplemented(f"a zero point between {known.min()} and {known.max()}: {rule}")
    return _single(w, zero, w.promoted(dtype, zero)[0])


def _single(w: Writer, given: Number, name: str) -> str:
    """A tensor of one element without axes, whatever it is broadcast to."""
    return w.reshape(name, ()) if isinstance(given, Value) and given.shape == (1,) else name


def _choose(symmetric: bool) -> Translate:
    """The scale and the zero point of the range that a tensor has in this run, 0 within it."""

    def write(
        w: Writer, x: Value, low: int, high: int, eps: float, dtype: torch.dtype
    ) -> tuple[str, str]:
        if x.dtype != torch.float32:
            raise Unimplemented(f"the range of elements of {x.dtype}: computed of f32 alone")
        if dtype not in _QUANTIZED:
            raise Unimplemented(f"a scale for integers of {dtype}")
        if not low <= 0 <= high:
            raise Unimplemented(f"quant_min = {low}, quant_max = {high}: 0 must be between them")
        if any(isinstance(size, int) and size == 0 for size in x.shape):
            raise Unimplemented("the range of no elements")
        nothing = w.scalar(0, torch.float32)
        largest = w.add("Max", _extreme(w, "ReduceMax", x), nothing)
        least = w.add("Min", _extreme(w, "ReduceMin", x), nothing)
        if symmetric:
            extent = w.add("Max", w.add("Neg", least), largest)
            levels = (high - low) / 2
        else:
            extent = w.add("Sub", largest, least)
            levels = high - low
        quotient = w.add("Div", extent, w.scalar(levels, torch.float32))
        scale = w.add("Max", quotient, w.scalar(eps, torch.float32))
        if symmetric:
            middle = 128 if dtype == torch.uint8 else 0
            zero = w.constant([middle], dtype)
        else:
            places = w.add("Round", w.add("Div", least, scale))
            shift = w.add("Sub", w.scalar(low, torch.float32), places)
            ends = (w.scalar(end, torch.float32) for end in (low, high))
            zero = w.to(w.add("Clip", shift, *ends), dtype, torch.float32)
        return w.to(scale, torch.float64, torch.float32), w.to(zero, torch.int64, dtype)

    return write


def _extreme(w: Writer, op: str, x: Value) -> str:
    """The largest or the smallest of all elements, as one axis of one element."""
    return w.reshape(w.add(op, x, keepdims=0), [1]) if x.rank else w.reshape(x, [1])


def _convert(w: Writer, x: Value, dtype: torch.dtype) -> str:
    return w.to(x, dtype)


TABLE: Mapping[str, Translate] = {
    "quantized_decomposed.quantize_per_tensor": _quantize,
    "quantized_decomposed.quantize_per_tensor.tensor": _quantize,
    "quantized_decomposed.quantize_per_channel": _quantize_channels,
    "quantized_decomposed.dequantize_per_tensor": _dequantize,
    "quantized_decomposed.dequantize_per_tensor.tensor": _dequantize,
    "quantized_decomposed.dequantize_per_channel": _dequantize_channels,
    "quantized_decomposed.choose_qparams.tensor": _choose(symmetric=False),
    "quantized_decomposed.choose_qparams_symmetric.tensor": _choose(symmetric=True),
    "quantized_decomposed.convert_element_type.no_fuse": _convert,
}
