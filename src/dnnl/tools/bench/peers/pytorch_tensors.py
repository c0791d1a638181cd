"""Tensors of PyTorch for memory descriptors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from dnnl.errors import Unimplemented
from dnnl.tools.layout_grid import GridAxis, axes_of
from dnnl.types.dtype import DataType
from dnnl.types.encoding import Grouped
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_TYPES = {
    DataType.f64: "float64", DataType.f32: "float32", DataType.f16: "float16",
    DataType.bf16: "bfloat16", DataType.s32: "int32", DataType.s8: "int8", DataType.u8: "uint8",
    DataType.f8_e5m2: "float8_e5m2", DataType.f8_e4m3: "float8_e4m3fn",
}  # fmt: skip
_IMAGE = (4, 5)

Torch: TypeAlias = ModuleType
"""The module ``torch``, or a part of it: imported when a peer is wanted."""

Tensor: TypeAlias = Any
"""A ``torch.Tensor``."""

Run: TypeAlias = Callable[[], Tensor]
"""Computes one result."""


class View(NamedTuple):
    """The sizes and strides of a tensor whose blocked dimensions are split."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def data_type(torch: Torch, kind: DataType) -> Tensor:
    """PyTorch's dtype for a type; raises Unimplemented if it has none."""
    if kind not in _TYPES:
        raise Unimplemented(f"PyTorch has no type {kind}")
    return getattr(torch, _TYPES[kind])


def plain(desc: MemoryDesc, *, channels_last: bool) -> View:
    """The view of an unblocked tensor; one left open is row-major, or has the channels last.

    One of several buffers is a dense one here. Raises Unimplemented for a blocked one.
    """
    if isinstance(desc.encoding, Grouped):
        desc = desc.buffers[0]
    elif desc.encoding is not None:
        desc = MemoryDesc(desc.dims, desc.data_type)
    if desc.format_kind is FormatKind.any:
        order = list(range(desc.ndims))
        if channels_last and desc.ndims in _IMAGE:
            order = [0, *order[2:], 1]
        desc = desc.with_tag(FormatTag.of(order)) if order else MemoryDesc((), desc.data_type)
    if desc.inner_blocks:
        raise Unimplemented(f"PyTorch has no layout {desc.tag} for this")
    return View(desc.dims, desc.strides)


def split(*descs: MemoryDesc) -> list[View]:
    """Views of tensors of the same dims in which blocks are dimensions, the same in all of them.

    Raises Unimplemented where blocks are padded or do not fit into each other.
    """
    for desc in descs:
        if desc.padded_dims != desc.dims:
            raise Unimplemented(f"PyTorch has no layout {desc.tag} with padding")
    order = FormatTag.of(range(descs[0].ndims)) if descs[0].ndims else None
    loops = [axes_of(desc, order) if order else [] for desc in descs]
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in descs]
    for dim, extent in enumerate(descs[0].dims):
        own = [[axis for axis in axes if axis.dim == dim] for axes in loops]
        weights = sorted({axis.weight for axes in own for axis in axes}, reverse=True)
        outer = extent
        for larger, weight in zip([extent, *weights], weights, strict=False):
            if larger % weight:
                raise Unimplemented("PyTorch splits no dimension into blocks that do not fit")
            outer = larger // weight
            sizes.append(outer)
            for axes, entries in zip(own, strides, strict=True):
                entries.append(_stride(axes, weight))
    return [View(tuple(sizes), tuple(entries)) for entries in strides]


def _stride(axes: Sequence[GridAxis], weight: int) -> int:
    """How far apart in memory elements are whose indices differ by ``weight``."""
    axis = max((axis for axis in axes if axis.weight <= weight), key=lambda axis: axis.weight)
    return axis.stride * (weight // axis.weight)


def empty(torch: Torch, desc: MemoryDesc, view: View) -> Tensor:
    """A tensor of that view."""
    return torch.empty_strided(view.sizes, view.strides, dtype=data_type(torch, desc.data_type))
