"""Recurrent networks whose steps and rows only executions know: one kernel for all of them."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    RnnDesc,
    Stream,
    Unimplemented,
    config,
)
from dnnl.kernels.rnn import weight_products
from dnnl.primitives import primitive as module
from dnnl.primitives.choice import CHOICES
from dnnl.primitives.rnn_cases import SHAPES
from dnnl.reference.rnn_check import SPECIFICATION
from tests import processor
from tests.check import logical, memory_of
from tests.pairs import every_pair
from tests.primitives import late
from tests.primitives.harness import ENGINE
from tests.primitives.rnn_networks import inference
from tests.primitives.runtime_sizes import judged, opened, trials
from tests.primitives.test_rnn import BOTH, lstm

R = RUNTIME_DIM
SIZES = ((3, 5), (1, 1), (4, 7), (2, 51), (7, 3), (1, 97), (0, 2), (3, 0))
LINES = [
    "--alg=VANILLA_RNN --activation=RELU sic19",
    "--alg=VANILLA_LSTM --direction=concat --tag=abx l2sic20",
    "--alg=VANILLA_LSTM --with-peephole=true --with-projection=true sic9slc30dhc33dic9",
    "--alg=VANILLA_LSTM --cfg=bf16 --with-lengths=true --direction=right2left sic17",
    "--alg=VANILLA_GRU --direction=sum sic18",
    "--alg=LBR_GRU --cfg=f16 --tag=abx sic18",
    "--alg=LBR_AUGRU slc24dhc17sic17",
    "--alg=VANILLA_LSTM --tag=bax l2sic9",
    "--prop=FWD_D --alg=VANILLA_LSTM --direction=concat l2sic20",
    "--prop=BWD_DW --alg=VANILLA_LSTM --direction=concat l2sic20",
    "--prop=BWD_DW --alg=VANILLA_LSTM --with-projection=true sic9slc30dhc33dic9",
    "--prop=BWD_DW --alg=VANILLA_LSTM --with-peephole=true --cfg=bf16 sic17",
    "--prop=BWD_DW --alg=VANILLA_GRU --direction=sum sic18",
    "--prop=BWD_DW --alg=LBR_AUGRU --with-lengths=true --tag=bax slc24dhc17sic17",
    "--prop=BWD_DW --activation=RELU --flags=O sic19",
]


def open_rows(desc: RnnDesc, *, strides: bool = False, sizes: str = "TN") -> RnnDesc:
    """The description with steps and rows open, or one of them, and with ``strides`` the offsets,
    and all strides that are not 1."""
    fields: dict[str, MemoryDesc] = {}
    for name, own in desc.present():
        dims = sum(1 << dim for dim, key in enumerate(SHAPES[name]) if key in sizes)
        if strides and not own.inner_blocks:
            apart = sum(1 << dim for dim, step in enumerate(own.strides) if step != 1)
            made = opened(own, dims, apart)
            fields[name] = MemoryDesc(made.dims, made.data_type, made.strides, offset0=R)
        elif dims:
            given = [R if dims >> dim & 1 else size for dim, size in enumerate(own.dims)]
            fields[name] = MemoryDesc(given, own.data_type, own.tag)
    return desc.laid_out(**fields)


def kernels(primitive: Primitive) -> int:
    assert primitive.pd.variants is not None
    return len(primitive.pd.variants.every)


def primitive_of(
    desc: RnnDesc, *, strides: bool = False, attr: PrimitiveAttr | None = None
) -> Primitive:
    return Primitive(PrimitiveDesc(open_rows(desc, strides=strides), ENGINE, attr))


@every_pair(
    isa=["avx512_core_vnni", "avx512_core_bf16", "avx512_core_amx"],
    tag=["any", "abx"],
    line=[
        "--alg=VANILLA_LSTM --cfg=bf16 --direction=concat l2sic20",
        "--alg=VANILLA_GRU --cfg=bf16 --with-lengths=true sic33",
        "--alg=VANILLA_LSTM --cfg=u8u8u8u8 --scaling=per_oc --with-projection=true sic9dhc20dic9",
        "--alg=LBR_GRU --cfg=f32s8f32s8 --direction=right2left l2sic17",
    ],
)
def test_any_steps_and_rows_of_narrow_types(line: str, tag: str, isa: str) -> None:
    options, _, channels = line.rpartition(" ")
    with config.override("max_cpu_isa", isa):
        for steps, rows in (*SIZES[::2], (2, 33), (3, 16)):
            (made,) = trials(f"--rnn {options} --tag={tag} t{steps}mb{rows}{channels}")
            assert isinstance(made.desc, RnnDesc)
            primitive = primitive_of(made.desc, attr=made.attr)
            judged(primitive, made)
        assert kernels(primitive) <= 3


@pytest.mark.parametrize(
    ("line", "strides", "isa"),
    [(line, n % 2 == 1, ("avx2", "avx512_core")[n // 2 % 2]) for n, line in enumerate(LINES)],
)
@pytest.mark.covers
def test_any_steps_and_rows(line: str, strides: bool, isa: str) -> None:
    """One kernel, where weights are row-major one for few rows besides, and one for no steps."""
    options, _, channels = line.rpartition(" ")
    with config.override("max_cpu_isa", isa):
        for steps, rows in SIZES[2:]:
            (made,) = trials(f"--rnn {options} t{steps}mb{rows}{channels}")
            assert isinstance(made.desc, RnnDesc)
            primitive = primitive_of(made.desc, strides=strides)
            others: list[dict[int, Memory]] = []
            if late.drawn():
                others.append(late.execute(primitive.pd.desc, None, made.memories))
            judged(primitive, made, *others)
        # Dense tensors with the batch first are some of those whose strides are open.
        row_major = "--tag" in line or "projection" in line
        assert kernels(primitive) <= (5 if strides else 2 + row_major)


@pytest.mark.parametrize("flags", ["", "--flags=O"])
def test_terms_in_several_blocks(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 terms, as if caches were small."""
    monkeypatch.setattr(weight_products, "_PART_OF_PANEL", 2**30)
    for steps, rows in ((13, 11), (16, 8), (2, 3), (0, 3)):
        (made,) = trials(f"--rnn --prop=BWD_DW --alg=VANILLA_LSTM {flags} t{steps}mb{rows}sic27")
        assert isinstance(made.desc, RnnDesc)
        judged(primitive_of(made.desc), made)


