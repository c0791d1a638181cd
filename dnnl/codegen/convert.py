"""Between the types in memory and the type of computation.

A row for each data type: how its elements look in IR, how a loaded vector becomes f32 and how an
f32 vector becomes what is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.builder import F32, Emitter
from dnnl.types.dtype import DataType

Conversion = Callable[[Emitter, ir.Value], ir.Value]


def _same(_: Emitter, value: ir.Value) -> ir.Value:
    return value


@dataclass(frozen=True)
class Storage:
    """How one data type is kept in memory and brought to f32 and back."""

    element: ir.Type
    to_f32: Conversion
    from_f32: Conversion


_STORAGE = {DataType.f32: Storage(F32, _same, _same)}


def supported(data_type: DataType) -> bool:
    """Whether kernels can load and store this type."""
    return data_type in _STORAGE


def storage(data_type: DataType) -> Storage:
    """The row of a supported data type."""
    return _STORAGE[data_type]
