"""Sizes that only the execution knows on a SYCL device: the shared tests, executed there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dnnl import Engine
from tests.primitives import harness
from tests.primitives import test_matmul_open as products
from tests.primitives import test_open_reductions as reductions
from tests.primitives import test_open_sizes as nests
from tests.primitives import test_reorder_attributes as attributes
from tests.primitives import test_reorder_runtime as reorders
from tests.primitives.runtime_sizes import open_desc, run_open, trials
from tests.qemu.instead import instead

LAYOUTS = [("nchw", "nhwc"), ("nhwc", "nchw"), ("nChw8c", "nChw16c"), ("part", "dcba")]


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[None]:
    """Whatever is executed is so on the device."""
    with instead(Engine("sycl")):
        yield


@pytest.mark.parametrize("line", nests.LINES[::3])
def test_nests(line: str) -> None:
    every = [*trials(line)]
    run_open(every[len(every) // 2])


@pytest.mark.parametrize("kind", ["eltwise", "concat"])
def test_one_primitive_for_many_sizes(kind: str, tmp_path: Path) -> None:
    nests.test_one_primitive_for_many_sizes(kind, tmp_path)


@pytest.mark.parametrize("layout", ["dcba", "part"])
@pytest.mark.parametrize("kind", ["binary"])
def test_any_strides(kind: str, layout: str) -> None:
    nests.test_any_strides(kind, layout)


@pytest.mark.parametrize("line", reductions.SHORT[::2])
def test_reductions(line: str) -> None:
    for made in trials(line):
        run_open(made)


@pytest.mark.parametrize("case", reductions.PARTS[::8])
def test_results_of_parts(case: tuple[reductions.Shape, reductions.Shape, str]) -> None:
    reductions.test_results_of_parts(*case)


@pytest.mark.parametrize("line", products.LINES[::3])
def test_products(line: str) -> None:
    every = [*trials(f"--matmul {line}")]
    made = every[len(every) // 2]
    opened = (products.with_neighbours, open_desc)[len(line) % 2]
    run_open(made, opened(made.desc))


@pytest.mark.parametrize("types", ["f32", "u8:s8:f32"])
def test_products_with_panels(types: str) -> None:
    products.test_open_rows_beside_panels(types, "default")


@pytest.mark.parametrize("dst", ["nhwc", "nChw16c", "gaps"])
def test_reorders_of_layouts(dst: str) -> None:
    for src in harness.LAYOUTS:
        reorders.test_every_layout_into_every_other(src, dst)


@pytest.mark.parametrize("types", reorders.TYPES[::2], ids=">".join)
def test_reorders_of_types(types: tuple[str, str]) -> None:
    reorders.test_types(types, "default")


@pytest.mark.parametrize("name", [*attributes.CASES][::4])
def test_reorders_with_attributes(name: str) -> None:
    for src, dst in LAYOUTS:
        reorders.test_attributes(name, src, dst, "default")
