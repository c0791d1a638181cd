"""Format tags: the naming rule, both ways, and what the refusals teach."""

from __future__ import annotations

import copy
import pickle
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnl.errors import InvalidArguments
from dnnl.types.tag import MAX_NDIMS, FormatTag, suggest_for

SPELLINGS = {
    "nchw": "abcd",
    "nhwc": "acdb",
    "chwn": "bcda",
    "ncdhw": "abcde",
    "ndhwc": "acdeb",
    "ncw": "abc",
    "nwc": "acb",
    "nc": "ab",
    "cn": "ba",
    "x": "a",
    "oihw": "abcd",
    "hwio": "cdba",
    "ohwi": "acdb",
    "goihw": "abcde",
    "hwigo": "decab",
    "giohw": "acbde",
    "goiw": "abcd",
    "wigo": "dcab",
    "goidhw": "abcdef",
    "dhwigo": "defcab",
    "io": "ba",
    "tnc": "abc",
    "ntc": "bac",
    "ldnc": "abcd",
    "ldigo": "abcde",
    "ldgoi": "abdec",
    "ldio": "abcd",
    "ldoi": "abdc",
    "ldgo": "abcd",
    "nChw16c": "aBcd16b",
    "nCdhw8c": "aBcde8b",
    "NChw16n16c": "ABcd16a16b",
    "OIhw4i16o4i": "ABcd4b16a4b",
    "OIhw16i16o": "ABcd16b16a",
    "IOhw16o16i": "BAcd16a16b",
    "gOIhw16i16o": "aBCde16c16b",
    "Goihw16g": "Abcde16a",
    "hwioG16g": "decbA16a",
    "Owi16o": "Acb16a",
    "OwI16o4i": "AcB16a4b",
    "gOIdhw4o8i2o": "aBCdef4b8c2b",
    "ldgOi32o": "abdEc32e",
    "any": "any",
    "undef": "undef",
}


@pytest.mark.parametrize(("spelled", "canonical"), SPELLINGS.items())
def test_spellings_have_one_canonical_object(spelled: str, canonical: str) -> None:
    tag = FormatTag(spelled)
    assert tag is FormatTag(canonical)
    assert tag is getattr(FormatTag, spelled)
    assert tag is FormatTag(tag)
    assert str(tag) == tag.name == canonical
    assert eval(repr(tag), {"FormatTag": FormatTag}) is tag
    assert pickle.loads(pickle.dumps(tag)) is tag
    assert copy.deepcopy(tag) is tag


@pytest.mark.parametrize("axes", ["nchw", "goihw", "ldigo", "tnc"])
def test_every_permutation_of_a_domain(axes: str) -> None:
    for letters in permutations(axes):
        tag = FormatTag("".join(letters))
        assert tag.order == tuple(axes.index(letter) for letter in letters)


@st.composite
def spelled_tags(draw: st.DrawFn) -> tuple[str, tuple[int, ...], tuple[tuple[int, int], ...]]:
    """A tag spelled by hand, with the order and the blocks that it must mean."""
    ndims = draw(st.integers(1, MAX_NDIMS))
    order = draw(st.permutations(range(ndims)))
    pair = st.tuples(st.integers(0, ndims - 1), st.integers(2, 64))
    inner = draw(st.lists(pair, max_size=4))
    blocked = {dim for dim, _ in inner}
    text = "".join(chr((ord("A") if d in blocked else ord("a")) + d) for d in order)
    text += "".join(str(size) + chr(ord("a") + dim) for dim, size in inner)
    return text, tuple(order), tuple(inner)


@given(spelled_tags())
def test_naming_rule(
    spelled: tuple[str, tuple[int, ...], tuple[tuple[int, int], ...]],
) -> None:
    text, order, inner = spelled
    tag = FormatTag(text)
    assert (tag.name, tag.order, tag.inner_blocks) == (text, order, inner)
    assert tag.ndims == len(order)
    assert FormatTag.of(order, inner) is tag
    assert tag.is_plain == (not inner)
    for dim, total in enumerate(tag.block_sizes()):
        product = 1
        for blocked, size in inner:
            product *= size if blocked == dim else 1
        assert total == product


@pytest.mark.parametrize(
    ("order", "inner"),
    [((99,), ()), (None, ()), ((0, 1), "f32"), ((0,), ((0, 1, 2),)), ({}, [None])],
)
def test_what_is_no_order(order: Any, inner: Any) -> None:
    with pytest.raises(InvalidArguments):
        FormatTag.of(order, inner)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("nchw16c", "did you mean 'nChw16c'"),
        ("nChw", "did you mean 'nchw'"),
        ("nChw16n", "did you mean 'Nchw16n'"),
        ("nhcv", "no domain has the dimensions"),
        ("nchww", "'w' is named twice"),
        ("abd", "'c' is missing"),
        ("abcdefghijklm", "at most 12 dimensions"),
        ("aBcd16", "letters followed by blocks"),
        ("aBcd016b", "letters followed by blocks"),
        ("aBcd16B", "small letter"),
        ("aBcd16x", "small letter"),
        ("aBcd1b", "at least 2"),
        ("aB99999999999b", "less than 2**31"),
        ("aB" + 13 * "2b", "at most 12 inner blocks"),
        ("", "letters followed by blocks"),
        ("n-c", "did you mean"),
        ("hwc", "no domain"),
    ],
)
def test_refusals_teach(text: str, part: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        FormatTag(text)
    assert caught.value.argument == "tag"
    assert caught.value.value == text
    assert part in str(caught.value)


def test_nearest_spelling() -> None:
    with pytest.raises(InvalidArguments, match="'nCw16c' or 'nChw16c'"):
        FormatTag("nCwh16")
    assert suggest_for("nhwc", 3) == "nwc"
    assert suggest_for("nchw", 12) == "abcdefghijkl"


@pytest.mark.parametrize("wrong", [None, 3, ["a", "b"]])
def test_other_types_are_refused(wrong: object) -> None:
    with pytest.raises(InvalidArguments):
        FormatTag(wrong)  # type: ignore[arg-type]


def test_attributes_that_are_no_tags() -> None:
    with pytest.raises(AttributeError, match="capital"):
        _ = FormatTag.nchw16c
    assert not hasattr(FormatTag, "_nchw")


def test_immutable() -> None:
    tag = FormatTag("nchw")
    with pytest.raises(AttributeError):
        tag.name = "nhwc"
    with pytest.raises(AttributeError):
        del tag.name
