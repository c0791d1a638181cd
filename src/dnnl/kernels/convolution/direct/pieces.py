"""The index forms of a convolution: the parts that dst consists of, and the axes of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.memory.address import Affine, Axis, block_boundaries
from dnnl.kernels.convolution.direct.residues import Residues
from dnnl.kernels.product.base.pixel_tiles import Space
from dnnl.kernels.product.loops.form import Axes
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class Piece:
    """A convolution of a part of dst with a part of the weights: its sizes, and which outputs and
    taps those of ``space`` are. By default all."""

    space: Space
    residues: tuple[Residues, Residues, Residues] = (Residues(), Residues(), Residues())


@dataclass(frozen=True, eq=False)
class Walk:
    """The axes of a piece, each for depth, height and width, and the indices of an iteration: the
    pixel ``at`` in dst, the tap ``offsets`` in the weights, the pixel ``src_pixel`` in src."""

    residues: Axes
    places: Axes
    taps: Axes
    at: list[Affine]
    offsets: list[Affine]
    src_pixel: list[Affine]


class Geometry(Protocol):
    """The sizes of a convolution: ``channels`` and ``outputs`` of each of its ``groups``, and the
    ``pieces`` that make up dst. With ``borders`` some outputs have fewer taps inside src than
    others."""

    @property
    def dst(self) -> MemoryDesc:
        """The result."""

    @property
    def quantization(self) -> Quantization:
        """The quantization of the arguments."""

    @property
    def arguments(self) -> tuple[int, int, int]:
        """Those of src, weights and dst."""

    @property
    def space(self) -> Space:
        """Depth, height and width."""

    @property
    def grouped(self) -> bool:
        """Whether the weights have a dimension of groups."""

    @property
    def groups(self) -> int:
        """The number of groups."""

    @property
    def channels(self) -> int:
        """The channels of src in a group."""

    @property
    def outputs(self) -> int:
        """The output channels of a group."""

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The convolutions that dst consists of."""

    @property
    def borders(self) -> bool:
        """Whether some outputs have fewer taps inside src than others."""


def src_index(
    problem: Geometry, src: MemoryDesc, n: Affine, g: Affine, c: Affine, at: Sequence[Affine]
) -> tuple[Affine, ...]:
    """The index of src for a channel of a group; groups may be a dimension of their own."""
    split = src.ndims > problem.dst.ndims
    channel = (g, c) if split else (g * problem.channels + c,)
    return activation_index(src, n, channel, at)


def activation_index(
    desc: MemoryDesc, n: Affine, channel: tuple[Affine, ...], spatial: Sequence[Affine]
) -> tuple[Affine, ...]:
    """The index of an activation from three spatial indices, of which it may have fewer."""
    head = (n, *channel)
    return (*head, *spatial[3 - (desc.ndims - len(head)) :])


def weights_index(
    desc: MemoryDesc, groups: bool, g: Affine, o: Affine, i: Affine, taps: Sequence[Affine]
) -> tuple[Affine, ...]:
    """The index of the weights, with a dimension of groups if they have one."""
    head = (g, o, i) if groups else (o, i)
    return (*head, *taps[3 - (desc.ndims - len(head)) :])


def channel_block(src: MemoryDesc) -> int:
    """The size of src's channel blocks, 0 without blocks."""
    sizes = block_boundaries(src, 1)
    return sizes[-1] if sizes else 0


def walk(piece: Piece) -> Walk:
    """The axes of all outputs and taps of a piece."""
    d, h, w = piece.space
    places = Axis(d.dst, "od"), Axis(h.dst, "oh"), Axis(w.dst, "ow")
    taps = Axis(d.kernel, "kd"), Axis(h.kernel, "kh"), Axis(w.kernel, "kw")
    in_d, in_h, in_w = (Axis(own.count, "residue") for own in piece.residues)
    residues = in_d, in_h, in_w
    each = list(zip(piece.space, piece.residues, residues, places, taps, strict=True))
    return Walk(
        residues,
        places,
        taps,
        at=[own.outputs.of(residue, out) for _, own, residue, out, _ in each],
        offsets=[own.taps.of(residue, tap) for _, own, residue, _, tap in each],
        src_pixel=[
            Affine.of(out, s.stride) + Affine.of(tap, s.dilation) + -s.padding
            for s, _, _, out, tap in each
        ],
    )
