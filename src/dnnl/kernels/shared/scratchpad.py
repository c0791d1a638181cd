"""Dividing a kernel's scratchpad among the copies that it makes of its operands."""

from __future__ import annotations

from dataclasses import dataclass, field

from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

Argument = tuple[int, MemoryDesc]
Relayout = tuple[Argument, Argument]
"""A tensor where it lies, and where it is to lie in another layout or type."""

_LINE = 64


@dataclass
class Scratchpad:
    """Hands out parts; each begins on a cache line of its own. ``size`` is in bytes."""

    size: int = 0
    copies: list[Relayout] = field(default_factory=list)

    def take(self, desc: MemoryDesc) -> Argument:
        """The scratchpad argument with the tagged layout ``desc`` moved to a part of its own."""
        begin = 8 * self.size // desc.data_type.bits
        self.size += max(1, -(-desc.size // _LINE)) * _LINE
        tag = desc.tag
        assert tag is not None, "copies have layouts that a tag spells"
        return Arg.SCRATCHPAD, MemoryDesc(desc.dims, desc.data_type, tag, offset0=begin)

    def copy(self, source: Argument, desc: MemoryDesc) -> Argument:
        """Note that ``source`` is to be copied into a new part laid out as ``desc``."""
        part = self.take(desc)
        self.copies.append((source, part))
        return part
