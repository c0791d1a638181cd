"""One of our primitives with memories of its own, so that it can be filled, run and read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import dnnl
from dnnl.primitives.desc import Desc

OURS = "dnnl"


class OurOperation:
    """``desc`` on ``engine`` with memory for every tensor, in the layouts that were decided."""

    def __init__(
        self,
        desc: Desc,
        engine: dnnl.Engine,
        num_threads: int,
        attr: dnnl.PrimitiveAttr | None = None,
    ) -> None:
        self.pd = dnnl.PrimitiveDesc(desc, engine, attr)
        self.primitive = dnnl.Primitive(self.pd)
        self.stream = dnnl.Stream(engine, num_threads)
        self.memories = {
            tensor.argument: dnnl.Memory(tensor.desc, engine) for tensor in self.pd.desc.tensors
        }

    @property
    def impl_info(self) -> str:
        """Generator and instruction set."""
        return self.pd.impl_info

    def load(self, argument: int, array: NDArray[np.float32]) -> None:
        """Give a tensor the values of a row-major array."""
        source = dnnl.Memory.from_numpy(array, engine=self.pd.engine)
        self._reorder(source, self.memories[argument])

    def read(self, argument: int) -> NDArray[np.float32]:
        """A tensor's values, row-major."""
        memory = self.memories[argument]
        plain = dnnl.Memory(dnnl.MemoryDesc(memory.desc.dims, "f32"), self.pd.engine)
        self._reorder(memory, plain)
        return plain.numpy()

    def bind(self) -> Callable[[], object]:
        """One execution per call."""
        return self.primitive.bind(self.stream, self.memories)

    def _reorder(self, src: dnnl.Memory, dst: dnnl.Memory) -> None:
        desc = dnnl.ReorderDesc(src.desc, dst.desc)
        primitive = dnnl.Primitive(dnnl.PrimitiveDesc(desc, self.pd.engine))
        primitive.execute(self.stream, {dnnl.Arg.FROM: src, dnnl.Arg.TO: dst})
