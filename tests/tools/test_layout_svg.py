"""The pictures of layouts in SVG, read back and compared with the descriptors' own offsets."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from dnnl.errors import InvalidArguments
from dnnl.tools.layout import layout
from dnnl.tools.layout_grid import Grid
from dnnl.tools.layout_svg import draw

CASES = [
    ("nchw", (2, 3, 2, 5), "c"),
    ("nhwc", (2, 3, 2, 5), "w"),
    ("nChw16c", (1, 17, 2, 3), "c"),
    ("OIhw4i16o4i", (17, 18, 1, 2), "o"),
    ("ABcd2b2a2b", (3, 5, 2, 1), "b"),
    ("ba", (3, 40), "a"),
    ("a", (21,), "a"),
    ("gOIhw8i8o", (2, 9, 3, 1, 1), "i"),
]


@dataclass(frozen=True)
class Box:
    """A rectangle and the text in it."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    text: str = ""

    def overlaps(self, other: Box) -> bool:
        beside = self.x + self.width <= other.x or other.x + other.width <= self.x
        return not beside and abs(self.y - other.y) < min(self.height, other.height)

    def holds(self, other: Box) -> bool:
        across = self.x <= other.x and other.x + other.width <= self.x + self.width
        return across and self.y <= other.y and other.y + other.height <= self.y + self.height


@dataclass(frozen=True)
class Line:
    """What stands left of the cells, and the cells."""

    head: list[int]
    cells: list[Box]


