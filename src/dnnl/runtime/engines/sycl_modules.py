"""The form of a SPIR-V module: what it needs, and the kernels that it has.

Drivers end the process where a module breaks off, so that this is found out before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dnnl.errors import InvalidArguments

_MAGIC, _HEADER = 0x07230203, 5  # and the words before the first instruction
_ENTRY_POINT, _CAPABILITY = 15, 17
_NAME = 3  # the word of an entry point at which its name begins


class Module(NamedTuple):
    """The numbers of the capabilities, and the names of the entry points."""

    capabilities: tuple[int, ...]
    kernels: frozenset[str]


def read(code: bytes) -> Module:
    """The module; `InvalidArguments` where it is damaged."""
    words = np.frombuffer(code[: len(code) // 4 * 4], np.uint32).tolist()
    if len(code) % 4 or len(words) < _HEADER or words[0] != _MAGIC:
        raise _damaged(code, "it does not begin as a module does")
    capabilities, kernels, place = [], [], _HEADER
    while place < len(words):
        count, opcode = words[place] >> 16, words[place] & 0xFFFF
        if not 0 < count <= len(words) - place:
            raise _damaged(code, f"the instruction at byte {4 * place} has {count} words")
        if opcode == _CAPABILITY:
            capabilities.append(words[place + 1])
        elif opcode == _ENTRY_POINT:
            name = code[4 * (place + _NAME) : 4 * (place + count)]
            kernels.append(name.partition(b"\0")[0].decode(errors="replace"))
        place += count
    return Module(tuple(capabilities), frozenset(kernels))


def _damaged(code: bytes, what: str) -> InvalidArguments:
    return InvalidArguments("image.code", f"{len(code)} bytes", f"no SPIR-V module: {what}")
