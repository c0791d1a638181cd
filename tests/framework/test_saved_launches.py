"""What a step of a saved model executes: the same as where it was compiled, scratchpad included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dnnl.errors import InvalidArguments
from dnnl.framework.compiler import compiled
from dnnl.framework.model import load
from dnnl.framework.session import Session
from dnnl.passes.specialize import specialize
from dnnl.runtime.engine import first_cpu
from tests.framework.models import make_model, model_of, node, plans_of
from tests.framework.test_saved_models import detector, elsewhere, floats, named_results


def long_products() -> Any:
    """Products of what the model computes, which a primitive packs into its scratchpad."""
    nodes = [
        node("Relu", ["x"], "a"),
        node("Transpose", ["a"], "b", perm=[1, 0]),
        node("MatMul", ["a", "b"], "c"),
        node("MatMul", ["c", "a"], "d"),
        node("Softmax", ["d"], "y", axis=-1),
    ]
    return make_model(nodes, {"x": ["n", 600]}, ["y"])


@pytest.mark.parametrize("rows", [(500,), (500, 70)])
def test_launches_are_the_same(rows: tuple[int, ...], tmp_path: Path) -> None:
    model = model_of(long_products())
    if len(rows) == 1:  # all sizes known
        model = model.with_shapes({"x": (rows[0], 600)})
    else:
        for count in rows:
            model(np.ones((count, 600), np.float32))
    model.save(tmp_path / "model")
    saved = load(tmp_path / "model", compile=False)
    sizes = []
    for own in [session.compiled for session in plans_of(saved).sessions]:
        session = Session(own)
        count = rows[0] if not own.plan.is_open else rows[-1]
        numbers = session.numbers({"x": (count, 600)})
        assert numbers is not None
        if own.plan.is_open:
            (again,) = (each for each in plans_of(model).sessions if each.is_open)
            there = again.compiled
        else:
            known = specialize(model.graph, {"x": (count, 600)})
            there = compiled(known, first_cpu())
        values = session._compute(numbers)
        for here, other in zip(own.kernels, there.kernels, strict=True):
            given, expected = here.launch(values), other.launch(values)
            assert given.order == expected.order
            assert given.kind == expected.kind
            assert given.scratchpad_size == expected.scratchpad_size
            assert (given.sizes is None) == (expected.sizes is None)
            sizes.append(given.scratchpad_size)
    assert max(sizes) > 0, "no step has a scratchpad"


def test_weaker_instruction_sets(tmp_path: Path) -> None:
    if not first_cpu().features.has("avx2", "fma"):
        pytest.skip("needs AVX2")
    rng = np.random.default_rng(5)
    model, feeds = model_of(detector(rng)), floats(rng, 1, 3, 64, 64)
    model.save(tmp_path / "model", [{"x": (1, 3, 64, 64)}], isa="avx2")
    saved = load(tmp_path / "model", compile=False)
    (found,) = [session.compiled for session in plans_of(saved).sessions]
    assert found.isa == "avx2"
    assert not any(feature.startswith(("avx512", "amx")) for feature in found.features)
    given = elsewhere(tmp_path / "model", [feeds])[0]["y"]
    np.testing.assert_allclose(given, named_results(model, feeds)["y"], rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidArguments, match="isa = 'avx3'"):
        model.save(tmp_path / "other", isa="avx3")
