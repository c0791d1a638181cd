"""``dnnl layout``: draw where each element of a tensor lives, as text or as SVG.

Memory is drawn in order, from offset 0 on, in rows of neighbouring elements. A row begins with
its offset and the coordinates that all of its elements share; each cell has the coordinates that
differ within the row, and padding is a dot.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from dnnl.errors import InvalidArguments
from dnnl.tools import layout_svg
from dnnl.tools.layout_grid import Grid, formula

PADDING = "·"


def draw(grid: Grid, rows: int = 64, marks: Sequence[Sequence[int]] = ()) -> str:
    """The picture as text, of at most ``rows`` rows; ``marks`` are indices to tell offsets of."""
    desc = grid.desc
    lines = [grid.title, formula(grid.axes, grid.letters), *map(grid.offset_text, marks)]
    if desc.padded_dims != desc.dims:
        lines.append(f"padded to {'x'.join(map(str, desc.padded_dims))}")
    if desc.has_zero_dim:
        return "\n".join([*lines, "no elements"])
    lines += ["", *itertools.islice(_lines(grid), rows + 1)]
    if grid.row_count > rows:
        lines.append(f"... {grid.row_count - rows} more rows")
    return "\n".join(lines)


def _lines(grid: Grid) -> Iterator[str]:
    """The heading and then every row."""
    desc, letters = grid.desc, grid.letters
    digits = [max(len(letters[d]), len(str(desc.padded_dims[d] - 1))) for d in range(desc.ndims)]
    margin = max(len("offset"), len(str(desc.nelems(padded=True))))

    def cell(index: Sequence[object], among: Sequence[int], separator: str) -> str:
        return separator.join(f"{index[d]:>{digits[d]}}" for d in among)

    heading = cell(letters, grid.shared, " "), cell(letters, grid.varying, ",")
    yield f"{'offset':>{margin}}  {' | '.join(heading)}"
    size = sum(digits[d] for d in grid.varying) + len(grid.varying) - 1
    for row in grid.rows():
        cells = (
            cell(index, grid.varying, ",") if grid.exists(index) else f"{PADDING:>{size}}"
            for index in row.cells
        )
        shared = cell(row.cells[0], grid.shared, " ")
        yield f"{row.offset:>{margin}}  {shared} | {'  '.join(cells)}"


def parse_dims(text: str) -> tuple[int, ...]:
    """``1x17x2x3`` -> (1, 17, 2, 3)."""
    try:
        return tuple(int(extent) for extent in text.split("x"))
    except ValueError:
        rule = "expected sizes joined by x"
        raise InvalidArguments("dims", text, rule, "for example 1x17x2x3") from None


def parse_index(text: str) -> tuple[int, ...]:
    """``0,16,1,2`` -> (0, 16, 1, 2)."""
    try:
        return tuple(int(position) for position in text.split(","))
    except ValueError:
        rule = "expected positions joined by commas"
        raise InvalidArguments("mark", text, rule, "for example 0,16,1,2") from None


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
@click.option(
    "--mark",
    "marks",
    multiple=True,
    metavar="INDEX",
    help="Tell the offset of this element (0,16,1,2) and outline it in the SVG; repeatable.",
)
@click.option(
    "--svg", type=click.Path(path_type=Path), metavar="FILE", help="Write the picture as SVG."
)
@click.option(
    "--color",
    metavar="LETTER",
    help="The dimension whose index decides the color in the SVG; the second one by default.",
)
def layout(
    tag: str, dims: str, rows: int, marks: tuple[str, ...], svg: Path | None, color: str | None
) -> None:
    """Draw where each element of a tensor of DIMS (1x17x2x3) lives in the layout TAG (nChw16c)."""
    if color is not None and svg is None:
        raise click.UsageError("--color belongs to --svg FILE")
    grid = Grid.of(tag, parse_dims(dims))
    indices = [parse_index(mark) for mark in marks]
    if svg is None:
        click.echo(draw(grid, rows, indices))
    else:
        svg.write_text(layout_svg.draw(grid, rows, indices, color), encoding="utf-8")
