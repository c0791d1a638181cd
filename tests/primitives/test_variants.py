"""The kernels of a description whose sizes only an execution knows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    ConcatDesc,
    InvalidArguments,
    LrnDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    RuntimeDim,
    Stream,
    config,
)
from dnnl.codegen.compile.disk_cache import serves_unknown_sizes
from dnnl.primitives import primitive as module
from dnnl.primitives.choice import CHOICES
from tests.check import random_memory
from tests.primitives.harness import ENGINE

R = RUNTIME_DIM
STREAM = Stream(ENGINE, 2)


def described(src: MemoryDesc) -> LrnDesc:
    """Each element by its neighbours among the channels."""
    return LrnDesc.forward("forward_inference", "lrn_across_channels", src, src, 3, 0.1, 0.75)


def made(*strides: int) -> Primitive:
    """A primitive for [batch, channels, width] of any size."""
    desc = MemoryDesc((R, R, R), "f32", strides or "abc")
    return Primitive(PrimitiveDesc(described(desc), ENGINE))


def expected(src: Memory) -> np.ndarray:
    """What the specification says, in numbers of f64."""
    x = src.numpy().astype(np.float64)
    squares = np.pad(x**2, ((0, 0), (1, 1), (0, 0)))
    sums = sum(squares[:, k : k + x.shape[1]] for k in range(3))
    return np.asarray(x * (1 + 0.1 / 3 * sums) ** -0.75)


def assert_right(primitive: Primitive, desc: MemoryDesc, seed: int = 0) -> None:
    src, dst = random_memory(desc, ENGINE, seed), Memory(desc, ENGINE)
    primitive.execute(STREAM, {Arg.SRC: src, Arg.DST: dst})
    np.testing.assert_allclose(dst.numpy(), expected(src), 1e-5, 1e-6)


def count(primitive: Primitive) -> int:
    """How many kernels a primitive has."""
    assert primitive.pd.variants is not None
    return len(primitive.pd.variants.every)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """No kernels of other tests: equal descriptions share them."""
    forget()
    yield
    forget()


def forget() -> None:
    CHOICES.clear()
    module._cache.clear()


def test_one_kernel_serves_all_sizes() -> None:
    primitive = made()
    for seed, dims in enumerate(product((2, 5), (3, 8, 33), (2, 17, 100))):
        assert_right(primitive, MemoryDesc(dims, "f32"), seed)
    assert count(primitive) <= 2  # what caches do not hold has its own, and here they are small


def test_sizes_of_one_and_nothing_have_kernels_of_their_own() -> None:
    primitive = made()
    for dims in product((0, 1, 2), (0, 1, 4), (0, 1, 20)):
        assert_right(primitive, MemoryDesc(dims, "f32"))
    # Each of three sizes is 1 or more, and one is for large tensors; what is empty needs none.
    assert count(primitive) <= 9


def test_strides_that_are_not_those_of_a_dense_tensor() -> None:
    primitive = made(R, R, R)
    for strides in ((200, 20, 1), (1, 9, 99), (500, 50, 2), (300, 1, 20)):
        assert_right(primitive, MemoryDesc((3, 8, 10), "f32", strides))
    first = count(primitive)
    for strides in ((400, 40, 1), (2000, 21, 1), (1, 10, 100)):
        assert_right(primitive, MemoryDesc((3, 9, 10), "f32", strides))
    assert count(primitive) == first


def test_the_number_of_kernels_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dnnl.primitives.variants._MOST", 3)
    primitive = made()
    for _ in range(2):
        for dims in product((1, 2), (1, 4), (1, 20)):
            assert_right(primitive, MemoryDesc(dims, "f32"))
            assert count(primitive) <= 3


def test_kernels_from_disk_know_what_they_serve(tmp_path: Path) -> None:
    dims = ((2, 8, 20), (3, 1, 20), (1, 2, 5))
    with config.override("cache_dir", tmp_path):
        for _ in range(2):
            primitive = made()
            for sizes in dims:
                assert_right(primitive, MemoryDesc(sizes, "f32"))
            # One more where the tensors of the first one are large, as caches are small here.
            assert count(primitive) in (3, 4)
            assert len(list(tmp_path.iterdir())) == count(primitive)
            assert all(map(serves_unknown_sizes, tmp_path.iterdir()))
            forget()


def test_threads_that_meet_the_same_size_share_its_kernel() -> None:
    primitive = made()
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for turn in range(12):
                dims = (1 + turn % 2, 1 + (seed + turn) % 3, 1 + turn % 5)
                assert_right(primitive, MemoryDesc(dims, "f32"), seed)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert count(primitive) <= 12


def test_what_breaks_a_rule_is_named_whether_sizes_are_new_or_not() -> None:
    primitive = made()
    src = random_memory(MemoryDesc((2, 4, 6), "f32"), ENGINE)
    for _ in range(2):
        other = Memory(MemoryDesc((2, 4, 7), "f32"), ENGINE)
        with pytest.raises(InvalidArguments, match=r"dst_desc = \(2, 4, 7\)"):
            primitive.execute(STREAM, {Arg.SRC: src, Arg.DST: other})
        assert_right(primitive, src.desc)
        bytes_ = Memory(MemoryDesc((2, 4, 6), "s8"), ENGINE)
        with pytest.raises(InvalidArguments, match="data_type must be f32"):
            primitive.execute(STREAM, {Arg.SRC: src, Arg.DST: bytes_})
        flat = Memory(MemoryDesc((48,), "f32"), ENGINE)
        with pytest.raises(InvalidArguments, match="ndims must be 3"):
            primitive.execute(STREAM, {Arg.SRC: src, Arg.DST: flat})


def test_results_that_would_overwrite_a_source_are_refused() -> None:
    primitive = made()
    whole = random_memory(MemoryDesc((4, 4, 6), "f32"), ENGINE)
    for channels in (4, 3):
        desc = MemoryDesc((2, channels, 6), "f32")
        shifted = MemoryDesc((2, channels, 6), "f32", (6 * channels, 6, 1))
        assert_right(primitive, desc)
        low = Memory(desc, ENGINE, whole.data[: desc.size])
        high = Memory(shifted, ENGINE, whole.data[24 : 24 + desc.size])
        with pytest.raises(InvalidArguments, match="must not share memory"):
            primitive.execute(STREAM, {Arg.SRC: low, Arg.DST: high})


def test_a_file_that_is_no_kernel_serves_nothing(tmp_path: Path) -> None:
    for content in (b"", b"dnnlobj6", b"dnnlobj6" + bytes(64), b"x" * 200):
        (tmp_path / "file.dnnl").write_bytes(content)
        assert not serves_unknown_sizes(tmp_path / "file.dnnl")
    assert not serves_unknown_sizes(tmp_path / "none.dnnl")


def test_strides_of_blocks_are_looked_at_where_there_are_several() -> None:
    """A single block has a stride that nobody uses."""

    def tensor(channels: int, gap: int) -> MemoryDesc:
        whole = MemoryDesc((3, channels + gap, 5), "f32", "aBc16b")
        return whole.submemory((3, channels, 5), (0, 0, 0))

    pattern = MemoryDesc((R, R, R), "f32", (R, R, R), inner_blocks=[(1, 16)], padded_dims=(R, R, R))
    primitive = Primitive(PrimitiveDesc(described(pattern), ENGINE))
    for channels, gap in ((16, 0), (48, 0), (16, 32), (48, 16), (32, 0)):
        assert_right(primitive, tensor(channels, gap))
    apart = MemoryDesc((3, 48, 5), "f32", (960, 160, 16), inner_blocks=[(1, 16)])
    assert_right(primitive, apart)


def test_kernels_from_disk_are_not_those_of_a_promise(tmp_path: Path) -> None:
    """A promise leaves out code for what never happens."""
    with config.override("cache_dir", tmp_path):
        for channels in (RuntimeDim(min=40), R):
            desc = MemoryDesc((R, channels, R), "f32", "abc")
            primitive = Primitive(PrimitiveDesc(described(desc), ENGINE))
            assert_right(primitive, MemoryDesc((2, 50, 3), "f32"))
            forget()
        for size in (2, 3, 4):
            assert_right(primitive, MemoryDesc((2, size, 3), "f32"))


def test_promises_hold_for_sizes_that_are_new() -> None:
    """Also where a size follows from others, and after a kernel is there."""
    parts = MemoryDesc((R, 3), "f32"), MemoryDesc((RuntimeDim(multiple=4), 3), "f32")
    dst = MemoryDesc((RuntimeDim(max=100), 3), "f32")
    primitive = Primitive(PrimitiveDesc(ConcatDesc(0, parts, dst), ENGINE))

    def execute(first: int, second: int) -> None:
        args = {Arg.MULTIPLE_SRC: first, Arg.MULTIPLE_SRC + 1: second, Arg.DST: first + second}
        memories = {arg: Memory(MemoryDesc((n, 3), "f32"), ENGINE) for arg, n in args.items()}
        primitive.execute(STREAM, memories)

    execute(50, 20)
    execute(60, 40)
    for first, second, rule in ((70, 40, "at most 100"), (20, 30, "a multiple of 4")):
        with pytest.raises(InvalidArguments, match=rule):
            execute(first, second)