def shapes(picture: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """(class or nothing, attributes, text) of all that is drawn, in order."""
    for element in ElementTree.fromstring(picture):
        yield element.get("class", ""), dict(element.attrib), element.text or ""


def boxes(picture: str) -> list[Box]:
    """All rectangles; a text in the middle belongs to the one before it."""
    found: list[Box] = []
    for kind, place, text in shapes(picture):
        if "height" in place and kind != "page":
            x, y, width, height = (float(place[name]) for name in ("x", "y", "width", "height"))
            found.append(Box(kind, x, y, width, height))
        elif kind == "mid":
            found[-1] = replace(found[-1], text=text)
    return found


def lines(picture: str) -> tuple[list[str], list[Line]]:
    """The letters of (shared coordinates, coordinates in the cells), and the rows."""
    heads = [text for kind, _, text in shapes(picture) if kind == "end"]
    (caption,) = [text for _, _, text in shapes(picture) if text.startswith("each cell: ")]
    shared = list(itertools.takewhile(str.isalpha, heads[1:]))
    cells = [box for box in boxes(picture) if re.fullmatch(r"k\d+|pad", box.kind)]
    body = heads[len(shared) + 1 :]
    size = len(shared) + 1
    rows = [[int(text) for text in body[k : k + size]] for k in range(0, len(body), size)]
    # The key is drawn with cells as well, above all rows.
    tops = sorted({box.y for box in cells})[-len(rows) :]
    return [*shared, *caption.removeprefix("each cell: ").split(",")], [
        Line(head, [box for box in cells if box.y == top])
        for head, top in zip(rows, tops, strict=True)
    ]


@pytest.mark.parametrize(("tag", "dims", "color"), CASES)
def test_every_cell_is_at_its_offset(tag: str, dims: tuple[int, ...], color: str) -> None:
    grid = Grid.of(tag, dims)
    names, rows = lines(draw(grid, rows=10_000, color=color))
    seen = {}
    for row in rows:
        assert [box.x for box in row.cells] == sorted(box.x for box in row.cells)
        for place, box in enumerate(row.cells):
            if box.kind == "pad":
                continue
            values = [*row.head[1:], *map(int, box.text.split(","))]
            at = dict(zip(names, values, strict=True))
            assert box.kind == f"k{at[color]}"
            seen[tuple(at[letter] for letter in grid.letters)] = row.head[0] + place
    desc = grid.desc
    assert seen == {index: desc.offset(index) for index in itertools.product(*map(range, dims))}
    assert sum(len(row.cells) for row in rows) == desc.nelems(padded=True)


@pytest.mark.parametrize(("tag", "dims", "color"), CASES)
def test_cells_do_not_overlap_and_lie_inside_the_picture(
    tag: str, dims: tuple[int, ...], color: str
) -> None:
    picture = draw(Grid.of(tag, dims), rows=40, color=color)
    width, height = (
        int(ElementTree.fromstring(picture).attrib[key]) for key in ("width", "height")
    )
    for box in boxes(picture):
        assert 0 <= box.x <= box.x + box.width <= width
        assert 0 <= box.y <= box.y + box.height <= height
    _, rows = lines(picture)
    for a, b in itertools.combinations([box for row in rows for box in row.cells], 2):
        assert not a.overlaps(b)


@pytest.mark.parametrize(
    ("tag", "dims", "size", "count"),
    [
        ("nChw16c", (1, 17, 2, 3), 16, 12),
        ("OIhw4i16o4i", (17, 18, 1, 2), 256, 8),
        ("aBcd4b", (1, 8, 1, 4), 4, 8),
        ("nchw", (1, 2, 3, 4), 0, 0),
    ],
)
def test_outlines_hold_whole_blocks(tag: str, dims: tuple[int, ...], size: int, count: int) -> None:
    picture = draw(Grid.of(tag, dims), rows=1000)
    outlines = [box for box in boxes(picture) if box.kind == "block"][1:]  # without the key's
    assert len(outlines) == count
    _, rows = lines(picture)
    for outline in outlines:
        inside = [box for row in rows for box in row.cells if outline.holds(box)]
        assert len(inside) == size


def test_marks_are_outlined_and_told() -> None:
    grid = Grid.of("nChw16c", (1, 20, 2, 3))
    picture = draw(grid, marks=[(0, 17, 1, 2), (0, 3, 0, 0)])
    marks = {(box.x, box.y) for box in boxes(picture) if box.kind == "mark"}
    marked = [box for box in boxes(picture) if box.text and (box.x, box.y) in marks]
    assert [box.text for box in marked] == ["3", "17"]
    told = [text for kind, _, text in shapes(picture) if kind == "marked"]
    assert told == ["offset(0, 3, 0, 0) = 3", "offset(0, 17, 1, 2) = 177"]


def test_every_color_is_defined_for_light_and_dark_pages() -> None:
    picture = draw(Grid.of("nhwc", (1, 40, 1, 2)))
    light, dark = picture.split("@media (prefers-color-scheme: dark)")
    used = {box.kind for box in boxes(picture)}
    assert {f"k{channel}" for channel in range(40)} <= used
    for kind in used:
        assert f".{kind} {{ fill" in light
        assert f".{kind} {{ fill" in dark
    assert picture.count("http") == 1  # the name of the format: nothing is loaded


def test_large_tensors_give_small_pictures() -> None:
    picture = draw(Grid.of("nhwc", (8, 2**20, 512, 512)), rows=2)
    assert len(picture) < 20_000
    assert f"... {8 * 2**16 * 512 * 512 - 2} more rows" in picture


@pytest.mark.parametrize(
    ("tag", "dims"), [("nChw16c", (1, 0, 2, 2)), ("ab", (0, 1)), ("ab", (3, 0)), ("Ab40a", (0, 1))]
)
def test_no_elements(tag: str, dims: tuple[int, ...]) -> None:
    assert "no elements" in draw(Grid.of(tag, dims))


def test_what_cannot_be_drawn_is_refused() -> None:
    grid = Grid.of("nchw", (1, 20, 2, 3))
    with pytest.raises(InvalidArguments, match=r"color = 'x'.*n, c, h, w"):
        draw(grid, color="x")
    with pytest.raises(InvalidArguments, match=r"mark = \(0, 17, 1, 2\).*107.*--rows"):
        draw(grid, rows=3, marks=[(0, 17, 1, 2)])
    with pytest.raises(InvalidArguments, match="index"):
        draw(grid, marks=[(0, 20, 0, 0)])


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "picture.svg"
    options = ["--svg", str(file), "--mark", "0,1,0,0", "--rows", "3", "--color", "h"]
    done = CliRunner().invoke(layout, ["nhwc", "1x2x3x4", *options])
    assert (done.exit_code, done.output) == (0, "")
    expected = draw(Grid.of("nhwc", (1, 2, 3, 4)), 3, [(0, 1, 0, 0)], "h")
    assert file.read_text(encoding="utf-8") == expected
    done = CliRunner().invoke(layout, ["nhwc", "1x2x3x4", "--color", "h"])
    assert done.exit_code == 2
    assert "--svg" in done.output
