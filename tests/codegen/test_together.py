"""Kernels built by several threads and processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dnnl import (
    Arg,
    EltwiseDesc,
    Engine,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    Stream,
    config,
)
from dnnl.codegen.compile import jit, parallel
from dnnl.codegen.ir.kernel import Recipe
from dnnl.primitives import primitive

ENGINE = Engine("cpu")


@pytest.fixture(autouse=True)
def _no_caches() -> Iterator[None]:
    primitive._cache.clear()
    with config.override("cache_limit", 0):
        yield


def descriptions(count: int) -> list[PrimitiveDesc]:
    made = []
    for size in range(1, count + 1):
        desc = MemoryDesc((size, 3), "f32", "ab")
        forward = EltwiseDesc.forward("forward_inference", "eltwise_tanh", desc, desc)
        made.append(PrimitiveDesc(forward, ENGINE))
    return made


def test_the_kernels_are_those_that_this_process_builds() -> None:
    recipes = [pd.plan.recipe for pd in descriptions(48)]
    told: list[Recipe] = []
    images = parallel.images([*recipes, *recipes], 3, told.append)
    assert images.keys() == set(recipes)
    assert len(told) == len(recipes)
    assert set(told) == set(recipes)
    for recipe in recipes[::6]:
        assert images[recipe] == (jit.built(recipe), False)


def test_what_is_called_may_end_the_building() -> None:
    calls = []

    def ready(recipe: Recipe) -> None:
        calls.append(recipe)
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        parallel.images([pd.plan.recipe for pd in descriptions(48)], 2, ready)
    assert len(calls) == 1


def test_primitives_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pds = descriptions(40)
    with config.override("num_threads", 2):
        images = primitive.build_ahead(pds)
    assert len(images) == 40
    monkeypatch.setattr(jit, "built", None)
    array = np.random.default_rng(1).standard_normal((40, 3), np.float32)
    src, dst = Memory.from_numpy(array, engine=ENGINE), Memory(pds[-1].dst_desc, ENGINE)
    made = Primitive(pds[-1], images=images)
    made.execute(Stream(ENGINE), {Arg.SRC: src, Arg.DST: dst})
    np.testing.assert_allclose(dst.numpy(), np.tanh(array), rtol=1e-6)


def test_one_kernel_and_those_on_disk_are_left_to_this_thread(tmp_path: Path) -> None:
    pds = descriptions(48)
    assert not parallel.images([pds[0].plan.recipe], 8)
    assert not parallel.images([pd.plan.recipe for pd in pds], 1)
    assert len(parallel.images([pd.plan.recipe for pd in pds[:2]], 2)) == 2
    with config.override("cache_limit", 64), config.override("cache_dir", tmp_path):
        assert len(parallel.images([pd.plan.recipe for pd in pds], 2)) == 48
        told: list[Recipe] = []
        again = parallel.images([pd.plan.recipe for pd in pds], 2, told.append)
        assert told == [pd.plan.recipe for pd in pds]
        assert [from_disk for _, from_disk in again.values()] == [True] * 48


@pytest.mark.parametrize("executable", ["/bin/true", "/no/python", None])
def test_without_other_processes_everything_is_built_here(
    executable: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if executable == "/bin/true":  # an interpreter that ends at once
        (tmp_path / "python").symlink_to(executable)
        executable = str(tmp_path / "python")
    monkeypatch.setattr(sys, "executable", executable)
    pds = descriptions(48)
    images = parallel.images([pd.plan.recipe for pd in pds], 3)
    assert len(images) in (47, 48)  # one may be lost with its process
    for pd in pds:
        Primitive(pd, images=images)
