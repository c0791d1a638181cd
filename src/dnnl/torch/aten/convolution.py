"""Convolutions, forward and transposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dnnl.errors import Unimplemented
from dnnl.torch.aten.writer import Translate, Value, Writer, require_floats


def _convolution(
    w: Writer,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> str:
    require_floats(x, weight)
    attrs, spatial = window_of(weight, stride, padding, dilation, groups), weight.rank - 2
    value: Value | str = x
    unbatched = x.rank == spatial + 1
    if unbatched:
        value = w.unsqueeze(x, [0])
    sources = [value, weight] if bias is None else [value, weight, bias]
    if transposed:
        more = _every(output_padding, spatial)
        value = w.add("ConvTranspose", *sources, **attrs, output_padding=more)
    else:
        value = w.add("Conv", *sources, **attrs)
    return w.squeeze(value, [0]) if unbatched else value


def window_of(
    weight: Value,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> dict[str, Any]:
    """The attributes of a convolution."""
    if not all(isinstance(size, int) for size in weight.shape):
        raise Unimplemented("weights of sizes that only a run knows")
    spatial = weight.rank - 2
    return {
        "strides": _every(stride, spatial),
        "pads": _every(padding, spatial) * 2,
        "dilations": _every(dilation, spatial),
        "group": groups,
        "kernel_shape": weight.shape[2:],
    }


def _every(given: Sequence[int], spatial: int) -> tuple[int, ...]:
    return tuple(given) * (spatial if len(given) == 1 else 1)


TABLE: Mapping[str, Translate] = {"convolution": _convolution}
