"""The pictures of layouts, read back and compared with the descriptors' own offsets."""

from __future__ import annotations

import itertools
import re

import pytest
from click.testing import CliRunner

from dnnl.errors import InvalidArguments
from dnnl.tools.layout import draw, layout
from dnnl.tools.layout_grid import Grid
from dnnl.types.memory_desc import MemoryDesc

CASES = [
    ("nchw", (2, 3, 2, 5)),
    ("nhwc", (2, 3, 2, 5)),
    ("nChw16c", (1, 17, 2, 3)),
    ("OIhw4i16o4i", (17, 18, 1, 2)),
    ("ABcd2b2a2b", (3, 5, 2, 1)),
    ("ba", (3, 40)),
    ("a", (5,)),
    ("gOIhw8i8o", (2, 9, 3, 1, 1)),
]


def letters(picture: str) -> list[str]:
    found = re.search(r"offset\((.*)\) =", picture)
    assert found
    return found[1].split(", ")


@pytest.mark.parametrize(("tag", "dims"), CASES)
def test_every_cell_is_at_its_offset(tag: str, dims: tuple[int, ...]) -> None:
    picture = draw(Grid.of(tag, dims), rows=10_000)
    names = letters(picture)
    desc = MemoryDesc(dims, "f32", tag)
    heading, *rows = picture.split("\n\n")[1].splitlines()
    shared, varying = (re.findall("[a-z]", part) for part in heading[6:].split("|"))
    seen = {}
    for row in rows:
        head, cells = row.split("|")
        start, *fixed = map(int, head.split())
        for place, text in enumerate(re.findall(r"·|\d+(?:, *\d+)*", cells)):
            if text == "·":
                continue
            values = text.split(",")
            at = dict(zip([*shared, *varying], [*fixed, *map(int, values)], strict=True))
            seen[tuple(at[name] for name in names)] = start + place
    assert seen == {index: desc.offset(index) for index in itertools.product(*map(range, dims))}


@pytest.mark.parametrize(("tag", "dims"), CASES)
def test_the_formula_is_right(tag: str, dims: tuple[int, ...]) -> None:
    picture = draw(Grid.of(tag, dims))
    found = re.search(r"\) = (.*)", picture)
    assert found
    code = compile(found[1].replace("/", "//"), "formula", "eval")
    desc = MemoryDesc(dims, "f32", tag)
    for index in itertools.product(*map(range, desc.padded_dims)):
        names = dict(zip(letters(picture), index, strict=True))
        assert eval(code, names) == desc.offset(index)


def test_long_pictures_end_early() -> None:
    picture = draw(Grid.of("nchw", (2, 64, 56, 56)), rows=3)
    assert len(picture.splitlines()) == 3 + 5
    assert picture.endswith(f"... {2 * 64 * 56 * 4 - 3} more rows")


@pytest.mark.parametrize("tag", ["ab", "ba", "ABcd16b16a"])
def test_large_tensors_take_no_more_time_or_memory(tag: str) -> None:
    dims = (2**20, 2**20) if tag != "ABcd16b16a" else (2**12, 2**12, 2**10, 2**10)
    picture = draw(Grid.of(tag, dims), rows=2)
    elements = MemoryDesc(dims, "f32", tag).nelems()
    assert picture.endswith(f"... {elements // 16 - 2} more rows")


def test_negative_number_of_rows() -> None:
    done = CliRunner().invoke(layout, ["nchw", "1x2x3x4", "--rows", "-5"])
    assert done.exit_code == 2
    assert "--rows" in done.output


def test_no_elements() -> None:
    assert draw(Grid.of("nchw", (1, 0, 2, 2))).endswith("no elements")


def test_command() -> None:
    done = CliRunner().invoke(layout, ["nChw16c", "1x17x2x3", "--rows", "2"])
    assert done.exit_code == 0
    assert done.output == draw(Grid.of("nChw16c", (1, 17, 2, 3)), rows=2) + "\n"


def test_marked_offsets() -> None:
    done = CliRunner().invoke(layout, ["nChw16c", "1x17x2x3", "--mark", "0,16,1,2"])
    assert "offset(0, 16, 1, 2) = 176\n" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nchw", "1x2"], "nchw"),
        (["nchw", "1x2xthree"], "1x17x2x3"),
        (["nchq", "1x2x3x4"], "nchq"),
        (["nchw", "1x2x3x4", "--mark", "0,1,x,0"], "0,16,1,2"),
        (["nchw", "1x2x3x4", "--mark", "0,2,0,0"], "padded dims"),
        (["any", "1x2"], "no layout to draw"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(layout, arguments)
    assert isinstance(done.exception, InvalidArguments)
    assert message in str(done.exception)
