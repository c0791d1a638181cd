"""Products of matrices in groups, whatever sizes their offsets say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import torch

import dnnl
from dnnl import Arg, InvalidArguments, MatmulDesc, Memory, MemoryDesc, PrimitiveDesc, config
from dnnl.reference import matmul as reference
from dnnl.reference import post_ops, quantization
from dnnl.reference.arrays import Array
from dnnl.types.post_ops import PostOpPrelu
from tests.check import Fill, check, logical, memory_of, random_memory, random_values
from tests.guard import RUNS, guarded_scratch, near
from tests.primitives.harness import ENGINE, every_isa, execute
from tests.primitives.products import attr_of, scaled, some_rows

SIZES = (3, 0, 20, 1, 16)
Types = tuple[str, str, str]


def grouped_memory(values: Array, desc: MemoryDesc, sizes: Sequence[int]) -> Memory:
    """A grouped tensor with these values."""
    own, ends = desc.buffers
    offsets = np.cumsum(sizes).astype(np.int32)
    return Memory(desc, ENGINE, [memory_of(values, own, ENGINE), memory_of(offsets, ends, ENGINE)])


def of_rows(
    sizes: Sequence[int], k: int, n: int, types: Types, tag: str = "any", bias: bool = True
) -> MatmulDesc:
    """Groups of rows."""
    total, count = sum(sizes), len(sizes)
    return MatmulDesc(
        MemoryDesc.grouped((total, k), types[0], 0, count),
        MemoryDesc((count, k, n), types[1], tag),
        MemoryDesc.grouped((total, n), types[2], 0, count),
        MemoryDesc((count, n), "f32") if bias else None,
    )


def arguments(pd: PrimitiveDesc, sizes: Sequence[int]) -> dict[int, Memory]:
    """Small whole numbers for all that is read, scales and zero points included."""
    given: dict[int, Memory] = {}
    for seed, tensor in enumerate(t for t in pd.desc.tensors if not t.output):
        values = random_values(tensor.desc.dims, tensor.desc.data_type, seed, "integers")
        if tensor.desc.encoding is None:
            given[tensor.argument] = memory_of(values, tensor.desc, ENGINE)
        else:
            given[tensor.argument] = grouped_memory(values, tensor.desc, sizes)
    for flag, specs in ((Arg.SCALES, pd.attr.scales), (Arg.ZERO_POINTS, pd.attr.zero_points)):
        for arg in specs:
            fill: Fill = "positive" if flag is Arg.SCALES else "integers"
            given[flag | arg] = random_memory(pd.arg_desc(flag | arg), ENGINE, arg, fill)
    return given


def meant(pd: PrimitiveDesc, given: Mapping[int, Memory], argument: int) -> Array:
    """What a tensor stands for."""
    stored = logical(given[argument].parts[0])
    parameters = []
    for flag, specs in ((Arg.SCALES, pd.attr.scales), (Arg.ZERO_POINTS, pd.attr.zero_points)):
        spec, values = specs.get(argument), np.array(float(flag is Arg.SCALES))
        if spec is not None:
            values = quantization.expand(logical(given[flag | argument]), stored.shape, spec)
        parameters.append(values)
    return quantization.dequantize(stored, *parameters)


def verify(desc: MatmulDesc, sizes: Sequence[int], attr: dnnl.PrimitiveAttr | None = None) -> None:
    pd = PrimitiveDesc(desc, ENGINE, attr)
    given = arguments(pd, sizes)
    bias = given.get(Arg.BIAS)
    entries = tuple(pd.attr.post_ops)
    values: dict[int, Array] = {}
    for number, entry in enumerate(entries):
        operands = entry.operands
        if isinstance(entry, PostOpPrelu):
            operands = ((Arg.WEIGHTS, pd.arg_desc(Arg.post_op(number) | Arg.WEIGHTS)),)
        for argument, own in operands:
            key = Arg.post_op(number) | argument
            given[key] = random_memory(own, ENGINE, number)
            values[key] = logical(given[key])
    of_terms = desc.dst_desc.ndims == 3
    want = reference.grouped(
        meant(pd, given, Arg.SRC),
        meant(pd, given, Arg.WEIGHTS),
        None if bias is None else logical(bias),
        np.cumsum(sizes),
        of_terms=of_terms,
    )
    want = post_ops.apply_post_ops(want, entries, values, None)
    got = execute(pd.desc, given, attr)
    tolerance = reference.QUANTIZED_TOLERANCE if pd.attr.scales else reference.TOLERANCE
    bound = post_ops.tolerance(tolerance, entries)(pd.dst_desc.data_type, desc.src_desc.dims[1])
    check(got.parts[0], want, bound)


def test_the_hint_bounds_the_groups() -> None:
    pd = PrimitiveDesc(of_rows(SIZES, 4, 8, ("f32", "f32", "f32")), ENGINE)
    args = {**arguments(pd, SIZES), Arg.DST: Memory(pd.dst_desc, ENGINE)}
    primitive, stream = dnnl.Primitive(pd), dnnl.Stream(ENGINE)
    primitive.execute(stream, args)
    want = args[Arg.DST].parts[0].numpy().copy()
    assert pd.arg_desc(Arg.HINT_MAX_GROUP_SIZE) == MemoryDesc((1,), "s32")
    for bound in (20, 2**31 - 1):
        hint = Memory.from_numpy(np.array(bound, np.int32))
        primitive.execute(stream, {**args, Arg.HINT_MAX_GROUP_SIZE: hint})
        np.testing.assert_array_equal(args[Arg.DST].parts[0].numpy(), want)
    low = Memory.from_numpy(np.array([19], np.int32))
    with pytest.raises(InvalidArguments, match=r"SIZE\] = 19: an upper bound.*group 2 has 20"):
        primitive.bind(stream, {**args, Arg.HINT_MAX_GROUP_SIZE: low})
    for wrong in (np.array([20], np.int64), np.array([20, 20], np.int32)):
        with pytest.raises(InvalidArguments, match=r"HINT_MAX_GROUP_SIZE must be s32"):
            primitive.execute(stream, {**args, Arg.HINT_MAX_GROUP_SIZE: Memory.from_numpy(wrong)})


@pytest.mark.parametrize("tag", ["any", "abc", "acb"])
@pytest.mark.parametrize(
    "types",
    [
        ("f32", "f32", "f32"),
        ("bf16", "bf16", "f32"),
        ("f16", "f16", "f16"),
        ("f32", "bf16", "f32"),
        ("u8", "s8", "f32"),
        ("s8", "s8", "s32"),
        ("s8", "u8", "bf16"),
    ],
    ids=":".join,
)
def test_groups_of_rows(types: Types, tag: str) -> None:
    verify(of_rows(SIZES, 36, 70, types, tag), SIZES)


@pytest.mark.parametrize("sizes", [(1,), (0, 0), (0, 0, 5), (64,), (0, 33, 0), (2,) * 30], ids=str)
@pytest.mark.parametrize("columns", [1, 16, 64, 129])
def test_sizes(sizes: Sequence[int], columns: int) -> None:
    verify(of_rows(sizes, 19, columns, ("f32", "f32", "f32"), "abc", bias=False), sizes)
    verify(of_terms(sizes, 21, columns, "f32"), sizes)


def of_terms(sizes: Sequence[int], m: int, n: int, kind: str) -> MatmulDesc:
    """Groups of terms."""
    total, count = sum(sizes), len(sizes)
    return MatmulDesc(
        MemoryDesc.grouped((m, total), kind, 1, count),
        MemoryDesc.grouped((total, n), kind, 0, count),
        MemoryDesc((count, m, n), "f32" if kind != "f64" else kind),
    )


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16", "f64", "f8_e4m3"])
def test_groups_of_terms(kind: str) -> None:
    verify(of_terms(SIZES, 17, 40, kind), SIZES)


@every_isa
@pytest.mark.parametrize("types", [("f32",) * 3, ("bf16",) * 3, ("s8", "s8", "f32")], ids=":".join)
def test_every_isa(isa: str, types: Types) -> None:
    with config.override("max_cpu_isa", isa):
        verify(of_rows(SIZES, 20, 38, types), SIZES)
        if types[0] == "f32":
            verify(of_terms(SIZES, 20, 38, "f32"), SIZES)


@pytest.mark.parametrize(
    ("scales", "zero_points"),
    [
        ({Arg.SRC: (1, ()), Arg.WEIGHTS: (5, ())}, {}),
        ({Arg.SRC: (1, ()), Arg.WEIGHTS: (5, ())}, {Arg.SRC: (1, ()), Arg.WEIGHTS: (5, ())}),
        ({Arg.SRC: (3, (1, 16)), Arg.WEIGHTS: (7, (16, 1))}, {}),
        ({Arg.WEIGHTS: (7, (16, 1))}, {Arg.WEIGHTS: (7, (16, 1))}),
    ],
)
def test_quantization(
    scales: dict[Arg, tuple[int, tuple[int, ...]]],
    zero_points: dict[Arg, tuple[int, tuple[int, ...]]],
) -> None:
    verify(of_rows(SIZES, 32, 45, ("u8", "s8", "f32")), SIZES, scaled(scales, zero_points))


COMPRESSED: tuple[Types, ...] = (
    ("f32", "s8", "f32"),
    ("f32", "s4", "f32"),
    ("f32", "f8_e4m3", "f32"),
    ("bf16", "u4", "bf16"),
    ("u8", "s4", "f32"),
)


@some_rows
@pytest.mark.parametrize("types", COMPRESSED, ids=":".join)
def test_compressed_weights(types: Types, isa: str) -> None:
    """Weights that tiles convert as they load them, with scales by groups of K."""
    with config.override("max_cpu_isa", isa):
        desc = of_rows(SIZES, 64, 96, types)
        verify(desc, SIZES, scaled({Arg.WEIGHTS: (7, (32, 1))}, {}))


@pytest.mark.parametrize("tag", ["abc", "acb"])
@pytest.mark.parametrize("types", COMPRESSED, ids=":".join)
def test_layouts_of_compressed_weights(types: Types, tag: str) -> None:
    verify(of_rows(SIZES, 64, 96, types, tag), SIZES)


@some_rows
@pytest.mark.parametrize("weights", ["s8", "s4", "f8_e4m3"])
def test_compressed_weights_are_not_copied(weights: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        for attr in (None, scaled({Arg.WEIGHTS: (7, (32, 1))}, {})):
            pd = PrimitiveDesc(of_rows(SIZES, 64, 96, ("f32", weights, "f32")), ENGINE, attr)
            assert pd.scratchpad_desc.size == 0


def test_integer_sums_are_scaled_in_segments() -> None:
    scales = {Arg.SRC: (3, (1, 32)), Arg.WEIGHTS: (7, (32, 1))}
    desc = of_rows(SIZES, 64, 45, ("u8", "s8", "f32"))
    assert PrimitiveDesc(desc, ENGINE, scaled(scales, {})).scratchpad_desc.size == 0
    verify(desc, SIZES, scaled(scales, {Arg.WEIGHTS: (7, (32, 1))}))


LONG = 1500
"""Terms that are summed in several blocks."""
UNEVEN = (0, 45, 2, 0, 0, 1)
"""Groups of which one has more rows than a block is planned for."""


@some_rows
@pytest.mark.parametrize(
    ("kind", "tag", "columns"),
    [("f32", "abc", 256), ("f32", "acb", 70), ("bf16", "abc", 128), ("s8", "abc", 70)],
)
def test_panels_in_blocks(isa: str, kind: str, tag: str, columns: int) -> None:
    """Panels of which threads pack a part at a time, or parts of rows that are read in place."""
    with config.override("max_cpu_isa", isa):
        verify(of_rows(UNEVEN, LONG, columns, (kind, kind, "f32"), tag), UNEVEN)


@some_rows
@pytest.mark.parametrize("m", [9, 300])
def test_groups_of_many_terms(isa: str, m: int) -> None:
    """Ranges of K that begin and end within blocks, and within what is packed at a time."""
    sizes = (LONG, 0, 3, 777, 2000)
    with config.override("max_cpu_isa", isa):
        verify(of_terms(sizes, m, 70, "f32"), sizes)


def test_results_of_groups_of_terms_are_copied() -> None:
    """All of dst is written, so that it may have any layout."""
    desc = of_terms(SIZES, 20, 40, "f32")
    dst = MemoryDesc(desc.dst_desc.dims, "f32", "aBc16b")
    verify(MatmulDesc(desc.src_desc, desc.weights_desc, dst), SIZES)


def test_post_ops() -> None:
    total = sum(SIZES)
    attr = attr_of(
        ("eltwise", "eltwise_swish", 1.0),
        ("binary", "binary_mul", MemoryDesc((total, 45), "f32", "any")),
        ("binary", "binary_mul", MemoryDesc((total, 1), "f32")),
        ("binary", "binary_add", MemoryDesc((1, 45), "f32")),
    )
    verify(of_rows(SIZES, 20, 45, ("f32", "f32", "f32")), SIZES, attr)


@pytest.mark.parametrize("mask", [0, 1, 2])
def test_weights_of_a_prelu_are_those_of_the_matrix(mask: int) -> None:
    desc = of_rows(SIZES, 20, 45, ("f32", "f32", "f32"))
    verify(desc, SIZES, attr_of(("prelu", mask)))


def test_weights_of_a_prelu_along_both_dimensions_are_refused() -> None:
    desc = of_rows(SIZES, 20, 45, ("f32", "f32", "f32"))
    with pytest.raises(dnnl.Unimplemented, match="it takes masks 0, 1 and 2"):
        PrimitiveDesc(desc, ENGINE, attr_of(("prelu", 3)))


def test_against_pytorch() -> None:
    desc = of_rows(SIZES, 64, 48, ("f32", "f32", "f32"), "abc")
    pd = PrimitiveDesc(desc, ENGINE)
    given = arguments(pd, SIZES)
    src, weights, bias = (
        torch.from_numpy(given[arg].numpy().copy()) for arg in (Arg.SRC, Arg.WEIGHTS, Arg.BIAS)
    )
    experts = [
        torch.addmm(b, x, w)
        for x, w, b in zip(torch.split(src, list(SIZES)), weights, bias, strict=True)
    ]
    got = execute(pd.desc, given)
    check(got.parts[0], torch.cat(experts).numpy(), reference.TOLERANCE("f32", 64))


HOSTILE: dict[str, Callable[[int], object]] = {
    "huge": lambda _: 2**31 - 1,
    "least": lambda _: -(2**31),
    "falling": lambda n: np.arange(n)[::-1] * 9 - 4,
    "noise": lambda n: np.random.default_rng(n).integers(-(2**31), 2**31, n),
    "small noise": lambda n: np.random.default_rng(n).integers(-5, 60, n),
}


GUARDED = {
    "rows": of_rows(SIZES, 20, 33, ("f32",) * 3),
    "rows packed by threads": of_rows(SIZES, LONG, 33, ("bf16", "bf16", "f32"), "acb"),
    "rows in blocks": of_rows(SIZES, LONG, 64, ("f32",) * 3, "abc"),
    "rows in segments": of_rows(SIZES, 64, 33, ("f32", "s4", "f32")),
    "terms": of_terms(SIZES, 20, 33, "f32"),
    "terms packed by threads": of_terms((LONG,) * 5, 9, 33, "f32"),
}


@pytest.mark.parametrize("wrong", HOSTILE)
@pytest.mark.parametrize("kind", GUARDED)
def test_no_offset_leads_out_of_the_buffers(wrong: str, kind: str) -> None:
    """Buffers lie between pages that nobody may touch: what is touched ends the process."""
    by_groups = scaled({Arg.WEIGHTS: (7, (32, 1))}, {}) if "segments" in kind else None
    desc = GUARDED[kind]
    pd = PrimitiveDesc(desc, ENGINE, by_groups)
    total = desc.src_desc.dims[kind.startswith("terms")]
    given = arguments(pd, (total // len(SIZES),) * len(SIZES))
    given[Arg.SRC].parts[1].numpy()[:] = HOSTILE[wrong](len(SIZES))
    args = {**given, Arg.DST: Memory(pd.dst_desc, ENGINE)}
    from_guards(pd, args)


def from_guards(pd: PrimitiveDesc, args: Mapping[int, Memory]) -> None:
    """Run between guard pages; groups that overlap are written in any order."""
    for threads, at in RUNS:
        placed = {arg: near(memory, at) for arg, memory in args.items()}
        with guarded_scratch():
            dnnl.Primitive(pd).execute(dnnl.Stream(ENGINE, threads), placed)


def test_rows_behind_the_last_group_are_left_alone() -> None:
    desc = of_rows((4, 4), 20, 33, ("f32",) * 3)
    pd = PrimitiveDesc(desc, ENGINE)
    got = execute(pd.desc, arguments(pd, (4, 2)))
    assert np.isnan(got.numpy()[6:]).all()
    assert not np.isnan(got.numpy()[:6]).any()


def test_refusals() -> None:
    src, dst = (MemoryDesc.grouped((8, n), "f32", 0, 2) for n in (4, 5))
    weights = MemoryDesc((2, 4, 5), "f32")
    columns = MemoryDesc.grouped((4, 8), "f32", 1, 2)
    for operands, wrong in (
        ((src, weights, MemoryDesc((8, 5), "f32")), "dst_desc"),
        ((src, MemoryDesc((3, 4, 5), "f32"), dst), "weights_desc"),
        ((src, weights, MemoryDesc.grouped((8, 5), "f32", 0, 3)), "dst_desc"),
        ((src, weights, dst, MemoryDesc((1, 5), "f32")), "bias_desc"),
        ((MemoryDesc((8, 4), "f32"), weights, dst), "src_desc"),
        ((columns, dst, MemoryDesc((2, 4, 5), "f32"), MemoryDesc((2, 5), "f32")), "bias_desc"),
        ((columns, MemoryDesc((8, 5), "f32"), MemoryDesc((2, 4, 5), "f32")), "weights_desc"),
    ):
        with pytest.raises(InvalidArguments, match=wrong):
            MatmulDesc(*operands)
    relu = attr_of(("eltwise", "eltwise_relu"))
    terms = MatmulDesc(columns, dst, MemoryDesc((2, 4, 5), "f32"))
    with pytest.raises(dnnl.Unimplemented, match="post_ops"):
        PrimitiveDesc(terms, ENGINE, relu)
    bytes_ = MatmulDesc(
        columns.with_data_type("u8"), dst.with_data_type("s8"), MemoryDesc((2, 4, 5), "s32")
    )
    with pytest.raises(dnnl.Unimplemented, match="integers in groups of terms"):
        PrimitiveDesc(bytes_, ENGINE)
