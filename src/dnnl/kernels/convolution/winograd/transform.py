"""What the transforms of src and dst share: vectors of channels of tiles, and pixels of images.

Tiles that are inside of their image with all pixels have code without masks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from dnnl.codegen.ir.builder import F32, Emitter, Type, Value, Values, i64
from dnnl.codegen.memory.access import Access, Bound, Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.memory.place import Place
from dnnl.kernels.convolution.winograd.tiling import Tiling
from dnnl.kernels.shared.scratchpad import Argument

Pointers = Mapping[Operand, Value]


@dataclass(frozen=True, eq=False)
class Channels:
    """Vectors of channels along ``block``, of which the first ``whole`` need no mask. ``form`` is
    the number of a channel."""

    whole: int
    block: Axis
    lane: Axis

    @staticmethod
    def of(whole: int, padded: int, lanes: int) -> Channels:
        """The vectors of ``padded`` channels, of which the first ``whole`` need no mask."""
        block = Axis(-(-padded // lanes), "channels")
        return Channels(whole // lanes, block, Axis(lanes, "channel"))

    @property
    def form(self) -> Affine:
        """The number of a channel."""
        return Affine.of(self.block, self.lane.extent) + Affine.of(self.lane)

    def each(self, e: Emitter, body: Callable[[Value, bool], None]) -> None:
        """Run ``body(block, masked)`` for every vector."""
        e.loop(i64(0), i64(self.whole), lambda n: body(n, False), unroll=False, name="channels")
        for number in range(self.whole, self.block.extent):
            body(i64(number), True)


class TileTransform(ABC):
    """A transform between pixels of images and what is multiplied, with lanes along channels.

    Tiles have ``extent`` x ``extent`` pixels, the first of which is ``padding`` in front of their
    place. ``multiplied`` is the slot and the layout of what is multiplied.
    """

    def __init__(
        self,
        tiling: Tiling,
        extent: int,
        padding: tuple[int, int],
        channels: Channels,
        multiplied: Argument,
    ) -> None:
        self.tiling, self.channels, self._extent = tiling, channels, extent
        rows, columns = tiling.grid
        self._image, self._row = Axis(tiling.batch, "n"), Axis(rows, "row")
        self._column = Axis(columns, "column")
        self._i, self._j = Axis(extent, "i"), Axis(extent, "j")
        self._product = Axis(tiling.products, "product")
        slot, desc = multiplied
        self._at = Axis(desc.dims[1], "tile")
        index = (Affine.of(self._product), Affine.of(self._at), channels.form)
        self.multiplied = Operand(slot, desc, index)
        above, left = padding
        h = Affine.of(self._row, tiling.size) + Affine.of(self._i) + -above
        w = Affine.of(self._column, tiling.size) + Affine.of(self._j) + -left
        self.index = (Affine.of(self._image), channels.form, h, w)

    @property
    @abstractmethod
    def operands(self) -> tuple[Operand, ...]:
        """All operands; the first is the image."""

    @abstractmethod
    def _vector(self, place: Callable[..., Place]) -> None:
        """Transform one vector of channels of a tile; ``place(env, core)`` has axes fixed in
        addition to those of the tile."""

    @property
    def elements(self) -> int:
        """The elements that are multiplied of each tile."""
        products, _, channels = self.multiplied.desc.dims
        return products * channels

    @property
    def _domain(self) -> tuple[Bound, ...]:
        """The bounds outside of which is padding."""
        return ()

    def tile(self, e: Emitter, pointers: Pointers, number: Value, at: Value) -> None:
        """Transform tile ``number``, which is tile ``at`` of what is multiplied."""
        rows, columns = self.tiling.grid
        line, column = e.divmod(number, columns)
        image, row = e.divmod(line, rows)
        env = {self._image: image, self._row: row, self._column: column, self._at: at}
        limits = zip(self.index[2:], self.operands[0].desc.dims[2:], strict=True)
        bounds = [Bound(form, limit) for form, limit in limits]
        inside = [bound for bound in bounds if bound.needed]
        accesses = {operand: Access.of(operand, operand.index) for operand in self.operands}

        def run(edge: bool) -> Values:
            def vector(block: Value, masked: bool) -> None:
                def place(more: Env, core: Type = F32) -> Place:
                    return Place(
                        e,
                        pointers,
                        accesses,
                        {**env, self.channels.block: block, **more},
                        self.channels.lane,
                        self.channels.lane.extent,
                        masked=edge or masked,
                        domain=self._domain if masked else (),
                        core=core,
                        known={} if edge else dict.fromkeys(inside, True),
                    )

                self._vector(place)

            self.channels.each(e, vector)
            return ()

        if inside:
            e.branch(self._all_inside(e, env, inside), lambda: run(False), lambda: run(True))
        else:
            run(False)

    def _all_inside(self, e: Emitter, env: Env, bounds: list[Bound]) -> Value:
        """Whether all pixels of a tile are in its image."""
        first, last = (
            {**env, self._i: i64(pixel), self._j: i64(pixel)} for pixel in (0, self._extent - 1)
        )
        found = []
        for bound in bounds:
            if bound.below_zero:
                found.append(e.b.icmp_signed(">=", bound.form.emit(e, first), i64(0)))
            if bound.above:
                found.append(e.b.icmp_signed("<", bound.form.emit(e, last), e.number(bound.limit)))
        return reduce(e.b.and_, found)

    def _pixel(self, i: int | Value, j: int | Value) -> Env:
        """The values of the axes of a pixel."""
        pair = ((self._i, i), (self._j, j))
        return {axis: i64(own) if isinstance(own, int) else own for axis, own in pair}

    def _factor(self, i: int, j: int) -> Env:
        """The value of the axis of products."""
        return {self._product: i64(self.tiling.side * i + j)}
