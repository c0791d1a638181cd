"""oneDNN as a peer: any operation of ours on it, by the same description and attributes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.primitives.batch_normalization import BatchNormalizationDesc
from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.concat import ConcatDesc
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.desc import Desc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.primitives.inner_product import InnerProductDesc
from dnnl.primitives.matmul import MatmulDesc
from dnnl.primitives.pooling import PoolingDesc
from dnnl.primitives.reorder import ReorderDesc
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.primitives.sum import SumDesc
from dnnl.reference.arrays import Array, f64
from dnnl.reference.conversions import S32_CLAMP
from dnnl.runtime.storage import allocate
from dnnl.tools.bench.peers.base import Deviation
from dnnl.tools.bench.peers.onednn_library import (
    CPU,
    DEFAULT_STREAM,
    QUERY_EXEC_ARG_MD,
    QUERY_IMPL_INFO,
    ExecArg,
    Handle,
    Library,
    dims,
)
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FpmathMode
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpBinary, PostOpEltwise, PostOpPrelu, PostOpSum

_PATTERN = 0x3F
"""A byte that makes ordinary numbers in every type."""
_OPEN_SIZE = 2**63
"""The size of a tensor with dims or strides that only the execution knows."""


class OneDnn:
    """The library with an engine and a stream; raises BadValue where it is not to be had."""

    def __init__(self) -> None:
        self.library = Library()
        self.name = f"onednn {self.library.version}"
        none = ctypes.c_size_t(0)
        self.engine = self.library.create("engine", "engine_create", CPU, none)
        self.stream = self.library.create("stream", "stream_create", self.engine, DEFAULT_STREAM)

    def make(
        self, desc: Desc, attr: PrimitiveAttr, num_threads: int, known: Desc | None = None
    ) -> PeerOperation:
        """The operation as it was asked for; raises Unimplemented where oneDNN refuses.

        ``known`` is the same with the sizes of the execution, where these are open.
        """
        self.library.set_num_threads(num_threads)
        make = _MAKERS.get(type(desc))
        sums = any(isinstance(entry, PostOpSum) for entry in attr.post_ops)
        if make is None or (sums and not desc.operation.sums):
            what = f"{desc.kind} with the post-op sum" if sums else desc.kind
            raise Unimplemented(f"{self.name} does not document {what}")
        pd = make(self, desc, self._attr(attr))
        return PeerOperation(self, pd, desc if known is None else known)

    def create(self, function: str, *arguments: object) -> Handle:
        """A primitive descriptor of one kind of operation."""
        return self.library.create(
            "primitive_desc", f"{function}_primitive_desc_create", self.engine, *arguments
        )

    def memory_desc(self, desc: MemoryDesc) -> Handle | None:
        """oneDNN's descriptor of a tensor; None for an absent one."""
        return self.library.memory_desc(desc)

    def _attr(self, attr: PrimitiveAttr) -> Handle:
        call = self.library.call
        made = self.library.create("primitive_attr", "primitive_attr_create")
        for kind, specs in (("scales", attr.scales), ("zero_points", attr.zero_points)):
            for argument, spec in specs.items():
                call(f"primitive_attr_set_{kind}_mask", made, argument, spec.mask)
        if attr.fpmath_mode is not FpmathMode.strict:
            call("primitive_attr_set_fpmath_mode", made, attr.fpmath_mode.value)
        post_ops = self.library.create("post_ops", "post_ops_create")
        keep: list[object] = [post_ops]
        for entry in attr.post_ops:
            keep.append(self._append(post_ops, entry))
        call("primitive_attr_set_post_ops", made, post_ops)
        made.parts = tuple(keep)
        return made

    def _append(self, post_ops: Handle, entry: object) -> object:
        call = self.library.call
        match entry:
            case PostOpSum():
                kind = (entry.data_type or DataType.undef).value
                call("post_ops_append_sum", post_ops, _float(entry.scale), entry.zero_point, kind)
            case PostOpEltwise():
                numbers = _float(entry.alpha), _float(entry.beta)
                call("post_ops_append_eltwise", post_ops, entry.alg.value, *numbers)
            case PostOpBinary() if entry.src2_desc is None:
                operand = self.memory_desc(entry.src1_desc)
                call("post_ops_append_binary", post_ops, entry.alg.value, operand)
                return operand
            case PostOpPrelu():
                call("post_ops_append_prelu", post_ops, entry.mask)
            case _:
                raise Unimplemented(f"{self.name} has no post-op {entry}")
        return None


