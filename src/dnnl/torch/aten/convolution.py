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
    spatial = weight.rank - 2
    if not all(isinstance(size, int) for size in weight.shape):
        raise Unimplemented("weights of sizes that only a run knows")

    def every(given: Sequence[int]) -> tuple[int, ...]:
        return tuple(given) * (spatial if len(given) == 1 else 1)

    value: Value | str = x
    unbatched = x.rank == spatial + 1
    if unbatched:
        value = w.unsqueeze(x, [0])
    attrs: dict[str, Any] = {
        "strides": every(stride),
        "pads": every(padding) * 2,
        "dilations": every(dilation),
        "group": groups,
        "kernel_shape": weight.shape[2:],
    }
    sources = [value, weight] if bias is None else [value, weight, bias]
    if transposed:
        value = w.add("ConvTranspose", *sources, **attrs, output_padding=every(output_padding))
    else:
        value = w.add("Conv", *sources, **attrs)
    return w.squeeze(value, [0]) if unbatched else value


TABLE: Mapping[str, Translate] = {"convolution": _convolution}
