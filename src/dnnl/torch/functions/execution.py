"""Primitives on the memory of tensors: one for each set of sizes, strides, types and parameters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache, lru_cache
from typing import Any, TypeAlias

import torch

from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.reorder import ReorderDesc
from dnnl.runtime.engine import first_cpu
from dnnl.runtime.stream import Stream
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_TYPES = {
    torch.float32: DataType.f32,
    torch.float64: DataType.f64,
    torch.bfloat16: DataType.bf16,
    torch.float16: DataType.f16,
    torch.uint8: DataType.u8,
    torch.int32: DataType.s32,
}
_CAPACITY = 1024

Descs: TypeAlias = Mapping[int, MemoryDesc]
Describe: TypeAlias = Callable[..., Desc]
"""Describes an operation, of the descriptors of its tensors by argument and of its parameters. A
layout that it leaves ``any`` is the implementation's, and the tensor is reordered."""
_Look: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]


class _Plan:
    """A primitive, and the reorders around it."""

    def __init__(self, describe: Describe, looks: tuple[_Look, ...], params: tuple[Any, ...]):
        given = {look[0]: _desc_of(look) for look in looks}
        desc = describe(given, *params)
        pd = PrimitiveDesc(desc, first_cpu())
        self._primitive = Primitive(pd)
        outputs = {int(own.argument) for own in pd.desc.outputs}
        own = {argument: pd.arg_desc(argument) for argument in given}
        different = [argument for argument in given if own[argument] != given[argument]]
        self._before = {
            argument: _reorder(given[argument], own[argument], own[argument])
            for argument in different
            if argument not in outputs
        }
        self._after = {
            argument: _reorder(own[argument], given[argument], own[argument])
            for argument in different
            if argument in outputs
        }

    def run(self, stream: Stream, operands: Mapping[int, torch.Tensor]) -> None:
        """Execute once; results are complete when this returns."""
        held = {argument: tensor.data_ptr() for argument, tensor in operands.items()}
        # What is written in another layout is alive until it has been reordered.
        scratch = {
            argument: torch.empty(nbytes, dtype=torch.uint8)
            for argument, (_, nbytes) in (*self._before.items(), *self._after.items())
        }
        for argument, (reorder, _) in self._before.items():
            _execute(reorder, stream, {Arg.FROM: held[argument], Arg.TO: _at(scratch, argument)})
        _execute(
            self._primitive,
            stream,
            held | {argument: _at(scratch, argument) for argument in scratch},
        )
        for argument, (reorder, _) in self._after.items():
            _execute(reorder, stream, {Arg.FROM: _at(scratch, argument), Arg.TO: held[argument]})


def run(describe: Describe, operands: Mapping[int, torch.Tensor | None], *params: Hashable) -> None:
    """Compute an operation on tensors by argument; those that are None are absent.

    The number of threads is PyTorch's.
    """
    given = {int(argument): own for argument, own in operands.items() if own is not None}
    looks = tuple(
        (argument, tuple(own.shape), own.stride(), own.dtype) for argument, own in given.items()
    )
    _plan(describe, looks, params).run(_stream(torch.get_num_threads()), given)


@lru_cache(_CAPACITY)
def _plan(describe: Describe, looks: tuple[_Look, ...], params: tuple[Any, ...]) -> _Plan:
    return _Plan(describe, looks, params)


@cache
def _stream(num_threads: int) -> Stream:
    return Stream(first_cpu(), num_threads)


def _desc_of(look: _Look) -> MemoryDesc:
    _, shape, strides, dtype = look
    return MemoryDesc(shape, _TYPES[dtype], strides)


def _reorder(source: MemoryDesc, target: MemoryDesc, own: MemoryDesc) -> tuple[Primitive, int]:
    return Primitive(PrimitiveDesc(ReorderDesc(source, target), first_cpu())), own.size


def _at(scratch: Mapping[int, torch.Tensor], argument: int) -> int:
    return scratch[argument].data_ptr()


def _execute(primitive: Primitive, stream: Stream, addresses: Mapping[int, int]) -> None:
    order = primitive.arguments
    primitive.execute_at(stream, [addresses[argument] for argument in order]).wait()


def undecided(desc: MemoryDesc) -> MemoryDesc:
    """The same tensor, in the layout that an implementation asks for."""
    return MemoryDesc(desc.dims, desc.data_type, "any")
