"""How memory descriptors are spelled: the tokens of verbose lines, and what builds an equal one."""

from __future__ import annotations

from math import prod

from dnnl.onednn import Property
from dnnl.types import layout as layouts
from dnnl.types.compensation import Compensation
from dnnl.types.dtype import DataType
from dnnl.types.encoding import Encoding
from dnnl.types.kinds import FormatKind, sizes_text
from dnnl.types.layout import Blocks, Layout
from dnnl.types.tag import FormatTag


class DescText(Property):
    """The texts of a `MemoryDesc`, which is the only one to derive from this."""

    __slots__ = ()

    dims: tuple[int, ...]
    data_type: DataType
    format_kind: FormatKind
    padded_dims: tuple[int, ...]
    strides: tuple[int, ...]
    inner_blocks: Blocks
    blocks: tuple[int, ...]
    offset0: int
    compensation: Compensation | None
    encoding: Encoding | None
    _layout: Layout

    @property
    def is_zero(self) -> bool:
        """Whether this is the descriptor of no tensor."""
        return self.format_kind is FormatKind.undef

    @property
    def tag(self) -> FormatTag | None:
        """The tag of the layout (``offset0`` aside), or None where no tag spells it."""
        raise NotImplementedError

    def token(self, user_any: bool = False) -> str:
        """Return the token of verbose lines, ``f32::blocked:aBcd16b::f0``.

        Fields: data type, letters, format kind, tag, strides (only where there are gaps), flags.
        The letters: a the user asked for ``any`` (``user_any``), p padded, 0 ``offset0`` is not 0.
        One with an encoding has its name and numbers in the place of tag and strides.
        """
        if self.is_zero:
            return "undef::undef:::"
        letters = "a" * user_any + "p" * (self.dims != self.padded_dims) + "0" * (self.offset0 != 0)
        head = f"{self.data_type}:{letters}:{self.format_kind}"
        sums = self.compensation.token if self.compensation else "f0"
        return f"{head}:{self.verbose_tag}:{self._numbers()}:{sums}"

    def _numbers(self) -> str:
        """The strides of a layout with gaps, the numbers of an encoding."""
        if self.encoding is not None:
            return "x".join(map(str, self.encoding.details))
        known = self.format_kind is FormatKind.blocked and not self._layout.has_runtime
        gaps = known and layouts.span(self._layout) != prod(self.padded_dims)
        return "x".join(map(str, self.strides)) if gaps else ""

    @property
    def verbose_tag(self) -> str:
        """The layout in verbose lines: order and blocks, ``any``, ``undef``, an encoding, or ``*``
        where only execution knows it."""
        if self.encoding is not None:
            return self.encoding.name
        if self.format_kind is not FormatKind.blocked:
            return str(self.format_kind)
        if self._layout.has_runtime:
            return "*"
        order = layouts.order_of(self._layout)
        return str(FormatTag.of(order, self.inner_blocks)) if self.dims else ""

    __str__ = token

    def __repr__(self) -> str:
        if self.is_zero:
            return "MemoryDesc.zero()"
        parts = [sizes_text(self.dims), repr(str(self.data_type))]
        if self.encoding is not None:
            parts += map(str, self.encoding.details)
            return f"MemoryDesc.{self.encoding.name}({', '.join(parts)})"
        tag = self.tag
        if tag is not None:
            parts.append(repr(tag.name))
        elif self.dims:
            parts.append(sizes_text(self.strides))
            if self.inner_blocks:
                parts.append(f"inner_blocks={self.inner_blocks}")
            if self.padded_dims != layouts.round_up(self.dims, self.blocks):
                parts.append(f"padded_dims={sizes_text(self.padded_dims)}")
        if self.offset0:
            parts.append(f"offset0={sizes_text((self.offset0,))[1:-2]}")
        if self.compensation is not None:
            parts.append(f"compensation={self.compensation}")
        return f"MemoryDesc({', '.join(parts)})"
