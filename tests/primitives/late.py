"""Running a primitive again on the engine ``far``, whose memory is far and whose work is late.

`harness.execute` does so in one test of eight, chosen by name, and within `everywhere` in each.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from dnnl import Memory, Primitive, PrimitiveAttr, PrimitiveDesc, Stream
from dnnl.primitives.desc import Desc
from tests.device import FAR

_ONE_OF = 8
_everywhere = [False]


def drawn() -> bool:
    """Whether the test that runs now is to run there too."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    return _everywhere[-1] or zlib.crc32(name.encode()) % _ONE_OF == 0


@contextmanager
def everywhere() -> Iterator[None]:
    """Every execution within it runs there too."""
    _everywhere.append(True)
    try:
        yield
    finally:
        _everywhere.pop()


def execute(
    desc: Desc, attr: PrimitiveAttr | None, given: Mapping[int, Memory]
) -> dict[int, Memory]:
    """What is in the memories after one execution there, as memories of the host.

    At the same time, and in any order, runs another one on zeros, which must not disturb it.
    """
    primitive = Primitive(PrimitiveDesc(desc, FAR, attr))
    stream = Stream(FAR, 2, in_order=False)
    there, other = _moved(given, zero=False), _moved(given, zero=True)
    for args in (other, there):
        primitive.execute(stream, args)
    back = {}
    for arg, memory in there.items():
        back[arg] = Memory(memory.desc, given[arg].engine)
        for own, part in zip(back[arg].parts, memory.parts, strict=True):
            own.write(part.read())
    stream.wait()
    return back


def _moved(given: Mapping[int, Memory], zero: bool) -> dict[int, Memory]:
    """Copies there, one for each memory, or as many that hold zeros."""
    copies = {}
    for memory in given.values():
        copy = copies[id(memory)] = Memory(memory.desc, FAR)
        for own, part in zip(copy.parts, memory.parts, strict=True):
            own.write(np.zeros_like(part.data) if zero else part.data)
    return {arg: copies[id(memory)] for arg, memory in given.items()}
