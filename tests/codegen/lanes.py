"""Running a function of vectors over arrays, on every instruction set that this machine has."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from dnnl import config
from dnnl.codegen import isa as rows
from dnnl.codegen.compile import jit
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Module
from dnnl.codegen.ir.kernel import Kernel, Recipe
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.runtime.engine import Engine
from tests.launch import launch

VectorFunction = Callable[..., ir.Value]
F32Array = NDArray[np.float32]

_serial = itertools.count()


@cache
def runnable_rows() -> tuple[Isa, ...]:
    """The rows of this machine that differ in how they compute f32."""
    features = Engine("cpu").features
    every = rows.available(features.arch, features.flags)
    alike = {replace(row, name="", features=(), dots=(), extra=()): row for row in reversed(every)}
    return tuple(reversed(alike.values()))


@dataclass(frozen=True)
class _Conf:
    """``count`` vectors of ``lanes`` f32 from each of ``arity`` arguments."""

    function: VectorFunction
    arity: int
    lanes: int
    count: int


def _build(conf: _Conf, isa: Isa) -> Kernel:
    symbol = f"lanes{next(_serial)}"
    module = Module(symbol, isa)
    phase = PhaseFunction(module, symbol, range(conf.arity + 1))
    e = phase.e
    *sources, dst = phase.arguments.values()
    kind = vector.vector_type(F32, conf.lanes)

    def body(index: ir.Value) -> None:
        offset = e.mul(index, conf.lanes)
        loaded = [vector.load(e, e.element(source, offset, F32), kind) for source in sources]
        vector.store(e, conf.function(e, *loaded), e.element(dst, offset, F32))

    phase.each_item(conf.count, body)
    return Kernel(module, (phase.end(conf.count),), tuple(range(conf.arity + 1)))


def prepared(
    isa: Isa, function: VectorFunction, size: int, arity: int = 1, lanes: int = 0
) -> Callable[..., F32Array]:
    """``function(e, *vectors)`` over as many arrays of ``size`` elements, ``lanes`` at a time.

    By default that is a whole register. It may be called by several threads at once.
    """
    lanes = lanes or isa.lanes
    count = -(-size // lanes)
    conf = _Conf(function, arity, lanes, count)
    # A folder of its own: a function's name says nothing about its code.
    with tempfile.TemporaryDirectory() as folder, config.override("cache_dir", folder):
        image, _ = jit.image(Recipe(conf, isa, _build))
    executable = Engine("cpu").load(image)

    def call(*sources: F32Array) -> F32Array:
        arrays = [np.ones(count * lanes, np.float32) for _ in range(arity + 1)]
        for array, source in zip(arrays, sources, strict=False):
            array[:size] = source
        launch(executable, tuple(array.ctypes.data for array in arrays))
        return arrays[-1][:size]

    return call


def apply(isa: Isa, function: VectorFunction, *sources: F32Array, lanes: int = 0) -> F32Array:
    """``function(e, *vectors)`` over arrays of one length, as `prepared` does it."""
    return prepared(isa, function, sources[0].size, len(sources), lanes)(*sources)


def assembly(isa: Isa, function: VectorFunction, arity: int = 1) -> str:
    """The machine code of a loop over ``function``."""
    return jit.assembly(_build(_Conf(function, arity, isa.lanes, 1), isa).module)


def instructions(text: str) -> list[str]:
    """The mnemonics of a listing, in order."""
    lines = [line.split() for line in text.splitlines() if line.startswith("\t")]
    return [words[0] for words in lines if words and not words[0].startswith((".", "#", "//"))]


def f32(*values: float) -> F32Array:
    """An array of these numbers."""
    return np.array(values, np.float32)


@cache
def all_magnitudes() -> F32Array:
    """Every upper half of an f32 with several lower ones: all exponents, zeros, infinities, NaN."""
    rng = np.random.default_rng(7)
    upper = np.arange(2**16, dtype=np.uint32) << 16
    lower = [np.full_like(upper, bits) for bits in (0, 1, 0x8000, 0xFFFF)]
    lower += [rng.integers(0, 2**16, upper.size, dtype=np.uint32) for _ in range(2)]
    return np.concatenate([upper | half for half in lower]).view(np.float32)
