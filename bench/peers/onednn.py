"""oneDNN as a peer: its primitives on memories of their own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bench.descriptor import ConvolutionCase
from bench.peers import onednn_library as c
from bench.peers.onednn_library import ExecArg, Handle, Library, to_dims
from dnnl.runtime.storage import allocate


class OneDnn:
    """The library with an engine and a stream. Raises PeerError where it is not to be had."""

    def __init__(self) -> None:
        self.library = Library()
        self.version = self.library.version
        self.engine = self.library.create("engine", "engine_create", c.ENGINE_CPU, size(0))
        self.stream = self.library.create("stream", "stream_create", self.engine, c.STREAM_DEFAULT)

    def set_num_threads(self, num_threads: int) -> None:
        """The threads of primitives made and run from now on."""
        self.library.set_num_threads(num_threads)

    def convolution(self, case: ConvolutionCase) -> Operation:
        """A convolution with bias and relu, in the layouts that oneDNN wants."""
        dims = {
            c.ARG_SRC: case.src_dims,
            c.ARG_WEIGHTS: case.weights_dims,
            c.ARG_BIAS: (case.dst_channels,),
            c.ARG_DST: case.dst_dims,
        }
        tensors = [self.library.layout(d, "a" if len(d) == 1 else "any") for d in dims.values()]
        geometry = (case.strides, case.dilations, case.padding_l, case.padding_r)
        pd = self.library.create(
            "primitive_desc",
            "convolution_forward_primitive_desc_create",
            self.engine,
            c.FORWARD_INFERENCE,
            c.CONVOLUTION_DIRECT,
            *tensors,
            *(to_dims(values) for values in geometry),
            self._relu(),
        )
        return Operation(self, pd, dims)

    def matmul(self, m: int, k: int, n: int, tag: str) -> Operation:
        """A product of f32 matrices that all have the layout ``tag``, which may be ``any``."""
        dims = {c.ARG_SRC: (m, k), c.ARG_WEIGHTS: (k, n), c.ARG_DST: (m, n)}
        src, weights, dst = (self.library.layout(d, tag) for d in dims.values())
        pd = self.library.create(
            "primitive_desc",
            "matmul_primitive_desc_create",
            self.engine,
            src,
            weights,
            None,
            dst,
            None,
        )
        return Operation(self, pd, dims)

    def reorder(self, dims: Sequence[int], src_tag: str, dst_tag: str) -> Operation:
        """A change of layout."""
        src, dst = self.library.layout(dims, src_tag), self.library.layout(dims, dst_tag)
        return Operation(
            self, self.reorder_desc(src, dst), {c.ARG_SRC: tuple(dims), c.ARG_DST: tuple(dims)}
        )

    def reorder_desc(self, src: Handle, dst: Handle) -> Handle:
        """The primitive descriptor of a reorder between two memory descriptors."""
        function = "reorder_primitive_desc_create"
        engine = self.engine
        return self.library.create("primitive_desc", function, src, engine, dst, engine, None)

    def _relu(self) -> Handle:
        """Attributes with relu as the only post-op."""
        post_ops = self.library.create("post_ops", "post_ops_create")
        zero = ctypes.c_float(0.0)
        self.library.call("post_ops_append_eltwise", post_ops, c.ELTWISE_RELU, zero, zero)
        attr = self.library.create("primitive_attr", "primitive_attr_create")
        self.library.call("primitive_attr_set_post_ops", attr, post_ops)
        return attr


class Operation:
    """A primitive with memory for every tensor; ``dims`` maps arguments to logical sizes."""

    def __init__(self, peer: OneDnn, pd: Handle, dims: Mapping[int, Sequence[int]]) -> None:
        self._peer = peer
        self._dims = dims
        self._descs = {argument: self._desc(pd, argument) for argument in dims}
        self._memories = {arg: _Memory(peer, desc) for arg, desc in self._descs.items()}
        self._run = _bind(peer, pd, {arg: m.handle for arg, m in self._memories.items()})
        text = ctypes.c_char_p()
        query = "primitive_desc_query"
        peer.library.call(query, pd, c.QUERY_IMPL_INFO, 0, ctypes.byref(text))
        self.impl_info = (text.value or b"").decode()

    def bind(self) -> Callable[[], object]:
        """One execution per call."""
        return self._run

    def load(self, argument: int, array: NDArray[np.float32]) -> None:
        """Give a tensor the values of a row-major array."""
        plain = self._plain(argument)
        plain.data[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._reorder(plain, self._memories[argument])

    def read(self, argument: int) -> NDArray[np.float32]:
        """A tensor's values, row-major."""
        plain = self._plain(argument)
        self._reorder(self._memories[argument], plain)
        return plain.data.view(np.float32).reshape(self._dims[argument])

    def _desc(self, pd: Handle, argument: int) -> Handle:
        library = self._peer.library
        found = ctypes.c_void_p(
            library.c.dnnl_primitive_desc_query_md(pd, c.QUERY_EXEC_ARG_MD, argument)
        )
        return library.create("memory_desc", "memory_desc_clone", found)

    def _plain(self, argument: int) -> _Memory:
        dims = self._dims[argument]
        return _Memory(self._peer, self._peer.library.layout(dims, "abcdefghijkl"[: len(dims)]))

    def _reorder(self, src: _Memory, dst: _Memory) -> None:
        pd = self._peer.reorder_desc(src.desc, dst.desc)
        _bind(self._peer, pd, {c.ARG_SRC: src.handle, c.ARG_DST: dst.handle})()


class _Memory:
    """A tensor and its bytes."""

    def __init__(self, peer: OneDnn, desc: Handle) -> None:
        self.desc = desc
        self.data = allocate(peer.library.c.dnnl_memory_desc_get_size(desc))
        address = ctypes.c_void_p(self.data.ctypes.data)
        create = peer.library.create
        self.handle = create("memory", "memory_create", desc, peer.engine, address)
        self.handle.parts = (*self.handle.parts, self.data)


def _bind(peer: OneDnn, pd: Handle, memories: Mapping[int, Handle]) -> Callable[[], object]:
    """A call that executes once, after a first execution that was checked."""
    library = peer.library
    primitive = library.create("primitive", "primitive_create", pd)
    array = (ExecArg * len(memories))(*(ExecArg(a, m.value) for a, m in memories.items()))
    arguments = (primitive, peer.stream, len(memories), array)
    library.call("primitive_execute", *arguments)
    library.call("stream_wait", peer.stream)
    # The primitive holds no reference to the memories, so the callable has to.
    return partial(_execute, library.c.dnnl_primitive_execute, arguments, tuple(memories.values()))


def _execute(
    function: Callable[..., int], arguments: tuple[object, ...], keep: tuple[Handle, ...]
) -> None:
    function(*arguments)


def size(value: int) -> ctypes.c_size_t:
    """A size_t argument."""
    return ctypes.c_size_t(value)
