"""Phases that run several times within one execution: order, counts, threads, files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from llvmlite import ir
from numpy.typing import NDArray

from dnnl.codegen.compile import jit
from dnnl.codegen.ir.builder import I64, Module, i64
from dnnl.codegen.ir.kernel import Kernel, Recipe
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.engine import Engine
from dnnl.runtime.image import Phase, Repeat
from dnnl.runtime.image_bytes import decoded, encoded
from dnnl.runtime.storage import address_of
from dnnl.runtime.stream import Stream

ENGINE = Engine("cpu")
ITEMS = 40


@dataclass(frozen=True)
class _Conf:
    repeats: tuple[Repeat, ...]


def _count(module: Module) -> Phase:
    """The counter grows by one."""
    phase = PhaseFunction(module, "count", (0,))

    def item(_: ir.Value) -> None:
        b, at = phase.e.b, phase.arguments[0]
        b.store(b.add(b.load(at, typ=I64), i64(1)), at)

    phase.each_item(1, item)
    return phase.end(1)


def _append(module: Module, symbol: str, digit: int) -> Phase:
    """Each number becomes itself times ten, with a digit and the counter added."""
    phase = PhaseFunction(module, symbol, (0, 1))

    def item(number: ir.Value) -> None:
        b, e = phase.e.b, phase.e
        at = e.element(phase.arguments[1], number, I64)
        value = b.mul(b.load(at, typ=I64), i64(10))
        value = b.add(value, b.load(phase.arguments[0], typ=I64))
        b.store(b.add(value, i64(digit)), at)

    phase.each_item(ITEMS, item)
    return phase.end(ITEMS)


def _build(conf: _Conf, isa: Isa) -> Kernel:
    module = Module("repeats", isa)
    phases = (_append(module, "first", 3), _count(module), _append(module, "second", 0),
              _append(module, "third", 5))  # fmt: skip
    return Kernel(module, phases, (0, 1), conf.repeats)


def _run(repeats: tuple[Repeat, ...], threads: int) -> tuple[int, NDArray[np.int64]]:
    image, _ = jit.image(Recipe(_Conf(repeats), select_isa(ENGINE), _build))
    again = decoded(encoded(image, "name"), "name")
    assert again == image
    assert image.repeats == repeats
    counter, values = np.zeros(1, np.int64), np.zeros(ITEMS, np.int64)
    queue = Stream(ENGINE, threads).queue
    places = [address_of(array.view(np.uint8)) for array in (counter, values)]
    queue.submit(ENGINE.load(image), places, threads)
    return int(counter[0]), values


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("repeats", "counted", "value"),
    [
        ((), 1, 316),
        ((Repeat(1, 3, 4),), 4, 312349),
        ((Repeat(1, 3, 1),), 1, 316),
        ((Repeat(1, 3, 0),), 0, 35),
        ((Repeat(0, 1, 2), Repeat(1, 4, 2)), 2, 331627),
        ((Repeat(0, 1, 0), Repeat(2, 4, 2)), 1, 1616),
        ((Repeat(0, 4, 2),), 2, 316427),
    ],
)
def test_phases_run_in_order_so_many_times(
    repeats: tuple[Repeat, ...], counted: int, value: int, threads: int
) -> None:
    count, values = _run(repeats, threads)
    assert count == counted
    assert set(values.tolist()) == {value}


@pytest.mark.parametrize("threads", [1, 2])
def test_an_execution_may_decide_how_many_times(threads: int) -> None:
    """The counts of repeats are behind those of phases."""
    recipe = Recipe(_Conf((Repeat(1, 3, 2),)), select_isa(ENGINE), _build)
    loaded, queue = ENGINE.load(jit.image(recipe)[0]), Stream(ENGINE, threads).queue
    for times, value in ((4, 312349), (0, 35), (1, 316), (4, 312349)):
        counter, values = np.zeros(1, np.int64), np.zeros(ITEMS, np.int64)
        places = [address_of(array.view(np.uint8)) for array in (counter, values)]
        queue.submit(ENGINE.sized(loaded, (ITEMS, 1, ITEMS, ITEMS, times)), places, threads)
        assert int(counter[0]) == times
        assert set(values.tolist()) == {value}


@pytest.mark.parametrize("threads", [1, 2])
def test_repeats_of_joined_executables(threads: int) -> None:
    """One has four iterations by its image, the other three by its execution."""
    recipe = Recipe(_Conf((Repeat(1, 3, 4),)), select_isa(ENGINE), _build)
    loaded, queue = ENGINE.load(jit.image(recipe)[0]), Stream(ENGINE, threads).queue
    sized = ENGINE.sized(loaded, (ITEMS, 1, ITEMS, ITEMS, 1))
    executable = queue.joined([loaded, sized])
    arrays = [np.zeros(size, np.int64) for size in (1, ITEMS, 1, ITEMS)]
    a, b, c, d = (address_of(array.view(np.uint8)) for array in arrays)
    queue.submit(executable, (a, b, 0, c, d), threads)
    assert [int(own[0]) for own in arrays] == [4, 312349, 1, 316]
