"""Division of a kernel's scratchpad among copies of its operands and temporaries."""

from __future__ import annotations

from dataclasses import dataclass, field

from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import larger

Argument = tuple[int, MemoryDesc]
Relayout = tuple[Argument, Argument]
"""A source tensor, and its copy in another layout or type."""

_LINE = 64


@dataclass
class Scratchpad:
    """Allocates parts, each aligned to a cache line. ``size`` is in bytes."""

    size: int = 0
    copies: list[Relayout] = field(default_factory=list)

    def take(self, desc: MemoryDesc) -> Argument:
        """Allocate a part laid out as ``desc``."""
        begin = 8 * self.size // desc.data_type.bits
        self.size += larger(1, -(-desc.size // _LINE)) * _LINE
        layout = desc.strides if desc.tag is None else desc.tag
        return Arg.SCRATCHPAD, MemoryDesc(desc.dims, desc.data_type, layout, offset0=begin)

    def copy(self, source: Argument, desc: MemoryDesc) -> Argument:
        """Allocate a part laid out as ``desc``, and note that ``source`` is to be copied to it."""
        part = self.take(desc)
        self.copies.append((source, part))
        return part
