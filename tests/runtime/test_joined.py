"""Executables in a row as one: each finds its arguments, and phases go by order."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl.runtime.engine import Engine
from dnnl.runtime.engines.cpu_launch import LoadedProgram
from dnnl.runtime.image import Image
from tests.launch import launch
from tests.runtime import kernels

ENGINE = Engine("cpu")
QUEUE = ENGINE.make_queue(in_order=True)


def joined(*images: Image) -> LoadedProgram:
    found = QUEUE.joined([ENGINE.load(image) for image in images])
    assert isinstance(found, LoadedProgram)
    return found


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_each_has_its_arguments(threads: int) -> None:
    counts = (40, 0, 3, 70)
    executable = joined(*(kernels.image(("visit", n), ("visit", n // 2)) for n in counts))
    arrays = [np.zeros(80, np.int64) for _ in counts]
    arguments = list[int]()
    for number, own in enumerate(arrays):
        arguments += [0] * bool(number) + [own.ctypes.data, 0]
    for times in (1, 2):
        launch(executable, arguments, threads)
        for own, count in zip(arrays, counts, strict=True):
            half = [times * (1 + (n < count // 2)) for n in range(count)]
            assert own.tolist() == half + [0] * (80 - count)


@pytest.mark.parametrize("threads", [1, 3])
def test_one_ends_before_the_next(threads: int) -> None:
    executable = joined(kernels.image(("arrive", 50)), kernels.image(("observe", 20)))
    arrived, seen = np.zeros(1, np.int64), np.zeros(20, np.int64)
    a, b = arrived.ctypes.data, seen.ctypes.data
    launch(executable, (a, 0, 0, a, b), threads)
    assert seen.tolist() == [50] * 20


@pytest.mark.parametrize("place", range(3))
def test_nothing_to_do(place: int) -> None:
    """An executable without phases, which still has arguments."""
    images = [kernels.image(("visit", 5)) for _ in range(2)]
    images.insert(place, Image("cpu", b"", (), (1, 17, 20)))
    arrays = [np.zeros(5, np.int64) for _ in images]
    arguments = list[int]()
    for number, (image, own) in enumerate(zip(images, arrays, strict=True)):
        arguments += [0] * bool(number) + [own.ctypes.data] + [0] * (len(image.arguments) - 1)
    launch(joined(*images), arguments, 2)
    assert [own.tolist() for own in arrays] == [[int(n != place)] * 5 for n in range(3)]
