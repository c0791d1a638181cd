"""How transformed pixels and sums are laid out, how many tiles a work item has, and the product."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.isa import Isa
from dnnl.codegen.product.brgemm import choose_vectors
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.convolution.winograd.tiling import Tiling
from dnnl.kernels.matmul.matmul import MatmulConf
from dnnl.kernels.matmul.problem import MatmulProblem
from dnnl.kernels.product.base.blocking import Blocking
from dnnl.kernels.product.base.problem import Panels
from dnnl.kernels.product.pack.on_the_fly import PanelPacking
from dnnl.kernels.product.plan.plan import plan
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.cook_toom import TAPS
from dnnl.types.encoding import Winograd
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known

_LEAST_ITEMS = 8
"""With fewer work items threads share each phase of all tiles."""
_LEAST_TILES = 14
"""How often a work item uses the weights at least, which may come from the last-level cache."""
_NEAR, _FAR = 6, 10
"""Reading so many bytes of weights takes as long as moving a byte of V or M from phase to phase,
through the last-level cache or beyond it. Phases read the weights once, items each time."""
_F32 = 4  # bytes


class _TileProducts(MatmulProblem):
    """A product for each place in a tile, by weights that are in panels."""

    def panels(
        self, isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, *, ones: bool = False
    ) -> Panels:
        """The weights as they are."""
        ((_, width),) = weights.inner_blocks or ((3, 1),)
        return Panels(weights, width // isa.lanes)

    def blocking(
        self,
        isa: Isa,
        dot: Multiply,
        src: MemoryDesc,
        panels: Panels,
        *,
        ones: bool,
        packing: PanelPacking | None,
    ) -> Blocking:
        """Panel by panel where the weights of all places come from beyond the second-level cache,
        though those of a place would fit: a panel prefetches the next one."""
        found = super().blocking(isa, dot, src, panels, ones=ones, packing=packing)
        near = panels.desc.size <= isa.caches.l2 // 2
        return found if near or found.panels else replace(found, panels=1)


@dataclass(frozen=True)
class WinogradLayout:
    """``channels`` of V and ``outputs`` of M in whole vectors, for ``tiles`` of a work item, or for
    all."""

    problem: ConvolutionProblem
    tiling: Tiling
    channels: int
    outputs: int
    tiles: int

    @staticmethod
    def of(problem: ConvolutionProblem, tiling: Tiling, isa: Isa) -> WinogradLayout:
        """A work item has as many tiles as half of the second-level cache holds, unless phases of
        all tiles are faster, or only an execution knows how many there are."""
        channels, outputs = (
            -(-desc.padded_dims[1] // isa.lanes) * isa.lanes for desc in (problem.src, problem.dst)
        )
        if not is_known(tiling.count):
            return WinogradLayout(problem, tiling, channels, outputs, tiling.count)
        each = _F32 * tiling.products * (channels + outputs)
        fitting = min(isa.caches.l2 // 2 // each, tiling.count // _LEAST_ITEMS)
        tiles = max(_LEAST_TILES, fitting)
        items = -(-tiling.count // tiles)
        in_cache = each * tiling.count <= isa.caches.last
        moved = (_NEAR if in_cache else _FAR) * each * tiles
        if weights_bytes(problem, tiling) > moved or items < _LEAST_ITEMS or not isa.thread_memory:
            items = 1
        return WinogradLayout(problem, tiling, channels, outputs, -(-tiling.count // items))

    @property
    def in_items(self) -> bool:
        """Whether each work item has tiles of its own."""
        return self.tiles < self.tiling.count

    def dense(self, channels: int) -> MemoryDesc:
        """V or M, with so many channels."""
        return MemoryDesc((self.tiling.products, self.tiles, channels), "f32")

    def product(self, pixels: Argument, weights: Argument, sums: Argument, isa: Isa) -> MatmulConf:
        """The product of matrices for each group and each place in a tile."""
        problem = _TileProducts(
            self._matrices(pixels[1], self.problem.channels),
            weights[1],
            MemoryDesc.zero(),
            self._matrices(sums[1], self.problem.outputs),
            (),
            arguments=(pixels[0], weights[0], sums[0]),
        )
        return plan(problem, isa)

    def _matrices(self, dense: MemoryDesc, channels: int) -> MemoryDesc:
        """V or M with the channels of each group as a matrix."""
        dims = (self.problem.groups, *dense.dims[:2], channels)
        return MemoryDesc(dims, "f32", (channels, *dense.strides), offset0=dense.offset0)

    def encoding(self, isa: Isa) -> Winograd:
        """The encoding of weights that the product reads in place."""
        columns = choose_vectors(isa, self.problem.outputs) * isa.lanes
        return Winograd(self.tiling.size, columns, rotated=self.problem.transposed)

    def weights(self, isa: Isa) -> MemoryDesc:
        """The buffer of weights that the product reads in place."""
        problem = self.problem
        dims = (problem.groups, problem.outputs, problem.channels, TAPS, TAPS)
        (desc,) = MemoryDesc.encoded(dims, "f32", self.encoding(isa)).buffers
        return desc


def weights_bytes(problem: ConvolutionProblem, tiling: Tiling) -> int:
    """The bytes of transformed weights."""
    return _F32 * tiling.products * problem.groups * problem.channels * problem.outputs
