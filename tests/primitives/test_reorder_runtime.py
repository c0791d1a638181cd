"""Reorder of tensors whose sizes only the execution knows: one kernel for most of them."""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnl import (
    RUNTIME_DIM,
    Arg,
    Compensation,
    DataType,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReorderDesc,
    Stream,
    Unimplemented,
    config,
)
from dnnl.primitives import primitive as module
from dnnl.reference.conversions import convert
from dnnl.reference.reorder import QUANTIZED_TOLERANCE
from tests.check import check, logical, memory_of, poisoned_memory, random_memory
from tests.guard import RUNS, near
from tests.primitives.harness import ENGINE, LAYOUTS, describe, every_isa, execute, typed_source
from tests.primitives.runtime_sizes import ALL, opened
from tests.primitives.test_reorder_attributes import CASES, run

STREAM = Stream(ENGINE, 1)
R = RUNTIME_DIM
SIZES = [(1, 1, 1, 1), (2, 19, 5, 18), (3, 16, 1, 33), (1, 40, 4, 16)]


def pattern(src: MemoryDesc, dst: MemoryDesc, dims: int = ALL, strides: int = ALL) -> ReorderDesc:
    """A reorder of which an execution decides on what the masks say."""
    return ReorderDesc(opened(src, dims, strides), opened(dst, dims, strides))


def reordered(memory: Memory, dst: MemoryDesc, dims: int = ALL, strides: int = ALL) -> Memory:
    """The memory as ``dst``, by a kernel that does not know all sizes."""
    desc = pattern(memory.desc, dst, dims, strides)
    return execute(desc, {Arg.SRC: memory}, dst=poisoned_memory(dst, ENGINE))


@pytest.mark.parametrize("dst", LAYOUTS)
@pytest.mark.parametrize("src", LAYOUTS)
def test_every_layout_into_every_other(src: str, dst: str) -> None:
    """Each pair at one of the sizes, in turn."""
    dims = SIZES[(len(src) + 2 * len(dst)) % len(SIZES)]
    memory = typed_source(dims, src, "f32")
    check(reordered(memory, describe(dims, dst)), logical(memory), 0.0)


TAGS = [
    ("abcd", "acdb"), ("acdb", "abcd"), ("abcd", "abcd"), ("aBcd8b", "aBcd16b"),
    ("abcd", "aBcd16b"), ("aBcd16b", "acdb"), ("ABcd4b16a4b", "abcd"), ("dcba", "ABcd16b16a"),
]  # fmt: skip
MANY_SIZES = [
    (2, 19, 5, 18), (2, 3, 7, 5), (2, 64, 14, 14), (5, 33, 3, 70), (4, 48, 2, 3), (3, 16, 8, 2),
    (1, 40, 4, 16), (2, 1, 9, 9), (1, 1, 1, 1), (0, 3, 4, 5),
]  # fmt: skip


@pytest.mark.parametrize("types", [("f32", "f32"), ("f32", "s8"), ("s8", "s4"), ("u4", "u4")])
def test_one_primitive_for_many_sizes(types: tuple[str, str]) -> None:
    """Between guard pages, on one thread and on two."""
    begin, step = {"f32f32": (0, 1), "f32s8": (0, 2), "s8s4": (1, 2), "u4u4": (0, 3)}[
        "".join(types)
    ]
    for tags in TAGS[begin::step]:
        ends = [MemoryDesc((R,) * 4, *end) for end in zip(types, tags, strict=True)]
        primitive = Primitive(PrimitiveDesc(ReorderDesc(*ends), ENGINE))
        for dims in MANY_SIZES:
            src, dst = (MemoryDesc(dims, *end) for end in zip(types, tags, strict=True))
            args = {Arg.FROM: random_memory(src, ENGINE), Arg.TO: poisoned_memory(dst, ENGINE)}
            want = convert(logical(args[Arg.FROM]), types[1], core="f64")
            for threads, at in RUNS:
                placed = {argument: near(memory, at) for argument, memory in args.items()}
                primitive.execute(Stream(ENGINE, threads), placed)
                check(placed[Arg.TO], want, 0.0)


