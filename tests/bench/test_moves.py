"""Reorders as cases, and that wrong ones are never timed."""

from __future__ import annotations

import numpy as np
import pytest

from bench import conversions, layouts, odd, small
from bench.agreement import WrongResult, check_rounded
from bench.moves import Move, Prepared, contents
from dnnl import Arg, DataType, Engine, MemoryDesc
from dnnl.reference.arrays import f64
from dnnl.runtime.gather import gather


def test_every_pair_of_layouts_of_every_tensor_of_resnet_50() -> None:
    activations, weights = layouts.activations(), layouts.weights()
    assert len({move.src.dims for move in activations}) * 12 == len(activations)
    assert len({move.src.dims for move in weights}) * 6 == len(weights)
    assert {move.src.dims for move in activations} >= {(1, 3, 224, 224), (16, 2048, 7, 7)}
    assert {move.src.dims for move in weights} >= {(64, 3, 7, 7), (512, 2048, 1, 1)}
    every = [*activations, *weights]
    assert len({move.name for move in every}) == len({(move.src, move.dst) for move in every})


def test_odd_cases_are_the_same_ones_each_time() -> None:
    names = [move.name for move in odd.cases()]
    assert names == [move.name for move in odd.cases()]
    assert len(names) == len(set(names))
    assert {len(move.src.dims) for move in odd.cases()} == {2, 4, 5, 6}


def test_conversions_scale_the_narrow_type() -> None:
    every = list(conversions.cases())
    assert len({move.name for move in every}) == len(every)
    for move in every:
        ((argument, mask),) = move.scales
        tensor = move.src if argument is Arg.SRC else move.dst
        assert tensor.data_type is not DataType.f32
        assert mask in (0, 2)
        assert move.src.matches_tag(str(move.name.split()[3]))


def test_small_tensors_are_small() -> None:
    every = list(small.cases())
    assert len({move.name for move in every}) == len(every)
    sizes = [move.src.nelems() * 4 for move in every]
    assert (min(sizes), max(sizes)) == (1 << 10, 64 << 10)


@pytest.mark.parametrize("data_type", ["f32", "s4", "u8", "f8_e4m3", "f4_e2m1"])
def test_contents_are_finite_and_differ(data_type: str) -> None:
    values = f64(contents((9, 7), DataType[data_type]))
    assert np.isfinite(values).all()
    assert len(np.unique(values)) > 5


def test_a_case_with_everything_is_right() -> None:
    src, dst = MemoryDesc((2, 17, 3, 5), "f32", "nchw"), MemoryDesc((2, 17, 3, 5), "s8", "nChw16c")
    move = Move("everything", src, dst, ((Arg.SRC, 2), (Arg.DST, 0)), 0.5)
    prepared = Prepared(move, Engine("cpu"), 1)
    assert move.work == src.size + dst.size
    before = gather(dst, prepared.operation.memories[Arg.DST].data).copy()
    prepared.run()
    assert np.any(gather(dst, prepared.operation.memories[Arg.DST].data) != before)


def test_a_wrong_case_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.moves.scatter", lambda desc, data, values: data.fill(1))
    move = Move("x", MemoryDesc((3, 5), "f32", "ab"), MemoryDesc((3, 5), "f32", "ba"))
    with pytest.raises(WrongResult, match=r"x: dnnl: 15 of 15 elements are wrong"):
        Prepared(move, Engine("cpu"), 1)


@pytest.mark.parametrize(
    ("data_type", "error", "right"),
    [("s8", 1.0, True), ("s8", 2.0, False), ("bf16", 2.0**-6, True), ("bf16", 2.0**-4, False),
     ("f32", 1e-6, True), ("f32", 1e-5, False)],
)  # fmt: skip
def test_a_step_is_accepted(data_type: str, error: float, right: bool) -> None:
    want = np.array([2.0, 3.0])
    given = np.array([2.0, 3.0 + error])
    if right:
        check_rounded("x", given, want, DataType[data_type])
        return
    with pytest.raises(WrongResult, match=r"x: 1 of 2 elements are wrong, the first at \(1,\)"):
        check_rounded("x", given, want, DataType[data_type])
