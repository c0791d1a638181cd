"""Reorders as cases."""

from __future__ import annotations

from math import prod

from bench import conversions, layouts, odd, small
from bench.moves import Move
from dnnl import Arg, MemoryDesc
from dnnl.tools.bench.creation import create
from dnnl.tools.bench.drivers import description


def test_every_pair_of_layouts_of_every_tensor_of_resnet_50() -> None:
    activations, weights = layouts.activations(), layouts.weights()
    assert len({move.dims for move in activations}) * 12 == len(activations)
    assert len({move.dims for move in weights}) * 6 == len(weights)
    assert {move.dims for move in activations} >= {(1, 3, 224, 224), (16, 2048, 7, 7)}
    assert {move.dims for move in weights} >= {(64, 3, 7, 7), (512, 2048, 1, 1)}
    every = [*activations, *weights]
    assert len({move.name for move in every}) == len({(m.dims, m.src, m.dst) for m in every})


def test_odd_cases_are_the_same_ones_each_time() -> None:
    names = [move.name for move in odd.cases()]
    assert names == [move.name for move in odd.cases()]
    assert len(names) == len(set(names))
    assert {len(move.dims) for move in odd.cases()} == {2, 4, 5, 6}


def test_conversions_scale_the_narrow_type() -> None:
    every = list(conversions.cases())
    assert len({move.name for move in every}) == len(every)
    for move in every:
        (scales,) = move.attributes
        side, end = ("src", move.src) if "=src:" in scales else ("dst", move.dst)
        assert scales.startswith(f"--attr-scales={side}:")
        assert end[0] != "f32"
        assert move.src[1] == move.dst[1]


def test_small_tensors_are_small() -> None:
    every = list(small.cases())
    assert len({move.name for move in every}) == len(every)
    sizes = [prod(move.dims) * 4 for move in every]
    assert (min(sizes), max(sizes)) == (1 << 10, 64 << 10)


def test_every_case_can_be_read() -> None:
    cases = [*odd.cases(), *conversions.cases(), *small.cases(), *layouts.weights()[:6]]
    for move in cases:
        assert len(move.case.shapes.padded[0]) == len(move.dims)


def test_a_case_says_all_that_the_move_does() -> None:
    attributes = ("--attr-scales=src:per_dim_1+dst:common:0.5", "--attr-post-ops=sum:0.5")
    move = Move("all", (2, 17, 3, 5), ("f32", "nchw"), ("s8", "nChw16c"), attributes)
    kind = description(move.case.driver)
    assert kind is not None
    desc, attr, *_ = create(move.case, kind)
    assert desc.desc_of(Arg.SRC) == MemoryDesc(move.dims, "f32", "nchw")
    assert desc.desc_of(Arg.DST) == MemoryDesc(move.dims, "s8", "nChw16c")
    assert {argument: spec.mask for argument, spec in attr.scales.items()} == {
        Arg.SRC: 2,
        Arg.DST: 0,
    }
    assert len(tuple(attr.post_ops)) == 1
