"""Attention and its gradients: every tail, mask, layout, type and instruction set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    AttentionDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    Stream,
    Unimplemented,
    config,
)
from dnnl.reference.attention import SPECIFICATION
from dnnl.reference.rule import compare
from tests.check import logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, every_isa, every_rounding_isa, execute_all

SIZES = [
    (1, 1, 1, 1, 1, 1, 1),
    (1, 2, 1, 1, 128, 64, 64),
    (2, 3, 3, 37, 41, 20, 24),
    (1, 4, 2, 70, 300, 16, 17),
    (2, 2, 1, 130, 5, 5, 70),
    (1, 1, 1, 197, 197, 64, 64),
    (1, 2, 2, 16, 259, 3, 2),
]
"""Batch, heads of queries and of keys, rows, keys, elements of keys and of values."""
MASKS = ["", "keys", "rows", "heads", "all", "one"]


def mask_dims(kind: str, batch: int, heads: int, rows: int, keys: int) -> tuple[int, ...]:
    return {
        "keys": (batch, 1, 1, keys),
        "rows": (1, 1, rows, 1),
        "heads": (1, heads, rows, keys),
        "all": (batch, heads, rows, keys),
        "one": (1, 1, 1, 1),
    }[kind]


def described(
    sizes: Sequence[int],
    masking: str = "none",
    mask: str = "",
    *,
    backward: bool = False,
    data_type: str = "f32",
    tag: str = "abcd",
) -> AttentionDesc:
    n, h, g, rows, keys, depth, width = sizes
    given = [(n, h, rows, depth), (n, g, keys, depth), (n, g, keys, width), (n, h, rows, width)]
    query, key, value, dst = (MemoryDesc(dims, data_type, tag) for dims in given)
    added = MemoryDesc(mask_dims(mask, n, h, rows, keys), "f32") if mask else None
    if backward:
        pair = (query, key, value, dst), (dst, query, key, value)
        return AttentionDesc.backward(
            *pair[0], *pair[1], mask_desc=added, masking=masking, scale=0.4
        )
    every = query, key, value, dst
    return AttentionDesc.forward(
        "forward_training", *every, mask_desc=added, masking=masking, scale=0.4
    )


def check(desc: AttentionDesc) -> None:
    """All results are those of the reference, on one thread and on two, between guard pages."""
    values = SPECIFICATION.fill(desc)
    inputs = {
        tensor.argument: memory_of(values[tensor.argument], tensor.desc, ENGINE)
        for tensor in desc.tensors
        if not tensor.output
    }
    judge(desc, values, execute_all(PrimitiveDesc(desc, ENGINE), inputs))


def judge(
    desc: AttentionDesc, values: Mapping[int, np.ndarray], results: Mapping[int, Memory]
) -> None:
    wanted = SPECIFICATION.compute(desc, values)
    for tensor in desc.tensors:
        if tensor.output:
            rule = SPECIFICATION.rule(desc, tensor.argument, values)
            kind = tensor.desc.data_type
            got, want = logical(results[tensor.argument]), wanted[tensor.argument]
            verdict = compare(tensor.name, got, want, kind, kind, rule)
            assert not verdict.errors, verdict.lines


@every_pair(backward=[False, True], masking=["none", "causal", "causal_last"], sizes=SIZES)
def test_sizes(sizes: tuple[int, ...], masking: str, backward: bool) -> None:
    check(described(sizes, masking, backward=backward))


@every_pair(
    backward=[False, True], mask=MASKS[1:], sizes=[SIZES[2], SIZES[3], (1, 2, 2, 33, 134, 16, 16)]
)
def test_masks(sizes: tuple[int, ...], mask: str, backward: bool) -> None:
    check(described(sizes, "causal" if mask == "heads" else "none", mask, backward=backward))


@every_isa
@pytest.mark.parametrize("backward", [False, True])
def test_instruction_sets(isa: str, backward: bool) -> None:
    with config.override("max_cpu_isa", isa):
        for masking, mask in (("none", ""), ("causal", "all")):
            check(described((2, 4, 2, 70, 90, 19, 21), masking, mask, backward=backward))


@every_pair(backward=[False, True], masking=["none", "causal_last"], sizes=SIZES)
def test_sizes_in_bf16(sizes: tuple[int, ...], masking: str, backward: bool) -> None:
    check(described(sizes, masking, data_type="bf16", tag="acbd", backward=backward))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("mask", MASKS[1:])
def test_masks_in_bf16(mask: str, backward: bool) -> None:
    sizes, masking = (1, 4, 2, 70, 600, 16, 17), "causal" if mask == "heads" else "none"
    check(described(sizes, masking, mask, data_type="bf16", backward=backward))


@every_pair(
    every_rounding_isa,
    pytest.mark.parametrize("backward", [False, True]),
    pytest.mark.parametrize("data_type", ["bf16", "f16"]),
)
def test_narrow_types(data_type: str, backward: bool, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        sizes = (1, 4, 2, 50, 70, 19, 21)
        check(described(sizes, "causal", "all", data_type=data_type, backward=backward))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("tag", ["acbd", "cabd", "bacd"])
def test_layouts(tag: str, backward: bool) -> None:
    check(described((2, 4, 2, 35, 45, 20, 24), "causal", "all", tag=tag, backward=backward))


def test_rows_apart() -> None:
    whole = MemoryDesc((2, 3, 40, 3 * 24), "f32")
    query, key, value = (whole.submemory((2, 3, 40, 24), (0, 0, 0, 24 * n)) for n in range(3))
    dst = MemoryDesc((2, 3, 40, 24), "f32", (3 * 40 * 24 * 2, 40 * 24 * 2, 48, 1))
    check(AttentionDesc.forward("forward_training", query, key, value, dst, scale=0.4))


def test_gradients_of_rows_apart() -> None:
    dims = (2, 3, 40, 24)
    apart = MemoryDesc(dims, "f32", (3 * 40 * 30, 40 * 30, 30, 1))
    every = apart, apart, apart, apart, apart, apart, apart, apart
    check(AttentionDesc.backward(*every, masking="causal", scale=0.4))


def test_layouts_left_open() -> None:
    query, key = MemoryDesc((2, 3, 5, 8), "f32", "acbd"), MemoryDesc((2, 3, 7, 8), "f32", "acbd")
    dst = MemoryDesc((2, 3, 5, 8), "f32", "any")
    desc = AttentionDesc.forward("forward_inference", query, key, key, dst)
    assert PrimitiveDesc(desc, ENGINE).desc.desc_of(Arg.DST) == query


def test_large_scores() -> None:
    query = Memory.from_numpy(np.full((1, 1, 3, 4), 50, np.float32))
    key = Memory.from_numpy(np.arange(-140, 140, dtype=np.float32).reshape(1, 1, 70, 4))
    value = Memory.from_numpy(np.arange(140, dtype=np.float32).reshape(1, 1, 70, 2))
    dst = MemoryDesc((1, 1, 3, 2), "f32")
    desc = AttentionDesc.forward("forward_inference", query.desc, key.desc, value.desc, dst)
    args: dict[int, Memory] = {Arg.SRC_0: query, Arg.SRC_1: key, Arg.SRC_2: value}
    got = logical(execute_all(PrimitiveDesc(desc, ENGINE), args)[Arg.DST])
    assert (got == [138, 139]).all()


def test_gradients_of_undefined_rows_are_zero() -> None:
    query, key = MemoryDesc((1, 2, 30, 8), "f32"), MemoryDesc((1, 2, 20, 8), "f32")
    every = query, key, key, query, query, query, key, key
    desc = AttentionDesc.backward(*every, masking="causal_last", masked_rows="nan")
    assert np.isnan(SPECIFICATION.fill(desc)[Arg.DST]).any()
    check(desc)


def test_rows_without_keys_may_be_undefined() -> None:
    query, key = MemoryDesc((1, 2, 30, 8), "f32"), MemoryDesc((1, 2, 20, 8), "f32")
    every = query, key, key, query
    check(
        AttentionDesc.forward("forward_training", *every, masking="causal_last", masked_rows="nan")
    )
    with pytest.raises(InvalidArguments, match="masked_rows"):
        AttentionDesc.forward("forward_training", *every, masked_rows="one")


@pytest.mark.parametrize("backward", [False, True])
def test_rows_that_a_mask_excludes(backward: bool) -> None:
    desc = described((1, 2, 2, 20, 30, 8, 8), "none", "all", backward=backward)
    values = SPECIFICATION.fill(desc)
    values[Arg.SRC_3][:, :, 3:7] = -np.inf
    if backward:
        forward = described((1, 2, 2, 20, 30, 8, 8), "none", "all")
        values |= SPECIFICATION.compute(forward, values)
    inputs = {
        tensor.argument: memory_of(values[tensor.argument], tensor.desc, ENGINE)
        for tensor in desc.tensors
        if not tensor.output
    }
    results = execute_all(PrimitiveDesc(desc, ENGINE), inputs)
    judge(desc, values, results)
    rows = logical(results[Arg.DIFF_SRC_0 if backward else Arg.DST])
    assert (rows[:, :, 3:7] == 0).all()


@every_pair(
    data_type=["f32", "bf16"], backward=[False, True], masking=["none", "causal", "causal_last"]
)
def test_open_sizes(masking: str, backward: bool, data_type: str) -> None:
    def sized(batch: int, rows: int, keys: int) -> AttentionDesc:
        sizes = batch, 4, 2, rows, keys, 16, 24
        return described(sizes, masking, backward=backward, data_type=data_type)

    primitive = Primitive(PrimitiveDesc(sized(RUNTIME_DIM, RUNTIME_DIM, RUNTIME_DIM), ENGINE))
    every = (1, 1, 5), (2, 70, 300), (3, 3, 2), (1, 200, 7), (2, 17, 64), (1, 9, 20)
    for batch, rows, keys in every:
        desc = sized(batch, rows, keys)
        values = SPECIFICATION.fill(desc)
        memories = {
            tensor.argument: Memory(tensor.desc, ENGINE)
            if tensor.output
            else memory_of(values[tensor.argument], tensor.desc, ENGINE)
            for tensor in desc.tensors
        }
        primitive.execute(Stream(ENGINE), memories)
        judge(desc, values, memories)


@pytest.mark.parametrize("keys", [0, 3])
def test_no_rows_or_no_keys(keys: int) -> None:
    sizes = (2, 2, 1, 0 if keys else 4, keys, 8, 8)
    check(described(sizes))
    check(replace(described(sizes), masked_rows="nan"))
    check(described(sizes, backward=True))


def test_wrong_sizes_are_refused() -> None:
    query, key = MemoryDesc((2, 4, 5, 8), "f32"), MemoryDesc((2, 2, 7, 8), "f32")
    with pytest.raises(InvalidArguments, match="key_desc"):
        AttentionDesc.forward(
            "forward_inference", query, MemoryDesc((2, 3, 7, 8), "f32"), key, query
        )
    with pytest.raises(InvalidArguments, match="value_desc"):
        AttentionDesc.forward(
            "forward_inference", query, key, MemoryDesc((2, 2, 6, 8), "f32"), query
        )
    with pytest.raises(InvalidArguments, match="mask_desc"):
        AttentionDesc.forward(
            "forward_inference", query, key, key, query, mask_desc=MemoryDesc((2, 4, 5, 6), "f32")
        )
    with pytest.raises(InvalidArguments, match="masking"):
        AttentionDesc.forward("forward_inference", query, key, key, query, masking="first")
    wrong = MemoryDesc((2, 4, 6), "f32")
    with pytest.raises(InvalidArguments, match="logsum_desc"):
        AttentionDesc.forward("forward_training", query, key, key, query, logsum_desc=wrong)


def test_other_layouts_and_types_are_refused() -> None:
    query = MemoryDesc((2, 4, 5, 8), "f32", "abdc")
    with pytest.raises(Unimplemented, match="adjacent"):
        PrimitiveDesc(
            AttentionDesc.forward("forward_inference", query, query, query, query), ENGINE
        )
    query = MemoryDesc((2, 4, 5, 8), "f64")
    with pytest.raises(Unimplemented, match="f64"):
        PrimitiveDesc(
            AttentionDesc.forward("forward_inference", query, query, query, query), ENGINE
        )
