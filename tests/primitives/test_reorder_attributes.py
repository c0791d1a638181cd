"""Reorder with scales, zero points and sums, all in one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from dnnl import (
    Arg,
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
from dnnl.reference.arrays import Array
from dnnl.reference.quantization import expand
from dnnl.reference.reorder import QUANTIZED_TOLERANCE, reorder
from dnnl.types.kinds import Alg
from dnnl.types.post_ops import PostOpBinary
from dnnl.types.scales import ScaleSpec
from tests.check import check, logical, memory_of, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, describe, every_isa, execute, typed_source
from tests.primitives.reorder_cases import Attributes
from tests.primitives.reorder_cases import Case as Drawn
from tests.primitives.reorder_cases import run as run_drawn

DIMS = (2, 24, 3, 20)
SCALE_TYPES = ["f32", "bf16", "f16", "e8m0", "f8_e4m3"]


@dataclass(frozen=True)
class Case:
    """(mask, groups, type) of each parameter, None for none, and the scale of the sum."""

    src_scale: tuple[int, tuple[int, ...], str] | None = None
    src_zero: tuple[int, tuple[int, ...], str] | None = None
    dst_scale: tuple[int, tuple[int, ...], str] | None = None
    dst_zero: tuple[int, tuple[int, ...], str] | None = None
    sum_scale: float = 0.0


CASES = {
    "source scale": Case(src_scale=(0, (), "f32")),
    "channel scales": Case(dst_scale=(2, (), "f32")),
    "row scales": Case(src_scale=(8, (), "f32")),
    "two masks": Case(src_scale=(3, (), "f32"), dst_scale=(10, (), "f32")),
    "every element": Case(src_scale=(15, (), "f32")),
    "groups": Case(src_scale=(12, (1, 4), "f32")),
    "groups on both": Case(src_scale=(12, (3, 5), "f32"), dst_scale=(15, (1, 10), "f32")),
    "zero points": Case(src_zero=(0, (), "s32"), dst_zero=(2, (), "s8")),
    "all": Case((2, (), "f32"), (2, (), "u8"), (0, (), "f32"), (0, (), "s32"), 0.5),
}


def parameter(arg: int, spec: ScaleSpec, dims: tuple[int, ...], seed: int) -> Memory:
    """Random scales or zero points."""
    desc = MemoryDesc(spec.shape(dims), spec.data_type)
    if arg & Arg.SCALES:
        return random_memory(desc, ENGINE, seed, "positive")
    values = np.random.default_rng(seed).integers(0, 5, desc.dims)
    return memory_of(values, desc, ENGINE)


def run(
    src: Memory,
    old: Memory,
    case: Case,
    make: Callable[[MemoryDesc, MemoryDesc], ReorderDesc] = ReorderDesc,
) -> tuple[Memory, Array]:
    """What the primitive and the reference make of a case; ``make`` is given the descriptors
    of both ends."""
    attr = PrimitiveAttr()
    args = {int(Arg.SRC): src}
    full: dict[str, Array] = {}
    given = [
        ("src_scale", case.src_scale, Arg.SCALES | Arg.SRC, attr.set_scales),
        ("src_zero_point", case.src_zero, Arg.ZERO_POINTS | Arg.SRC, attr.set_zero_points),
        ("dst_scale", case.dst_scale, Arg.SCALES | Arg.DST, attr.set_scales),
        ("dst_zero_point", case.dst_zero, Arg.ZERO_POINTS | Arg.DST, attr.set_zero_points),
    ]
    for seed, (name, fields, arg, put) in enumerate(given):
        if fields is None:
            continue
        mask, groups, data_type = fields
        put(arg & 31, mask, groups, data_type)
        spec = ScaleSpec(mask, groups, DataType[data_type])
        args[arg] = parameter(arg, spec, src.desc.dims, seed)
        full[name] = expand(logical(args[arg]), src.desc.dims, spec)
    if case.sum_scale:
        attr.post_ops.append_sum(case.sum_scale)
    result = execute(make(src.desc, old.desc), args, attr, old)
    return result, reorder(logical(src), sum_scale=case.sum_scale, dst=logical(old), **full)


@every_pair(
    every_isa,
    pytest.mark.parametrize(
        ("src", "dst"), [("nchw", "nhwc"), ("nhwc", "nChw16c"), ("part", "gaps")]
    ),
    pytest.mark.parametrize("name", CASES),
)
def test_attributes(name: str, src: str, dst: str, isa: str) -> None:
    types = ("s8", "u8") if "zero" in name or name == "all" else ("f32", "s8")
    source = typed_source(DIMS, src, types[0])
    old = typed_source(DIMS, dst, types[1], seed=2)
    with config.override("max_cpu_isa", isa):
        result, want = run(source, old, CASES[name])
    check(result, want, QUANTIZED_TOLERANCE(types[1]))


@pytest.mark.parametrize("data_type", SCALE_TYPES)
@pytest.mark.parametrize("mask", [8, 15])
def test_scale_types(data_type: str, mask: int) -> None:
    case = Case(src_scale=(mask, (), data_type), dst_scale=(2, (), data_type))
    result, want = run(typed_source(DIMS, "nchw", "s8"), typed_source(DIMS, "nhwc", "bf16"), case)
    check(result, want, QUANTIZED_TOLERANCE("bf16"))


@pytest.mark.parametrize("group", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("dst", ["ab", "ba", "BA16a16b", "AB8b8a"])
def test_groups_of_any_size_in_any_layout(dst: str, group: int) -> None:
    dims = (48, 96)
    old = random_memory(MemoryDesc(dims, "f32", dst), ENGINE)
    case = Case(src_scale=(3, (group, 1), "f32"), dst_scale=(3, (1, group), "f16"))
    result, want = run(random_memory(MemoryDesc(dims, "s8"), ENGINE, 4), old, case)
    check(result, want, QUANTIZED_TOLERANCE("f32"))


@pytest.mark.parametrize("data_type", ["s8", "u8", "s32", "s4"])
def test_zero_point_of_a_sum(data_type: str) -> None:
    source = typed_source(DIMS, "nchw", "f32")
    old = random_memory(MemoryDesc(DIMS, data_type, "nhwc"), ENGINE, 2, "integers")
    attr = PrimitiveAttr()
    attr.post_ops.append_sum(0.5, zero_point=3)
    result = execute(ReorderDesc(source.desc, old.desc), {Arg.SRC: source}, attr, old)
    want = logical(source) + 0.5 * (logical(old) - 3)
    check(result, want, QUANTIZED_TOLERANCE(data_type))


@pytest.mark.parametrize("types", [("f32", "f64"), ("f64", "f64"), ("s32", "f64"), ("f64", "s32")])
def test_results_in_f64_are_computed_in_f64(types: tuple[str, str]) -> None:
    case = Case(src_scale=(2, (), "f32"), dst_scale=(8, (), "f32"), sum_scale=0.25)
    old = typed_source(DIMS, "nhwc", types[1], seed=2)
    result, want = run(typed_source(DIMS, "nchw", types[0]), old, case)
    check(result, want, QUANTIZED_TOLERANCE(types[1]))


def test_weights_quantized_per_output_channel_into_blocks() -> None:
    dims = (20, 17, 3, 3)
    source = random_memory(MemoryDesc(dims, "f32"), ENGINE)
    desc = ReorderDesc(source.desc, MemoryDesc(dims, "s8", "ABcd4b16a4b"))
    attr = PrimitiveAttr()
    attr.set_scales(Arg.DST, mask=1)
    scales = np.abs(logical(source)).max(axis=(1, 2, 3)).astype(np.float32) / 127
    args = {int(Arg.SRC): source, Arg.SCALES | Arg.DST: Memory.from_numpy(scales)}
    want = logical(source) / scales.astype(np.float64)[:, None, None, None]
    check(execute(desc, args, attr), want, QUANTIZED_TOLERANCE("s8"))


def test_prelu_of_a_scalar() -> None:
    """Weights of no dimensions."""
    scalar = MemoryDesc((), "f32")
    attr = PrimitiveAttr()
    attr.post_ops.append_prelu(0)
    weights = memory_of(-0.5, scalar, ENGINE)
    args = {int(Arg.SRC): memory_of(-3.0, scalar, ENGINE), Arg.post_op(0) | Arg.WEIGHTS: weights}
    check(execute(ReorderDesc(scalar, scalar), args, attr), 1.5, 0.0)


@every_isa
def test_vectors_across_a_short_dst(isa: str) -> None:
    """Pixels of two channels, whose own operands lie apart: vectors lie along the pixels."""
    dims = (3, 2, 5, 12)
    source, pairs = MemoryDesc(dims, "f32", "bdca"), MemoryDesc((1, 2, 1, 1), "f32", (10, 5, 5, 5))
    post_ops = tuple(PostOpBinary(alg, pairs) for alg in (Alg.binary_add, Alg.binary_mul))
    run_drawn(Drawn(source, MemoryDesc(dims, "f32", "acdb"), isa, 1, Attributes((), (), post_ops)))


def prepared(mask: int = 2) -> tuple[Primitive, dict[int, Memory]]:
    """A primitive with source scales, and all its arguments but these."""
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC, mask)
    source, target = typed_source(DIMS, "nchw", "f32"), typed_source(DIMS, "nchw", "s8")
    pd = PrimitiveDesc(ReorderDesc(source.desc, target.desc), ENGINE, attr)
    return Primitive(pd), {int(Arg.SRC): source, int(Arg.DST): target}


def test_the_description_tells_what_scales_to_pass() -> None:
    primitive, _ = prepared()
    assert primitive.pd.arg_desc(Arg.SCALES | Arg.SRC) == MemoryDesc((1, 24, 1, 1), "f32")
    assert primitive.pd.arg_desc(Arg.SCALES | Arg.DST).is_zero
    assert primitive.pd.arg_desc(Arg.ZERO_POINTS | Arg.SRC).is_zero


def test_missing_and_wrong_scales_are_named() -> None:
    primitive, args = prepared()
    stream = Stream(ENGINE)
    with pytest.raises(InvalidArguments, match=r"SCALES\|SRC.*missing"):
        primitive.execute(stream, args)
    for wrong in (
        MemoryDesc((23,), "f32"),
        MemoryDesc((24,), "f16"),
        MemoryDesc((24,), "f32", (2,)),
        MemoryDesc((4, 6), "f32"),
        MemoryDesc((24,), "f32", offset0=1),
    ):
        with pytest.raises(InvalidArguments, match=r"SCALES\|SRC"):
            primitive.execute(stream, {**args, Arg.SCALES | Arg.SRC: Memory(wrong, ENGINE)})
    primitive.execute(
        stream, {**args, Arg.SCALES | Arg.SRC: Memory.from_numpy(np.ones(24, np.float32))}
    )


def test_wrong_attributes_are_refused() -> None:
    desc = ReorderDesc(describe(DIMS, "nchw"), describe(DIMS, "nchw").with_data_type("s8"))

    def create(put: str, arg: Arg, mask: int, groups: tuple[int, ...] = ()) -> None:
        attr = PrimitiveAttr()
        getattr(attr, put)(arg, mask, groups)
        PrimitiveDesc(desc, ENGINE, attr)

    with pytest.raises(InvalidArguments, match=r"mask = 16"):
        create("set_scales", Arg.SRC, 16)
    with pytest.raises(InvalidArguments, match=r"groups.*7 does not divide"):
        create("set_scales", Arg.SRC, 12, (1, 7))
    with pytest.raises(Unimplemented, match=r"unsupported attribute: scales of WEIGHTS"):
        create("set_scales", Arg.WEIGHTS, 0)
    with pytest.raises(Unimplemented, match=r"zero points of SRC, whose type f32"):
        create("set_zero_points", Arg.SRC, 0)
