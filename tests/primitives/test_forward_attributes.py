"""What every forward operation that is bound by memory takes: types and layouts of src and dst of
their own, scales and zero points of both, post-ops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    BatchNormalizationDesc,
    ConcatDesc,
    EltwiseDesc,
    Memory,
    MemoryDesc,
    NormFlags,
    PoolingDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    ResamplingDesc,
    Unimplemented,
    config,
)
from dnnl.primitives.desc import Desc
from dnnl.reference.arrays import Array, f64
from dnnl.reference.eltwise import ALGS
from dnnl.types.dtype import DataType
from tests.check import logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS, execute, source, tensor
from tests.primitives.lines import judged

FORWARD = "forward_inference"


@dataclass(frozen=True)
class Own:
    """How an operation spells a case: its types, its layouts, what else it is given, and the names
    of its sources."""

    types: str
    tags: str
    rest: str
    sources: tuple[str, ...] = ("src",)

    def line(self, types: tuple[str, str], layouts: tuple[str, str], asked: Asked) -> str:
        """The case with these types and layouts of src and dst, and with these attributes."""
        src, dst = types
        tags = self.tags.format(src=layouts[0], dst=layouts[1])
        attributes = asked.text(self.sources, types)
        return f"{self.types.format(src=src, dst=dst)} {tags} {attributes} {self.rest}"


@dataclass(frozen=True)
class Asked:
    """Scales, zero points where a type is of integers, and post-ops."""

    src_scale: str = ""
    src_zero: str = ""
    dst_scale: str = ""
    dst_zero: str = ""
    post_ops: str = ""

    def text(self, sources: tuple[str, ...], types: tuple[str, str]) -> str:
        """The options; ``sources`` have all what src has."""
        src, dst = (DataType[name] for name in types)
        zero = self.src_zero if src.is_integer else "", self.dst_zero if dst.is_integer else ""
        pairs = (("scales", self.src_scale, self.dst_scale), ("zero-points", *zero))
        options = [f"--attr-post-ops={self.post_ops}"] * bool(self.post_ops)
        for name, of_src, of_dst in pairs:
            entries = [f"{each}:{of_src}" for each in sources if of_src]
            entries += [f"dst:{of_dst}"] * bool(of_dst)
            options += [f"--attr-{name}={'+'.join(entries)}"] * bool(entries)
        return " ".join(options)


_BOTH, _EACH = "--dt={src}:{dst}", "--sdt={src} --ddt={dst}"
_TAG, _TAGS = "--tag={src}:{dst}", "--stag={src} --dtag={dst}"
OPERATIONS = {
    "eltwise": Own(_BOTH, _TAG, "--alg=tanh 3x19x5"),
    "prelu": Own("--sdt={src}:f32:{dst}", "--stag={src}:any:{dst}", "3x19x5:1x19"),
    "shuffle": Own(_BOTH, _TAG, "--group=4 3x20x5"),
    "lrn": Own(_BOTH, _TAG, "--alg=ACROSS,WITHIN mb2ic19ih5iw3ls3"),
    "batch_normalization": Own(_BOTH, _TAG, "--flags=,GCH,CR mb2ic19ih5"),
    "layer_normalization": Own(_BOTH, _TAG, "--flags=,GCH 3x19x35"),
    "group_normalization": Own(_BOTH, _TAG, "--flags=,GCH g2mb2ic20ih5"),
    "softmax": Own(_EACH, _TAGS, "--alg=SOFTMAX,LOGSOFTMAX --axis=1 3x19x5"),
    "pooling": Own(_BOTH, _TAG, "--alg=max,avg_np mb2ic19ih9oh5kh3sh2ph1"),
    "resampling": Own(_EACH, _TAG, "--alg=nearest,linear mb2ic19ih5oh11"),
    "reduction": Own(_EACH, _TAGS, "--alg=sum,max 3x19x5:3x19x1"),
    "binary": Own(
        "--sdt={src}:{src} --ddt={dst}", "--stag={src}:any --dtag={dst}",
        "--alg=add 3x19x5:1x19x5", ("src", "src1"),
    ),
    "sum": Own(
        "--sdt={src}:{src} --ddt={dst}", _TAGS, "--scales=0.5:2 3x19x5", ("msrc0", "msrc1")
    ),
    "concat": Own(_EACH, _TAGS, "--axis=1 3x5x4:3x16x4", ("msrc0", "msrc1")),
}  # fmt: skip
TYPES = [
    ("f32", "u8"), ("bf16", "s8"), ("u8", "u8"), ("s8", "f32"), ("f64", "s8"), ("s32", "f8_e4m3"),
]  # fmt: skip
LAYOUTS = [("abx", "abx"), ("axb", "abx"), ("aBx16b", "axb"), ("abx", "aBx8b")]
ATTRIBUTES = [
    Asked(dst_scale="common:0.125", dst_zero="common:3"),
    Asked(src_scale="common:0.5", src_zero="common:2", dst_scale="per_oc"),
    Asked(src_scale="per_oc", dst_scale="per_dim_01", dst_zero="per_oc", post_ops="relu:0.5"),
    Asked(src_zero="per_oc", dst_zero="common:-2", post_ops="linear:2:1+add:f32:per_oc"),
]


@every_pair(kind=list(OPERATIONS), types=TYPES, layouts=LAYOUTS, asked=ATTRIBUTES, isa=ISAS)
def test_attributes(
    kind: str, types: tuple[str, str], layouts: tuple[str, str], asked: Asked, isa: str
) -> None:
    assert list(judged(kind, OPERATIONS[kind].line(types, layouts, asked), isa))


@every_pair(alg=[alg.removeprefix("eltwise_") for alg in ALGS], dst=["s8", "u8"], isa=ISAS[-2:])
def test_every_function_writes_bytes(alg: str, dst: str, isa: str) -> None:
    name = alg.replace("_use_dst_for_bwd", "_dst")
    line = f"--alg={name} --dt=f32:{dst} --attr-scales=dst:common:0.25 --alpha=1 --beta=2 3x19x5"
    assert list(judged("eltwise", line, isa))


def quantized(result: Array, dst: str) -> Array:
    """A result with a scale and a zero point, as PyTorch quantizes."""
    kind = DataType[dst]
    return f64(np.clip(np.rint(result * 64) + 5, float(kind.min), float(kind.max)))


def bytes_of(desc: Desc, args: dict[int, Memory]) -> Array:
    """The bytes of a primitive with that scale and that zero point."""
    attr = PrimitiveAttr()
    attr.set_scales(Arg.DST)
    attr.set_zero_points(Arg.DST)
    one = MemoryDesc((1,), "f32")
    given = {
        Arg.SCALES | Arg.DST: memory_of(np.array([1 / 64]), one, ENGINE),
        Arg.ZERO_POINTS | Arg.DST: memory_of(np.array([5.0]), one.with_data_type("s32"), ENGINE),
    }
    return logical(execute(desc, {**args, **given}, attr))


@pytest.mark.parametrize("dst", ["s8", "u8"])
@pytest.mark.parametrize("isa", ISAS[-2:])
def test_bytes_are_those_of_results_of_pytorch(dst: str, isa: str) -> None:
    dims = (2, 19, 8, 6)
    src, to = source(dims, "nchw"), MemoryDesc(dims, dst, "nhwc")
    given, statistic = tensor(src), source((19,), "a", 2)
    positive = memory_of(np.abs(logical(statistic)) + 0.5, statistic.desc, ENGINE)
    mean, variance = tensor(statistic), tensor(positive)
    halved = MemoryDesc((2, 19, 4, 3), dst)
    functional = torch.nn.functional
    cases: tuple[tuple[Desc, torch.Tensor, dict[int, Memory]], ...] = (
        (EltwiseDesc.forward(FORWARD, "eltwise_tanh", src.desc, to), torch.tanh(given), {}),
        (
            BatchNormalizationDesc.forward(FORWARD, src.desc, to, 1e-3, NormFlags.use_global_stats),
            functional.batch_norm(given, mean, variance, eps=1e-3),
            {Arg.MEAN: statistic, Arg.VARIANCE: positive},
        ),
        (
            PoolingDesc.forward(
                FORWARD, "pooling_avg_exclude_padding", src.desc, halved, (2, 2), (2, 2), (0, 0)
            ),
            functional.avg_pool2d(given, 2),
            {},
        ),
        (
            ResamplingDesc.forward(FORWARD, "resampling_linear", src.desc, halved),
            functional.interpolate(given, (4, 3), mode="bilinear"),
            {},
        ),
    )
    for desc, want, args in cases:
        with config.override("max_cpu_isa", isa):
            got = bytes_of(desc, {Arg.SRC: src, **args})
        apart = np.abs(got - quantized(want.numpy(), dst))
        assert apart.max() <= 1
        assert np.count_nonzero(apart) <= 2, str(desc)  # where a value is half way between two


def test_what_is_refused() -> None:
    plain, half = MemoryDesc((2, 3, 4), "f32"), MemoryDesc((2, 3, 4), "f4_e2m1")
    with pytest.raises(Unimplemented, match=r"unsupported data type: f4_e2m1; it takes f16"):
        PrimitiveDesc(EltwiseDesc.forward(FORWARD, "eltwise_relu", plain, half), ENGINE)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.WEIGHTS)
    relu = EltwiseDesc.forward(FORWARD, "eltwise_relu", plain, plain)
    with pytest.raises(Unimplemented, match="unsupported attribute: scales of WEIGHTS"):
        PrimitiveDesc(relu, ENGINE, attr)
    attr = PrimitiveAttr()
    attr.set_zero_points(Arg.SRC)
    with pytest.raises(Unimplemented, match="zero points of SRC, whose type f32 is no integer"):
        PrimitiveDesc(relu, ENGINE, attr)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC, 4)
    resized = ResamplingDesc.forward(FORWARD, "resampling_linear", plain, plain)
    with pytest.raises(Unimplemented, match="scales or zero points of SRC with mask 4, along the"):
        PrimitiveDesc(resized, ENGINE, attr)
    attr = PrimitiveAttr()
    attr.post_ops.append_sum()
    with pytest.raises(Unimplemented, match="a sum with dst, of which each source writes a part"):
        PrimitiveDesc(ConcatDesc(1, [plain, plain]), ENGINE, attr)