@pytest.mark.parametrize(("sizes", "tried"), [("T", ((1, 3), (6, 3))), ("N", ((4, 1), (4, 9)))])
def test_one_of_both_is_known(sizes: str, tried: tuple[tuple[int, int], ...]) -> None:
    for steps, rows in tried:
        known = lstm(steps, rows, 21, direction=BOTH, lengths=True, tag="abcde")
        primitive = Primitive(PrimitiveDesc(open_rows(known, sizes=sizes), ENGINE))
        executed(primitive, known)


@every_pair(
    isa=["avx2", "avx512_core_amx"],
    channels=["sic9slc24dhc40", "sic70slc24dhc40"],
    line=[
        "--alg=VANILLA_LSTM --cfg=f32,bf16,u8u8u8u8 --direction=concat",
        "--cfg=f32,bf16 --activation=TANH --tag=abx",
        "--prop=FWD_D,BWD_DW --alg=VANILLA_LSTM --direction=sum",
    ],
)
def test_any_rows_of_a_step_from_states_of_other_channels(
    line: str, channels: str, isa: str
) -> None:
    with config.override("max_cpu_isa", isa):
        for rows in (1, 5, 33, 97):
            for made in trials(f"--rnn {line} t1mb{rows}{channels}"):
                assert isinstance(made.desc, RnnDesc)
                opened = open_rows(made.desc, sizes="N")
                judged(Primitive(PrimitiveDesc(opened, ENGINE, made.attr)), made)


def test_open_channels_of_the_states_before_a_step() -> None:
    """One primitive serves a step from states of any channels, and steps from their own."""
    fields: dict[str, MemoryDesc] = {}
    for name, own in lstm(1, 4, 20, tag="abcde").present():
        sizes = zip(SHAPES[name], own.dims, strict=True)
        dims = [R if key in ("T", "N", "SIC") else size for key, size in sizes]
        fields[name] = MemoryDesc(dims, "f32", own.tag)
    primitive = Primitive(PrimitiveDesc(lstm(1, 4, 20, tag="abcde").laid_out(**fields), ENGINE))
    for steps, before in ((1, 9), (1, 30), (3, 20), (1, 20)):
        executed(primitive, lstm(steps, 4, 20, tag="abcde", before=before))
    other = lstm(1, 4, 20, tag="abcde", before=9)
    three = lstm(3, 4, 20, tag="abcde")
    states = {name: getattr(other, name) for name in ("src_iter_desc", "weights_iter_desc")}
    with pytest.raises(InvalidArguments, match="SIC = DIC = 20"):
        executed(primitive, three.laid_out(**states))


