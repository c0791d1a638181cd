"""Unfolding: a copy of src in which all pixels of dst are one line, over the ends of its rows.

A *plane* has the pixels that one tap meets, zero where these are outside of the image. Tiles then
go along a line of any length, whatever the rows are. For 3 taps along rows of 4 pixels::

    src        a b c d       planes   0 a b c  0 e f g  ...
               e f g h                a b c d  e f g h  ...
               ...                    b c d 0  f g h 0  ...

Taps below each other read the same plane, rows further on, unless strides or a depth forbid it:
each tap then has a plane of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dnnl.codegen.conversion.convert import bare_core
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.product.base.pixel_tiles import Space, Spatial
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.layout import Layout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known


@dataclass(frozen=True)
class Unfolded:
    """The ``copy`` of ``src`` for the windows of ``space``: a dimension for the taps that have
    planes in depth, height and width each, then one for the rows of dst in each."""

    src: Argument
    copy: Argument
    space: Space

    @staticmethod
    def take(
        scratchpad: Scratchpad,
        src: Argument,
        space: Space,
        layout: Callable[[tuple[int, ...]], MemoryDesc],
    ) -> Unfolded:
        """A copy in the scratchpad; ``layout`` gives an activation of these dims the layout of the
        copy."""
        d, h, w = space
        taps, rows = (d.kernel, h.kernel, w.kernel), (d.dst, h.dst, w.dst)
        if _shares_rows(space):
            taps, rows = (1, 1, w.kernel), (1, (h.kernel - 1) * h.dilation + h.dst, w.dst)
        desc = layout((*src[1].dims[:2], *taps, *rows))
        return Unfolded(src, scratchpad.take(desc), space)

    @property
    def lines(self) -> MemoryDesc:
        """The copy as it is read: (N, [G,] C, taps in depth and height, taps in width, pixels)."""
        d, h, w = self.space
        desc = self.copy[1]
        head = desc.ndims - 6
        pixel = desc.strides[-1]
        down = h.dilation * w.dst * pixel if _shares_rows(self.space) else desc.strides[head + 1]
        sizes = d.kernel * h.kernel, w.kernel, d.dst * h.dst * w.dst
        layout = Layout(
            (*desc.dims[:head], *sizes),
            (*desc.padded_dims[:head], *sizes),
            (*desc.strides[:head], down, desc.strides[head + 2], pixel),
            desc.inner_blocks,
            desc.offset0,
        )
        return MemoryDesc.of_layout(desc, layout)

    def emit(self, module: Module, name: str, arguments: Arguments) -> Phase:
        """Write the phase that makes the copy, of a kernel of this name."""
        isa, (slot, desc), given = module.isa, self.copy, self.src[1]
        symbol = f"{name}_unfolded__{desc.data_type}__{isa.lanes}x1__{isa.name}"
        axes = letters(desc.dims)
        index = tuple(Affine.of(axis) for axis in axes)
        head = desc.ndims - 6
        taps, rows = index[head : head + 3], index[head + 3 :]
        pixels = tuple(
            row * own.stride + tap * own.dilation + -own.padding
            for own, tap, row in zip(self.space, taps, rows, strict=True)
        )
        channel = index[1]
        if head == 3:
            channel = index[1] * desc.dims[2] + index[2]
        source = Operand(
            arguments.slot(self.src[0]), given, (index[0], channel, *pixels[5 - given.ndims :])
        )
        copy = Operand(arguments.slot(slot), desc, index)

        def body(point: Point) -> None:
            point.store(copy, point.load_or_zero(source))

        core = bare_core(given.data_type, desc.data_type)
        # Products read the copy at once, so it should stay in the cache.
        nest = Nest(axes, (), (source,), (copy,), body, core=core, reads_dst=True, any_length=True)
        return emit_nest(module, symbol, nest)


def _shares_rows(space: Space) -> bool:
    """Whether taps below each other read rows of one plane."""
    d, h, _ = space
    flat = is_known(d.src) and d == Spatial(1, 1, 1, 1, 0, 1)
    return flat and h.stride == 1
