"""Resampling, and its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from dnnl.errors import Unimplemented
from dnnl.graph import training
from dnnl.torch.aten.writer import Translate, Value, Writer, require_floats
from dnnl.torch.resizing import INTERPOLATED, NEAREST

Method = tuple[str, bool, Sequence[float]]
"""The operator of ATen, whether corners are aligned, and a scale for each axis or none."""


def _resized(w: Writer, x: Value, size: Sequence[Any], *method: Any) -> str:
    shape = [*x.shape[:2], *size]
    return _by_rule(w, training.RESIZE, x, shape, (x.shape, shape), method)


def _gradient(w: Writer, gradient: Value, shape: Sequence[Any], *method: Any) -> str:
    ends = shape, gradient.shape
    return _by_rule(w, training.RESIZE_DATA, gradient, shape, ends, method)


def _by_rule(
    w: Writer,
    op: str,
    x: Value,
    shape: Sequence[Any],
    ends: tuple[Sequence[Any], Sequence[Any]],
    given: Method,
) -> str:
    """An operator that makes ``shape`` of ``x``, for a resampling between these ``ends``."""
    require_floats(x)
    method, align_corners, scales = given
    attrs = {"function": b"nearest", "coordinates": b"asymmetric", "rounding": b"floor_f32"}
    if method in INTERPOLATED:
        attrs = {
            "function": b"cubic" if "cubic" in method else b"linear",
            "coordinates": b"align_corners" if align_corners else b"half_pixel",
            "rounding": b"half_up",
        }
    elif "exact" in method:
        attrs["coordinates"] = b"half_pixel_for_nearest"
    own = () if align_corners else _scales(method, scales, *(sizes[2:] for sizes in ends))
    return w.add(op, x, w.sizes(shape), domain=training.DOMAIN, scales=own or None, **attrs)


def _scales(
    method: str, scales: Sequence[float], old: Sequence[Any], new: Sequence[Any]
) -> tuple[float | None, ...]:
    """The scale of each axis, None where it is that of the sizes; none if all are."""
    found: list[float | None] = []
    for scale, before, after in zip(scales, old, new, strict=bool(scales)):
        of_sizes = not scale or float(scale).is_integer()
        if not of_sizes and method in NEAREST and len(old) == 2:
            # PyTorch takes one that leaves or doubles an axis as 1 or 2.
            if isinstance(before, torch.SymInt) or isinstance(after, torch.SymInt):
                raise Unimplemented(f"the nearest elements of any sizes by {scale}")
            of_sizes = after in (before, 2 * before)
        found.append(None if of_sizes else float(scale))
    return tuple(found) if any(found) else ()


def _called(method: str, w: Writer, x: Value, size: Sequence[Any], *rest: Any) -> str:
    """As ATen has it: whether corners are aligned, and a scale for each axis or none."""
    align_corners, scales = (False, rest) if method in NEAREST else (rest[0], rest[1:])
    scales = tuple(scale or 0.0 for scale in scales)
    return _resized(w, x, size, method, align_corners, scales if any(scales) else ())


def _by_either(method: str, w: Writer, x: Value, size: Any, *rest: Any) -> str:
    """By sizes, or by factors."""
    *corners, factors = rest
    return _called(method, w, x, w.result.shape[2:], *corners, *(factors or ()))


_METHODS = (*NEAREST, *INTERPOLATED)

TABLE: Mapping[str, Translate] = {
    **{method: partial(_called, method) for method in _METHODS},
    **{f"{method}.vec": partial(_by_either, method) for method in _METHODS},
    "dnnl.resize": _resized,
    "dnnl.resize_backward": _gradient,
}
