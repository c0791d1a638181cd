"""The memory of a tensor as a picture in SVG: one file, readable on light and dark pages.

Each cell is an element, in the order of memory. Its color tells the index of one dimension, hatched
cells are padding, and an outline holds what belongs to one inner block.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from math import prod

from dnnl.errors import InvalidArguments
from dnnl.tools.layout_grid import CELLS, Grid, Row, formula, terms_of

# Pixels; a character of the 12 pixel monospace font is 7.3 wide.
_MARGIN, _LINE, _CHAR = 16, 20, 7.3
_CELL = 22  # the height, and the least width
_APART = 6  # between runs of a loop within a row, and for each loop that begins anew with a row
_ROWS_APART = 2
_SWATCHES = 16  # of the key

_STYLE = """
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2328 }
.title { font-weight: bold }
.mute { fill: #59636e }
.end { text-anchor: end; fill: #59636e }
.mid { text-anchor: middle }
.page { fill: #ffffff }
.block { fill: none; stroke: #59636e; stroke-width: 1.5 }
.mark { fill: none; stroke: #cf222e; stroke-width: 3 }
.marked { fill: #cf222e; font-weight: bold }
.pad { fill: url(#hatch) }
.hatch { stroke: #8c959f; stroke-width: 1.5 }
"""
_DARK = """
text { fill: #e6edf3 }
.mute, .end { fill: #9198a1 }
.page { fill: #0d1117 }
.block { stroke: #9198a1 }
.mark { stroke: #ff7b72 }
.marked { fill: #ff7b72 }
.hatch { stroke: #6e7681 }
"""
_HATCH = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path class="hatch" d="M0 0V6"/></pattern></defs>'
)


def draw(
    grid: Grid, rows: int = 64, marks: Sequence[Sequence[int]] = (), color: str | None = None
) -> str:
    """The picture as an SVG document with at most ``rows`` rows.

    ``marks`` are indices of elements to outline; ``color`` is the letter of the dimension whose
    index decides the color, by default that of dimension 1 (of 0 where there is no other).
    Raises InvalidArguments where a mark is outside of the picture, or no dimension has the letter.
    """
    dimension = _dimension(grid, color)
    picture = _Picture(grid, rows, {grid.desc.offset(mark): tuple(mark) for mark in marks})
    width, height, body = picture.draw(dimension)
    extent = grid.desc.dims[dimension]
    used = sorted(picture.colors)
    light, dark = (
        "".join(f".k{i} {{ fill: {_color(i / extent, *shade)} }}\n" for i in used)
        for shade in ((0.82, 0.75), (0.28, 0.5))
    )
    size = f'width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}">',
        f"<title>{escape(grid.title)}</title>",
        f"<style>{_STYLE}{light}@media (prefers-color-scheme: dark) {{{_DARK}{dark}}}",
        "</style>",
        _HATCH,
        f'<rect class="page" {size}/>',
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _dimension(grid: Grid, letter: str | None) -> int:
    if letter is None:
        return min(1, grid.desc.ndims - 1)
    if letter not in grid.letters:
        rule = f"the dimensions of {grid.name} are {', '.join(grid.letters)}"
        raise InvalidArguments("color", letter, rule)
    return grid.letters.index(letter)


def _color(part: float, lightness: float, saturation: float) -> str:
    """A color of the rainbow; ``part`` runs from 0 to 1 and does not come round to red again."""
    rgb = colorsys.hls_to_rgb(0.85 * part, lightness, saturation)
    return "#" + "".join(f"{round(255 * value):02x}" for value in rgb)


def _box(kind: str, x: float, y: float, width: float, height: float) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect class="{kind}" {place} rx="3"/>'


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    style = f'class="{kind}" ' if kind else ""
    return f'<text {style}x="{x:g}" y="{y:g}">{escape(text)}</text>'


class _Picture:
    """Draws from the top to the bottom: ``y`` is how far, ``right`` how wide it became.

    ``marks`` are the indices to outline by their offsets; ``colors`` are those in use.
    """

    def __init__(self, grid: Grid, rows: int, marks: Mapping[int, Sequence[int]]) -> None:
        self.grid, self.marks = grid, marks
        self.rows = [] if grid.desc.has_zero_dim else list(islice(grid.rows(), rows))
        self._check_marks()
        letters, padded = grid.letters, grid.desc.padded_dims
        self.digits = [max(len(letters[d]), len(str(padded[d] - 1))) for d in range(len(letters))]
        label = sum(self.digits[d] for d in grid.varying) + len(grid.varying) - 1
        self.cell = max(_CELL, round(label * _CHAR + 6))
        self.body: list[str] = []
        self.colors: set[int] = set()
        self.y, self.right = _MARGIN + 12.0, 0.0
        # The right ends of the columns with what a row shares, and the left ones of the cells.
        place = _MARGIN + _CHAR * max(len("offset"), len(str(grid.desc.nelems(padded=True))))
        self.shared_ends = [place]
        for d in grid.shared:
            place += (self.digits[d] + 2) * _CHAR
            self.shared_ends.append(place)
        self.lefts = [place + 2 * _APART + self.cell * k + self._gap(k) for k in range(CELLS)]

    def _check_marks(self) -> None:
        drawn = {row.offset + k for row in self.rows for k in range(len(row.cells))}
        for offset, index in self.marks.items():
            if offset not in drawn:
                rule = f"its offset {offset} is not among the {len(self.rows)} rows of the picture"
                raise InvalidArguments("mark", tuple(index), rule, "draw more --rows")

    def _gap(self, column: int) -> int:
        """The space before a cell: a step for every loop of which a run ended in between."""
        steps, run = 0, 1
        for axis in reversed(self.grid.loops[1][1:]):
            run *= axis.extent
            steps += column // run if run > 1 else 0
        return steps * _APART

    def draw(self, dimension: int) -> tuple[int, int, list[str]]:
        """(width, height, lines) with the colors of ``dimension``."""
        for line, kind in self._heading():
            self._write(_MARGIN, line, kind)
            self.y += _LINE
        self._key(dimension)
        self._captions()
        drawn = self.rows[-1].offset + len(self.rows[-1].cells) if self.rows else 0
        tile = prod(size for _, size in self.grid.desc.inner_blocks)
        top = self.y
        for row in self.rows:
            self.y += self._distance(row)
            if tile > 1 and row.offset % tile == 0:
                top = self.y
            self._row(row, dimension)
            end = row.offset + len(row.cells)
            if tile > 1 and (end % tile == 0 or end == drawn):
                self._outline(row, tile, top)
            self.y += _CELL
        rest = self.grid.row_count - len(self.rows)
        if rest and not self.grid.desc.has_zero_dim:
            self.y += _LINE
            self._write(_MARGIN, f"... {rest} more rows", "mute")
        return round(self.right + _MARGIN), round(self.y + _MARGIN), self.body

    def _heading(self) -> Iterator[tuple[str, str]]:
        """Lines and their classes."""
        grid = self.grid
        yield grid.title, "title"
        yield formula(grid.axes, grid.letters), ""
        steps = [
            f"{term} +{axis.stride}"
            for term, axis in zip(terms_of(grid.axes, grid.letters), grid.axes, strict=True)
            if axis.extent > 1
        ]
        if steps:
            yield f"one step of {', '.join(steps)}", "mute"
        if grid.desc.has_zero_dim:
            yield "no elements", ""

    def _key(self, dimension: int) -> None:
        """What colors, hatches and outlines mean."""
        desc, letter = self.grid.desc, self.grid.letters[dimension]
        extent = desc.dims[dimension]
        x = self._write(_MARGIN, f"color: {letter}", "mute") + _APART
        width = max(_CELL, round(len(str(extent)) * _CHAR + 6))
        shown = range(extent) if extent <= _SWATCHES else [*range(_SWATCHES - 1), extent - 1]
        for index in shown:
            if index == extent - 1 and extent > _SWATCHES:
                x = self._write(x, "...", "mute") + _APART
            self._cell(index, x, self.y - 15, width, str(index))
            x += width + 1
        if desc.padded_dims != desc.dims:
            self._cell(None, x + 2 * _APART, self.y - 15, _CELL)
            x = self._write(x + 3 * _APART + _CELL, "padding, always zero", "mute")
        if desc.inner_blocks:
            self.body.append(_box("block", x + 2 * _APART, self.y - 15, _CELL, _CELL))
            self._write(x + 3 * _APART + _CELL, "one block", "mute")
        self.y += _LINE + 2 * _APART

    def _captions(self) -> None:
        """What the columns of a row are."""
        if not self.rows:
            return
        names = ["offset", *(self.grid.letters[d] for d in self.grid.shared)]
        for end, name in zip(self.shared_ends, names, strict=True):
            self.body.append(_text(end, self.y, name, "end"))
        cells = ",".join(self.grid.letters[d] for d in self.grid.varying)
        self._write(self.lefts[0], f"each cell: {cells}", "mute")
        self.y += _APART

    def _distance(self, row: Row) -> int:
        """The space above a row: a step for every loop over rows that begins anew with it."""
        if not row.offset:
            return 0
        steps, run = 0, self.grid.run
        for axis in reversed(self.grid.loops[0]):
            run *= axis.extent
            steps += axis.extent > 1 and row.offset % run == 0
        return _ROWS_APART + _APART * steps

    def _row(self, row: Row, dimension: int) -> None:
        middle = self.y + _CELL / 2 + 4
        for end, text in zip(self.shared_ends, self._shared(row), strict=True):
            self.body.append(_text(end, middle, text, "end"))
        marked = []
        for k, index in enumerate(row.cells):
            color, text = None, ""
            if self.grid.exists(index):
                color = index[dimension]
                text = ",".join(str(index[d]) for d in self.grid.varying)
            self._cell(color, self.lefts[k], self.y, self.cell - 1, text)
            if row.offset + k in self.marks:
                box = "mark", self.lefts[k], self.y, self.cell - 1, _CELL
                self.body.append(_box(*box))
                marked.append(self.grid.offset_text(index))
        if marked:
            end = self.lefts[len(row.cells) - 1] + self.cell + _APART
            self.right = max(self.right, end + len(", ".join(marked)) * _CHAR)
            self.body.append(_text(end, middle, ", ".join(marked), "marked"))

    def _shared(self, row: Row) -> list[str]:
        """The offset of a row and the coordinates that its cells share."""
        return [str(row.offset), *(str(row.cells[0][d]) for d in self.grid.shared)]

    def _outline(self, row: Row, tile: int, top: float) -> None:
        """Draw around the blocks that end with a row and began at ``top``."""
        cells = len(row.cells)
        for first in range(0, cells, min(tile, cells)):
            last = min(first + tile, cells) - 1
            width = self.lefts[last] + self.cell - self.lefts[first]
            box = self.lefts[first] - 1.5, top - 1, width + 2, self.y + _CELL + 2 - top
            self.body.append(_box("block", *box))

    def _cell(self, color: int | None, x: float, y: float, width: float, text: str = "") -> None:
        """One element, or padding where it has no color."""
        self.body.append(_box("pad" if color is None else f"k{color}", x, y, width, _CELL))
        if color is not None:
            self.colors.add(color)
        if text:
            self.body.append(_text(x + width / 2, y + _CELL / 2 + 4, text, "mid"))
        self.right = max(self.right, x + width)

    def _write(self, x: float, text: str, kind: str = "") -> float:
        """Write a text on the present line; where it ends."""
        self.body.append(_text(x, self.y, text, kind))
        end = x + len(text) * _CHAR
        self.right = max(self.right, end)
        return end
