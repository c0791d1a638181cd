"""oneDNN's C API for the benchmarks: the library of `dnnl bench`, the constants in use here, and
failures as those of a peer."""

from __future__ import annotations

from collections.abc import Sequence

from bench.peers.errors import PeerError
from dnnl import MemoryDesc, Unimplemented
from dnnl.tools.bench.errors import BadValue
from dnnl.tools.bench.peers.onednn_library import CPU as ENGINE_CPU
from dnnl.tools.bench.peers.onednn_library import DEFAULT_STREAM as STREAM_DEFAULT
from dnnl.tools.bench.peers.onednn_library import (
    QUERY_EXEC_ARG_MD,
    QUERY_IMPL_INFO,
    ExecArg,
    Handle,
)
from dnnl.tools.bench.peers.onednn_library import Library as _Library
from dnnl.tools.bench.peers.onednn_library import dims as to_dims

__all__ = [
    "ARG_BIAS", "ARG_DST", "ARG_SRC", "ARG_WEIGHTS", "CONVOLUTION_DIRECT", "ELTWISE_RELU",
    "ENGINE_CPU", "FORWARD_INFERENCE", "QUERY_EXEC_ARG_MD", "QUERY_IMPL_INFO", "STREAM_DEFAULT",
    "ExecArg", "Handle", "Library", "to_dims",
]  # fmt: skip

# Values of the enumerations of dnnl_types.h.
FORWARD_INFERENCE = 96
CONVOLUTION_DIRECT = 1
ELTWISE_RELU = 0x20
ARG_SRC, ARG_DST, ARG_WEIGHTS, ARG_BIAS = 1, 17, 33, 41


class Library(_Library):
    """The shared library of the package ``onednn-cpu-gomp``; raises PeerError."""

    def __init__(self) -> None:
        try:
            super().__init__()
        except BadValue as error:
            raise PeerError(str(error)) from None

    def call(self, function: str, *arguments: object) -> None:
        """Call ``dnnl_<function>``; raises PeerError with the status where it fails."""
        try:
            super().call(function, *arguments)
        except Unimplemented as error:
            raise PeerError(str(error)) from None

    def layout(self, dims: Sequence[int], tag: str) -> Handle:
        """An f32 tensor in the layout ``tag``: letters (``aBcd16b``) or ``any``."""
        made = self.memory_desc(MemoryDesc(dims, "f32", tag))
        assert made is not None, "only an absent tensor has none"
        return made
