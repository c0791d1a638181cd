"""Packed, sparse and grouped matrices on a SYCL device: shared tests, executed there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dnnl import Engine
from tests.primitives import test_matmul_grouped as grouped
from tests.primitives import test_matmul_packed as packed
from tests.primitives import test_matmul_sparse as sparse
from tests.qemu.instead import instead


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[None]:
    """Whatever is executed is so on the device."""
    with instead(Engine("sycl")):
        yield


@pytest.mark.parametrize("blocks", [(16, 4), (8, 1), (6, 4)])
def test_packing(blocks: tuple[int, int]) -> None:
    for weights in (((150, 70), np.int8), ((32, 8), np.uint8), ((257, 3), np.int8)):
        packed.test_packing("ba", blocks, "default", weights)


def test_more_weights_than_there_is_room_for() -> None:
    packed.test_more_weights_than_there_is_room_for(1)


def test_wrong_packed_weights() -> None:
    packed.test_wrong_buffers_are_not_left("default")


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("encoding", ["csr", "coo"])
def test_sparse_matrices(encoding: str, which: int) -> None:
    for sizes in ((40, 30, 1), (3, 1, 5)):
        sparse.test_sizes(sizes, which, encoding, "reversed")


@pytest.mark.parametrize("wrong", grouped.HOSTILE)
def test_wrong_offsets_of_groups(wrong: str) -> None:
    grouped.test_no_offset_leads_out_of_the_buffers(wrong, "rows")


@pytest.mark.parametrize("types", [("f32",) * 3, ("u8", "s8", "f32"), ("f32", "s4", "f32")])
def test_groups_of_rows(types: grouped.Types) -> None:
    desc = grouped.of_rows(grouped.SIZES, 64, 45, types)
    grouped.verify(desc, grouped.SIZES)


def test_groups_of_terms() -> None:
    grouped.verify(grouped.of_terms(grouped.SIZES, 17, 40, "f32"), grouped.SIZES)
