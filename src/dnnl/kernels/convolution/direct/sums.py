"""Compensation of zero points and shifted operands in a convolution, pixel by pixel.

Padding takes no part in a sum. Near borders fewer taps are inside of the image, so that the
compensation differs there::

    channel sums    of src, over the channels of a group             for each pixel of src
    row sums        of channel sums, over the taps in the image      for each pixel of dst
    tap sums        of za * (w - zw), over the channels of a group   for each tap and output
    column sums     of tap sums, over the taps in the image          for each pixel and output

Without padding all pixels of a convolution have the same column sums. In a transposed one, taps
differ between residues.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dnnl.codegen.epilogue.quantization import Quantization, Quantizer
from dnnl.codegen.ir.builder import Module, Value
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Bound, Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.codegen.nest.point import Point
from dnnl.kernels.convolution.direct.pieces import Geometry, Piece, src_index, walk, weights_index
from dnnl.kernels.product.compensation.compensation import Compensation
from dnnl.kernels.product.compensation.integer_sums import emit_sums
from dnnl.kernels.product.compensation.rows import RowSums
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True, kw_only=True)
class PixelSums(Compensation):
    """Row sums and sums for each place of dst of ``problem``, from ``channels`` and ``taps``: the
    channel sums of ``src`` and the tap sums of ``weights`` as the product reads them.

    Sums for places are the same for all pixels unless ``image`` has borders: the problem, or that
    with the borders which an unfolded src has lost.
    """

    problem: Geometry
    image: Geometry
    src: Argument
    weights: Argument
    channels: Argument | None
    taps: Argument | None
    taps_known: bool = False
    """Whether a product before has computed the tap sums."""

    @staticmethod
    def take(
        problem: Geometry,
        image: Geometry,
        src: Argument,
        weights: Argument,
        scratchpad: Scratchpad,
        *,
        of_rows: bool,
        of_columns: bool,
    ) -> PixelSums:
        """The sums of rows and of columns that are needed, in the scratchpad. Those for places have
        the pixels of ``problem``."""
        space, channels, rows, taps, places = problem.space, None, None, None, None
        if of_rows:
            head = src[1].dims[0], problem.groups
            before, after = (*head, *(s.src for s in space)), (*head, *(s.dst for s in space))
            channels = scratchpad.take(MemoryDesc(before, "s32", "abcde"))
            rows = RowSums(scratchpad.take(MemoryDesc(after, "s32", "abcde")), None, 0)
        if of_columns:
            outputs, borders = problem.groups * problem.outputs, image.borders
            pixels = (s.dst if borders else 1 for s in space)
            kernel = weights[1].dims[3 if problem.grouped else 2 :]
            every = (1,) * (3 - len(kernel)) + kernel  # where the product has some of them, too
            taps = scratchpad.take(MemoryDesc((*every, outputs), "s32"))
            places = scratchpad.take(MemoryDesc((*pixels, outputs), "s32", "abcd"))
        return PixelSums(
            rows=rows,
            places=places,
            problem=problem,
            image=image,
            src=src,
            weights=weights,
            channels=channels,
            taps=taps,
        )

    def sharing(self, other: PixelSums) -> PixelSums:
        """The same by the tap sums of another product of these weights."""
        return replace(self, taps=other.taps, taps_known=True)

    def emit(self, module: Module, name: str, arguments: Arguments) -> Iterator[Phase]:
        """Write the phases that are needed."""
        isa, pieces = module.isa, self.problem.pieces

        def symbol(sums: str, part: Argument, number: int = 0) -> str:
            types = f"{part[1].data_type}_s32"
            return f"{name}_{sums}{number or ''}__{types}__{isa.lanes}x1__{isa.name}"

        if self.channels is not None and self.rows is not None:
            yield self._channel_sums(module, symbol("channel_sums", self.src), arguments)
            for number, piece in enumerate(pieces):
                entry = symbol("row_sums", self.rows.sums, number)
                yield self._row_sums(module, entry, piece, arguments)
        if self.taps is not None and self.places is not None:
            if not self.taps_known:
                yield self._tap_sums(module, symbol("tap_sums", self.weights), arguments)
            pieces = self.image.pieces
            for number, piece in enumerate(pieces if self.image.borders else pieces[:1]):
                entry = symbol("column_sums", self.places, number)
                yield self._column_sums(module, entry, piece, arguments)

    def _channel_sums(self, module: Module, symbol: str, arguments: Arguments) -> Phase:
        problem = self.problem
        n, g = Axis(problem.dst.dims[0], "n"), Axis(problem.groups, "g")
        assert self.channels is not None
        at = [Axis(size, "pixel") for size in self.channels[1].dims[2:]]
        c = Axis(problem.channels, "ic")
        batch, group, *pixel = (Affine.of(axis) for axis in (n, g, *at))
        src = _operand(
            self.src, src_index(problem, self.src[1], batch, group, Affine.of(c), pixel), arguments
        )
        total = _operand(self.channels, (batch, group, *pixel), arguments)
        axes = (n, g, *at), (c,)
        return emit_sums(module, symbol, axes, (src,), total, lambda point: point.load(src))

    def _row_sums(self, module: Module, symbol: str, piece: Piece, arguments: Arguments) -> Phase:
        problem = self.problem
        n, g = Axis(problem.dst.dims[0], "n"), Axis(problem.groups, "g")
        here, batch, group = walk(piece), Affine.of(n), Affine.of(g)
        sums = _operand(self.channels, (batch, group, *here.src_pixel), arguments)
        assert self.rows is not None
        total = _operand(self.rows.sums, (batch, group, *here.at), arguments)
        axes = (n, g, *here.residues, *here.places), here.taps
        return emit_sums(module, symbol, axes, (sums,), total, lambda point: point.load(sums))

    def _tap_sums(self, module: Module, symbol: str, arguments: Arguments) -> Phase:
        problem = self.problem
        assert self.taps is not None
        taps, g = [Axis(size, "tap") for size in self.taps[1].dims[:-1]], Axis(problem.groups, "g")
        o, c = Axis(problem.outputs, "oc"), Axis(problem.channels, "ic")
        offsets = [Affine.of(axis) for axis in taps]
        group, output, channel = Affine.of(g), Affine.of(o), Affine.of(c)
        index = weights_index(self.weights[1], problem.grouped, group, output, channel, offsets)
        weights = _operand(self.weights, index, arguments)
        number = group * problem.outputs + output
        total = _operand(self.taps, (*offsets, number), arguments)
        # The zero points of src as given, with all channels in one dimension.
        spatial = problem.dst.ndims - 2
        pixel = MemoryDesc((1, problem.groups * problem.channels, *[1] * spatial), "u8")
        src = Operand(0, pixel, (ZERO, group * problem.channels + channel, *[ZERO] * spatial))
        source, factor = problem.arguments[:2]
        quantizer = Quantizer(
            Quantization(zero_points=problem.quantization.zero_points).of_arguments(
                problem.arguments[:2]
            ),
            {source: src, factor: weights},
            arguments,
        )
        zero, shift = quantizer.zero_point(source), quantizer.zero_point(factor)
        assert zero is not None, "there is nothing to compensate"

        def term(point: Point) -> Value:
            value = point.load(weights)
            if shift is not None:
                value = point.e.b.sub(value, point.load(shift))
            return point.e.b.mul(value, point.load(zero))

        inputs = (weights, *quantizer.operands)
        return emit_sums(module, symbol, ((*taps, g, o), (c,)), inputs, total, term)

    def _column_sums(
        self, module: Module, symbol: str, piece: Piece, arguments: Arguments
    ) -> Phase:
        image = self.image
        here, o = walk(piece), Axis(image.groups * image.outputs, "oc")
        output = Affine.of(o)
        places = (*here.residues, *here.places) if image.borders else ()
        at = here.at if image.borders else [ZERO] * 3
        inside = tuple(
            Bound(form, s.src)
            for form, s in zip(here.src_pixel, piece.space, strict=True)
            if image.borders and s.padded
        )
        pixels = (s.dst if image.borders else 1 for s in image.space)
        taps, total = (
            _operand(_of_dims(part, (*sizes, o.extent)), (*index, output), arguments)
            for part, sizes, index in (
                (self.taps, (s.kernel for s in image.space), here.offsets),
                (self.places, pixels, at),
            )
        )
        sums = replace(taps, inside=inside)
        axes = (*places, o), here.taps
        return emit_sums(module, symbol, axes, (sums,), total, lambda point: point.load(sums))


def _of_dims(part: Argument | None, dims: tuple[int, ...]) -> Argument:
    """The same dense s32 elements in other dimensions."""
    assert part is not None
    return part[0], MemoryDesc(dims, "s32", "abcd", offset0=part[1].offset0)


def _operand(part: Argument | None, index: tuple[Affine, ...], arguments: Arguments) -> Operand:
    assert part is not None
    return Operand(arguments.slot(part[0]), part[1], index)
