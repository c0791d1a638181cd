"""Conversions of rows to the type of an input, and which shapes an input takes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("ray", reason="needs dnnl[score]")

from dnnl.tools.score.signature import RowType, converted

BF16, INT4 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.int4)


@pytest.mark.parametrize(
    ("source", "target", "least", "most"),
    [
        ("i8", "i4", -(2**31), 2**31 - 1),
        ("u8", "i8", 0, 2**63 - 1),
        ("u4", "u1", 0, 255),
        ("u1", "i1", 0, 127),
        ("i4", INT4, -8, 7),
    ],
    ids=str,
)
def test_integers_out_of_range(source: str, target: npt.DTypeLike, least: int, most: int) -> None:
    """The first that fit and the first that do not."""
    kind = np.dtype(target)
    good = np.array([[least, most]], source)
    rows, bad = converted(good, kind)
    assert not bad
    assert rows.dtype == kind
    assert rows.astype(object).tolist() == [[least, most]]
    wrong = np.array([[0, most + 1], [0, 0], [least - 1 if least else 0, 0]], source)
    _, bad = converted(wrong, kind)
    assert list(bad) == ([0, 2] if least else [0])
    assert bad[0] == f"{most + 1} is out of the range of {kind}"


@pytest.mark.parametrize(
    ("source", "target", "most"),
    [("f8", "f4", 3.4028235e38), ("f4", "f2", 65504.0), ("f4", BF16, 3.3895314e38)],
    ids=str,
)
def test_floats_out_of_range(source: str, target: npt.DTypeLike, most: float) -> None:
    """Infinities and NaN stay what they are."""
    rows = np.array([[most], [np.inf], [np.nan], [1 / 3], [-3.4028235e38]], source)
    if source == "f8":
        rows[4] = -1e39
    found, bad = converted(rows, np.dtype(target))
    assert list(bad) == [4]
    expected = rows[:4].astype(target).astype(np.float64)
    np.testing.assert_array_equal(found[:4].astype(np.float64), expected)
    exact = converted(np.array([[250], [0]], np.uint8), np.dtype("f4"))
    assert (exact[0].tolist(), exact[1]) == ([[250.0], [0.0]], {})


@pytest.mark.parametrize(
    ("shape", "given", "fits"),
    [
        ((2, 3), (2, 3), True),
        ((2, 3), (6,), True),
        ((2, 3), (3, 2), True),
        ((2, 3), (5,), False),
        ((), (), True),
        ((), (1,), True),
        ((), (2,), False),
        ((2, "n"), (2, 9), True),
        ((2, "n"), (3, 9), False),
        ((2, "n"), (18,), False),
        (("n",), (), False),
    ],
    ids=str,
)
def test_shapes(shape: tuple[int | str, ...], given: tuple[int, ...], fits: bool) -> None:
    row = RowType("x", np.dtype("f4"), shape)
    assert (row.why_no_shape(given) == "") == fits
    if fits:
        values = np.arange(4 * int(np.prod(given)), dtype="f4").reshape(4, *given)
        known = all(isinstance(size, int) for size in shape)
        assert row.shaped(values).shape == (4, *(shape if known else given))


@pytest.mark.parametrize("pair", [("f4", "i4"), ("i4", "u1"), ("U3", "f4"), ("c8", "f4")], ids=str)
def test_types_of_another_kind(pair: tuple[str, str]) -> None:
    assert RowType("x", np.dtype(pair[1]), ()).why_no_type(np.dtype(pair[0]))
