"""Reorder: any layout into any other, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import Arg, InvalidArguments, MemoryDesc, PrimitiveAttr, ReorderDesc, config
from tests.check import check, logical, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, LAYOUTS, describe, every_isa, execute, source

DIMS = (2, 19, 5, 18)


@pytest.mark.parametrize("dst", LAYOUTS)
@pytest.mark.parametrize("src", LAYOUTS)
def test_every_layout_into_every_other(src: str, dst: str) -> None:
    memory = source(DIMS, src)
    desc = ReorderDesc(memory.desc, describe(DIMS, dst))
    check(execute(desc, {Arg.SRC: memory}), logical(memory), 0.0)


@every_pair(
    every_isa,
    pytest.mark.parametrize(
        ("src", "dst"),
        [
            ("nchw", "nhwc"),
            ("nhwc", "nchw"),
            ("nchw", "nChw16c"),
            ("nChw8c", "nhwc"),
            ("part", "dcba"),
        ],
    ),
    pytest.mark.parametrize("dims", [(1, 16, 4, 16), (2, 3, 1, 37), (1, 1, 1, 1)]),
)
def test_every_instruction_set(isa: str, dims: tuple[int, ...], src: str, dst: str) -> None:
    memory = source(dims, src)
    with config.override("max_cpu_isa", isa):
        result = execute(ReorderDesc(memory.desc, describe(dims, dst)), {Arg.SRC: memory})
    check(result, logical(memory), 0.0)


@pytest.mark.parametrize(
    ("dims", "src", "dst"),
    [
        ((40_003,), "a", "a"),
        ((17,), "a", "A16a"),
        ((33, 65), "ab", "ba"),
        ((20, 35), "BA16a16b", "AB8b8a"),
        ((5, 6, 7), "acb", "cba"),
        ((2, 18, 3, 4, 5), "abcde", "aBcde16b"),
        ((2, 18, 3, 4, 5), "acdeb", "ABcde2b8a4b"),
        ((2, 3, 2, 2, 3, 2, 2), "abcdefg", "gfedcba"),
        ((1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 3), "abcdefghijkl", "lkjihgfedcba"),
        ((8, 12, 3, 3), "abcd", "cdba"),
        ((40, 24, 3, 3), "abcd", "ABcd16b16a"),
        ((40, 24, 3, 3), "ABcd4b16a4b", "ABcd16a16b"),
    ],
)
def test_any_rank(dims: tuple[int, ...], src: str, dst: str) -> None:
    memory = source(dims, src)
    desc = ReorderDesc(memory.desc, MemoryDesc(dims, "f32", dst))
    check(execute(desc, {Arg.SRC: memory}), logical(memory), 0.0)


def test_a_scalar() -> None:
    memory = random_memory(MemoryDesc((), "f32"), ENGINE)
    check(execute(ReorderDesc(memory.desc, memory.desc), {Arg.SRC: memory}), logical(memory), 0.0)


def test_a_broadcast_source() -> None:
    memory = random_memory(MemoryDesc((3, 4, 20), "f32", (20, 0, 1)), ENGINE)
    desc = ReorderDesc(memory.desc, MemoryDesc((3, 4, 20), "f32", "acb"))
    check(execute(desc, {Arg.SRC: memory}), logical(memory), 0.0)


def test_no_elements() -> None:
    memory = source((2, 0, 3, 4), "nchw")
    execute(ReorderDesc(memory.desc, describe((2, 0, 3, 4), "nhwc")), {Arg.SRC: memory})


@pytest.mark.parametrize("dst", ["nchw", "nhwc", "nChw16c"])
def test_special_values_keep_their_bits(dst: str) -> None:
    memory = source(DIMS, "nchw")
    bits = np.random.default_rng(5).integers(0, 2**32, memory.data.size // 4, dtype=np.uint32)
    memory.data.view(np.uint32)[:] = bits
    result = execute(ReorderDesc(memory.desc, describe(DIMS, dst)), {Arg.SRC: memory})
    assert (result.numpy().view(np.uint32) == memory.numpy().view(np.uint32)).all()


@pytest.mark.parametrize("dst", ["nchw", "nhwc", "nChw16c", "part"])
def test_sum(dst: str) -> None:
    memory, old = source(DIMS, "nchw"), source(DIMS, dst, seed=2)
    attr = PrimitiveAttr()
    attr.post_ops.append_sum(0.5)
    want = logical(memory) + 0.5 * logical(old)
    check(execute(ReorderDesc(memory.desc, old.desc), {Arg.SRC: memory}, attr, old), want, 1e-6)


@every_isa
def test_rows_of_padding_behind_a_stretch(isa: str) -> None:
    """Elements 4 apart are loaded as a stretch; for rows that are padding there is none."""
    src = random_memory(MemoryDesc((16, 16), "f32", (80, 4), offset0=1), ENGINE)
    with config.override("max_cpu_isa", isa):
        result = execute(ReorderDesc(src.desc, MemoryDesc((16, 16), "f32", "Ab5a")), {Arg.SRC: src})
    check(result, logical(src), 0.0)


def test_bad_arguments() -> None:
    plain = MemoryDesc((2, 3), "f32")
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(3, 2\).*\(2, 3\)"):
        ReorderDesc(plain, MemoryDesc((3, 2), "f32"))
    with pytest.raises(InvalidArguments, match=r"dst_desc.*layout"):
        ReorderDesc(plain, MemoryDesc((2, 3), "f32", "any"))
    with pytest.raises(InvalidArguments, match=r"src_desc.*MemoryDesc"):
        ReorderDesc("plain", plain)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match=r"src_desc.*required"):
        ReorderDesc(MemoryDesc.zero(), plain)