class PeerOperation:
    """A primitive of oneDNN with memories of its own, in the layouts that it chose."""

    def __init__(self, peer: OneDnn, pd: Handle, desc: Desc) -> None:
        self._peer, self._pd = peer, pd
        self._kind = desc.kind
        self._descs = {tensor.argument: tensor.desc for tensor in desc.tensors}
        self._memories: dict[int, _Memory] = {}
        self._src: Array | None = None
        self._bound: tuple[Handle, ctypes.Array[ExecArg]] | None = None
        text = ctypes.c_char_p()
        query = "primitive_desc_query"
        peer.library.call(query, pd, QUERY_IMPL_INFO, 0, ctypes.byref(text))
        self.impl_info = (text.value or b"").decode()

    def load(self, values: Mapping[int, Array], parameters: Mapping[int, MemoryDesc]) -> None:
        """Give every argument its memory; ``parameters`` describes those of the attributes."""
        known = {**self._descs, **{arg: _flat(arg, d) for arg, d in parameters.items()}}
        self._src = values.get(Arg.SRC)
        for argument, desc in known.items():
            memory = self._memories[argument] = _Memory(self._peer, self._handle(argument, desc))
            memory.data[:] = _PATTERN
            if argument in values:
                plain = _Memory(self._peer, _row_major(self._peer, desc))
                row = np.ascontiguousarray(values[argument].astype(desc.data_type.numpy))
                plain.data[:] = row.reshape(-1).view(np.uint8)
                self._reorder(plain, memory)

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
        """One execution per call, after a first one that was checked.

        What is called is the C function with all its arguments ready, which holds no references:
        it is valid as long as this operation lives.
        """
        library, stream = self._peer.library, self._peer.stream
        primitive = library.create("primitive", "primitive_create", self._pd)
        entries = [ExecArg(arg, memory.handle.value) for arg, memory in self._memories.items()]
        array = (ExecArg * len(entries))(*entries)
        arguments = (primitive.value, stream.value, ctypes.c_int(len(entries)), array)
        library.call("primitive_execute", *arguments)
        library.call("stream_wait", stream)
        self._bound = primitive, array
        return partial(library.c.dnnl_primitive_execute, *arguments)

    def read(self, argument: int) -> Array:
        """An output."""
        desc = self._descs[argument]
        plain = _Memory(self._peer, _row_major(self._peer, desc))
        self._reorder(self._elements(argument, desc), plain)
        return f64(plain.data.view(desc.data_type.numpy).reshape(desc.dims))

    def deviation(self, exact: Array) -> Deviation | None:
        """What reorders are known to do: they convert to s32 before they saturate, and add zero
        points there, so that what is beyond wraps around or becomes the least integer; and some
        transpositions forget the zero point of src."""
        if self._kind != "reorder":
            return None
        if Arg.ZERO_POINTS | Arg.SRC in self._memories and (self.read(Arg.DST) == self._src).all():
            return Deviation("it forgets the zero point of src", np.ones(exact.shape, bool))
        beyond = np.abs(exact) > S32_CLAMP
        if not self._descs[Arg.DST].data_type.is_integer or not beyond.any():
            return None
        return Deviation("it does not saturate what is beyond s32", beyond)

    def sums(self, kind: str) -> Array:
        """The compensation of one kind behind the destination, with size 1 where it is summed."""
        desc = self._descs[Arg.DST]
        assert desc.compensation is not None
        descs = {name: desc.compensation_desc(name) for name in desc.compensation.masks}
        wanted = descs[kind]
        size = self._peer.library.c.dnnl_memory_desc_get_size(self._elements(Arg.DST, desc).desc)
        first = -(-size // 4) + wanted.offset0 - min(d.offset0 for d in descs.values())
        words = self._memories[Arg.DST].data[: (first + wanted.nelems(padded=True)) * 4]
        values = words[first * 4 :].view(np.int32)
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
        handle = self._peer.memory_desc(desc.with_compensation(None))
        assert handle is not None
        return _Memory(self._peer, handle, whole.data)

    def _handle(self, argument: int, desc: MemoryDesc) -> Handle:
        """What the primitive wants for an argument; ``desc`` if it does not say."""
        library = self._peer.library
        found = library.c.dnnl_primitive_desc_query_md(self._pd, QUERY_EXEC_ARG_MD, argument)
        size = library.c.dnnl_memory_desc_get_size(ctypes.c_void_p(found)) if found else 0
        if size >= _OPEN_SIZE and argument in self._descs:
            handle = self._peer.memory_desc(desc)
            assert handle is not None
            return handle
        if 0 < size < _OPEN_SIZE:
            return library.create("memory_desc", "memory_desc_clone", ctypes.c_void_p(found))
        return _row_major(self._peer, desc)

    def _reorder(self, src: _Memory, dst: _Memory) -> None:
        library, engine = self._peer.library, self._peer.engine
        function = "reorder_primitive_desc_create"
        ends = (src.desc, engine, dst.desc, engine, None)
        pd = library.create("primitive_desc", function, *ends)
        primitive = library.create("primitive", "primitive_create", pd)
        entries = (ExecArg(Arg.FROM, src.handle.value), ExecArg(Arg.TO, dst.handle.value))
        array = (ExecArg * 2)(*entries)
        library.call("primitive_execute", primitive, self._peer.stream, 2, array)
        library.call("stream_wait", self._peer.stream)


class _Memory:
    """A tensor of the library and its bytes, new ones where none are given."""

    def __init__(self, peer: OneDnn, desc: Handle, data: NDArray[np.uint8] | None = None) -> None:
        self.desc = desc
        size = peer.library.c.dnnl_memory_desc_get_size(desc)
        if data is not None and data.size < size:
            raise InvalidArguments("data", data.size, f"holds all {size} bytes of the tensor")
        self.data = allocate(size) if data is None else data
        address = ctypes.c_void_p(self.data.ctypes.data)
        self.handle = peer.library.create("memory", "memory_create", desc, peer.engine, address)


def _flat(argument: int, desc: MemoryDesc) -> MemoryDesc:
    """Scales and zero points are vectors over there."""
    if argument & (Arg.SCALES | Arg.ZERO_POINTS):
        return MemoryDesc((desc.nelems(),), desc.data_type)
    return desc


def _row_major(peer: OneDnn, desc: MemoryDesc) -> Handle:
    handle = peer.memory_desc(MemoryDesc(desc.dims, desc.data_type))
    assert handle is not None
    return handle


def _float(value: float) -> ctypes.c_float:
    return ctypes.c_float(value)


def _reorder(peer: OneDnn, desc: ReorderDesc, attr: Handle) -> Handle:
    function, engine = "reorder_primitive_desc_create", peer.engine
    src, dst = peer.memory_desc(desc.src_desc), peer.memory_desc(desc.dst_desc)
    return peer.library.create("primitive_desc", function, src, engine, dst, engine, attr)


def _softmax(peer: OneDnn, desc: SoftmaxDesc, attr: Handle) -> Handle:
    kinds = desc.prop_kind.value, desc.alg_kind.value
    return peer.create("softmax_forward", *kinds, *_ends(peer, desc), desc.axis, attr)


def _eltwise(peer: OneDnn, desc: EltwiseDesc, attr: Handle) -> Handle:
    kinds = desc.prop_kind.value, desc.alg_kind.value
    numbers = _float(desc.alpha), _float(desc.beta)
    return peer.create("eltwise_forward", *kinds, *_ends(peer, desc), *numbers, attr)


def _binary(peer: OneDnn, desc: BinaryDesc, attr: Handle) -> Handle:
    tensors = map(peer.memory_desc, (desc.src0_desc, desc.src1_desc, desc.dst_desc))
    return peer.create("binary", desc.alg_kind.value, *tensors, attr)


def _sum(peer: OneDnn, desc: SumDesc, attr: Handle) -> Handle:
    count = len(desc.scales)
    scales = (ctypes.c_float * count)(*desc.scales)
    dst, sources = peer.memory_desc(desc.dst_desc), _sources(peer, desc.src_descs)
    return peer.create("sum", dst, count, scales, _array(sources), attr)


def _concat(peer: OneDnn, desc: ConcatDesc, attr: Handle) -> Handle:
    dst, sources = peer.memory_desc(desc.dst_desc), _sources(peer, desc.src_descs)
    return peer.create("concat", dst, len(sources), desc.axis, _array(sources), attr)


def _normalization(peer: OneDnn, desc: BatchNormalizationDesc, attr: Handle) -> Handle:
    function = "batch_normalization_forward"
    numbers = _float(desc.epsilon), desc.flags.value
    return peer.create(function, desc.prop_kind.value, *_ends(peer, desc), *numbers, attr)


def _pooling(peer: OneDnn, desc: PoolingDesc, attr: Handle) -> Handle:
    kinds = desc.prop_kind.value, desc.alg_kind.value
    window = (desc.strides, desc.kernel, desc.dilations, desc.padding_l, desc.padding_r)
    return peer.create("pooling_forward", *kinds, *_ends(peer, desc), *map(dims, window), attr)


def _convolution(peer: OneDnn, desc: ConvolutionDesc, attr: Handle) -> Handle:
    kinds = desc.prop_kind.value, desc.alg_kind.value
    window = (desc.strides, desc.dilations, desc.padding_l, desc.padding_r)
    return peer.create(
        "convolution_forward", *kinds, *_weighted(peer, desc), *map(dims, window), attr
    )


def _inner_product(peer: OneDnn, desc: InnerProductDesc, attr: Handle) -> Handle:
    kind = desc.prop_kind.value
    return peer.create("inner_product_forward", kind, *_weighted(peer, desc), attr)


def _matmul(peer: OneDnn, desc: MatmulDesc, attr: Handle) -> Handle:
    return peer.create("matmul", *_weighted(peer, desc), attr)


def _ends(peer: OneDnn, desc: Any) -> list[Handle | None]:
    """Source and destination."""
    return [peer.memory_desc(desc.src_desc), peer.memory_desc(desc.dst_desc)]


def _weighted(peer: OneDnn, desc: Any) -> list[Handle | None]:
    """Source, weights, bias and destination."""
    tensors = (desc.src_desc, desc.weights_desc, desc.bias_desc, desc.dst_desc)
    return list(map(peer.memory_desc, tensors))


def _array(handles: Sequence[Handle]) -> ctypes.Array[ctypes.c_void_p]:
    """Descriptors in a row, for the time that ``handles`` live."""
    return (ctypes.c_void_p * len(handles))(*(handle.value.value for handle in handles))


def _sources(peer: OneDnn, descs: Sequence[MemoryDesc]) -> list[Handle]:
    return [handle for handle in map(peer.memory_desc, descs) if handle is not None]


_MAKERS: dict[type[Desc], Callable[[OneDnn, Any, Handle], Handle]] = {
    ReorderDesc: _reorder,
    SoftmaxDesc: _softmax,
    EltwiseDesc: _eltwise,
    BinaryDesc: _binary,
    SumDesc: _sum,
    ConcatDesc: _concat,
    BatchNormalizationDesc: _normalization,
    PoolingDesc: _pooling,
    ConvolutionDesc: _convolution,
    InnerProductDesc: _inner_product,
    MatmulDesc: _matmul,
}
