"""Memory descriptors: places of elements against layouts built by NumPy reshapes."""

from __future__ import annotations

import copy
import pickle
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnl.errors import InvalidArguments
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM, FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

Array = np.ndarray[Any, np.dtype[np.int64]]


@st.composite
def shapes_and_tags(draw: st.DrawFn) -> tuple[tuple[int, ...], FormatTag]:
    """Small dims and any tag for them: permuted, blocked, blocked several times."""
    ndims = draw(st.integers(1, 5))
    dims = tuple(draw(st.lists(st.integers(1, 5), min_size=ndims, max_size=ndims)))
    order = draw(st.permutations(range(ndims)))
    pair = st.tuples(st.integers(0, ndims - 1), st.integers(2, 4))
    return dims, FormatTag.of(order, draw(st.lists(pair, max_size=3)))


def places_by_reshape(dims: tuple[int, ...], tag: FormatTag) -> Array:
    """Return the offset of every position, padding included.

    Every padded dimension is cut into one axis per level (outer part, then its blocks), the axes
    are put in the order that the tag spells, and the elements are counted.
    """
    levels: list[list[int]] = [[] for _ in dims]
    for dim, size in tag.inner_blocks:
        levels[dim].append(size)
    volumes = [prod(blocks) for blocks in levels]
    padded = [-(-size // n) * n for size, n in zip(dims, volumes, strict=True)]
    axes, shape = [], []
    for dim, blocks in enumerate(levels):
        axes += [(dim, level) for level in range(len(blocks) + 1)]
        shape += [padded[dim] // prod(blocks), *blocks]
    memory = [(dim, 0) for dim in tag.order]
    seen = [0] * len(dims)
    for dim, _ in tag.inner_blocks:
        seen[dim] += 1
        memory.append((dim, seen[dim]))
    perm = [axes.index(axis) for axis in memory]
    counted = np.arange(prod(shape)).reshape([shape[p] for p in perm])
    return counted.transpose(np.argsort(perm)).reshape(padded)


def places(desc: MemoryDesc, padded: bool = False) -> Array:
    """Return the offsets of all elements as the descriptor gives them."""
    shape = desc.padded_dims if padded else desc.dims
    found = [desc.offset(index) for index in np.ndindex(*shape)]
    return np.array(found, dtype=np.int64).reshape(shape)


def check_value(desc: MemoryDesc) -> None:
    """Check what must hold for every descriptor as a value."""
    for other in (
        eval(repr(desc), {"MemoryDesc": MemoryDesc, "RUNTIME_DIM": RUNTIME_DIM}),
        pickle.loads(pickle.dumps(desc)),
        copy.deepcopy(desc),
    ):
        assert other == desc
        assert hash(other) == hash(desc)
        assert repr(other) == repr(desc)
        assert other.size == desc.size
        if 1 not in desc.padded_dims:
            assert str(other) == str(desc)


@given(shapes_and_tags())
@settings(max_examples=200, deadline=None)
def test_places_by_tag(case: tuple[tuple[int, ...], FormatTag]) -> None:
    dims, tag = case
    desc = MemoryDesc(dims, "f32", tag)
    expected = places_by_reshape(dims, tag)
    assert desc.padded_dims == expected.shape
    np.testing.assert_array_equal(places(desc, padded=True), expected)
    assert desc.size == 4 * expected.size == 4 * desc.nelems(padded=True)
    assert desc.nelems() == prod(dims)
    assert desc.is_dense(padded=True)
    assert desc.is_dense() == (dims == desc.padded_dims)
    assert desc.tag is tag
    assert desc.matches_tag(tag.name)
    check_value(desc)


@given(shapes_and_tags())
@settings(max_examples=100, deadline=None)
def test_tag_is_found_again_from_strides(case: tuple[tuple[int, ...], FormatTag]) -> None:
    dims, tag = case
    desc = MemoryDesc(dims, "f32", tag)
    by_strides = MemoryDesc(dims, "f32", desc.strides, inner_blocks=desc.inner_blocks)
    assert by_strides == desc
    found = by_strides.tag
    assert found is not None
    np.testing.assert_array_equal(
        places(MemoryDesc(dims, "f32", found), padded=True), places(desc, padded=True)
    )
    if 1 not in desc.padded_dims:
        assert found is tag or 1 in desc.outer_dims
    check_value(by_strides)


@given(shapes_and_tags(), st.data())
@settings(max_examples=100, deadline=None)
def test_permute_axes(case: tuple[tuple[int, ...], FormatTag], data: st.DataObject) -> None:
    dims, tag = case
    desc = MemoryDesc(dims, "u8", tag, offset0=3)
    perm = data.draw(st.permutations(range(len(dims))))
    moved = desc.permute_axes(perm)
    inverse = np.argsort(perm).tolist()
    np.testing.assert_array_equal(
        places(moved, padded=True), places(desc, padded=True).transpose(inverse)
    )
    assert all(moved.dims[perm[d]] == size for d, size in enumerate(dims))
    assert moved.permute_axes(inverse) == desc
    assert moved.size == desc.size
    check_value(moved)


@given(shapes_and_tags(), st.data())
@settings(max_examples=150, deadline=None)
def test_submemory(case: tuple[tuple[int, ...], FormatTag], data: st.DataObject) -> None:
    dims, tag = case
    desc = MemoryDesc(dims, "f32", tag)
    start, region = [], []
    for size, block in zip(dims, desc.blocks, strict=True):
        first = data.draw(st.integers(0, (size - 1) // block)) * block
        rest = size - first
        start.append(first)
        region.append(
            data.draw(
                st.sampled_from(
                    [n for n in range(rest + 1) if n == rest or n % block == 0 or n < block]
                )
            )
        )
    sub = desc.submemory(region, start)
    window = tuple(slice(s, s + n) for s, n in zip(start, region, strict=True))
    np.testing.assert_array_equal(places(sub), places(desc)[window])
    assert sub.size <= desc.size
    if 0 in region:
        assert sub.size == 0
    else:
        assert sub.size >= 4 * (int(places(sub).max()) + 1)
    # What the region calls its padding is padding of the whole tensor.
    for d, (size, padded) in enumerate(zip(sub.dims, sub.padded_dims, strict=True)):
        assert padded == size or start[d] + size == dims[d]
    check_value(sub)


@given(shapes_and_tags(), st.data())
@settings(max_examples=150, deadline=None)
def test_reshape_keeps_every_place(
    case: tuple[tuple[int, ...], FormatTag], data: st.DataObject
) -> None:
    dims, tag = case
    desc = MemoryDesc(dims, "f32", tag, offset0=2)
    target = data.draw(st.sampled_from(factorizations(prod(dims))))
    try:
        moved = desc.reshape(target)
    except InvalidArguments:
        return
    assert moved.dims == target
    np.testing.assert_array_equal(places(moved).ravel(), places(desc).ravel())
    assert moved.size == desc.size
    assert moved.nelems(padded=True) == desc.nelems(padded=True)
    check_value(moved)


def factorizations(volume: int) -> list[tuple[int, ...]]:
    """Return ways to write a volume as up to three dims, with unit dims among them."""
    divisors = [n for n in range(1, volume + 1) if volume % n == 0]
    pairs = [(n, volume // n) for n in divisors]
    return [(volume,), (1, volume, 1), *pairs, *((a, 1, b) for a, b in pairs)] + [
        (a, b // c, c) for a, b in pairs for c in divisors if b % c == 0
    ]


@given(st.permutations(range(3)), st.lists(st.integers(1, 4), min_size=3, max_size=3), st.data())
@settings(max_examples=150, deadline=None)
def test_reshape_does_what_strides_allow(
    order: list[int], dims: list[int], data: st.DataObject
) -> None:
    """Plain layouts: NumPy's reshape of the same view says whether it goes without a copy."""
    desc = MemoryDesc(dims, "f32", FormatTag.of(order))
    target = data.draw(st.sampled_from(factorizations(prod(dims))))
    view = np.arange(prod(dims), dtype=np.float32).reshape([dims[d] for d in order])
    view = view.transpose(np.argsort(order))
    no_copy = np.shares_memory(view, view.reshape(target))
    if no_copy:
        assert desc.reshape(target).dims == target
    else:
        with pytest.raises(InvalidArguments):
            desc.reshape(target)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.data(),
)
@settings(max_examples=200, deadline=None)
def test_strides_never_overlap(dims: list[int], data: st.DataObject) -> None:
    """Accepted strides put every element (broadcast aside) in a place of its own."""
    count = len(dims)
    strides = data.draw(st.lists(st.integers(0, 40), min_size=count, max_size=count))
    try:
        desc = MemoryDesc(dims, "s8", strides)
    except InvalidArguments:
        return
    found = places(desc)
    stored = prod(n for n, s in zip(dims, strides, strict=True) if s)
    assert len(set(found.ravel().tolist())) == stored
    assert desc.size == int(found.max()) + 1
    expected = sum(
        i * s for i, s in zip(np.indices(dims), strides, strict=True)
    )  # the definition of strides
    np.testing.assert_array_equal(found, expected)
    check_value(desc)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
@settings(max_examples=100, deadline=None)
def test_every_numpy_slice_has_a_descriptor(dims: list[int], data: st.DataObject) -> None:
    base = np.zeros(dims, dtype=np.int16)
    steps = tuple(
        slice(data.draw(st.integers(0, n - 1)), None, data.draw(st.integers(1, 3))) for n in dims
    )
    view = base[steps].transpose(data.draw(st.permutations(range(len(dims)))))
    desc = MemoryDesc(view.shape, "f16", [stride // 2 for stride in view.strides])
    last = tuple(n - 1 for n in view.shape)
    assert desc.size == 2 * desc.offset(last) + 2


@pytest.mark.parametrize(
    ("args", "text", "size"),
    [
        (((2, 32, 3, 3), "f32", "nChw16c"), "f32::blocked:aBcd16b::f0", 2304),
        (((2, 17, 3, 3), "f32", "nChw16c"), "f32:p:blocked:aBcd16b::f0", 2304),
        (((2, 17, 3, 3), "s8", "nhwc"), "s8::blocked:acdb::f0", 306),
        (((64, 32, 3, 3), "bf16", "OIhw4i16o4i"), "bf16::blocked:ABcd4b16a4b::f0", 36864),
        (((2, 3), "f32", "any"), "f32::any:any::f0", 0),
        (((2, 3), "f32", (10, 1)), "f32::blocked:ab:10x1:f0", 52),
        (((2, 3), "f32", (0, 1)), "f32::blocked:ba:0x1:f0", 12),
        (((2, 3), "f32"), "f32::blocked:ab::f0", 24),
        (((2, 0, 3), "f32"), "f32::blocked:abc::f0", 0),
        (((), "f64"), "f64::blocked:::f0", 8),
        (((3, 3), "s4"), "s4::blocked:ab::f0", 5),
        (((2, RUNTIME_DIM), "f32"), "f32::blocked:*::f0", RUNTIME_DIM),
        (((1, 2048, 1, 1), "f32", "nhwc"), "f32::blocked:acdb::f0", 8192),
        (((1, 2048, 1, 1), "f32", "nchw"), "f32::blocked:abcd::f0", 8192),
        (((1,) * 12, "f32"), "f32::blocked:abcdefghijkl::f0", 4),
    ],
)
def test_verbose_token_and_size(args: tuple[Any, ...], text: str, size: int) -> None:
    desc = MemoryDesc(*args)
    assert str(desc) == text
    assert desc.size == size
    check_value(desc)


def test_token_letters() -> None:
    desc = MemoryDesc((2, 17, 4, 4), "f32", "nChw16c")
    assert desc.token(user_any=True) == "f32:ap:blocked:aBcd16b::f0"
    sub = desc.submemory((1, 17, 4, 4), (1, 0, 0, 0))
    assert str(sub) == "f32:p0:blocked:aBcd16b::f0"
    assert str(MemoryDesc.zero()) == "undef::undef:::"


def test_twelve_dimensions_and_none() -> None:
    dims = (2,) * 12
    desc = MemoryDesc(dims, "f32", "lkjihgfedcba")
    np.testing.assert_array_equal(
        places(desc), np.arange(4096).reshape(dims).transpose(range(11, -1, -1))
    )
    scalar = MemoryDesc((), "f32")
    assert (scalar.ndims, scalar.nelems(), scalar.offset(()), scalar.tag) == (0, 1, 0, None)
    assert scalar.reshape((1, 1)) == MemoryDesc((1, 1), "f32")
    assert MemoryDesc((1,), "f32").reshape(()) == scalar
    assert scalar.permute_axes(()) == scalar
    assert scalar.submemory((), ()) == scalar
    assert scalar.is_dense()


def test_absent_tensor() -> None:
    zero = MemoryDesc.zero()
    assert zero.is_zero
    assert zero == MemoryDesc.zero()
    assert zero != MemoryDesc((), "f32")
    assert (zero.size, zero.ndims, zero.format_kind) == (0, 0, FormatKind.undef)
    assert zero.data_type is DataType.undef
    assert zero.tag is None
    assert not MemoryDesc((), "f32").is_zero
    check_value(zero)


def test_fields_are_plain_python() -> None:
    desc = MemoryDesc(list(np.array([2, 20, 3])), "f32", "nCw16c")
    assert type(desc.dims[0]) is int
    assert desc.dims == (2, 20, 3)
    assert desc.padded_dims == (2, 32, 3)
    assert desc.strides == (96, 48, 16)
    assert desc.inner_blocks == ((1, 16),)
    assert desc.blocks == (1, 16, 1)
    assert desc.outer_dims == (2, 2, 3)
    assert desc.format_kind is FormatKind.blocked
    assert (desc.ndims, desc.offset0) == (3, 0)
    assert not desc.is_plain


def test_equality_ignores_strides_that_are_never_used() -> None:
    one = MemoryDesc((4, 1, 3), "f32", "abc")
    same = MemoryDesc((4, 1, 3), "f32", (3, 99, 1))
    assert one == same
    assert hash(one) == hash(same)
    assert len({one, same}) == 1
    assert MemoryDesc((2, 1, 4, 4), "f32", "nchw") == MemoryDesc((2, 1, 4, 4), "f32", "nhwc")


def test_inequality() -> None:
    desc = MemoryDesc((2, 16, 4), "f32", "abc")
    others = [
        MemoryDesc((2, 16, 4), "s32", "abc"),
        MemoryDesc((2, 16, 4), "f32", "acb"),
        MemoryDesc((2, 16, 4), "f32", "aBc16b"),
        MemoryDesc((2, 16, 4), "f32", "any"),
        MemoryDesc((2, 4, 16), "f32", "abc"),
        MemoryDesc((2, 16, 4), "f32", "abc", offset0=1),
        MemoryDesc((2, 16, 4), "f32", (64, 4, 1), padded_dims=(3, 16, 4)),
        MemoryDesc.zero(),
    ]
    for other in others:
        assert desc != other
    assert len({desc, *others}) == len(others) + 1
    assert desc != "f32::blocked:abc::f0"


def test_unit_dimensions_keep_the_tag_that_was_given() -> None:
    assert MemoryDesc((2, 1, 5, 1), "f32", "nhwc").tag is FormatTag("acdb")
    assert MemoryDesc((1, 1, 1, 1), "f32", "nhwc").matches_tag("nchw")
    assert MemoryDesc((2, 1, 5, 4), "f32", "nhwc").matches_tag("nchw")
    assert MemoryDesc((4, 1, 3), "f32", (3, 99, 1)).matches_tag("abc")
    assert MemoryDesc((4, 1, 3), "f32", (3, 99, 1)).tag is not None
    assert not MemoryDesc((1, 2, 3, 1), "f32", "nhwc").matches_tag("nchw")
    assert MemoryDesc((2, 3), "f32", "any").matches_tag("any")
    assert not MemoryDesc((2, 3), "f32").matches_tag("any")
    assert not MemoryDesc((2, 3), "f32").matches_tag("abc")


def test_with_data_type_and_tag() -> None:
    desc = MemoryDesc((2, 17), "f32", "aB16b")
    assert desc.with_data_type("s8") == MemoryDesc((2, 17), "s8", "aB16b")
    assert desc.with_data_type("f32") is desc
    assert desc.with_data_type("s8").size == 64
    assert desc.with_tag("ba") == MemoryDesc((2, 17), "f32", "ba")
    assert MemoryDesc((2,), "f32", "any").with_data_type("s8").format_kind is FormatKind.any
    with pytest.raises(InvalidArguments):
        desc.with_data_type("undef")


def test_immutable() -> None:
    desc = MemoryDesc((2, 3), "f32")
    for name in ("dims", "strides", "offset0", "new"):
        with pytest.raises(AttributeError):
            setattr(desc, name, 1)
    with pytest.raises(AttributeError):
        del desc.dims


def test_runtime_dimensions() -> None:
    desc = MemoryDesc((RUNTIME_DIM, 16, 3), "f32", "aBc8b")
    assert desc.padded_dims == (RUNTIME_DIM, 16, 3)
    assert desc.strides == (48, 24, 8)
    assert desc.size == desc.nelems() == RUNTIME_DIM
    assert desc.has_runtime_values
    assert not desc.is_dense()
    assert desc.tag is FormatTag("aBc8b")
    check_value(desc)
    inner = MemoryDesc((4, RUNTIME_DIM), "f32")
    assert inner.strides == (RUNTIME_DIM, 1)
    assert inner.permute_axes((1, 0)).dims == (RUNTIME_DIM, 4)
    strided = MemoryDesc((4, 3), "f32", (RUNTIME_DIM, 1))
    assert repr(strided) == "MemoryDesc((4, 3), 'f32', (RUNTIME_DIM, 1))"
    assert repr(inner).startswith("MemoryDesc((4, RUNTIME_DIM), 'f32', ")
    assert strided.size == RUNTIME_DIM
    check_value(strided)
    for refused in (
        lambda: desc.offset((0, 0, 0)),
        lambda: desc.reshape((RUNTIME_DIM, 48)),
        lambda: strided.reshape((12,)),
        lambda: desc.submemory((1, 16, 3), (0, 0, 0)),
        lambda: MemoryDesc((4, 3), "f32").submemory((RUNTIME_DIM, 3), (0, 0)),
        lambda: MemoryDesc((RUNTIME_DIM, 3), "f32", "any"),
    ):
        with pytest.raises(InvalidArguments):
            refused()


def test_reshape_examples() -> None:
    nchw = MemoryDesc((2, 3, 4, 5), "f32", "nchw")
    nhwc = MemoryDesc((2, 3, 4, 5), "f32", "nhwc")
    blocked = MemoryDesc((2, 17, 4, 5), "f32", "nChw16c")
    assert nchw.reshape((6, 20)) == MemoryDesc((6, 20), "f32")
    assert nhwc.reshape((2, 3, 20)) == MemoryDesc((2, 3, 20), "f32", "acb")
    assert blocked.reshape((2, 17, 20)) == MemoryDesc((2, 17, 20), "f32", "aBc16b")
    assert blocked.reshape((1, 2, 17, 20, 1)).inner_blocks == ((2, 16),)
    assert str(blocked.reshape((2, 1, 17, 20))) == "f32:p:blocked:abCd16c::f0"
    assert nchw.reshape([2, 3, 4, 5]) is nchw
    assert MemoryDesc((2, 3), "f32", "any").reshape((6,)) == MemoryDesc((6,), "f32", "any")
    assert MemoryDesc((2, 0), "f32").reshape((0, 5, 7)) == MemoryDesc((0, 5, 7), "f32")
    unit = MemoryDesc((1, 3), "f32", "Ab16a")
    assert unit.reshape((1, 3, 1)).padded_dims == (16, 3, 1)


def test_zero_dims_anywhere() -> None:
    for dims in product((0, 2), (0, 3), (0, 17)):
        for tag in ("abc", "acb", "abC16c"):
            desc = MemoryDesc(dims, "f32", tag)
            assert desc.has_zero_dim == (0 in dims)
            assert (desc.size == 0) == (0 in dims)
            assert desc.tag is FormatTag(tag)
            check_value(desc)


def test_equal_arguments_give_one_object_and_unequal_ones_do_not() -> None:
    made = MemoryDesc((2, 3, 4), "f32", "acb")
    read: Any = np.array([2, 3, 4])
    assert MemoryDesc(read, DataType.f32, FormatTag("acb")) == made
    assert MemoryDesc((2, 3, 4), "f32", "acb") is made
    others = [
        MemoryDesc((2, 3, 4), "s32", "acb"),
        MemoryDesc((2, 3, 4), "f32", "abc"),
        MemoryDesc((2, 3, 4), "f32", "acb", offset0=1),
        MemoryDesc((2, 3, 5), "f32", "acb"),
    ]
    assert made not in others
    for wrong in ((2.0, 3, 4), (2, 3, "4")):  # equal to what was read, and yet no integers
        with pytest.raises(InvalidArguments, match="dims"):
            MemoryDesc(wrong, "f32", "acb")  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="offset0"):
        MemoryDesc((2, 3, 4), "f32", "acb", offset0=0.0)  # type: ignore[arg-type]
