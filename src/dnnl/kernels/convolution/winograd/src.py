"""The transform of src: the pixels that a tile reads, as factors of its products.

::

    src    [image, channel, h, w]     the pixels d of a tile, zero outside of the image
    V      [product, tile, channel]   B' d B, row by row
"""

from __future__ import annotations

from collections.abc import Callable

from dnnl.codegen.functions.linear import transform_rows
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.place import Place
from dnnl.kernels.convolution.winograd.tiling import Tiling
from dnnl.kernels.convolution.winograd.transform import Channels, TileTransform
from dnnl.kernels.shared.scratchpad import Argument


class SrcTransform(TileTransform):
    """The transform of tiles of ``src`` to V, the slot and layout ``multiplied``."""

    def __init__(
        self, tiling: Tiling, src: Argument, multiplied: Argument, arguments: Arguments, lanes: int
    ) -> None:
        slot, desc = src
        padding = tiling.height.padding, tiling.width.padding
        padded = desc.padded_dims[1]  # and zero there
        channels = Channels.of(padded, padded, lanes)
        super().__init__(tiling, tiling.side, padding, channels, multiplied)
        self.src = Operand(arguments.slot(slot), desc, self.index)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """src and V."""
        return self.src, self.multiplied

    def _vector(self, place: Callable[..., Place]) -> None:
        side, e = range(self.tiling.side), place({}).e
        columns = ([place(self._pixel(i, j)).load_or_zero(self.src) for i in side] for j in side)
        rows = transform_rows(e, self.tiling.matrices.of_inputs, columns)
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                place(self._factor(i, j)).store(self.multiplied, value)
