"""An operation on oneDNN: its memories, its executions, its results."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.primitives.desc import Desc
from dnnl.reference.arrays import Array, f64
from dnnl.runtime.elements import elements_of, put_elements
from dnnl.runtime.encoded import encode
from dnnl.runtime.storage import allocate
from dnnl.tools.bench.peers.base import LARGEST_BELOW_S32, Deviation
from dnnl.tools.bench.peers.onednn_library import (
    QUERY_EXEC_ARG_MD,
    QUERY_IMPL_INFO,
    Handle,
)
from dnnl.tools.bench.peers.onednn_session import Session
from dnnl.types.arg import Arg, name_of
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Direction
from dnnl.types.memory_desc import MemoryDesc

_PATTERN = 0x3F
"""A byte that makes ordinary numbers in every type."""
_OPEN_SIZE = 2**63
"""The size of a tensor with dims or strides that only the execution knows."""

_BLOCK = 16


class OneDnnOperation:
    """A primitive of oneDNN with memories of its own, in the layouts that it chose.

    ``forward`` is the forward operation that a backward one belongs to: it fills the workspace,
    which is oneDNN's own business.
    """

    def __init__(
        self, peer: Session, pd: Handle, desc: Desc, forward: OneDnnOperation | None = None
    ) -> None:
        self._peer, self._pd, self._forward = peer, pd, forward
        self._kind = desc.kind
        self._adds_directions = getattr(desc, "direction", None) is Direction.bidirectional_sum
        self._tensors = {t.argument: t for t in desc.tensors if t.argument != Arg.WORKSPACE}
        self._descs = {argument: tensor.desc for argument, tensor in self._tensors.items()}
        if Arg.DIFF_SHIFT in self._descs and self._kind == "layer_normalization":
            # Old versions ask for the shift as well, and only here.
            self._descs[Arg.SHIFT] = self._descs[Arg.DIFF_SHIFT]
        self._memories: dict[int, _Memory] = {}
        self._src: Array | None = None
        self._bound: Handle | None = None
        text = ctypes.c_char_p()
        query = "primitive_desc_query"
        peer.library.call(query, pd, QUERY_IMPL_INFO, 0, ctypes.byref(text))
        self.impl_info = (text.value or b"").decode()

    def load(self, values: Mapping[int, Array], parameters: Mapping[int, MemoryDesc]) -> None:
        """Give every argument its memory; ``parameters`` describes those of the attributes.

        Raises Unimplemented where there is a workspace but, among other values, not what the
        forward pass reads.
        """
        known = {**self._descs, **{arg: _flat(arg, d) for arg, d in parameters.items()}}
        self._src = values.get(Arg.SRC)
        for argument, desc in known.items():
            if desc.encoding is not None:
                parts = encode(desc, values[argument].astype(desc.data_type.numpy))
                self._memories[argument] = _Parts(self._peer, desc, parts)
                continue
            memory = self._memories[argument] = _Memory(self._peer, self._handle(argument, desc))
            memory.data[:] = _PATTERN
            if argument in values:
                plain = _Memory(self._peer, _row_major(self._peer, desc))
                array = values[argument].astype(desc.data_type.numpy).reshape(desc.dims)
                put_elements(MemoryDesc(desc.dims, desc.data_type), plain.data, array)
                self._reorder(plain, memory)
        self._give_workspace(values)

    def _give_workspace(self, values: Mapping[int, Array]) -> None:
        """Make the workspace, if there is any, and have the forward pass fill that of a backward
        one."""
        desc, size = self._wanted(Arg.WORKSPACE)
        if not size:
            return
        if self._forward is None:
            self._memories[Arg.WORKSPACE] = _Memory(self._peer, self._clone(desc))
            return
        missing = self._forward.missing(values)
        if values and missing:
            names = ", ".join(map(name_of, missing))
            raise Unimplemented(f"its workspace is made by a forward pass of {names}")
        self._forward.load(values, {})
        self._forward.bind()
        self._memories[Arg.WORKSPACE] = self._forward._memories[Arg.WORKSPACE]

    def missing(self, values: Mapping[int, Array]) -> list[int]:
        """The inputs that have no contents among ``values``."""
        known = self._tensors.values()
        return [t.argument for t in known if not t.output and t.argument not in values]

    def use(
        self, buffers: Mapping[int, NDArray[np.uint8]], parameters: Mapping[int, MemoryDesc]
    ) -> None:
        """Make these bytes the memory of the arguments, where the layouts were all given.

        ``parameters`` describes those of the attributes, whose buffers are dense vectors.
        """
        known = {**self._descs, **{arg: _flat(arg, d) for arg, d in parameters.items()}}
        for argument, buffer in buffers.items():
            handle = self._handle(argument, known[argument])
            self._memories[argument] = _Memory(self._peer, handle, buffer)

    def bind(self) -> Callable[[], object]:
        """One execution per call, after a first one that was checked; as long as this lives."""
        primitive = self._peer.library.create("primitive", "primitive_create", self._pd)
        handles = {argument: memory.handle for argument, memory in self._memories.items()}
        self._bound = primitive
        return self._peer.run(primitive, handles)

    def read(self, argument: int) -> Array:
        """An output."""
        desc = self._descs[argument]
        plain = _Memory(self._peer, _row_major(self._peer, desc))
        self._reorder(self._elements(argument, desc), plain)
        return f64(elements_of(MemoryDesc(desc.dims, desc.data_type), plain.data))

    def deviation(self, exact: Array) -> Deviation | None:
        """What reorders are known to do: they convert to s32 before they saturate, and add zero
        points there, so that what is beyond wraps around or becomes the least integer; and some
        transpositions forget the zero point of src. And what gradients of LRN and recurrent
        networks are known to do."""
        if self._kind == "rnn":
            return self._recurs_wrongly(exact.shape)
        if self._kind == "lrn" and Arg.DIFF_SRC in self._descs:
            return self._steps_wrongly(exact.shape)
        if self._kind != "reorder":
            return None
        if Arg.ZERO_POINTS | Arg.SRC in self._memories and (self.read(Arg.DST) == self._src).all():
            return Deviation("it forgets the zero point of src", np.ones(exact.shape, bool))
        beyond = np.abs(exact) > LARGEST_BELOW_S32
        if not self._descs[Arg.DST].data_type.is_integer or not beyond.any():
            return None
        return Deviation("it does not saturate what is beyond s32", beyond)

    def _recurs_wrongly(self, dims: tuple[int, ...]) -> Deviation | None:
        """What it does with attention, with sums of integers, and with s8 where it has no
        instruction for that."""
        what, src, dst = "", self._descs[Arg.SRC_LAYER], self._descs[Arg.DST_LAYER]
        if Arg.DIFF_AUGRU_ATTENTION in self._descs:
            what = "its gradients with attention are not those of its forward pass"
        elif src.data_type is DataType.s8 and self.impl_info == "ref":
            what = "it saturates states of s8 at 0"
        elif self._adds_directions and dst.data_type.is_integer:
            what = "it adds the integers of both directions, and the shift twice"
        return Deviation(what, np.ones(dims, bool)) if what else None

    def _steps_wrongly(self, dims: tuple[int, ...]) -> Deviation | None:
        """Where the channels of an LRN in nhwc are no multiple of 16, it stores f32 copies of those
        behind, and of the 16 before, and steps through them by the size of the tensor's type."""
        desc, channels = self._descs[Arg.SRC], dims[1]
        generated = self.impl_info.startswith("lrn_jit:avx512") and desc.data_type.bits == 16
        if not generated or desc.strides[1] != 1 or channels < _BLOCK or channels % _BLOCK == 0:
            return None
        where = np.zeros(dims, bool)
        where[:, channels // _BLOCK * _BLOCK - _BLOCK :] = True
        return Deviation("it steps wrongly through the last channels", where)

    def sums(self, kind: str) -> Array:
        """The compensation of one kind behind the destination, with size 1 where it is summed."""
        desc = self._descs[Arg.DST]
        assert desc.compensation is not None
        descs = {name: desc.compensation_desc(name) for name in desc.compensation.masks}
        wanted = descs[kind]
        size = self._peer.library.c.dnnl_memory_desc_get_size(self._elements(Arg.DST, desc).desc)
        first = -(-size // 4) + wanted.offset0 - min(d.offset0 for d in descs.values())
        stored = self._memories[Arg.DST].data[: (first + wanted.nelems(padded=True)) * 4]
        values = stored[first * 4 :].view(np.int32)
        # They follow the order in which the weights have their dimensions.
        order = sorted(range(desc.ndims), key=lambda d: -desc.strides[d])
        shaped = values.reshape([wanted.padded_dims[d] for d in order])
        inside = tuple(slice(size) for size in wanted.dims)
        return f64(shaped.transpose(np.argsort(order))[inside])

    def _elements(self, argument: int, desc: MemoryDesc) -> _Memory:
        """An output without what is appended to it."""
        whole = self._memories[argument]
        if desc.compensation is None:
            return whole
        handle = self._peer.library.memory_desc(desc.with_compensation(None))
        assert handle is not None
        return _Memory(self._peer, handle, whole.data)

    def _handle(self, argument: int, desc: MemoryDesc) -> Handle:
        """What the primitive wants for an argument; ``desc`` if it does not say."""
        wanted, size = self._wanted(argument)
        if size >= _OPEN_SIZE and argument in self._descs:
            handle = self._peer.library.memory_desc(desc)
            assert handle is not None
            return handle
        return self._clone(wanted) if 0 < size < _OPEN_SIZE else _row_major(self._peer, desc)

    def _wanted(self, argument: int) -> tuple[ctypes.c_void_p, int]:
        """The descriptor of an argument that the primitive asks for, and its size in bytes; that is
        0 where it asks for none."""
        c = self._peer.library.c
        address = c.dnnl_primitive_desc_query_md(self._pd, QUERY_EXEC_ARG_MD, argument)
        found = ctypes.c_void_p(address)
        return found, c.dnnl_memory_desc_get_size(found) if address else 0

    def _clone(self, desc: ctypes.c_void_p) -> Handle:
        return self._peer.library.create("memory_desc", "memory_desc_clone", desc)

    def _reorder(self, src: _Memory, dst: _Memory) -> None:
        library, engine = self._peer.library, self._peer.engine
        if library.c.dnnl_memory_desc_equal(src.desc, dst.desc):
            dst.data[:] = src.data  # also of types that it does not copy
            return
        function = "reorder_primitive_desc_create"
        ends = (src.desc, engine, dst.desc, engine, None)
        pd = library.create("primitive_desc", function, *ends)
        primitive = library.create("primitive", "primitive_create", pd)
        self._peer.run(primitive, {Arg.FROM: src.handle, Arg.TO: dst.handle})


class _Memory:
    """A tensor of the library and its bytes, new ones where none are given."""

    def __init__(self, peer: Session, desc: Handle, data: NDArray[np.uint8] | None = None) -> None:
        self.desc = desc
        size = peer.library.c.dnnl_memory_desc_get_size(desc)
        if data is not None and data.size < size:
            raise InvalidArguments("data", data.size, f"holds all {size} bytes of the tensor")
        self.data = allocate(size) if data is None else data
        self.handle = peer.memory(desc, self.data.ctypes.data)


class _Parts(_Memory):
    """A tensor of several buffers."""

    def __init__(self, peer: Session, desc: MemoryDesc, parts: Sequence[np.ndarray]) -> None:
        handle = peer.library.memory_desc(desc)
        assert handle is not None
        self.desc, self._kept = handle, [np.ascontiguousarray(part) for part in parts]
        pointers = (ctypes.c_void_p * len(parts))(*(part.ctypes.data for part in self._kept))
        arguments = (handle, peer.engine, ctypes.c_int(len(parts)), pointers)
        self.handle = peer.library.create("memory", "memory_create_v2", *arguments)


def _flat(argument: int, desc: MemoryDesc) -> MemoryDesc:
    """Scales and zero points are vectors over there, unless they vary along several dimensions."""
    several = sum(size > 1 for size in desc.dims) > 1
    if argument & (Arg.SCALES | Arg.ZERO_POINTS) and not several:
        return MemoryDesc((desc.nelems(),), desc.data_type)
    return desc


def _row_major(peer: Session, desc: MemoryDesc) -> Handle:
    handle = peer.library.memory_desc(MemoryDesc(desc.dims, desc.data_type))
    assert handle is not None
    return handle
