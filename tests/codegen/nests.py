"""Small kernels of nests, run between pages that nobody may touch, on one thread and on two."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from dnnl import MemoryDesc, config
from dnnl.codegen import jit
from dnnl.codegen.builder import Module
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Recipe
from dnnl.runtime.engine import Engine
from dnnl.runtime.image import Phase
from dnnl.runtime.memory import Memory
from tests.check import POISON, poisoned_memory, random_memory
from tests.guard import guarded

ENGINE = Engine("cpu")
Build: TypeAlias = Callable[[Module], Sequence[Phase]]
_serial = itertools.count()


@dataclass(frozen=True)
class _Conf:
    """A function that writes phases, of ``arguments`` arguments."""

    build: Build
    arguments: int
    number: int


def _build(conf: _Conf, isa: Isa) -> Kernel:
    module = Module(f"nest{conf.number}", isa)
    return Kernel(module, tuple(conf.build(module)), tuple(range(conf.arguments)))


def launch(
    isa: Isa, build: Build, inputs: Sequence[Memory], outputs: Sequence[MemoryDesc],
    scratchpad: int = 0,
) -> list[Memory]:  # fmt: skip
    """The outputs of the phases that ``build`` writes, which start as poison.

    The inputs have the first slots, the outputs the next, and a scratchpad of so many bytes the
    last. The result on one thread and on two is the same.
    """
    conf = _Conf(build, len(inputs) + len(outputs) + 1, next(_serial))
    with tempfile.TemporaryDirectory() as folder, config.override("cache_dir", folder):
        image, _ = jit.image(Recipe(conf, isa, _build))
    executable, queue, results = ENGINE.load(image), ENGINE.make_queue(True), []
    for threads, at in ((1, "end"), (2, "start")):
        given = [_placed(memory, at) for memory in inputs]
        made = [_placed(poisoned_memory(desc, ENGINE), at) for desc in outputs]
        scratch = guarded(scratchpad, at)  # type: ignore[arg-type]
        scratch[:] = POISON
        addresses = [memory.pointer for memory in (*given, *made)]
        queue.submit(executable, (*addresses, scratch.ctypes.data), threads)
        for memory, before in zip(given, inputs, strict=True):
            assert (memory.data == before.data).all(), "an input was written"
        results.append(made)
    for one, two in zip(*results, strict=True):
        assert (one.data == two.data).all(), "1 and 2 threads differ"
    return results[0]


def _placed(memory: Memory, at: str) -> Memory:
    buffer = guarded(memory.desc.size, at)  # type: ignore[arg-type]
    buffer[:] = memory.data
    return Memory(memory.desc, ENGINE, buffer)


def described(dims: tuple[int, ...], layout: str, data_type: str = "f32") -> MemoryDesc:
    """A descriptor with a tag, or with ``gaps`` behind rows."""
    if layout == "gaps":
        strides = [prod(extent + 1 for extent in dims[dim + 1 :]) for dim in range(len(dims))]
        return MemoryDesc(dims, data_type, strides)
    return MemoryDesc(dims, data_type, layout)


def random_of(desc: MemoryDesc, seed: int = 1) -> Memory:
    """Random numbers."""
    return random_memory(desc, ENGINE, seed)
