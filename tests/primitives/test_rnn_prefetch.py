"""What recurrent layers prefetch: weights and rows that the next tiles read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dnnl import Arg, PrimitiveDesc, PropKind, RnnDesc, config
from dnnl.codegen.compile import jit
from dnnl.codegen.ir import vector
from dnnl.codegen.isa import caches
from dnnl.codegen.isa.caches import LINE, Caches
from dnnl.kernels.rnn.gradient_problem import GradientConf
from tests.launch import launch
from tests.prefetched import Counters, in_lines
from tests.primitives.harness import ENGINE
from tests.primitives.rnn_networks import gradient, network
from tests.processor import ISAS
from tests.small_caches import small_caches

_L2 = 2**15
_UNITS = 64
_WIDE = sorted({"sse41", "avx2", "avx512_core"} & {*ISAS})


def _prefetched(
    desc: RnnDesc, argument: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[NDArray[np.int64], Any]:
    """How often each line of an operand is prefetched, and what the kernel was written for."""

    def of(cpu: str, sized: Caches) -> Caches:
        return replace(small_caches(cpu, sized), l2=_L2)

    monkeypatch.setattr(caches, "of", of)
    with config.override("cache_limit", 0):
        pd = PrimitiveDesc(desc, ENGINE)
        recipe = pd.plan.recipe
        sizes = {own.argument: own.desc.size for own in pd.desc.tensors}
        sizes[Arg.SCRATCHPAD] = pd.plan.scratchpad
        with monkeypatch.context() as patched:
            memory = in_lines(sizes[argument])
            counters = Counters(memory.ctypes.data, memory.nbytes)
            patched.setattr(vector, "prefetch", counters.count)
            made = jit.built(recipe)
    own = {key: in_lines(size) for key, size in sizes.items()} | {argument: memory}
    launch(ENGINE.load(made), [own[key].ctypes.data for key in made.arguments])
    return counters.lines[:-1], recipe.conf


@pytest.mark.parametrize("isa", _WIDE)
def test_weights_of_the_next_block(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines but those of the first block of units, which has none before it."""
    with config.override("max_cpu_isa", isa):
        desc = replace(network("vanilla_lstm", 2, 13, _UNITS), prop_kind=PropKind.forward_inference)
        for argument in (Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER):
            lines, conf = _prefetched(desc, argument, monkeypatch)
            per_block = _UNITS * 4 * conf.lanes * 4 // LINE
            assert not lines[:per_block].any()
            assert lines[per_block:].all()


@pytest.mark.parametrize("isa", _WIDE)
def test_few_rows(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single tile reads weights once, in order."""
    with config.override("max_cpu_isa", isa):
        desc = replace(network("vanilla_lstm", 1, 1, _UNITS), prop_kind=PropKind.forward_inference)
        lines, _ = _prefetched(desc, Arg.WEIGHTS_ITER, monkeypatch)
        assert not lines.any()


@pytest.mark.parametrize("isa", _WIDE)
def test_gradients(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed weights of the next group of blocks, and rows of the next tile."""
    with config.override("max_cpu_isa", isa):
        desc = gradient(network("vanilla_lstm", 3, 19, 2 * _UNITS))
        lines, conf = _prefetched(desc, Arg.SCRATCHPAD, monkeypatch)
    assert isinstance(conf, GradientConf)

    def of(name: str) -> NDArray[np.int64]:
        part, (shape, kind) = conf.parts[name], conf._shapes()[name]
        first = part.begin // LINE
        return lines[first : first + int(np.prod(shape)) * kind.size // LINE]

    weights = of("iter_back").reshape(conf.before // conf.lanes // conf.pair, -1)
    assert not weights[0].any()
    assert weights[1:].all()
    rows = of("gate_diffs").reshape(conf.blocks(conf.channels), conf.steps * conf.rows, -1)
    assert not rows[0, 0].any()
    assert rows[:, 8:].all()
