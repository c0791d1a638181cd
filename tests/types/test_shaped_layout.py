"""Permutations between framework axes and descriptor axes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnl.errors import InvalidArguments
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.shaped_layout import ShapedLayout, inverse, same_places, unblocked


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
    with pytest.raises(InvalidArguments, match=r"each of 0\.\.1 once; such as \(0, 1\)"):
        layout.transpose((0, 0))
    with pytest.raises(InvalidArguments, match="permutation"):
        ShapedLayout(layout.desc, (0, 2))
    with pytest.raises(InvalidArguments, match=r"6 elements.*\(3, 2\) is one"):
        layout.reshape((4, 2))
    with pytest.raises(InvalidArguments, match=r"6 elements.*\(6,\) is one"):
        layout.reshape((4, 4))


@given(st.permutations(range(5)))
def test_inverse(axes: list[int]) -> None:
    back = inverse(axes)
    assert [axes[d] for d in back] == list(range(5))


@given(st.permutations(range(4)), st.permutations(range(4)))
def test_axes_of_one_operation_as_those_of_another(own: list[int], required: list[int]) -> None:
    desc = MemoryDesc((2, 3, 4, 5), "f32", "acdb")
    layout = ShapedLayout(desc, tuple(own))
    axes = layout.axes_for(required)
    assert [required[axis] for axis in axes] == own
    assert layout.view(required) == desc.permute_axes(axes)


def test_the_weights_of_a_convolution_that_activations_become() -> None:
    """perm1 * perm2^-1 = (0123) -> (2031), the example of the founding document."""
    activations = ShapedLayout(MemoryDesc((2, 5, 3, 4), "f32", "nhwc"), (0, 3, 1, 2))
    assert activations.axes_for((3, 2, 0, 1)) == (2, 0, 3, 1)
