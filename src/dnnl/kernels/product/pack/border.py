"""Zero padding by a copy of src, so that every tap of a convolution reads an element.

A matrix unit multiplies all rows of a tile at each step: it cannot skip pixels whose taps are
outside of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dnnl.codegen.conversion.convert import bare_core
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.product.base.border_rows import Rows
from dnnl.kernels.product.base.pixel_tiles import Space
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc

NOWHERE = -1
"""The argument id of what is no argument."""


@dataclass(frozen=True)
class Border:
    """The padded ``copy`` of ``src``, which has ``before`` zeros in depth, height and width in
    front of its first pixel, and ``sizes`` in total. Both have ``pixels`` spatial dimensions.
    ``rows`` is the copy row by row, if it can be done so. With ``in_bands`` the copy is of a single
    image, and threads write the rows that they need."""

    src: Argument
    copy: Argument
    before: tuple[int, ...]
    sizes: tuple[int, ...]
    pixels: int
    rows: Rows | None
    in_bands: bool

    def space(self, original: Space) -> Space:
        """The spatial dimensions of a convolution of src as those of one of the copy."""
        d, h, w = (
            replace(own, src=size, padding=own.padding - before)
            for own, size, before in zip(original, self.sizes, self.before, strict=True)
        )
        return d, h, w

    def emit(self, module: Module, arguments: Arguments) -> Phase:
        """Write the phase that makes the padded copy."""
        isa, (slot, desc) = module.isa, self.copy
        symbol = f"{module.ir.name}_border__{desc.data_type}__{isa.lanes}x1__{isa.name}"
        if self.rows is not None:
            src, copy = arguments.slot(self.src[0]), arguments.slot(slot)
            return self.rows.emit(module, symbol, src, copy, desc.offset0 * desc.data_type.size)
        axes = letters(desc.dims)
        index = [Affine.of(axis) for axis in axes]
        pixels = self.pixels
        shifts = (*[0] * (desc.ndims - pixels), *self.before[3 - pixels :])
        shifted = tuple(form + -shift for form, shift in zip(index, shifts, strict=True))
        source = Operand(arguments.slot(self.src[0]), self.src[1], shifted)
        padded = Operand(arguments.slot(slot), desc, tuple(index))

        def body(point: Point) -> None:
            point.store(padded, point.load_or_zero(source))

        core = bare_core(self.src[1].data_type, desc.data_type)
        return emit_nest(module, symbol, Nest(axes, (), (source,), (padded,), body, core=core))


def take_border(
    scratchpad: Scratchpad,
    src: Argument,
    layout: MemoryDesc,
    pixels: int,
    spaces: Sequence[Space],
    isa: Isa,
    *,
    in_bands: bool,
) -> Border | None:
    """A padded copy in which all taps of these convolutions are inside, with the tag of ``layout``;
    None if they are inside of src itself. Both tensors have ``pixels`` spatial dimensions. With
    ``in_bands`` the copy is per thread if possible."""
    if not any(own.padded for space in spaces for own in space):
        return None
    dims = tuple(zip(*spaces, strict=True))
    before = tuple(max(0, *(own.padding for own in each)) for each in dims)
    ends = (max(each[0].src, *(own.last + 1 for own in each)) for each in dims)
    sizes = tuple(border + end for border, end in zip(before, ends, strict=True))
    head = layout.dims[: layout.ndims - pixels]
    assert layout.tag is not None, "copies have layouts with a tag"
    desc = MemoryDesc((*head, *sizes[3 - pixels :]), layout.data_type, layout.tag)
    rows = Rows.of(isa, src[1], desc, before[3 - pixels :])
    if in_bands and isa.thread_memory and rows is not None and pixels == 2:
        one = MemoryDesc((1, *desc.dims[1:]), desc.data_type, desc.tag)
        return Border(src, (NOWHERE, one), before, sizes, pixels, rows, in_bands=True)
    return Border(src, scratchpad.take(desc), before, sizes, pixels, rows, in_bands=False)
