"""oneDNN as a peer: what `dnnl bench` runs beside us, one tensor at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from bench.peers.errors import PeerError
from dnnl import MemoryDesc, PrimitiveAttr, Unimplemented
from dnnl.language.errors import BadValue
from dnnl.primitives.desc import Desc
from dnnl.reference.arrays import Array, f64
from dnnl.tools.bench.peers.onednn import OneDnn as _OneDnn
from dnnl.tools.bench.peers.onednn_operation import PeerOperation


class OneDnn:
    """The library with an engine and a stream. Raises PeerError where it is not to be had."""

    def __init__(self) -> None:
        try:
            self._peer = _OneDnn()
        except BadValue as error:
            raise PeerError(str(error)) from None
        self._num_threads = 1
        self.version = self._peer.library.version

    def set_num_threads(self, num_threads: int) -> None:
        """The threads of primitives made and run from now on."""
        self._num_threads = num_threads
        self._peer.library.set_num_threads(num_threads)

    def operation(self, desc: Desc, attr: PrimitiveAttr | None = None) -> Operation:
        """The operation with memory of its own, in its layouts; PeerError where it refuses."""
        return Operation(self._made(desc, attr or PrimitiveAttr()))

    def on_buffers(
        self,
        desc: Desc,
        attr: PrimitiveAttr,
        buffers: Mapping[int, NDArray[np.uint8]],
        parameters: Mapping[int, MemoryDesc],
    ) -> PeerOperation:
        """The operation on bytes that are there; ``desc`` gives all layouts.

        ``parameters`` describes the buffers of attributes. Raises PeerError where it refuses.
        """
        made = self._made(desc, attr)
        made.use(buffers, parameters)
        return made

    def _made(self, desc: Desc, attr: PrimitiveAttr) -> PeerOperation:
        try:
            return self._peer.make(desc, attr, self._num_threads)
        except Unimplemented as error:
            raise PeerError(str(error)) from None


class Operation:
    """A primitive with memory for every tensor, to be filled, run and read."""

    def __init__(self, made: PeerOperation) -> None:
        self._made = made
        self._values: dict[int, Array] = {}
        self.impl_info = made.impl_info

    def load(self, argument: int, array: NDArray[np.float32]) -> None:
        """Give a tensor the values of a row-major array."""
        self._values[argument] = f64(array)

    def read(self, argument: int) -> NDArray[np.float32]:
        """The values of the destination, row-major."""
        return self._made.read(argument).astype(np.float32)

    def bind(self) -> Callable[[], object]:
        """One execution per call, as long as this operation lives."""
        self._made.load(self._values, {})
        return self._made.bind()
