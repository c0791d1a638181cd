"""Small kernels of nests, run between pages that nobody may touch, on one thread and on two."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from dnnl import MemoryDesc, config
from dnnl.codegen.compile import jit
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Kernel, Recipe
from dnnl.codegen.isa import Isa
from dnnl.runtime.engine import Engine
from dnnl.runtime.image import Phase
from dnnl.runtime.memory import Memory
from tests.check import poisoned_memory, random_memory
from tests.guard import guarded
from tests.launch import launch as launch_on

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
    isa: Isa,
    build: Build,
    inputs: Sequence[Memory],
    outputs: Sequence[MemoryDesc],
    scratchpad: int = 0,
) -> list[Memory]:
    """The outputs of the phases that ``build`` writes, which start as poison.

    The inputs have the first slots, the outputs the next, and a scratchpad of so many bytes the
    last. The result on one thread and on two is the same.
    """
    conf = _Conf(build, len(inputs) + len(outputs) + 1, next(_serial))
    scratch = MemoryDesc((scratchpad,), "u8")
    made = launch_kernel(isa, conf, _build, dict(enumerate((*inputs, *outputs, scratch))))
    return [made[slot] for slot in range(len(inputs), len(inputs) + len(outputs))]


def launch_kernel(
    isa: Isa,
    conf: Any,
    build: Callable[[Any, Isa], Kernel],
    arguments: Mapping[int, Memory | MemoryDesc],
) -> dict[int, Memory]:
    """What a kernel writes, by argument: those of which only a descriptor is given, which start as
    poison. The inputs stay as they are, and the result on one thread and on two is the same."""
    with tempfile.TemporaryDirectory() as folder, config.override("cache_dir", folder):
        image, _ = jit.image(Recipe(conf, isa, build))
    executable, results = ENGINE.load(image), []
    for threads, at in ((1, "end"), (2, "start")):
        placed = {
            key: _placed(poisoned_memory(m, ENGINE) if isinstance(m, MemoryDesc) else m, at)
            for key, m in arguments.items()
        }
        addresses = tuple(placed[key].pointer for key in image.arguments)
        launch_on(executable, addresses, threads)
        for key, given in arguments.items():
            if isinstance(given, Memory):
                assert (placed[key].data == given.data).all(), "an input was written"
        results.append({k: m for k, m in placed.items() if isinstance(arguments[k], MemoryDesc)})
    for key, one in results[0].items():
        assert (one.data == results[1][key].data).all(), "1 and 2 threads differ"
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
