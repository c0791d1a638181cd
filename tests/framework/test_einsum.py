"""Einsum: equations as exporters write them, and any others, beside NumPy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from dnnl.graph.graph import ModelError
from tests.framework.models import Array, model_of
from tests.framework.one_operator import check, model_with

SIZES = [dict(zip("abcdefghijk", sizes, strict=True)) for sizes in (
    (2, 3, 4, 5, 2, 3, 2, 4, 3, 5, 2), (3, 5, 2, 7, 4, 2, 3, 9, 6, 4, 3),
    (4, 2, 6, 3, 2, 5, 4, 3, 7, 17, 5),
)]  # fmt: skip


def feeds_of(equation: str, sizes: dict[str, int], kind: Any = np.float32) -> dict[str, Array]:
    """A tensor for each term; an ellipsis has two dimensions, or the last of them."""
    terms = equation.replace(" ", "").split("->")[0].split(",")
    rng = np.random.default_rng(len(equation))
    found = {}
    for number, term in enumerate(terms):
        dims = [sizes[letter] for letter in re.sub(r"\.", "", term).lower()]
        if "..." in term:
            place = len(term.split("...")[0])
            dims[place:place] = [sizes["j"], sizes["k"]][number % 2 :]
        found[f"x{number}"] = rng.integers(-4, 5, dims).astype(kind)
    return found


EQUATIONS = [
    "ij->ji", "ij->", "ij->i", "ijk->kj", "ii->i", "ii->", "iij->j", "bii->bi", "iijj->ij",
    "ij,jk->ik", "bij,bjk->bik", "ij,ij->ij", "i,j->ij", "i,i->", "ij,kj->ik", "bij,bkj->bik",
    "bhid,bhjd->bhij", "bhij,bhjd->bhid", "bid,hdc->bhic", "abc,cde->abde", "abc,dc->adb",
    "ab,bc,cd->ad", "ab,bc,ac->", "a,b,c->cab", "ab,cd->", "ij,jk", "ba", "ij , jk -> ki",
    "...ij,...jk->...ik", "...i->...", "...ab,ab->...", "ab...->ba...", "a...b,b->...a",
    "aB,Bc->ac", "iji,j->i", "abcd,abde,ce->bc",
]  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
def test_equations(equation: str) -> None:
    """Small whole numbers add up exactly."""
    every = [feeds_of(equation, sizes) for sizes in SIZES]
    wide = [np.einsum(equation, *(x.astype(np.float64) for x in own.values())) for own in every]
    want = [{"y": np.asarray(own, np.float32)} for own in wide]
    check("Einsum", {"y": np.float32}, *every, wanted=want, attrs={"equation": equation})


@pytest.mark.parametrize("kind", [np.float64, np.int32, np.int64])
@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij->j", "i,j->ij", "bij,bkj->bik"])
def test_types(equation: str, kind: Any) -> None:
    every = [feeds_of(equation, sizes, kind) for sizes in SIZES]
    check("Einsum", {"y": kind}, *every, opset=12, attrs={"equation": equation})


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float32])
def test_a_constant_that_is_summed_up(kind: Any) -> None:
    """Integers of a constant are added up by parts of it."""
    every = [{"x": np.arange(count).astype(kind)} for count in (2, 3, 5)]
    constants = {"w": np.arange(60).reshape(5, 3, 4).astype(kind)}
    attrs = {"equation": "a,bcd->adb"}
    want = [{"y": np.einsum("a,bcd->adb", own["x"], constants["w"])} for own in every]
    check("Einsum", {"y": kind}, *every, wanted=want, constants=constants, attrs=attrs)


def test_dimensions_of_size_1_are_broadcast() -> None:
    rng = np.random.default_rng(0)
    every = []
    for size in (3, 5, 8):
        a, b = rng.integers(0, 5, (size, 1, 4)), rng.integers(0, 5, (1, size, 4, size))
        every.append({"a": a.astype(np.float32), "b": b.astype(np.float32)})
    for equation in ("...i,...ij->...j", "abi,abij->aj"):
        want = [{"y": np.einsum(equation, own["a"], own["b"])} for own in every]
        check("Einsum", {"y": np.float32}, *every, wanted=want, attrs={"equation": equation})


def test_nothing_to_sum_up() -> None:
    feeds = {"a": np.zeros((3, 0), np.float32), "b": np.zeros((0, 4), np.float32)}
    check("Einsum", {"y": np.float32}, feeds, attrs={"equation": "ij,jk->ik"}, peer="reference")


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij,jk->ik", "2 terms for 1 sources"),
        ("ijk->i", "'ijk' has not the 2 dimensions"),
        ("ij->ik", "only there"),
        ("ij->ii", "there twice"),
        ("i+j->i", "no term of letters"),
        ("ii->i", "do not broadcast"),
    ],
)
def test_wrong_equations(equation: str, message: str) -> None:
    feeds = {"x": np.zeros((2, 3), np.float32)}
    proto = model_with("Einsum", feeds, {"y": np.float32}, attrs={"equation": equation})
    with pytest.raises(ModelError, match=message):
        model_of(proto)(feeds)
