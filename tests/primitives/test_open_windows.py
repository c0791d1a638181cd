"""Pooling, LRN and resampling of sizes that only the execution knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PoolingDesc,
    Primitive,
    PrimitiveDesc,
    ResamplingDesc,
    Stream,
    config,
)
from dnnl.primitives.desc import Desc
from dnnl.types.kinds import FormatKind
from tests.primitives.harness import ENGINE, ISAS
from tests.primitives.runtime_sizes import judged, trials

R = RUNTIME_DIM
MOST_CASES = 4


def kernels(pd: PrimitiveDesc) -> int:
    """How many kernels executions have made."""
    assert pd.variants is not None
    return len(pd.variants.every)


def dims_opened(desc: Desc) -> Desc:
    """The description with all dims open, and the layouts of its tags."""
    fields: dict[str, object] = {}
    for role in desc.operation.roles:
        tensor = getattr(desc, role.field) if role.field else MemoryDesc.zero()
        if tensor.format_kind is FormatKind.blocked:
            dims = [R] * tensor.ndims
            fields[role.field] = MemoryDesc(dims, tensor.data_type, tensor.tag)
        elif role.field:
            fields[role.field] = MemoryDesc.zero()
    return replace(desc, **fields)


Sizes = list[tuple[int, int, int, int]]


def pooled(sizes: Sizes) -> str:
    """Problems of 3x3 windows with stride 2 over images [batch, channels, height, width]."""
    window = "kh3sh2ph1_iw{}kw3sw2pw1"
    return " ".join(f"mb{n}ic{c}_ih{h}{window.format(w)}" for n, c, h, w in sizes)


TEN = [
    (2, 19, 9, 13), (3, 35, 33, 40), (1, 19, 8, 64), (2, 64, 14, 14), (0, 19, 9, 9),
    (2, 1, 12, 17), (4, 3, 7, 130), (2, 5, 2, 37), (2, 5, 1, 1), (5, 16, 21, 3),
]  # fmt: skip
POOLED = pooled(TEN)
IMAGES = " ".join(f"mb{n}ic{c}ih{h}iw{w}" for n, c, h, w in TEN)
PAIRS = " ".join(
    f"mb{n}ic{c}_ih{h}oh{oh}_iw{w}ow{ow}"
    for n, c, h, oh, w, ow in [
        (2, 19, 9, 13, 5, 10), (1, 3, 33, 7, 40, 80), (2, 5, 1, 1, 1, 9), (0, 5, 3, 4, 4, 4),
    ]
)  # fmt: skip
# With the number of kernels: sizes of 0 and 1 are constants.
MANY = [
    (f"--pool --dir=FWD_I --alg=max --tag=axb {POOLED}", 6),
    (f"--pool --dir=FWD_D --alg=max --tag=abx {POOLED}", 7),
    (f"--pool --dir=BWD_D --alg=max --tag=aBx16b {POOLED}", 7),
    (f"--pool --dir=FWD_I --dt=bf16 --alg=avg_np --tag=axb {POOLED}", 6),
    (f"--pool --dir=FWD_I --dt=s8 --alg=avg_p --tag=axb {POOLED}", 7),
    (f"--pool --dir=BWD_D --alg=avg_np --tag=axb {POOLED}", 8),
    (f"--lrn --dir=FWD_D --alg=ACROSS --tag=axb {IMAGES}", 6),
    (f"--lrn --dir=BWD_D --alg=WITHIN --tag=abx {IMAGES}", 7),
    (f"--resampling --dir=FWD_I --alg=linear --tag=axb {PAIRS}", 5),
    (f"--resampling --dir=BWD_D --alg=nearest --tag=abx {PAIRS}", 5),
]


def kernels_for(line: str) -> int:
    """How many kernels one primitive makes for the cases of a line, each of which is judged."""
    cases = list(trials(line))
    pd = PrimitiveDesc(dims_opened(cases[0].desc), ENGINE)
    primitive = Primitive(pd)
    for case in cases:
        judged(primitive, case)
    return kernels(pd)


@pytest.mark.parametrize(("line", "most"), MANY)
@pytest.mark.covers
def test_one_primitive_for_many_sizes(line: str, most: int) -> None:
    with config.override("max_cpu_isa", ISAS[len(line) % len(ISAS)]):
        assert kernels_for(line) <= most


@pytest.mark.parametrize("direction", ["FWD_I", "FWD_D", "BWD_D"])
def test_usual_sizes_share_a_kernel(direction: str) -> None:
    sizes = [(2, 64, 57, 55), (8, 40, 40, 37), (3, 130, 12, 98)]
    # Three, as large tensors whose rows are whole vectors and others have their own.
    assert kernels_for(f"--pool --dir={direction} --alg=max --tag=axb {pooled(sizes)}") <= 3


def test_windows_that_do_not_fit_are_named() -> None:
    src, dst = MemoryDesc((R, 8, R, R), "f32", "acdb"), MemoryDesc((R, 8, R, R), "f32", "acdb")
    desc = PoolingDesc.forward("forward_inference", "pooling_max", src, dst, 1, 3, 0)
    primitive = Primitive(PrimitiveDesc(desc, ENGINE))
    stream = Stream(ENGINE, 1)

    def memory(*dims: int) -> Memory:
        return Memory(MemoryDesc(dims, "f32", "acdb"), ENGINE)

    with pytest.raises(InvalidArguments, match="the window reaches over 3 of 2 with padding"):
        primitive.execute(stream, {Arg.SRC: memory(1, 8, 2, 5), Arg.DST: memory(1, 8, 0, 3)})
    with pytest.raises(InvalidArguments, match=r"expected \(1, 8, 3, 3\), what the window makes"):
        primitive.execute(stream, {Arg.SRC: memory(1, 8, 5, 5), Arg.DST: memory(1, 8, 3, 4)})
    primitive.execute(stream, {Arg.SRC: memory(1, 8, 5, 5), Arg.DST: memory(1, 8, 3, 3)})


def test_nothing_is_resampled_to_nothing_alone() -> None:
    tensor = MemoryDesc((R, 3, R), "f32", "abc")
    desc = ResamplingDesc.forward("forward_inference", "resampling_linear", tensor, tensor)
    primitive = Primitive(PrimitiveDesc(desc, ENGINE))
    src, dst = (Memory(MemoryDesc((2, 3, size), "f32"), ENGINE) for size in (0, 4))
    with pytest.raises(InvalidArguments, match="nothing is made of no elements"):
        primitive.execute(Stream(ENGINE, 1), {Arg.SRC: src, Arg.DST: dst})


def test_a_workspace_follows_what_is_open() -> None:
    src, dst = (MemoryDesc((R, R, R, R), "f32", "acdb") for _ in range(2))
    desc = PoolingDesc.forward("forward_training", "pooling_max", src, dst, 2, 3, 1)
    pd = PrimitiveDesc(desc, ENGINE)
    assert pd.workspace_desc == MemoryDesc((R, R, R, R), "u8", "acdb")
    back = PoolingDesc.backward("pooling_max", src, dst, 2, 3, 1)
    assert PrimitiveDesc(back, ENGINE, hint=pd).workspace_desc == pd.workspace_desc
