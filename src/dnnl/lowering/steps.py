"""Primitives of steps whose sizes only a run knows.

A step is described with `dnnl.types.size.Size` in the place of such numbers. Its primitive takes
any: it is made for a pattern, with RUNTIME_DIM there. A layout that a primitive may choose is the
one that it chooses for typical sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from dnnl.primitives.desc import Desc
from dnnl.primitives.open_desc import laid_out
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.sizes import fields_of
from dnnl.runtime.engine import Engine
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import RUNTIME_DIM, FormatKind
from dnnl.types.layout import Layout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.runtime_dim import RuntimeDim
from dnnl.types.size import Size, is_known, typical

Mapped = Callable[[MemoryDesc], MemoryDesc]


def is_open(desc: MemoryDesc) -> bool:
    """Whether only a run knows some number of a descriptor."""
    return not all(map(is_known, desc.layout_numbers))


@dataclass(frozen=True)
class Described:
    """A primitive, and the layouts in which it takes tensors of given sizes."""

    pd: PrimitiveDesc

    def wanted(self, argument: int, dims: Sequence[int]) -> MemoryDesc:
        """The descriptor of an argument of these sizes."""
        desc = self.pd.arg_desc(argument)
        return laid_out(desc, dims) if desc.has_runtime_values else desc


def describe(desc: Desc, engine: Engine, attr: PrimitiveAttr) -> Described:
    """The primitive of a description, which takes any sizes where it has `Size`."""
    operands = [own for entry in attr.post_ops for _, own in entry.operands]
    tensors = [tensor.desc for tensor in desc.tensors]
    if not any(map(is_open, (*tensors, *operands))):
        return Described(PrimitiveDesc(desc, engine, attr))
    decided = desc
    if any(own.format_kind is FormatKind.any for own in tensors):
        usual = PrimitiveDesc(_mapped(desc, _typical), engine, _attr(attr, _typical)).desc
        chosen = {tensor.argument: tensor.desc for tensor in usual.tensors}
        decided = _relaid(desc, chosen)
    attr = _attr(attr, pattern)
    return Described(PrimitiveDesc(_mapped(decided, pattern), engine, attr))


def _attr(attr: PrimitiveAttr, change: Mapped) -> PrimitiveAttr:
    return attr.with_layouts(tuple(entry.mapped(change) for entry in attr.post_ops), attr.dropout)


def _mapped(desc: Desc, change: Mapped) -> Desc:
    """The description with other descriptors of all tensors, those that take no part as well."""
    fields: dict[str, Any] = {}
    for name in desc.fields():
        value = getattr(desc, name)
        if isinstance(value, MemoryDesc):
            fields[name] = change(value)
        elif isinstance(value, tuple) and any(isinstance(own, MemoryDesc) for own in value):
            fields[name] = tuple(map(change, value))
    return desc.laid_out(**fields)


def _relaid(desc: Desc, chosen: Mapping[int, MemoryDesc]) -> Desc:
    """The description with the layouts that were chosen for typical sizes where it has none."""
    given = {
        tensor.argument: _as_chosen(tensor.desc, chosen[tensor.argument])
        if tensor.desc.format_kind is FormatKind.any
        else tensor.desc
        for tensor in desc.tensors
    }
    return desc.laid_out(**fields_of(desc, given))


def _as_chosen(desc: MemoryDesc, chosen: MemoryDesc) -> MemoryDesc:
    if all(map(is_known, desc.dims)):
        return chosen
    assert chosen.tag is not None, "what a primitive chooses has a tag"
    return MemoryDesc(desc.dims, desc.data_type, chosen.tag)


def _typical(desc: MemoryDesc) -> MemoryDesc:
    """A tensor of typical sizes."""
    if not is_open(desc):
        return desc
    if desc.format_kind is FormatKind.any:
        return MemoryDesc(tuple(map(typical, desc.dims)), desc.data_type, "any")
    dims, padded, strides = (
        tuple(map(typical, numbers)) for numbers in (desc.dims, desc.padded_dims, desc.strides)
    )
    places = Layout(dims, padded, strides, desc.inner_blocks, typical(desc.offset0))
    return MemoryDesc.of_layout(desc, places)


def pattern(desc: MemoryDesc) -> MemoryDesc:
    """A tensor of any sizes where only a run knows them."""
    if not is_open(desc):
        return desc
    if desc.format_kind is FormatKind.any:  # it takes no part, or its layout were decided
        return MemoryDesc.zero()
    dims = tuple(map(_promised, desc.dims))
    if desc.tag is not None and is_known(desc.offset0):
        return MemoryDesc(dims, desc.data_type, desc.tag, offset0=desc.offset0)
    further: dict[str, Any] = {}
    if desc.inner_blocks:
        padded = (RUNTIME_DIM if not is_known(n) else n for n in desc.padded_dims)
        further = {"inner_blocks": desc.inner_blocks, "padded_dims": tuple(padded)}
    strides = [n if is_known(n) else RUNTIME_DIM for n in desc.strides]
    offset = desc.offset0 if is_known(desc.offset0) else RUNTIME_DIM
    return MemoryDesc(dims, desc.data_type, strides, offset0=offset, **further)


def _promised(size: int) -> int:
    """What a primitive may rely on."""
    if not isinstance(size, Size):
        return size
    low, high = size.bounds
    multiple = next(iter(size.terms.values())) if len(size.terms) == 1 else 1
    if low <= 2 and high == inf and multiple == 1:
        return RUNTIME_DIM
    most = None if high == inf else int(high)
    return RuntimeDim(int(max(0, low)), most, max(1, multiple))
