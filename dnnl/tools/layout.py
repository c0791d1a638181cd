"""``dnnl layout``: draw where each element of a tensor lives.

Memory is drawn as it lies, from offset 0 on, in rows of neighbouring elements. A row begins with
its offset and the coordinates that all of its elements share; each cell has the coordinates that
differ within the row, and padding is a dot.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import click

from dnnl.errors import InvalidArguments
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

CELLS = 16
PADDING = "·"


@dataclass(frozen=True)
class Axis:
    """One loop over memory: position p adds ``p * weight`` to the index of dimension ``dim``."""

    dim: int
    extent: int
    weight: int
    stride: int


def axes_of(desc: MemoryDesc, tag: FormatTag) -> list[Axis]:
    """The loops over a dense layout from the outermost to the innermost."""
    weights = list(desc.blocks)
    axes = [Axis(d, desc.outer_dims[d], weights[d], desc.strides[d]) for d in tag.order]
    stride = prod(size for _, size in desc.inner_blocks)
    for dim, size in desc.inner_blocks:
        stride //= size
        weights[dim] //= size
        axes.append(Axis(dim, size, weights[dim], stride))
    return axes


def letters_of(name: str, tag: FormatTag) -> list[str]:
    """The letter of each logical dimension, as ``name`` spells it."""
    letters = [""] * tag.ndims
    for letter, dim in zip(name, tag.order, strict=False):
        letters[dim] = letter.lower()
    return letters


def formula(axes: Sequence[Axis], letters: Sequence[str]) -> str:
    """The offset of an element as arithmetic on its coordinates; ``/`` drops the remainder."""
    blocks = {axis.dim for axis in axes if axis.weight > 1}
    seen: set[int] = set()
    terms = []
    for axis in axes:
        term = letters[axis.dim]
        if axis.weight > 1:
            term = f"{term}/{axis.weight}"
        if axis.dim in seen:
            term = f"({term})%{axis.extent}" if axis.weight > 1 else f"{term}%{axis.extent}"
        elif axis.dim in blocks:
            term = f"({term})"
        seen.add(axis.dim)
        terms.append(term if axis.stride == 1 else f"{term}*{axis.stride}")
    return " + ".join(terms)


def draw(name: str, dims: Sequence[int], rows: int = 64, data_type: str = "f32") -> str:
    """The picture of a tensor of ``dims`` in the layout that the tag ``name`` spells.

    At most ``rows`` rows are drawn. Raises InvalidArguments where the two do not fit.
    """
    tag = FormatTag(name)
    if not tag.ndims:
        rule = "there is no layout to draw"
        raise InvalidArguments("tag", name, rule, "nchw or nChw16c are layouts")
    desc = MemoryDesc(dims, data_type, name)
    letters = letters_of(name, tag)
    axes = axes_of(desc, tag)
    lines = [
        f"{name} = {tag}, {'x'.join(map(str, dims))} {data_type}, {desc.size} bytes",
        f"offset({', '.join(letters)}) = {formula(axes, letters)}",
    ]
    if desc.padded_dims != desc.dims:
        lines.append(f"padded to {'x'.join(map(str, desc.padded_dims))}")
    if desc.has_zero_dim:
        return "\n".join([*lines, "no elements"])
    lines += ["", *itertools.islice(_grid(desc, axes, letters), rows + 1)]
    run = prod(axis.extent for axis in _inner(axes))
    total = desc.nelems(padded=True) // run * -(-run // CELLS)
    if total > rows:
        lines.append(f"... {total - rows} more rows")
    return "\n".join(lines)


def _inner(axes: Sequence[Axis]) -> list[Axis]:
    """The innermost axes that share a row: as many as fit whole, one at least."""
    count = 1
    while count < len(axes) and prod(a.extent for a in axes[-count - 1 :]) <= CELLS:
        count += 1
    return list(axes[-count:])


def _index(axes: Sequence[Axis], place: int, ndims: int) -> list[int]:
    """The coordinates of the element that lies ``place`` elements after the first."""
    index = [0] * ndims
    for axis in reversed(axes):
        place, position = divmod(place, axis.extent)
        index[axis.dim] += axis.weight * position
    return index


def _grid(desc: MemoryDesc, axes: Sequence[Axis], letters: Sequence[str]) -> Iterator[str]:
    """The heading and then every row."""
    inner = _inner(axes)
    varying = sorted({axis.dim for axis in inner if axis.extent > 1}) or [inner[-1].dim]
    shared = [d for d in range(desc.ndims) if d not in varying]
    digits = [max(len(letters[d]), len(str(desc.padded_dims[d] - 1))) for d in range(desc.ndims)]
    margin = max(len("offset"), len(str(desc.nelems(padded=True))))

    def cell(index: Sequence[int], among: Sequence[int], separator: str) -> str:
        return separator.join(f"{index[d]:>{digits[d]}}" for d in among)

    def heading(among: Sequence[int], separator: str) -> str:
        return separator.join(f"{letters[d]:>{digits[d]}}" for d in among)

    yield f"{'offset':>{margin}}  {heading(shared, ' ')} | {heading(varying, ',')}"
    size = sum(digits[d] for d in varying) + len(varying) - 1
    run = prod(axis.extent for axis in inner)
    for start in range(0, desc.nelems(padded=True), run):
        for column in range(0, run, CELLS):
            begin = start + column
            row = [
                _index(axes, place, desc.ndims)
                for place in range(begin, begin + min(CELLS, run - column))
            ]
            cells = (
                cell(index, varying, ",") if _inside(index, desc.dims) else f"{PADDING:>{size}}"
                for index in row
            )
            yield f"{begin:>{margin}}  {cell(row[0], shared, ' ')} | {'  '.join(cells)}"


def _inside(index: Sequence[int], dims: Sequence[int]) -> bool:
    return all(i < extent for i, extent in zip(index, dims, strict=True))


def parse_dims(text: str) -> tuple[int, ...]:
    """``1x17x2x3`` -> (1, 17, 2, 3)."""
    try:
        return tuple(int(extent) for extent in text.split("x"))
    except ValueError:
        rule = "expected sizes joined by x"
        raise InvalidArguments("dims", text, rule, "for example 1x17x2x3") from None


@click.command()
@click.argument("tag")
@click.argument("dims")
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=64,
    show_default=True,
    help="How many rows to draw at most.",
)
def layout(tag: str, dims: str, rows: int) -> None:
    """Draw where each element of a tensor of DIMS (1x17x2x3) lives in the layout TAG (nChw16c)."""
    click.echo(draw(tag, parse_dims(dims), rows))
