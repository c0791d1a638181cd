"""Resampling of rows that lie side by side: registers of neighbours, of which lanes pick."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import Arg, MemoryDesc, Primitive, PrimitiveAttr, PrimitiveDesc, ResamplingDesc, config
from dnnl.reference import resampling as reference
from dnnl.reference.tolerance import EXACT
from tests.check import check, logical, memory_of, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS, every_isa, execute, execute_all, source

ALGS = ["resampling_nearest", "resampling_linear"]
# Widths of one register and less, tails, several registers; twice, a half, other ratios, the ends
# of what few registers hold, and more than these.
WIDTHS = [
    (28, 56), (56, 28), (14, 28), (7, 14), (14, 7), (3, 8), (2, 33), (1, 9), (31, 32), (40, 40),
    (48, 17), (33, 34), (64, 16), (61, 16), (90, 21), (100, 9), (5, 97), (9, 5), (9, 4),
]  # fmt: skip
wide = pytest.mark.skipif("avx2" not in ISAS, reason="no instruction permutes registers")


def ends(width: tuple[int, int], kind: str = "f32") -> tuple[MemoryDesc, MemoryDesc]:
    """Images of both widths, plain."""
    old, new = width
    return MemoryDesc((2, 3, 4, old), kind), MemoryDesc((2, 3, 6, new), kind)


def forward(alg: str, src: MemoryDesc, dst: MemoryDesc) -> None:
    """Compare dst with the reference."""
    memory = random_memory(src, ENGINE)
    desc = ResamplingDesc.forward("forward_inference", alg, src, dst)
    want = reference.resampling(logical(memory), alg, dst.dims[2:])
    check(execute(desc, {Arg.SRC: memory}), want, reference.TOLERANCE[alg](str(dst.data_type), 8))


def backward(alg: str, src: MemoryDesc, dst: MemoryDesc) -> None:
    """Compare the gradient of src with the reference."""
    memory = random_memory(dst, ENGINE)
    desc = ResamplingDesc.backward(alg, src, dst)
    want = reference.resampling_backward(logical(memory), alg, src.dims[2:])
    result = execute_all(PrimitiveDesc(desc, ENGINE), {Arg.DIFF_DST: memory})[Arg.DIFF_SRC]
    length = max(1, dst.nelems() // max(1, src.nelems()))
    check(result, want, reference.BACKWARD_TOLERANCE(str(src.data_type), 4 * length))


@every_pair(
    every_isa, pytest.mark.parametrize("alg", ALGS), pytest.mark.parametrize("width", WIDTHS)
)
def test_widths(width: tuple[int, int], alg: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        forward(alg, *ends(width))
        backward(alg, *ends(width))


@every_isa
@pytest.mark.parametrize("kind", ["bf16", "f16", "s8", "u8", "s32", "f64"])
def test_types(kind: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        for alg in ALGS:
            for width in ((14, 28), (56, 28), (5, 33)):
                forward(alg, *ends(width, kind))


@every_isa
@pytest.mark.parametrize(
    ("old", "new"), [((29,), (58,)), ((3, 4, 9), (6, 3, 18)), ((4, 2, 35), (2, 5, 17))]
)
def test_dimensions(old: tuple[int, ...], new: tuple[int, ...], isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        for alg in ALGS:
            images = [MemoryDesc((2, 3, *size), "f32") for size in (old, new)]
            forward(alg, *images)
            backward(alg, *images)


@every_isa
def test_rows_with_space_between(isa: str) -> None:
    """Parts of larger tensors, and of others in which channels are not outermost."""
    with config.override("max_cpu_isa", isa):
        whole = MemoryDesc((4, 5, 6, 40), "f32").submemory((2, 3, 4, 19), (1, 1, 1, 9))
        turned = MemoryDesc((2, 3, 6, 38), "f32", "bcad")
        for alg in ALGS:
            forward(alg, whole, turned)
            backward(alg, whole, turned)


@every_pair(
    every_isa,
    pytest.mark.parametrize("alg", ALGS),
    pytest.mark.parametrize("kind", ["f32", "bf16", "s8"]),
)
def test_post_ops(kind: str, alg: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        src, dst = ends((19, 38), kind)
        memory, old = random_memory(src, ENGINE), random_memory(dst, ENGINE, 2)
        channel = source((1, 3, 1, 1), "nchw", 3)
        attr = PrimitiveAttr()
        attr.post_ops.append_sum(0.5)
        attr.post_ops.append_binary("binary_mul", channel.desc)
        desc = ResamplingDesc.forward("forward_inference", alg, src, dst)
        args = {int(Arg.SRC): memory, Arg.post_op(1) | Arg.SRC_1: channel}
        want = reference.resampling(logical(memory), alg, dst.dims[2:]) + 0.5 * logical(old)
        want = want * logical(channel)
        check(execute(desc, args, attr, old), want, reference.TOLERANCE[ALGS[1]](kind, 8))


@every_isa
@pytest.mark.parametrize("alg", ALGS)
def test_a_post_op_in_blocks(alg: str, isa: str) -> None:
    """Channels of an operand that fill no whole block have neighbours that src has not."""
    with config.override("max_cpu_isa", isa):
        for width in ((1, 17), (16, 17), (19, 38)):
            src, dst = (MemoryDesc((1, 17, size), "f32") for size in width)
            memory, channel = random_memory(src, ENGINE), source((1, 17, 1), "aBc16b", 3)
            attr = PrimitiveAttr()
            attr.post_ops.append_binary("binary_add", channel.desc)
            desc = ResamplingDesc.forward("forward_inference", alg, src, dst)
            args = {int(Arg.SRC): memory, Arg.post_op(0) | Arg.SRC_1: channel}
            want = reference.resampling(logical(memory), alg, dst.dims[2:]) + logical(channel)
            check(execute(desc, args, attr), want, reference.TOLERANCE[alg]("f32", 8))


@every_isa
@pytest.mark.parametrize("kind", ["f32", "bf16", "u8", "s32"])
def test_nearest_elements_keep_their_bits(kind: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        src, dst = ends((21, 42), kind)
        memory = random_memory(src, ENGINE)
        desc = ResamplingDesc.forward("forward_inference", ALGS[0], src, dst)
        result = execute(desc, {Arg.SRC: memory})
        check(result, reference.resampling(logical(memory), ALGS[0], (6, 42)), EXACT(kind))


@every_isa
@pytest.mark.parametrize("alg", ALGS)
def test_infinities_stay_with_their_own(alg: str, isa: str) -> None:
    """What is loaded beside the elements that are wanted reaches nobody else."""
    with config.override("max_cpu_isa", isa):
        for width in ((18, 36), (36, 18), (36, 13)):
            src, dst = ends(width)
            values = np.ones(src.dims)
            values[..., 7] = np.inf
            desc = ResamplingDesc.forward("forward_inference", alg, src, dst)
            result = execute(desc, {Arg.SRC: memory_of(values, src, ENGINE)})
            own = reference.resampling(np.isinf(values), alg, dst.dims[2:]) != 0
            np.testing.assert_array_equal(np.isinf(logical(result)), own)
            values = np.ones(dst.dims)
            values[..., 7] = np.inf
            back = ResamplingDesc.backward(alg, src, dst)
            diff_dst = memory_of(values, dst, ENGINE)
            results = execute_all(PrimitiveDesc(back, ENGINE), {Arg.DIFF_DST: diff_dst})
            own = reference.resampling_backward(np.isinf(values), alg, src.dims[2:]) != 0
            np.testing.assert_array_equal(np.isinf(logical(results[Arg.DIFF_SRC])), own)


@wide
@pytest.mark.parametrize("kind", ["f32", "bf16", "s8"])
@pytest.mark.parametrize("width", [(28, 56), (56, 28), (31, 32), (5, 97)])
def test_nothing_is_gathered(width: tuple[int, int], kind: str) -> None:
    with config.override("max_cpu_isa", "avx2"):
        for alg in ALGS:
            desc = ResamplingDesc.forward("forward_inference", alg, *ends(width, kind))
            assert "gather" not in Primitive(PrimitiveDesc(desc, ENGINE)).llvm_ir()


@wide
def test_nothing_is_gathered_beside_many_channels() -> None:
    """Which are more than a row has elements."""
    src, dst = (MemoryDesc((1, 64, size, size), "f32") for size in (40, 17))
    for isa in {"avx2", "avx512_core"} & {*ISAS}:
        with config.override("max_cpu_isa", isa):
            desc = ResamplingDesc.forward("forward_inference", ALGS[1], src, dst)
            assert "gather" not in Primitive(PrimitiveDesc(desc, ENGINE)).llvm_ir()
