"""Sessions on an engine whose memory the host cannot touch, and whose work is done later."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import InvalidArguments, Memory, MemoryDesc
from dnnl.runtime.engine import Engine
from tests.device import FAR
from tests.framework.models import feeds_for, model_of
from tests.framework.random_graphs import STEPS, Builder


@pytest.mark.parametrize("seed", range(4))
def test_results_are_those_of_the_cpu(seed: int) -> None:
    builder, rng = Builder(seed), np.random.default_rng(seed)
    for _ in range(14):
        recent = [int(back) for back in rng.exponential(2.0, 3)]
        builder.step(str(rng.choice(list(STEPS))), recent)
    model = model_of(builder.proto())
    feeds = feeds_for(model.graph)
    near, far = (model.compile(engine, num_threads=1) for engine in (Engine("cpu"), FAR))
    for results in (far.run(feeds), far.run_timed(feeds)[0]):
        for name, want in near.run(feeds).items():
            np.testing.assert_array_equal(results[name], want)


@pytest.mark.parametrize("engine", [Engine("cpu"), FAR], ids=["cpu", "far"])
@pytest.mark.parametrize("tag", ["ab", "ba", "aB8b"])
def test_parts_and_fills(engine: Engine, tag: str) -> None:
    rng = np.random.default_rng(1)
    desc = MemoryDesc((5, 7), "f32", tag)
    whole = Memory(MemoryDesc((64 + desc.size,), "u8"), engine)
    whole.write(rng.integers(0, 256, 64 + desc.size, np.uint8))
    before, array = whole.read()[:64].copy(), rng.standard_normal((5, 7), np.float32)
    part = whole.part(desc, 64)
    part.fill(array)
    assert (part.numpy() == array).all()
    assert (whole.read()[:64] == before).all()
    assert (part.read() == Memory.from_numpy(array, tag, engine).read()).all()
    with pytest.raises(InvalidArguments, match=r"offset = 65: \d+ bytes .* within the"):
        whole.part(desc, 65)
    with pytest.raises(InvalidArguments, match=r"of shape \(7, 5\).*of the shape \(5, 7\)"):
        part.fill(array.T)
