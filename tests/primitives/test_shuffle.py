"""Shuffle and its gradient: groups along any axis, in any layouts and types."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dnnl import (
    RUNTIME_DIM,
    Arg,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    ShuffleDesc,
    Stream,
    Unimplemented,
    config,
)
from dnnl.reference import shuffle as reference
from tests.check import assert_close, check, codes_of, logical, poisoned_memory, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    array,
    describe,
    every_isa,
    execute,
    execute_all,
    source,
    tensor,
    typed_source,
)

DIMS = (2, 24, 5, 7)


def run(src: Memory, dst: MemoryDesc, axis: int, group_size: int) -> None:
    """Forward, and backward with the same data."""
    bound, data = reference.TOLERANCE(dst.data_type), logical(src)
    forward = ShuffleDesc.forward("forward_inference", src.desc, dst, axis, group_size)
    want = reference.shuffle(data, axis, group_size)
    check(execute(forward, {Arg.SRC: src}), want, bound)
    backward = ShuffleDesc.backward(dst, src.desc, axis, group_size)
    (made,) = execute_all(PrimitiveDesc(backward, ENGINE), {Arg.DIFF_DST: src}).values()
    check(made, reference.shuffle_backward(data, axis, group_size), bound)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("group_size", [1, 2, 3, 4, 6, 8, 12, 24])
def test_layouts(layout: str, group_size: int) -> None:
    memory = source(DIMS, layout)
    run(memory, memory.desc, 1, group_size)


@every_pair(
    every_isa,
    pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c", "nChw8c"]),
    pytest.mark.parametrize(
        ("channels", "group_size"), [(64, 4), (64, 32), (40, 8), (76, 38), (77, 11), (102, 17)]
    ),
)
def test_groups(channels: int, group_size: int, layout: str, isa: str) -> None:
    """Few long groups lie in turns in nhwc, blocks hold whole groups or groups whole blocks."""
    memory = source((2, channels, 3, 5), layout)
    with config.override("max_cpu_isa", isa):
        run(memory, memory.desc, 1, group_size)


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("nchw", "nhwc"),
        ("nhwc", "nchw"),
        ("nChw16c", "nchw"),
        ("nhwc", "nChw8c"),
        ("nChw8c", "nChw16c"),
        ("ABcd4b16a4b", "nhwc"),
        ("gaps", "part"),
        ("part16", "nChw16c"),
    ],
)
@pytest.mark.parametrize("group_size", [2, 4, 8, 24])
def test_another_layout_for_the_result(src: str, dst: str, group_size: int) -> None:
    run(source(DIMS, src), describe(DIMS, dst), 1, group_size)


@every_pair(
    every_isa,
    pytest.mark.parametrize("data_type", ["bf16", "s8", "f64", "s32", "f8_e4m3", "boolean"]),
    pytest.mark.parametrize("layout", ["nchw", "nhwc", "aBcd16b"]),
)
def test_bits_are_moved(layout: str, data_type: str, isa: str) -> None:
    """All of them, whatever they mean."""
    dims, group_size = (2, 24, 3, 5), 12
    md = describe(dims, layout).with_data_type(data_type)
    src = poisoned_memory(md, ENGINE)
    src.data[:] = np.random.default_rng(1).integers(0, 256, src.data.size)
    desc = ShuffleDesc.forward("forward_inference", md, md, 1, group_size)
    with config.override("max_cpu_isa", isa):
        got = codes_of(execute(desc, {Arg.SRC: src}))
    codes = codes_of(src)
    want = codes.reshape(2, 2, 12, 3, 5).swapaxes(1, 2).reshape(dims)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("types", [("f32", "bf16"), ("s8", "f32"), ("f16", "u8")], ids=str)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_another_type_for_the_result(layout: str, types: tuple[str, str]) -> None:
    memory = typed_source(DIMS, layout, types[0])
    run(memory, memory.desc.with_data_type(types[1]), 1, 6)


@pytest.mark.parametrize(
    ("dims", "tag", "axis", "group_size"),
    [
        ((12,), "a", 0, 3),
        ((70, 3), "ab", 0, 7),
        ((70, 3), "Ab16a", 0, 7),
        ((3, 40), "ba", 1, 8),
        ((2, 6, 35), "abc", 2, 5),
        ((2, 6, 35), "abC8c", 2, 5),
        ((2, 20, 4, 6, 3), "acdeb", 3, 2),
        ((32, 20, 4), "ABc16a16b", 0, 16),
        ((1, 232, 3, 3), "acdb", 1, 116),
        ((2, 3, 4, 5, 2, 6), "abcdef", 5, 3),
        ((2, 9000), "ab", 1, 3000),
        ((4096, 3), "ab", 0, 64),
    ],
)
def test_shapes(dims: tuple[int, ...], tag: str, axis: int, group_size: int) -> None:
    memory = source(dims, tag)
    run(memory, memory.desc, axis, group_size)


@pytest.mark.parametrize("dims", [(0, 6, 4), (2, 0, 4), (2, 6, 0)])
def test_no_elements(dims: tuple[int, ...]) -> None:
    memory = source(dims, "abc")
    run(memory, memory.desc, 1, 3)


def test_padding_without_blocks() -> None:
    md = MemoryDesc((2, 12, 3), "bf16", (48, 1, 16), padded_dims=(2, 16, 3))
    memory = random_memory(md, ENGINE)
    for group_size in (2, 3, 4, 6):
        run(memory, md, 1, group_size)


def test_the_gradient_undoes_it() -> None:
    memory = source(DIMS, "nhwc")
    there = ShuffleDesc.forward("forward_training", memory.desc, memory.desc, 1, 6)
    dst = execute(there, {Arg.SRC: memory})
    back = ShuffleDesc.backward(memory.desc, memory.desc, 1, 6)
    (made,) = execute_all(PrimitiveDesc(back, ENGINE), {Arg.DIFF_DST: dst}).values()
    np.testing.assert_array_equal(logical(made), logical(memory))


@pytest.mark.parametrize("groups", [2, 3, 8])
def test_as_pytorch(groups: int) -> None:
    memory, diff = source(DIMS, "nhwc"), source(DIMS, "nhwc", 2)
    md, group_size = memory.desc, DIMS[1] // groups
    leaf = tensor(memory).requires_grad_()
    result = torch.nn.functional.channel_shuffle(leaf, groups)
    forward = ShuffleDesc.forward("forward_inference", md, md, 1, group_size)
    dst = execute(forward, {Arg.SRC: memory})
    assert_close(logical(dst), array(result.detach()), reference.TOLERANCE("f32"))
    result.backward(tensor(diff))  # type: ignore[no-untyped-call]
    backward = PrimitiveDesc(ShuffleDesc.backward(md, md, 1, group_size), ENGINE)
    (made,) = execute_all(backward, {Arg.DIFF_DST: diff}).values()
    assert leaf.grad is not None
    assert_close(logical(made), array(leaf.grad), reference.TOLERANCE("f32"))


def test_any_follows_the_other() -> None:
    blocked, left = describe(DIMS, "nChw16c"), MemoryDesc(DIMS, "f32", "any")
    pd = PrimitiveDesc(ShuffleDesc.forward("forward_training", blocked, left, 1, 4), ENGINE)
    assert pd.dst_desc == blocked
    for ends in ((left, blocked), (blocked, left)):
        backward = PrimitiveDesc(ShuffleDesc.backward(*ends, 1, 4), ENGINE, hint=pd)
        assert backward.diff_src_desc == backward.diff_dst_desc == blocked
    with pytest.raises(InvalidArguments, match="the layout of this tensor must be given"):
        PrimitiveDesc(ShuffleDesc.backward(left, left, 1, 4), ENGINE)


def test_elements_of_half_a_byte_are_refused() -> None:
    md = MemoryDesc((2, 6), "s4")
    desc = ShuffleDesc.forward("forward_inference", md, md, 1, 3)
    with pytest.raises(Unimplemented, match="unsupported data type: s4"):
        PrimitiveDesc(desc, ENGINE)


@pytest.mark.parametrize(("src", "dst"), [(np.bool_, "f32"), (np.int64, "s16"), (np.uint16, "f64")])
def test_integers_become_other_types(src: type, dst: str) -> None:
    array: np.ndarray = (np.arange(12).reshape(2, 6) * 5000 - 5000).astype(src)
    md = MemoryDesc((2, 6), dst)
    memory = Memory.from_numpy(array)
    desc = ShuffleDesc.forward("forward_inference", memory.desc, md, 1, 3)
    want = array.reshape(2, 2, 3).transpose(0, 2, 1).reshape(2, 6)
    limits = (-np.inf, np.inf) if md.data_type.is_float else (md.data_type.min, md.data_type.max)
    assert (execute(desc, {Arg.SRC: memory}).numpy() == np.clip(want.astype(float), *limits)).all()


def test_sizes_that_only_the_execution_knows() -> None:
    md = MemoryDesc((2, RUNTIME_DIM), "f32", "ab")
    primitive = Primitive(
        PrimitiveDesc(ShuffleDesc.forward("forward_inference", md, md, 1, 3), ENGINE)
    )
    for extent in (3, 0, 12, 129):
        src, dst = source((2, extent), "ab"), Memory(MemoryDesc((2, extent), "f32"), ENGINE)
        primitive.execute(Stream(ENGINE), {Arg.SRC: src, Arg.DST: dst})
        check(dst, reference.shuffle(logical(src), 1, 3), reference.TOLERANCE("f32"))
    src, dst = (Memory(MemoryDesc((2, 4), "f32"), ENGINE) for _ in range(2))
    with pytest.raises(InvalidArguments, match="group_size = 3: must divide the 4 elements"):
        primitive.execute(Stream(ENGINE), {Arg.SRC: src, Arg.DST: dst})


@pytest.mark.parametrize(
    ("axis", "group_size", "message"),
    [
        (1, 4, "group_size = 4: must divide the 6 elements along axis 1; try 3"),
        (1, 0, "group_size = 0: must be 1 or more"),
        (1, 2.5, "group_size"),
        (2, 3, "axis = 2: expected one of 0..1"),
        (-1, 3, "from the end it is axis 1"),
    ],
)
def test_bad_arguments(axis: int, group_size: int, message: str) -> None:
    a = MemoryDesc((2, 6), "f32")
    with pytest.raises(InvalidArguments, match=message):
        ShuffleDesc.forward("forward_inference", a, a, axis, group_size)


def test_bad_tensors() -> None:
    a, other = MemoryDesc((2, 6), "f32"), MemoryDesc((6, 2), "f32")
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(6, 2\).*the dims of src"):
        ShuffleDesc.forward("forward_inference", a, other, 1, 2)
    with pytest.raises(InvalidArguments, match="the dims of diff_dst"):
        ShuffleDesc.backward(a, other, 1, 2)
    with pytest.raises(InvalidArguments, match="prop_kind"):
        ShuffleDesc.forward("backward_data", a, a, 1, 2)
