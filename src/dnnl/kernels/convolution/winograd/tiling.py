"""How dst is cut into tiles, and which pixels of src a tile reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.types.cook_toom import TAPS, CookToom, cook_toom


@dataclass(frozen=True)
class Tiling:
    """The images of a batch in tiles of ``size`` x ``size`` pixels of dst, numbered row by row. A
    tile reads ``side`` x ``side`` pixels of src, and has as many products for each pair of
    channels. Tiles at the end of an image may reach beyond it."""

    size: int
    batch: int
    height: Spatial
    width: Spatial

    @staticmethod
    def of(problem: ConvolutionProblem, size: int) -> Tiling:
        """The tiles of a problem. A transposed convolution at stride 1 is one of rotated taps, with
        the rest of the padding."""
        height, width = problem.space[1:]
        if problem.transposed:
            height, width = (
                replace(own, padding=TAPS - 1 - own.padding) for own in (height, width)
            )
        return Tiling(size, problem.dst.dims[0], height, width)

    @property
    def side(self) -> int:
        """The height and the width of what a tile reads."""
        return self.size + TAPS - 1

    @property
    def products(self) -> int:
        """The products of a tile for each pair of channels."""
        return self.side**2

    @property
    def grid(self) -> tuple[int, int]:
        """The rows and the columns of tiles of an image."""
        rows, columns = (-(-own.dst // self.size) for own in (self.height, self.width))
        return rows, columns

    @property
    def count(self) -> int:
        """The number of tiles of all images."""
        rows, columns = self.grid
        return self.batch * rows * columns

    @property
    def matrices(self) -> CookToom:
        """The transforms."""
        return cook_toom(self.size)
