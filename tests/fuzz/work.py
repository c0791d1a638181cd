"""A few executions with known results, for the kinds that make trouble around them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dnnl
from dnnl.primitives import primitive
from dnnl.primitives.desc import Desc
from tests.check import poisoned_memory, random_memory

ENGINE = dnnl.Engine("cpu")
_sizes = count(1000)


def descriptions(size: int) -> list[Desc]:
    """Operations of all generators, which several threads share from a size of 1000 or so."""
    rows = dnnl.MemoryDesc((64, size), "f32", "ab")
    columns = dnnl.MemoryDesc((64, size), "f32", "ba")
    square = dnnl.MemoryDesc((size, 64), "f32", "ab")
    small = dnnl.MemoryDesc((64, 64), "f32", "ab")
    image = dnnl.MemoryDesc((1, 16, size // 16, 16), "f32", "nChw16c")
    weights = dnnl.MemoryDesc((16, 16, 3, 3), "f32", "any")
    inference = "forward_inference"
    return [
        dnnl.ReorderDesc(rows, columns),
        dnnl.SoftmaxDesc.forward(inference, "softmax_accurate", rows, rows, 1),
        dnnl.MatmulDesc(rows, square, small),
        dnnl.ConvolutionDesc.forward(
            inference, "convolution_direct", image, weights, image, (1, 1), (1, 1)
        ),
    ]


def fresh_size() -> int:
    """A size that no description of this process had before."""
    return next(_sizes)


@dataclass
class Work:
    """One primitive with its sources, and what it computed at first, on one thread."""

    desc: Desc
    primitive: dnnl.Primitive
    sources: dict[int, dnnl.Memory]
    expected: NDArray[np.uint8]

    @staticmethod
    def of(desc: Desc) -> Work:
        """Compile, and execute for the first time."""
        made = dnnl.Primitive(dnnl.PrimitiveDesc(desc, ENGINE))
        sources = {
            tensor.argument: random_memory(tensor.desc, ENGINE, seed)
            for seed, tensor in enumerate(made.pd.desc.tensors)
            if not tensor.output
        }
        work = Work(desc, made, sources, np.zeros(0, np.uint8))
        work.expected = work.result(1)
        return work

    def again(self) -> Work:
        """The same with a primitive that is compiled anew, or comes from the disk."""
        primitive._cache.clear()
        made = dnnl.Primitive(dnnl.PrimitiveDesc(self.desc, ENGINE))
        return Work(self.desc, made, self.sources, self.expected)

    def result(self, threads: int | None = None) -> NDArray[np.uint8]:
        """The bytes of the destination after an execution."""
        (output,) = self.primitive.pd.desc.outputs
        dst = poisoned_memory(output.desc, ENGINE)
        args: dict[Any, dnnl.Memory] = {**self.sources, output.argument: dst}
        self.primitive.execute(dnnl.Stream(ENGINE, threads), args)
        return dst.data

    def right(self, threads: int | None = None) -> bool:
        """Whether an execution gives the same bits as the first one."""
        return np.array_equal(self.result(threads), self.expected)
