"""Tensors that are made of numbers and sizes alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dnnl.errors import Unimplemented
from dnnl.torch.aten.writer import Translate, Value, Writer


def _full(w: Writer, _: Any, number: Any, *__: Any) -> str:
    return w.expand(w.scalar(number, w.dtype), w.result.shape)


def _filled(number: int) -> Translate:
    """Zeros or ones in the shape that PyTorch says."""
    return lambda w, *_: w.expand(w.scalar(number, w.dtype), w.result.shape)


def _range(w: Writer, start: Any, end: Any, step: Any, *_: Any) -> str:
    numbers = (start, end, step)
    if not any(isinstance(own, torch.SymInt) for own in numbers):
        (count,) = w.result.shape
        return w.constant(start + step * np.arange(count), w.dtype)
    if w.dtype not in (torch.int64, torch.int32):
        raise Unimplemented(f"a range of {w.dtype} of a length that only a run knows")
    return w.add("Range", *(w.scalar(own, w.dtype) for own in numbers))


def _range_of(w: Writer, length: Any, start: Any, step: Any, *_: Any) -> str:
    return _range(w, start, start + length * step, step)


def _scalar(w: Writer, number: Any, *_: Any) -> str:
    return w.add("Identity", w.scalar(number, w.dtype))


def _like(w: Writer, x: Value, number: Any, *_: Any) -> str:
    return _full(w, x, number)


TABLE: Mapping[str, Translate] = {
    "full": _full,
    "full_like": _like,
    **{name: _filled(0) for name in ("zeros", "zeros_like")},
    **{name: _filled(1) for name in ("ones", "ones_like")},
    "arange.start_step": _range,
    "scalar_tensor": _scalar,
    "prims.iota": _range_of,
}
