"""Whether the work items of a kernel stay out of each other's way.

Threads do items at the same time. A byte that two of them write, be it half of it each, comes out
wrong so rarely that running on several threads does not show it. So each item is run alone here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dnnl import Arg, Memory, MemoryDesc, Primitive, Stream
from dnnl.runtime.engines.cpu_launch import LoadedProgram

_PHASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
_MANY = 64
_LINE = 64
_MOST = 2**26
"""Bytes looked at, over all items of a phase."""

Bytes: TypeAlias = NDArray[np.uint8]


def assert_apart(primitive: Primitive, args: Mapping[int, Memory]) -> None:
    """Each byte of the outputs and of the scratchpad is written by at most one item of a phase.
    Outputs end as by an execution. Left out are phases of very many items, sizes that one
    thread does, and what an encoding finds by the scratchpad. A kernel that repeats phases counts
    in the first line of its scratchpad, which stays as it is."""
    desc, engine = primitive.pd.desc, primitive.pd.engine
    slots, _, pointers = primitive._checked(Stream(engine, _MANY), args)
    executable = slots.executable
    assert isinstance(executable, LoadedProgram)
    written_to = {tensor.argument for tensor in desc.outputs}
    if not desc.is_encoded:
        written_to.add(Arg.SCRATCHPAD)
    outputs = [part.data for key in written_to & args.keys() for part in args[key].parts]
    counter = args[Arg.SCRATCHPAD].pointer if Arg.SCRATCHPAD in args else 0
    if slots.scratchpad_place is not None:
        scratchpad = Memory(MemoryDesc((slots.scratchpad_size,), "u8"), engine)
        pointers.insert(slots.scratchpad_place, scratchpad.pointer)
        if not desc.is_encoded:
            outputs.append(scratchpad.data)
            counter = scratchpad.pointer
    slots.complete(pointers)
    scratch = np.empty(executable.scratch, np.uint8)
    words = (ctypes.c_void_p * (1 + len(pointers)))(scratch.ctypes.data, *pointers)
    block = ctypes.addressof(words) + ctypes.sizeof(ctypes.c_void_p)
    turned = [np.full(data.size, 0xFF, np.uint8) for data in outputs]
    phases = _phases(executable.program)
    if any(function == 0 for function, _ in phases):
        phases = _repeated(phases)
        for data, mask in zip(outputs, turned, strict=True):
            mask[: _LINE * (data.ctypes.data == counter)] = 0
    for function, count in phases:
        run = _PHASE(function)
        before = [data.copy() for data in outputs]
        writers = np.zeros(sum(data.size for data in outputs), np.int64)
        few = count <= _MOST / (1 + writers.size)
        for item in range(count if few else 0):
            written = np.zeros(writers.size, bool)
            for flip in (0, 0xFF):  # what is written may be what was there before
                pairs = zip(before, turned, strict=True)
                given: list[Bytes] = [old ^ (mask & np.uint8(flip)) for old, mask in pairs]
                _fill(outputs, given)
                run(block, item, item + 1, 0)
                pairs = zip(outputs, given, strict=True)
                written |= np.concatenate([data != old for data, old in pairs])
            writers += written
        shared = np.flatnonzero(writers > 1)
        assert not len(shared), f"{len(shared)} bytes have several writers, first {shared[0]}"
        _fill(outputs, before)
        run(block, 0, count, 0)


def _phases(program: int) -> list[tuple[int, int]]:
    """The entries of a program: the function of a phase and its items, as cpu_launch has them."""
    count = ctypes.c_int64.from_address(program).value
    words = list((ctypes.c_int64 * (2 * count)).from_address(program + 8))
    return list(zip(words[0::2], words[1::2], strict=True))


def _repeated(entries: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The phases in the order in which they run: behind 0 and a count is how many are repeated."""
    phases, place = list[tuple[int, int]](), 0
    while place < len(entries):
        function, count = entries[place]
        if function:
            phases.append(entries[place])
            place += 1
            continue
        length, _ = entries[place + 1]
        phases += [*entries[place + 2 : place + 2 + length]] * count
        place += 2 + length
    return phases


def _fill(outputs: Sequence[Bytes], contents: Sequence[Bytes]) -> None:
    """Give each output its contents."""
    for data, old in zip(outputs, contents, strict=True):
        data[:] = old