@pytest.mark.parametrize("isa", ["generic", "sse41"])
def test_other_instruction_sets(isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        for steps, rows in ((2, 5), (1, 1)):
            (made,) = trials(f"--rnn --alg=VANILLA_LSTM t{steps}mb{rows}sic19")
            assert isinstance(made.desc, RnnDesc)
            judged(primitive_of(made.desc), made)


def executed(primitive: Primitive, known: RnnDesc) -> None:
    """The results on tensors of a description of known sizes are those of the reference."""
    values = SPECIFICATION.fill(known)
    args = {arg: memory_of(own, known.desc_of(arg), ENGINE) for arg, own in values.items()}
    args |= {tensor.argument: Memory(tensor.desc, ENGINE) for tensor in known.outputs}
    primitive.execute(Stream(ENGINE), args)
    want = SPECIFICATION.compute(known, values)
    for tensor in known.outputs:
        got = logical(args[tensor.argument])
        np.testing.assert_allclose(got, want[tensor.argument], atol=1e-5)


BLOCKED = [
    ("avx512_core", "f32", "abEcd16e"),
    ("avx2", "f16", "abEcd8e"),
    ("avx2", "bf16", "abECd8e2c"),
]


@pytest.mark.parametrize(
    ("isa", "kind", "blocked"), [case for case in BLOCKED if case[0] in processor.ISAS]
)
def test_no_kernel_for_a_new_size(
    isa: str, kind: str, blocked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty sizes, and nothing is compiled after the primitive."""
    CHOICES.clear()
    module._cache.clear()

    def described(steps: int, rows: int) -> RnnDesc:
        own = {"src": kind, "weights": kind, "tag": blocked, "direction": BOTH}
        return inference("lstm", steps, rows, 24, **own)

    with config.override("max_cpu_isa", isa):
        primitive = primitive_of(described(2, 2))

        def refuse(_: object) -> None:
            raise AssertionError("a kernel is made")

        monkeypatch.setattr("dnnl.codegen.compile.jit.image", refuse)
        for number in range(20):
            steps, rows = 1 + number * 7 % 13, 1 + number * 5 % 17
            executed(primitive, described(steps, rows))
    assert kernels(primitive) == 1


def test_gaps_that_only_executions_know() -> None:
    """Rows, steps and states apart by other numbers each time, and behind other beginnings."""
    counts = []
    for number, (steps, rows) in enumerate(((3, 6), (6, 3), (9, 2), (2, 30)), 2):
        known = lstm(steps, rows, 20, tag="abcde")
        row = 20 + number
        gaps = {
            "src_layer_desc": ((steps, rows, 20), (row * rows + number, row, 1)),
            "dst_layer_desc": ((steps, rows, 20), (row, row * steps + number, 1)),
            "src_iter_desc": ((1, 1, rows, 20), (7, 9, row, 1)),
            "dst_iter_c_desc": ((1, 1, rows, 20), (8, 3, row + 1, 1)),
        }
        fields = {
            name: MemoryDesc(dims, "f32", strides, offset0=number)
            for name, (dims, strides) in gaps.items()
        }
        known = known.laid_out(**fields)
        primitive = primitive_of(known, strides=True)
        executed(primitive, known)
        counts.append(kernels(primitive))
    assert len(set(counts)) == 1


def test_open_channels_have_a_kernel_for_each_size() -> None:
    state = MemoryDesc((1, 1, R, R), "f32", "abcd")
    open_ = lstm(2, 2, 8, tag="abcde")
    weights = MemoryDesc((1, 1, R, 4, R), "f32", "abcde")
    src = MemoryDesc((R, R, R), "f32", "abc")
    bias = MemoryDesc((1, 1, 4, R), "f32", "abcd")
    fields = {name: state for name, _ in open_.present() if "_iter" in name}
    fields |= {"weights_layer_desc": weights, "weights_iter_desc": weights, "bias_desc": bias,
               "src_layer_desc": src, "dst_layer_desc": src}  # fmt: skip
    primitive = Primitive(PrimitiveDesc(open_.laid_out(**fields), ENGINE))
    for channels in (8, 21):
        executed(primitive, lstm(3, 4, channels, tag="abcde"))


def test_channels_that_are_apart_are_refused() -> None:
    known = lstm(2, 3, 8, tag="abcde")
    apart = MemoryDesc((2, 3, 8), "f32", (1, 2, 6))
    open_ = MemoryDesc((R, R, 8), "f32", (R, R, R))
    made = Primitive(PrimitiveDesc(open_rows(known).laid_out(src_layer_desc=open_), ENGINE))
    executed(made, known)
    with pytest.raises(Unimplemented):
        executed(made, known.laid_out(src_layer_desc=apart))