@pytest.mark.parametrize("dims", [ALL, 0, 0b10, 0b101])
@pytest.mark.parametrize("strides", [ALL, 0, 0b1000])
def test_some_are_known(dims: int, strides: int) -> None:
    if not dims | strides:
        return
    for src, dst in (("nchw", "nhwc"), ("part16", "gaps"), ("ABcd4b16a4b", "nChw16c")):
        memory = typed_source((2, 19, 5, 18), src, "f32")
        target = describe((2, 19, 5, 18), dst)
        check(reordered(memory, target, dims, strides), logical(memory), 0.0)


TYPES = [
    ("f32", "s8"), ("u8", "bf16"), ("s32", "f64"), ("f16", "f8_e5m2"), ("bf16", "bf16"),
    ("f64", "f32"), ("f8_e4m3", "f16"), ("e8m0", "f32"), ("s8", "s8"), ("f32", "e8m0"),
    ("f32", "s4"), ("u4", "u4"), ("f4_e2m1", "bf16"), ("s8", "f4_e2m1"), ("s4", "f32"),
]  # fmt: skip


@every_isa
@pytest.mark.parametrize("types", TYPES[::2], ids=">".join)
def test_types(types: tuple[str, str], isa: str) -> None:
    """Each pair in one of the layouts and at one of the sizes, in turn."""
    layouts = [("nchw", "nhwc"), ("nhwc", "nchw"), ("nChw8c", "nChw16c"), ("part", "dcba")]
    number = len("".join((*types, isa)))
    src, dst = layouts[number % len(layouts)]
    dims = ((2, 36, 4, 18), (2, 19, 3, 5))[number % 3 == 0]
    memory = typed_source(dims, src, types[0])
    target = describe(dims, dst).with_data_type(types[1])
    with config.override("max_cpu_isa", isa):
        result = reordered(memory, target)
    check(result, convert(logical(memory), types[1], core="f64"), 0.0)


@pytest.mark.parametrize(
    ("src", "dst", "isa"),
    [("nchw", "nhwc", "default"), ("nhwc", "nChw16c", "avx2"), ("part", "gaps", "sse41")],
)
@pytest.mark.parametrize("name", [*CASES][::3])
def test_attributes(name: str, src: str, dst: str, isa: str) -> None:
    dims = (2, 24, 3, 20)
    types = ("s8", "u8") if "zero" in name or name == "all" else ("f32", "s8")
    source = typed_source(dims, src, types[0])
    old = typed_source(dims, dst, types[1], seed=2)
    with config.override("max_cpu_isa", isa):
        result, want = run(source, old, CASES[name], pattern)
    check(result, want, QUANTIZED_TOLERANCE(types[1]))


@pytest.mark.parametrize(
    "types", [("f32", "f16"), ("s8", "f8_e4m3"), ("f16", "f16"), ("f32", "u8")]
)
def test_the_bits_are_those_of_the_kernel_for_one_size(types: tuple[str, str]) -> None:
    dims = (2, 35, 5, 17)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC, 2)
    attr.post_ops.append_eltwise("eltwise_tanh")
    attr.post_ops.append_binary("binary_mul", MemoryDesc((1, 1, 5, 1), "f32"))
    attr.post_ops.append_prelu(2)
    scales = random_memory(MemoryDesc((35,), "f32"), ENGINE)
    others = {
        Arg.post_op(1) | Arg.SRC_1: random_memory(MemoryDesc((1, 1, 5, 1), "f32"), ENGINE, 3),
        Arg.post_op(2) | Arg.WEIGHTS: random_memory(MemoryDesc((1, 35, 1, 1), "f32"), ENGINE, 4),
    }
    for src, dst in (("nchw", "nhwc"), ("nhwc", "nhwc"), ("part", "nChw16c"), ("dcba", "gaps")):
        memory = typed_source(dims, src, types[0])
        target = poisoned_memory(describe(dims, dst).with_data_type(types[1]), ENGINE)
        args = {int(Arg.SRC): memory, Arg.SCALES | Arg.SRC: scales, **others}
        fixed = execute(ReorderDesc(memory.desc, target.desc), args, attr, target)
        known = 0b100  # what binary post-ops are spread over has a known size
        desc = pattern(memory.desc, target.desc, ALL - known)
        assert (execute(desc, args, attr, target).data == fixed.data).all()


SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 2.0**-149, 3.4e38, 0.5, 1.5]


@every_isa
@pytest.mark.parametrize("dst", ["f32", "s8"])
def test_special_values_come_out_alike_everywhere(dst: str, isa: str) -> None:
    """Vectors, squares and single elements convert with the same bits."""
    dims = (3, 37)
    values = np.resize(np.array(SPECIAL, np.float32), dims)
    results = []
    for tag in ("ab", "ba"):
        memory = memory_of(values, MemoryDesc(dims, "f32", tag), ENGINE)
        memory.data.view(np.uint32)[memory.data.view(np.uint32) == 0xFFC00000] ^= 1 << 31
        for strides in ((37, 1), (1, 3)):
            target = MemoryDesc(dims, dst, strides)
            with config.override("max_cpu_isa", isa):
                results.append(reordered(memory, target).numpy().copy())
    bits = [result.view(f"u{DataType[dst].size}") for result in results]
    assert all((other == bits[0]).all() for other in bits)


@st.composite
def tensors(draw: st.DrawFn, dims: tuple[int, ...]) -> MemoryDesc:
    """A descriptor with blocks of any size, gaps and an offset."""
    dim = st.integers(0, len(dims) - 1)
    inner = draw(st.lists(st.tuples(dim, st.integers(2, 6)), max_size=3)) if dims else []
    sizes = [1] * len(dims)
    for blocked, size in inner:
        sizes[blocked] *= size
    stride = int(np.prod(sizes))
    strides = [0] * len(dims)
    for place in draw(st.permutations(range(len(dims)))):
        strides[place] = stride
        stride *= max(1, -(-dims[place] // sizes[place])) + draw(st.integers(0, 1))
    return MemoryDesc(dims, "f32", strides, inner_blocks=inner, offset0=draw(st.integers(0, 3)))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_layouts(data: st.DataObject) -> None:
    """Blocks of any size on either side, whose boundaries may cross; gaps, offsets, no elements."""
    dims = tuple(data.draw(st.lists(st.integers(0, 13), max_size=3)))
    src, dst = data.draw(tensors(dims)), data.draw(tensors(dims))
    masks = data.draw(st.integers(0, 7)), data.draw(st.integers(0, 7))
    if not any(opened(desc, *masks).has_runtime_values for desc in (src, dst)):
        return
    memory = random_memory(src, ENGINE)
    check(reordered(memory, dst, *masks), logical(memory), 0.0)


@pytest.mark.parametrize("group", [2, 3, 7])
def test_groups_that_cross_blocks(group: int) -> None:
    dims = (2 * group, 42)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC, 3, (group, group))
    memory = random_memory(MemoryDesc(dims, "s8", "ab"), ENGINE)
    scales = random_memory(MemoryDesc((2, 42 // group), "f32"), ENGINE, 1, "positive")
    want = logical(memory) * logical(scales).repeat(group, 0).repeat(group, 1)
    target = poisoned_memory(MemoryDesc(dims, "f32", "BA4b8a"), ENGINE)
    args = {int(Arg.SRC): memory, Arg.SCALES | Arg.SRC: scales}
    check(execute(pattern(memory.desc, target.desc), args, attr, target), want, 1e-6)


def prepared(src: MemoryDesc, dst: MemoryDesc) -> Callable[[MemoryDesc, MemoryDesc], None]:
    """An execution of one primitive on memories of any descriptors."""
    primitive = Primitive(PrimitiveDesc(ReorderDesc(src, dst), ENGINE))

    def go(a: MemoryDesc, b: MemoryDesc) -> None:
        primitive.execute(STREAM, {Arg.SRC: Memory(a, ENGINE), Arg.DST: Memory(b, ENGINE)})

    return go


def test_other_sizes_compile_nothing(tmp_path: Path) -> None:
    module._cache.clear()
    with config.override("cache_dir", tmp_path):
        ends = [MemoryDesc((R,) * 4, "f32", tag) for tag in ("nchw", "nChw16c")]
        primitive = Primitive(PrimitiveDesc(ReorderDesc(*ends), ENGINE))
        for size in range(2, 22):
            dims = (2 + size % 3, 3 * size, 1 + size, 5)
            src = typed_source(dims, "nchw", "f32")
            dst = poisoned_memory(MemoryDesc(dims, "f32", "nChw16c"), ENGINE)
            primitive.execute(STREAM, {Arg.FROM: src, Arg.TO: dst})
            check(dst, logical(src), 0.0)
    # Large tensors are stored past the caches, which are small here.
    assert len(list(tmp_path.iterdir())) <= 2
    module._cache.clear()


def test_what_does_not_match_is_named() -> None:
    plain = MemoryDesc((R, 4, R), "f32", (R, R, 1))
    go = prepared(plain, MemoryDesc((R, 4, R), "f32", "aBc8b"))
    right = MemoryDesc((2, 4, 3), "f32")
    blocked = MemoryDesc((2, 4, 3), "f32", "aBc8b")
    go(right, blocked)
    go(right, MemoryDesc((2, 4, 3), "f32", (100, 24, 8), inner_blocks=((1, 8),)))
    lonely = MemoryDesc((1, 4, 1), "f32", (99, 7, 55))  # nobody ever steps by 99 or 55
    go(lonely, MemoryDesc((1, 4, 1), "f32", "aBc8b"))
    for src, dst, rule in (
        (MemoryDesc((2, 4), "f32"), blocked, r"SRC.*ndims must be 3.*is 2"),
        (right.with_data_type("s8"), blocked, r"SRC.*data_type must be f32.*is s8"),
        (MemoryDesc((2, 5, 3), "f32"), blocked, r"SRC\]\.dims.*must be \(RUNTIME_DIM, 4, RUNTIME"),
        (MemoryDesc((2, 4, 3), "f32", "acb"), blocked, r"SRC\]\.strides = \(12, 1, 4\).*, 1\)"),
        (right, MemoryDesc((2, 4, 3), "f32", "aBc4b"), r"DST.*inner_blocks must be \(\(1, 8\),\)"),
        (right, right, r"DST.*inner_blocks"),
        (right, MemoryDesc((2, 4, 4), "f32", "aBc8b"), r"dst_desc = \(2, 4, 4\).*\(2, 4, 3\)"),
        (MemoryDesc((2, 4, 3), "f32", offset0=1), blocked, r"SRC\]\.offset0 = \(1,\).*\(0,\)"),
    ):
        with pytest.raises(InvalidArguments, match=rule):
            go(src, dst)
    part = MemoryDesc((2, 12, 3), "f32", "aBc8b").submemory((2, 4, 3), (0, 0, 0))
    with pytest.raises(InvalidArguments, match=r"DST\]\.padded_dims"):
        go(right, part)


def test_sums_of_weights_need_known_sizes() -> None:
    """There is no room for them in what was described without. Strides of src may be open."""
    open_desc, weights = MemoryDesc((R, R), "s8"), MemoryDesc((3, 4), "s8")
    sums = weights.with_compensation(Compensation(s8s8=1))
    with pytest.raises(InvalidArguments, match=r"DST.*compensation must be None"):
        prepared(open_desc, open_desc)(weights, sums)
    strided = MemoryDesc((3, 4), "f32", (R, 1))
    src = random_memory(MemoryDesc((3, 4), "f32", (7, 1)), ENGINE)
    got = execute(ReorderDesc(strided, sums), {Arg.SRC: src}, dst=Memory(sums, ENGINE))
    want = execute(ReorderDesc(src.desc, sums), {Arg.SRC: src}, dst=Memory(sums, ENGINE))
    assert (got.data == want.data).all()


def test_wrong_uses_are_named() -> None:
    open_desc = MemoryDesc((R, R), "s8", (R, R))
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC, 3, (1, 4))
    primitive = Primitive(PrimitiveDesc(ReorderDesc(open_desc, open_desc), ENGINE, attr))
    memory = random_memory(MemoryDesc((3, 8), "s8"), ENGINE)
    args = {int(Arg.SRC): memory, int(Arg.DST): Memory(memory.desc, ENGINE)}
    scales = Arg.SCALES | Arg.SRC
    with pytest.raises(InvalidArguments, match=r"SCALES\|SRC.*missing.*\(3, 2\)"):
        primitive.execute(STREAM, args)
    args[scales] = Memory(MemoryDesc((3, 3), "f32"), ENGINE)
    with pytest.raises(InvalidArguments, match=r"SCALES\|SRC.*\(3, 3\).*\(3, 2\)"):
        primitive.execute(STREAM, args)
    args[scales] = random_memory(MemoryDesc((3, 2), "f32"), ENGINE)
    primitive.execute(STREAM, args)
    with pytest.raises(InvalidArguments, match=r"DST.*must not share memory with SRC"):
        primitive.execute(STREAM, {**args, Arg.DST: memory})
    flat = Memory(MemoryDesc((3, 8), "s8", (1, 0)), ENGINE)
    with pytest.raises(InvalidArguments, match="stride of 0 is for sources alone"):
        primitive.execute(STREAM, {**args, Arg.DST: flat})
    odd = Memory(MemoryDesc((3, 6), "s8"), ENGINE)
    with pytest.raises(InvalidArguments, match="4 does not divide dimension 1, which is 6"):
        primitive.execute(STREAM, {**args, Arg.SRC: odd, Arg.DST: Memory(odd.desc, ENGINE)})
    with pytest.raises(InvalidArguments, match=r"SRC.*missing"):
        primitive.execute(STREAM, {Arg.DST: memory})
    with pytest.raises(InvalidArguments, match=r"DST.*expected a dnnl.Memory"):
        primitive.execute(STREAM, {**args, Arg.DST: np.zeros(3)})  # type: ignore[dict-item]
    with pytest.raises(InvalidArguments, match=r"args.*dictionary"):
        primitive.execute(STREAM, [memory])  # type: ignore[arg-type]


def test_a_broadcast_source() -> None:
    memory = random_memory(MemoryDesc((3, 40, 20), "f32", (20, 0, 1)), ENGINE)
    for tag in ("abc", "acb"):
        result = reordered(memory, MemoryDesc((3, 40, 20), "f32", tag))
        check(result, logical(memory), 0.0)


def test_descriptions_of_what_is_open() -> None:
    open_desc = MemoryDesc((R, 3), "f32")
    pd = PrimitiveDesc(ReorderDesc(open_desc, MemoryDesc((R, 3), "f32", "ba")), ENGINE)
    assert pd.src_desc.size == R
    assert pd.impl_info.startswith("nest:")
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(RUNTIME_DIM, 4\)"):
        ReorderDesc(open_desc, MemoryDesc((R, 4), "f32"))
    scaled = PrimitiveAttr()
    scaled.set_zero_points(Arg.SRC, 0)
    with pytest.raises(Unimplemented, match="nest: unsupported attribute"):
        PrimitiveDesc(ReorderDesc(*[MemoryDesc((3,), "f32")] * 2), ENGINE, scaled)
    with pytest.raises(Unimplemented, match="nest: unsupported attribute"):
        PrimitiveDesc(ReorderDesc(*[MemoryDesc((R,), "f32")] * 2), ENGINE, scaled)


def test_a_description_with_sizes() -> None:
    plain = MemoryDesc((R, 4), "f32")
    pd = PrimitiveDesc(ReorderDesc(plain, plain), ENGINE)
    src, dst = MemoryDesc((3, 4), "f32"), MemoryDesc((3, 4), "f32")
    sized = pd.with_sizes({Arg.SRC: src, Arg.DST: dst})
    assert (sized.src_desc, sized.dst_desc, pd.src_desc) == (src, dst, plain)
    assert Primitive(sized).pd.desc == ReorderDesc(src, dst)
    with pytest.raises(InvalidArguments, match=r"given\[WEIGHTS\].*no such tensor"):
        pd.with_sizes({Arg.WEIGHTS: src})


def test_a_primitive_can_be_pickled() -> None:
    plain = MemoryDesc((R, R), "f32")
    desc = ReorderDesc(plain, plain.permute_axes((1, 0)))
    primitive = pickle.loads(pickle.dumps(Primitive(PrimitiveDesc(desc, ENGINE))))
    memory = random_memory(MemoryDesc((3, 4), "f32"), ENGINE)
    result = Memory(MemoryDesc((3, 4), "f32", "ba"), ENGINE)
    primitive.execute(STREAM, {Arg.SRC: memory, Arg.DST: result})
    assert (result.numpy() == memory.numpy()).all()


def test_verbose_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Stars where a description is made, the sizes where it is executed."""
    with config.override("verbose", "profile"):
        memory = typed_source((2, 3, 4, 5), "nchw", "f32")
        pd = PrimitiveDesc(pattern(memory.desc, describe((2, 3, 4, 5), "nChw8c")), ENGINE)
        target = Memory(describe((2, 3, 4, 5), "nChw8c"), ENGINE)
        Primitive(pd).execute(STREAM, {Arg.SRC: memory, Arg.DST: target})
    created, executed = capsys.readouterr().out.splitlines()[-2:]
    assert ",src:f32:0:blocked:*::f0 dst:f32:0:blocked:*::f0,,,*x*x*x*," in created
    assert ",src:f32::blocked:abcd::f0 dst:f32:p:blocked:aBcd8b::f0,,,2x3x4x5," in executed


def test_many_threads_and_sizes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where fewer sizes are kept than are in use."""
    monkeypatch.setattr("dnnl.primitives.slots.KEPT", 2)
    plain = MemoryDesc((R, R), "f32")
    primitive = Primitive(PrimitiveDesc(ReorderDesc(plain, plain.permute_axes((1, 0))), ENGINE))
    wrong: list[object] = []

    def work(seed: int) -> None:
        for turn in range(50):
            dims = (1 + (seed + turn) % 7, 1 + turn % 40)
            memory = random_memory(MemoryDesc(dims, "f32"), ENGINE, turn)
            result = Memory(MemoryDesc(dims, "f32", "ba"), ENGINE)
            primitive.execute(Stream(ENGINE, 2), {Arg.SRC: memory, Arg.DST: result})
            if (result.numpy() != memory.numpy()).any():
                wrong.append(dims)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_bound_execution_keeps_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dnnl.primitives.slots.KEPT", 1)
    plain = MemoryDesc((R, R), "f32", (R, R))
    primitive = Primitive(PrimitiveDesc(ReorderDesc(plain, plain), ENGINE))
    memory = random_memory(MemoryDesc((30, 50), "f32"), ENGINE)
    result = Memory(MemoryDesc((30, 50), "f32", "ba"), ENGINE)
    bound = primitive.bind(STREAM, {Arg.SRC: memory, Arg.DST: result})
    for size in range(1, 30):
        other = Memory(MemoryDesc((size, size), "f32"), ENGINE)
        target = Memory(other.desc, ENGINE)
        primitive.execute(STREAM, {Arg.SRC: other, Arg.DST: target})
    del primitive
    gc.collect()
    bound()
    assert (result.numpy() == memory.numpy()).all()
