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
_MOST = 2**26
"""Bytes looked at, over all items of a phase."""

Bytes: TypeAlias = NDArray[np.uint8]


def assert_apart(primitive: Primitive, args: Mapping[int, Memory]) -> None:
    """Each byte of the outputs and of the scratchpad is written by at most one item of a phase.
    Outputs end as by an execution. Left out are phases of very many items, sizes that one
    thread does, and what an encoding finds by the scratchpad."""
    desc, engine = primitive.pd.desc, primitive.pd.engine
    slots, _, pointers = primitive._checked(Stream(engine, _MANY), args)
    executable = slots.executable
    assert isinstance(executable, LoadedProgram)
    written_to = {tensor.argument for tensor in desc.outputs}
    if not desc.is_encoded:
        written_to.add(Arg.SCRATCHPAD)
    outputs = [part.data for key in written_to & args.keys() for part in args[key].parts]
    if slots.scratchpad_place is not None:
        scratchpad = Memory(MemoryDesc((slots.scratchpad_size,), "u8"), engine)
        pointers.insert(slots.scratchpad_place, scratchpad.pointer)
        if not desc.is_encoded:
            outputs.append(scratchpad.data)
    slots.complete(pointers)
    scratch = np.empty(executable.scratch, np.uint8)
    words = (ctypes.c_void_p * (1 + len(pointers)))(scratch.ctypes.data, *pointers)
    block = ctypes.addressof(words) + ctypes.sizeof(ctypes.c_void_p)
    program = executable.program
    phases = ctypes.c_int64.from_address(program).value
    functions = (ctypes.c_int64 * (2 * phases)).from_address(program + 8)
    for function, count in zip(functions[0::2], functions[1::2], strict=True):
        run = _PHASE(function)
        before = [data.copy() for data in outputs]
        writers = np.zeros(sum(data.size for data in outputs), np.int64)
        few = count <= _MOST / (1 + writers.size)
        for item in range(count if few else 0):
            written = np.zeros(writers.size, bool)
            for flip in (0, 0xFF):  # what is written may be what was there before
                _fill(outputs, before, flip)
                run(block, item, item + 1, 0)
                pairs = zip(outputs, before, strict=True)
                written |= np.concatenate([data != old ^ flip for data, old in pairs])
            writers += written
        shared = np.flatnonzero(writers > 1)
        assert not len(shared), f"{len(shared)} bytes have several writers, first {shared[0]}"
        _fill(outputs, before)
        run(block, 0, count, 0)


def _fill(outputs: Sequence[Bytes], contents: Sequence[Bytes], flip: int = 0) -> None:
    """Give each output its contents with the bits ``flip`` of each byte turned over."""
    for data, old in zip(outputs, contents, strict=True):
        data[:] = old ^ flip
