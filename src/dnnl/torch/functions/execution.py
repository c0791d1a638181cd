"""Primitives on the memory of tensors, by their sizes, strides, types and parameters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from dnnl.primitives.changing import Sized, primitive_for
from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.reorder import ReorderDesc
from dnnl.runtime.engine import first_cpu
from dnnl.runtime.storage import ALIGNMENT, address_of, allocate
from dnnl.runtime.stream import Stream
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
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
Describe: TypeAlias = Callable[..., Desc | tuple[Desc, PrimitiveAttr]]
"""Describes an operation, with attributes if it has any, of the descriptors of its tensors by
argument and of its parameters. A layout that it leaves ``any`` is the implementation's, and the
tensor is reordered."""
_Look: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]


class _Scratch(threading.local):
    """Memory of a thread for what is reordered: as much as its largest call has needed. New memory
    at each call would cost as much as the reorders, in page faults."""

    def __init__(self) -> None:
        self._idle: list[NDArray[np.uint8]] = []

    @contextmanager
    def lent(self, sizes: Mapping[int, int]) -> Iterator[dict[int, int]]:
        """The addresses of so many bytes for each argument, until the context ends."""
        begins, end = {}, 0
        for argument, nbytes in sizes.items():
            begins[argument] = end
            end += -(-nbytes // ALIGNMENT) * ALIGNMENT
        memory = self._idle.pop() if self._idle else None
        if memory is None or memory.nbytes < end:
            memory = allocate(end)
        first = address_of(memory)
        yield {argument: first + own for argument, own in begins.items()}
        self._idle[:] = [memory]


_scratch = _Scratch()


class _Plan:
    """A primitive, and the reorders around it."""

    def __init__(self, describe: Describe, looks: tuple[_Look, ...], params: tuple[Any, ...]):
        given = {look[0]: _desc_of(look) for look in looks}
        described = describe(given, *params)
        desc, attr = described if isinstance(described, tuple) else (described, None)
        self._primitive = primitive_for(desc, first_cpu(), attr)
        pd = self._primitive.pd
        self._order = self._primitive.arguments
        outputs = {int(own.argument) for own in pd.desc.outputs}
        own = {argument: pd.arg_desc(argument) for argument in given}
        different = [argument for argument in given if own[argument] != given[argument]]
        self._sizes = {argument: own[argument].size for argument in different}
        self._before = {
            argument: _reorder(given[argument], own[argument])
            for argument in different
            if argument not in outputs
        }
        self._after = {
            argument: _reorder(own[argument], given[argument])
            for argument in different
            if argument in outputs
        }

    def run(self, stream: Stream, operands: Mapping[int, torch.Tensor]) -> None:
        """Execute once; results are complete when this returns."""
        held = {argument: tensor.data_ptr() for argument, tensor in operands.items()}
        if not self._sizes:
            addresses = [held[argument] for argument in self._order]
            self._primitive.execute_at(stream, addresses).wait()
            return
        with _scratch.lent(self._sizes) as own:
            for argument, reorder in self._before.items():
                _execute(reorder, stream, {Arg.FROM: held[argument], Arg.TO: own[argument]})
            _execute(self._primitive, stream, held | own)
            for argument, reorder in self._after.items():
                _execute(reorder, stream, {Arg.FROM: own[argument], Arg.TO: held[argument]})


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


def _reorder(source: MemoryDesc, target: MemoryDesc) -> Primitive | Sized:
    return primitive_for(ReorderDesc(source, target), first_cpu())


def _execute(primitive: Primitive | Sized, stream: Stream, addresses: Mapping[int, int]) -> None:
    order = primitive.arguments
    primitive.execute_at(stream, [addresses[argument] for argument in order]).wait()


def undecided(desc: MemoryDesc) -> MemoryDesc:
    """The same tensor, in the layout that an implementation asks for."""
    return MemoryDesc(desc.dims, desc.data_type, "any")
