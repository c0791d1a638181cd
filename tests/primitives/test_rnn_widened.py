"""Recurrent layers of many rows, whose narrow weights become f32 once for each work item."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dnnl import (
    Arg,
    Memory,
    PrimitiveAttr,
    PrimitiveDesc,
    RnnDesc,
    config,
)
from dnnl.codegen.compile import jit
from dnnl.codegen.isa import caches
from dnnl.codegen.isa.caches import Caches
from dnnl.kernels.rnn import tiles
from dnnl.reference.rnn_check import SPECIFICATION
from tests import processor
from tests.check import logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, execute_all
from tests.primitives.rnn_networks import BOTH, inference
from tests.small_caches import small_caches

_NEVER = 10**6
_L2 = 2**15


@pytest.fixture(autouse=True)
def second_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that holds some blocks of units of these layers."""

    def of(cpu: str, sized: Caches) -> Caches:
        return replace(small_caches(cpu, sized), l2=_L2)

    monkeypatch.setattr(caches, "of", of)


def _executed(desc: RnnDesc, attr: PrimitiveAttr) -> dict[int, bytes]:
    """The bytes of each result."""
    pd, rng = PrimitiveDesc(desc, ENGINE, attr), np.random.default_rng(3)
    values = SPECIFICATION.fill(desc)
    for argument, own in values.items():
        if argument in (Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER):
            values[argument] = rng.integers(-100, 100, own.shape) / 64
            if desc.desc_of(argument).data_type.is_integer:
                values[argument] *= 64
    given = {t.argument: t.desc for t in pd.desc.tensors if not t.output}
    for argument in attr.scales:
        key = Arg.SCALES | argument
        given[key] = pd.arg_desc(key)
        values[key] = rng.uniform(0.001, 0.002, given[key].dims)
    for argument in attr.zero_points:
        key = Arg.ZERO_POINTS | argument
        given[key] = pd.arg_desc(key)
        values[key] = rng.integers(-9, 9, given[key].dims).astype(np.float64)
    args: dict[int, Memory] = {
        key: memory_of(values[key], own, ENGINE) for key, own in given.items()
    }
    return {key: logical(own).tobytes() for key, own in execute_all(pd, args).items()}


def _loops(ir: str) -> int:
    """The phases that convert weights."""
    phases = ir.split("define ")
    return sum("widen" in phase for phase in phases)


def _described(alg: str, rows: int, weights: str, **options: Any) -> tuple[RnnDesc, PrimitiveAttr]:
    """Of bytes the attribute has scales and zero points; those of states without a bound, as behind
    relu, become f32."""
    attr, src = PrimitiveAttr(), weights
    if weights == "s8":
        src = "f32"
        for argument in (Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER):
            attr.set_scales(argument, 27)
            attr.set_zero_points(argument, 24)
    steps = 1 if rows == 13 else 2  # few enough for weights that are row-major not to be packed
    made = inference(alg, steps, rows, 19, src=src, weights=weights, inputs=21, **options)
    return made, attr


@every_pair(isa=processor.ISAS, weights=["bf16", "f16", "s8"], tag=["any", "abcde"])
def test_results_are_those_without(
    isa: str, weights: str, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product adds the same numbers in the same order, wherever they are converted."""
    options = {"direction": BOTH, "activation": "eltwise_relu", "tag": tag}
    cases = [("lstm", 13), ("lstm", 50), ("gru", 50), ("rnn", 3)]
    given = [_described(alg, rows, weights, **options) for alg, rows in cases]
    with (
        config.override("max_cpu_isa", isa),
        config.override("cache_limit", 0),
        config.override("primitive_cache_capacity", 0),
    ):
        once = [_executed(*each) for each in given]
        if isa == "avx2" and weights != "s8":
            recipes = [PrimitiveDesc(desc, ENGINE, attr).plan.recipe for desc, attr in given]
            assert any(_loops(jit.written(recipe).ir) for recipe in recipes)
        monkeypatch.setattr(tiles, "_CONVERSIONS", _NEVER)
        assert once == [_executed(*each) for each in given]


@every_pair(rows=[3, 9, 50], weights=["f32", "bf16", "f16"], inputs=[21, 400])
def test_where_weights_are_converted(rows: int, weights: str, inputs: int) -> None:
    """Of many rows, where a block of units fits the second-level cache; pairs of bf16 take one
    instruction, f16 takes two."""
    with config.override("max_cpu_isa", "avx2"):
        desc = inference("lstm", 1, rows, 16, src=weights, weights=weights, inputs=inputs)
        recipe = PrimitiveDesc(desc, ENGINE).plan.recipe
        block = 4 * recipe.isa.lanes * 4
        fits = [block * own <= _L2 // 2 for own in (inputs, 16)]
        loops = _loops(jit.written(recipe).ir)
    least = {"bf16": 15, "f16": 7, "f32": _NEVER}[weights]
    assert loops == (sum(fits) if rows >= least else 0)
