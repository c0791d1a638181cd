"""The transform of sums of products to dst, and the epilogue.

::

    M      [product, tile, channel]   sums over the channels of src
    dst    [image, channel, h, w]     A' M A, row by row
"""

from __future__ import annotations

from collections.abc import Callable

from dnnl.codegen.epilogue.post_ops import Epilogue
from dnnl.codegen.epilogue.product_epilogue import Depth, ProductEpilogue
from dnnl.codegen.epilogue.quantization import Quantizer
from dnnl.codegen.functions.linear import transform_rows
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Bound, Operand
from dnnl.codegen.memory.address import ZERO
from dnnl.codegen.memory.place import Place
from dnnl.codegen.product.brgemm import Tile
from dnnl.kernels.convolution.winograd.conf import Results
from dnnl.kernels.convolution.winograd.tiling import Tiling
from dnnl.kernels.convolution.winograd.transform import Channels, TileTransform
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc


class DstTransform(TileTransform):
    """The transform of M, the slot and layout ``multiplied``, to tiles of dst."""

    def __init__(
        self,
        tiling: Tiling,
        results: Results,
        multiplied: Argument,
        arguments: Arguments,
        lanes: int,
    ) -> None:
        slot, desc = results.dst
        channels = Channels.of(desc.dims[1], desc.padded_dims[1], lanes)
        super().__init__(tiling, tiling.size, (0, 0), channels, multiplied)
        self.dst = Operand(arguments.slot(slot), desc, self.index)
        self._finish = self._epilogue(results, arguments)

    def _epilogue(self, results: Results, arguments: Arguments) -> ProductEpilogue:
        channel, (of_src, of_weights) = self.channels.form, results.factors
        bias = None
        if not results.bias.is_zero:
            bias = Operand(arguments.slot(Arg.BIAS), results.bias, (channel,))
        # Only the dims along which scales vary count: the output channels of weights.
        every, one = MemoryDesc((self.dst.desc.dims[1], 1), "f32"), MemoryDesc((1, 1), "f32")
        tensors = {
            of_src: Operand(0, one, (ZERO, ZERO)),
            of_weights: Operand(0, every, (channel, ZERO)),
            int(Arg.DST): self.dst,
        }
        return ProductEpilogue(
            results.multiply,
            DataType.f32,
            self.dst,
            bias,
            Epilogue(results.post_ops, self.dst, arguments),
            Quantizer(results.quantization, tensors, arguments, requantizes=True),
            results.factors,
            Depth(0, 0),
        )

    @property
    def operands(self) -> tuple[Operand, ...]:
        """dst, what the epilogue reads, and M."""
        return (*self._finish.operands, self.multiplied)

    @property
    def _domain(self) -> tuple[Bound, ...]:
        bound = Bound(self.channels.form, self.dst.desc.dims[1])
        return (bound,) if bound.needed else ()

    def _vector(self, place: Callable[..., Place]) -> None:
        side, size = range(self.tiling.side), self.tiling.size
        columns = ([place(self._factor(i, j)).load(self.multiplied) for i in side] for j in side)
        e = place({}).e
        rows = transform_rows(e, self.tiling.matrices.of_products, columns)
        pixels = Tile(size, tuple(value for row in rows for value in row))
        self._finish.store(
            pixels, lambda number, core: place(self._pixel(*e.divmod(number, size)), core)
        )
