"""Compensation in descriptors: where the sums lie, how it is spelled, what it excludes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from dnnl import RUNTIME_DIM, Compensation, InvalidArguments, MemoryDesc

DIMS = (20, 17, 3, 3)
PLAIN = MemoryDesc(DIMS, "s8", "OIhw4i16o4i")
BOTH = MemoryDesc(DIMS, "s8", "OIhw4i16o4i", compensation=Compensation(1, 1))


@pytest.mark.parametrize(
    ("desc", "sizes"),
    [
        (BOTH, {"s8s8": (32 * 32 * 9, 32), "zero_points": (32 * 32 * 9 + 128, 32)}),
        (MemoryDesc((5, 3), "s8", compensation=Compensation(1)), {"s8s8": (16, 5)}),
        (MemoryDesc((5, 3), "s8", compensation=Compensation(2)), {"s8s8": (16, 3)}),
        (
            MemoryDesc((5, 3), "s8", offset0=6, compensation=Compensation(3, 1)),
            {"s8s8": (24, 15), "zero_points": (84, 5)},
        ),
        (
            MemoryDesc((2, 20, 4, 1), "s8", "gOIw4i16o4i", compensation=Compensation(0, 3)),
            {"zero_points": (2 * 32 * 16, 64)},
        ),
        (MemoryDesc((5, 3), "s8", (1, 6), compensation=Compensation(1)), {"s8s8": (20, 5)}),
    ],
)
def test_sums_lie_behind_the_weights(desc: MemoryDesc, sizes: dict[str, tuple[int, int]]) -> None:
    """``sizes``: the byte at which the sums of a kind begin, and how many there are."""
    assert desc.compensation is not None
    assert list(desc.compensation.masks) == list(sizes)
    for kind, (begin, count) in sizes.items():
        sums = desc.compensation_desc(kind)
        mask = desc.compensation.masks[kind]
        kept = [size if mask >> d & 1 else 1 for d, size in enumerate(desc.dims)]
        assert (str(sums.data_type), sums.dims) == ("s32", tuple(kept))
        assert 4 * sums.offset([0] * desc.ndims) == begin
        assert sums.nelems(padded=True) == count
        last = [size - 1 for size in sums.padded_dims]
        assert sums.offset(last) == sums.offset0 + count - 1
    assert desc.size == begin + 4 * count


def test_a_tensor_without_elements_has_no_bytes() -> None:
    for dims in ((0, 3), (3, 0)):
        assert MemoryDesc(dims, "s8", compensation=Compensation(1)).size == 0


def test_it_is_part_of_the_value() -> None:
    assert BOTH != PLAIN
    assert PLAIN.with_compensation(Compensation(1)) != BOTH
    assert PLAIN.with_compensation(Compensation(1, 1)) == BOTH
    assert hash(PLAIN.with_compensation(Compensation(1, 1))) == hash(BOTH)
    assert BOTH.with_compensation(None) == PLAIN
    names = {"MemoryDesc": MemoryDesc, "Compensation": Compensation}
    strided = MemoryDesc((5, 3), "s8", (1, 6), compensation=Compensation(1, 3, 0.5))
    for desc in (BOTH, strided):
        for other in (eval(repr(desc), names), pickle.loads(pickle.dumps(desc)), copy.copy(desc)):
            assert other == desc
            assert other.compensation == desc.compensation
            assert other.size == desc.size


@pytest.mark.parametrize(
    ("compensation", "token"),
    [
        (Compensation(1), "f1:s8m1"),
        (Compensation(True), "f1:s8m1"),
        (Compensation(0, 3), "f8:zpm3"),
        (Compensation(3, 1), "f9:s8m3:zpm1"),
        (Compensation(1, 0, 0.5), "f3:s8m1:sa0.5"),
        (Compensation(1, 1, 0.5), "f11:s8m1:zpm1:sa0.5"),
    ],
)
def test_verbose_tokens(compensation: Compensation, token: str) -> None:
    """oneDNN 3.2 was asked for the same descriptors."""
    assert str(PLAIN.with_compensation(compensation)) == f"s8:p:blocked:ABcd4b16a4b::{token}"


REFUSALS: list[tuple[Callable[[], Any], str]] = [
    (Compensation, "s8s8 = 0: one of s8s8 and zero_points must have a mask"),
    (lambda: Compensation(-1), "s8s8 = -1: a mask has a bit for each dimension"),
    (lambda: Compensation(zero_points=1.0), "zero_points = 1.0: expected an integer"),  # type: ignore[arg-type]
    (lambda: Compensation(1, 0, 0.0), "scale_adjust = 0.0: expected a positive number"),
    (lambda: Compensation(1, 0, float("inf")), "expected a positive number"),
    (lambda: Compensation(1, 0, "x"), "scale_adjust = 'x': expected a number"),  # type: ignore[arg-type]
    (lambda: Compensation(0, 1, 0.5), "goes with the compensation s8s8 alone"),
    (lambda: MemoryDesc(DIMS, "u8", compensation=Compensation(1)), "weights of s8, these are u8"),
    (lambda: MemoryDesc(DIMS, "s8", compensation=Compensation(16)), "expected 1..15"),
    (lambda: MemoryDesc((), "s8", compensation=Compensation(1)), "a bit above the dims = ()"),
    (lambda: MemoryDesc(DIMS, "s8", "any", compensation=Compensation(1)), "give a tag, not 'any'"),
    (
        lambda: MemoryDesc((RUNTIME_DIM, 3), "s8", compensation=Compensation(1)),
        "needs weights whose layout and dims are known",
    ),
    (lambda: MemoryDesc(DIMS, "s8", compensation=1), "expected a dnnl.Compensation or None"),  # type: ignore[arg-type]
    (lambda: MemoryDesc.zero().with_compensation(Compensation(1)), "these are undef"),
    (lambda: BOTH.reshape((20, 17, 9)), "reshape would leave the compensation behind"),
    (lambda: BOTH.permute_axes((1, 0, 2, 3)), "permute_axes would leave the compensation behind"),
    (lambda: BOTH.submemory((16, 17, 3, 3), (0,) * 4), "submemory would leave"),
    (lambda: BOTH.with_data_type("u8"), "with_data_type would leave the compensation behind"),
    (lambda: BOTH.compensation_desc("zp"), "these weights have s8s8, zero_points"),
    (lambda: PLAIN.compensation_desc("s8s8"), "this tensor has none"),
]


@pytest.mark.parametrize(("make", "part"), REFUSALS, ids=[part for _, part in REFUSALS])
def test_refusals(make: Callable[[], Any], part: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        make()
    assert part in str(caught.value)


def test_what_does_not_move_weights_keeps_it() -> None:
    assert BOTH.with_data_type("s8") is BOTH
    assert BOTH.with_tag("oihw") == MemoryDesc(DIMS, "s8", "oihw")
    assert BOTH.matches_tag("OIhw4i16o4i")
