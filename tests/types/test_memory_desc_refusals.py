"""What memory descriptors refuse, and what the refusals say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dnnl.errors import InvalidArguments
from dnnl.types.memory_desc import MemoryDesc


@pytest.mark.parametrize(
    ("dims", "tag", "target", "part"),
    [
        ((2, 3, 4), "acb", (6, 4), "follow each other"),
        ((2, 32), "aB16b", (2, 2, 16), "blocked or padded"),
        ((2, 32), "aB16b", (64,), "blocked or padded"),
        ((1, 3), "Ab16a", (3,), "blocked or padded"),
        ((2, 3), "ab", (7,), "volume of (2, 3), which is 6"),
        ((0, 3), "Ab16a", (3, 0), "empty tensor"),
    ],
)
def test_reshape_refusals(
    dims: tuple[int, ...], tag: str, target: tuple[int, ...], part: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        MemoryDesc(dims, "f32", tag).reshape(target)
    assert caught.value.argument == "dims"
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("dims", "offsets", "argument", "part"),
    [
        ((2, 8), (0, 4), "offsets", "0 or 16"),
        ((2, 20), (0, 0), "dims", "16 works"),
        ((3, 16), (0, 0), "dims", "leaves dimension 0"),
        ((1, 16), (0, -16), "dims", "leaves dimension 1"),
        ((1,), (0, 0), "dims", "each of 2 dimensions"),
        ((1, 16), (0,), "offsets", "each of 2 dimensions"),
    ],
)
def test_submemory_refusals(
    dims: tuple[int, ...], offsets: tuple[int, ...], argument: str, part: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        MemoryDesc((2, 40), "f32", "aB16b").submemory(dims, offsets)
    assert caught.value.argument == argument
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("args", "kwargs", "argument", "part"),
    [
        (((2, -3), "f32"), {}, "dims", "0 or more"),
        ((7, "f32"), {}, "dims", "sequence of integers"),
        (("23", "f32"), {}, "dims", "sequence of integers"),
        (((2.0, 3), "f32"), {}, "dims", "dims = (2.0, 3): expected a sequence of integers"),
        (((2, 3), "f32", "12"), {}, "tag", "a tag is letters"),
        (((2, 3), "f32", (3.0, 1)), {}, "strides", "strides = (3.0, 1): expected a sequence"),
        (((2, 3), "f32", (4, 1)), {"inner_blocks": 3}, "inner_blocks", "pairs of integers"),
        (((2, 3), "f32", (4, 1)), {"inner_blocks": (1, 4)}, "inner_blocks", "pairs of integers"),
        (((1,) * 13, "f32"), {}, "dims", "at most 12"),
        (((2, 3), "fp32"), {}, "data_type", "did you mean 'f32'"),
        (((2, 3), "undef"), {}, "data_type", "MemoryDesc.zero()"),
        (((2, 3), "f32", "undef"), {}, "layout", "row-major"),
        (((2, 3, 4), "f32", "nhwc"), {}, "layout", "for 3 dimensions 'nwc'"),
        (((), "f32", "nhwc"), {}, "layout", "has 0"),
        (((2, 3), "f32", "nhcw"), {}, "layout", "4 dimensions"),
        (((2, 3), "f32", "n16c"), {}, "tag", "no domain"),
        (((2, 3), "f32", 5), {}, "layout", "format tag, strides or None"),
        (((2, 3), "f32", (1,)), {}, "strides", "expected 2 strides"),
        (((2, 3), "f32", (-3, 1)), {}, "strides", "0 (broadcast) or more"),
        (((2, 3), "f32", (2, 1)), {}, "strides", "overlaps the 3 elements"),
        (((2, 3), "s4", (5, 1)), {}, "strides", "share a byte"),
        (((2, 3), "f32", "ab"), {"offset0": -1}, "offset0", "negative"),
        (((2, 3), "f32", "any"), {"offset0": 1}, "offset0", "any"),
        (((2, 3), "f32", "ab"), {"padded_dims": (2, 4)}, "layout", "give strides"),
        (((2, 3), "f32", (4, 1)), {"padded_dims": (2, 2)}, "padded_dims", "none of them smaller"),
        (((2, 3), "f32", (4, 1)), {"padded_dims": 3}, "padded_dims", "sequence of integers"),
        (((2, 3), "f32", (4, 1)), {"padded_dims": (2, -4)}, "padded_dims", "0 or more"),
        (((2, 3), "f32", (4, 1)), {"padded_dims": (2,)}, "padded_dims", "one number for each"),
        (((2, 3), "f32", (4, 1)), {"inner_blocks": ((2, 4),)}, "inner_blocks", "below 2"),
        (((2, 3), "f32", (4, 1)), {"inner_blocks": ((1, 1),)}, "inner_blocks", "2 or more"),
        (((2**32, 2**32), "f32"), {}, "dims", "64 bits"),
        (((2**61, 2), "f32"), {}, "dims", "64 bits"),
        (((2**62,), "f32", "A16a"), {}, "dims", "64 bits"),
        (((2, 3), "f32", (2**62, 1)), {}, "dims", "64 bits"),
        (((2**32, 2**32), "f32", "any"), {}, "dims", "64 bits"),
    ],
)
def test_refusals(args: tuple[Any, ...], kwargs: dict[str, Any], argument: str, part: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        MemoryDesc(*args, **kwargs)
    assert caught.value.argument == argument
    assert part in str(caught.value)


@pytest.mark.parametrize("index", [(0,), (0, 0, 0), (2, 0), (0, 16), (-1, 0), (0, 0.5)])
def test_offset_refusals(index: tuple[Any, ...]) -> None:
    desc = MemoryDesc((2, 5), "f32", "aB16b")
    assert desc.offset((1, 15)) == 31
    with pytest.raises(InvalidArguments) as caught:
        desc.offset(index)
    assert caught.value.argument == "index"
    with pytest.raises(InvalidArguments):
        MemoryDesc((2, 5), "f32", "any").offset((0, 0))


def test_what_is_no_sequence_is_shown_whole() -> None:
    desc = MemoryDesc((2, 5), "f32")
    for wrong in (None, 3, "abcd", (0, 1.0)):
        shown = re.escape(f" = {wrong!r}: expected a sequence of integers")
        with pytest.raises(InvalidArguments, match=f"index{shown}"):
            desc.offset(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArguments, match=f"perm{shown}"):
            desc.permute_axes(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArguments, match=f"offsets{shown}"):
            desc.submemory((1, 1), wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("perm", [(0,), (0, 0), (0, 2), (1, -1), (0, 1, 2)])
def test_permute_refusals(perm: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArguments, match="each of"):
        MemoryDesc((2, 5), "f32").permute_axes(perm)


def test_permute_any_and_submemory_of_any() -> None:
    desc = MemoryDesc((2, 3, 4), "f32", "any")
    assert desc.permute_axes((2, 0, 1)) == MemoryDesc((3, 4, 2), "f32", "any")
    with pytest.raises(InvalidArguments):
        desc.submemory((1, 1, 1), (0, 0, 0))
