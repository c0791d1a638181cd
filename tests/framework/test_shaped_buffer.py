"""Permutations between framework axes and descriptor axes, after the seed document's example."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnl.errors import InvalidArguments
from dnnl.framework.shaped_buffer import (
    ShapedBuffer,
    ShapedLayout,
    inverse,
    same_places,
    unblocked,
)
from dnnl.runtime.engine import Engine
from dnnl.types.memory_desc import MemoryDesc
from tests.device import FAR

ENGINES = pytest.mark.parametrize("engine", [Engine("cpu"), FAR], ids=["cpu", "far"])
NHWC = (0, 3, 1, 2)
HWIO = (3, 2, 0, 1)


def test_activations_become_weights_without_moving() -> None:
    # The seed document: a result (2, 3, 4, 5) of one convolution is read as (height, width, in,
    # out) weights by the next; the descriptor's axes are renamed by (0123) -> (2031).
    array = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    buffer = ShapedBuffer.from_numpy(array, NHWC)
    assert buffer.shape == (2, 3, 4, 5)
    assert buffer.memory.desc.dims == (2, 5, 3, 4)
    assert buffer.memory.desc.matches_tag("nhwc")
    weights = buffer.view(HWIO)
    assert weights.desc == buffer.memory.desc.permute_axes((2, 0, 3, 1))
    assert weights.pointer == buffer.memory.pointer
    np.testing.assert_array_equal(weights.numpy(), array.transpose(3, 2, 0, 1))


def test_transposition_changes_the_permutation_only() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = ShapedBuffer.from_numpy(array)
    turned = buffer.transpose((1, 0))
    assert turned.memory is buffer.memory
    assert turned.permutation == (1, 0)
    np.testing.assert_array_equal(turned.numpy(), array.T)


@given(
    st.permutations(range(4)),
    st.permutations(range(4)),
    st.permutations(range(4)),
    st.sampled_from([Engine("cpu"), FAR]),
)
def test_view_has_the_required_axes(
    order: list[int], turned: list[int], required: list[int], engine: Engine
) -> None:
    array = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    buffer = ShapedBuffer.from_numpy(array, order, engine).transpose(turned)
    expected = array.transpose(turned)
    assert buffer.shape == expected.shape
    np.testing.assert_array_equal(buffer.view(required).numpy(), expected.transpose(required))


@pytest.mark.parametrize(
    ("dims", "tag", "shape"),
    [
        ((2, 6, 4, 5), "nchw", (2, 120)),
        ((2, 6, 4, 5), "nhwc", (2, 6, 20)),
        ((2, 6, 4, 5), "nhwc", (2, 3, 2, 4, 5)),
        ((3, 64, 1, 1), "nChw16c", (3, 64)),
        ((3, 64, 1, 1), "nChw16c", (192,)),
        ((3, 32, 4, 5), "nChw16c", (3, 32, 20)),
    ],
)
def test_reshape_without_moving(dims: tuple[int, ...], tag: str, shape: tuple[int, ...]) -> None:
    layout = ShapedLayout.of(MemoryDesc(dims, "f32", tag)).reshape(shape)
    assert layout is not None
    assert layout.shape == shape


@pytest.mark.parametrize(
    ("dims", "tag", "shape"),
    [
        ((2, 6, 4, 5), "nhwc", (2, 120)),
        ((2, 32, 4, 5), "nChw16c", (2, 640)),
        ((2, 24, 1, 1), "nChw16c", (2, 24)),
        ((2, 3, 4, 5), "acbd", (6, 20)),
        ((2, 3, 1, 5), "dcba", (30,)),
    ],
)
@ENGINES
def test_reshape_that_moves_keeps_every_element(
    dims: tuple[int, ...], tag: str, shape: tuple[int, ...], engine: Engine
) -> None:
    array = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    desc = MemoryDesc(dims, "f32", tag)
    buffer = ShapedBuffer.of(ShapedBuffer.from_numpy(array, None, engine).memory.reorder_to(desc))
    if tag != "nChw16c" or dims[1] % 16 == 0:
        assert buffer.layout.reshape(shape) is None
    moved = buffer.reshape(shape)
    assert moved.memory.engine is engine
    np.testing.assert_array_equal(moved.numpy(), array.reshape(shape))


def test_movable_keeps_the_order_of_what_is_not_merged() -> None:
    # A channel shuffle of channels-last data: groups and their channels are swapped, then merged.
    desc = MemoryDesc((2, 12, 3, 5), "f32", "nhwc")
    split = ShapedLayout.of(desc).reshape((2, 4, 3, 3, 5))
    assert split is not None
    shuffled = split.transpose((0, 2, 1, 3, 4))
    assert shuffled.reshape((2, 12, 3, 5)) is None
    moved = ShapedLayout.of(shuffled.movable((2, 12, 3, 5))).reshape((2, 12, 3, 5))
    assert moved is not None
    assert moved.desc.matches_tag("nhwc")


@settings(deadline=None, max_examples=30)  # most build a kernel
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).flatmap(
        lambda dims: st.tuples(st.just(dims), st.permutations(range(len(dims))))
    ),
    st.integers(1, 6),
    st.sampled_from([Engine("cpu"), FAR]),
)
def test_any_reshape_of_any_order(
    case: tuple[list[int], list[int]], first: int, engine: Engine
) -> None:
    dims, order = case
    array = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    shape = (first, array.size // first) if array.size % first == 0 else (1, array.size, 1)
    whole = ShapedBuffer.from_numpy(array, None, engine)
    buffer = ShapedBuffer.of(whole.memory.reorder_to(_tag(order)))
    np.testing.assert_array_equal(buffer.reshape(shape).numpy(), array.reshape(shape))


def _tag(order: list[int]) -> str:
    return "".join("abcd"[d] for d in order)


def test_blocks_that_change_nothing_do_not_count() -> None:
    blocked = MemoryDesc((4, 64, 1, 1), "f32", "nChw16c")
    plain = MemoryDesc((4, 64, 1, 1), "f32", "nchw")
    assert blocked != plain
    assert same_places(blocked, plain)
    assert unblocked(blocked) == plain
    spread = MemoryDesc((4, 64, 2, 1), "f32", "nChw16c")
    assert not same_places(spread, spread.with_tag("nchw"))
    assert unblocked(spread) is spread
    padded = MemoryDesc((4, 60, 1, 1), "f32", "nChw16c")
    assert not same_places(padded, padded.with_tag("nchw"))


def test_bad_permutations_are_refused() -> None:
    layout = ShapedLayout.of(MemoryDesc((2, 3), "f32", "ab"))
    with pytest.raises(InvalidArguments, match=r"each of 0\.\.1 once"):
        layout.transpose((0, 0))
    with pytest.raises(InvalidArguments, match="permutation"):
        ShapedLayout(layout.desc, (0, 2))
    with pytest.raises(InvalidArguments, match="6 elements"):
        layout.reshape((4, 2))


@given(st.permutations(range(5)))
def test_inverse(axes: list[int]) -> None:
    back = inverse(axes)
    assert [axes[d] for d in back] == list(range(5))
