"""Operations that between them use everything that generators write, to be compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dnnl
from dnnl.primitives.desc import Desc

INFERENCE = "forward_inference"
OPEN = (dnnl.RUNTIME_DIM,) * 4


@dataclass(frozen=True)
class Case:
    """An operation, its post-ops as (name of the append method, arguments...), the scales and zero
    points as (argument, mask), and the arguments of a dropout."""

    desc: Desc
    post_ops: tuple[tuple[object, ...], ...] = ()
    scales: tuple[tuple[int, int], ...] = ()
    zero_points: tuple[tuple[int, int], ...] = ()
    dropout: tuple[Any, ...] = ()

    @property
    def attr(self) -> dnnl.PrimitiveAttr:
        """The attributes."""
        attr = dnnl.PrimitiveAttr()
        for name, *arguments in self.post_ops:
            getattr(attr.post_ops, f"append_{name}")(*arguments)
        for argument, mask in self.scales:
            attr.set_scales(argument, mask)
        for argument, mask in self.zero_points:
            attr.set_zero_points(argument, mask)
        if self.dropout:
            attr.set_dropout(*self.dropout)
        return attr


def any_desc(*dims: int) -> dnnl.MemoryDesc:
    """An f32 tensor whose layout is left open."""
    return dnnl.MemoryDesc(dims, "f32", "any")


def plain(*dims: int) -> dnnl.MemoryDesc:
    """A dense f32 tensor."""
    return dnnl.MemoryDesc(dims, "f32")


def reorder(dims: tuple[int, ...], src: str, dst: str) -> dnnl.ReorderDesc:
    """A reorder between ends given as ``type:tag``."""
    ends = (dnnl.MemoryDesc(dims, *end.split(":")) for end in (src, dst))
    return dnnl.ReorderDesc(*ends)


def typed_matmul(src: str, weights: str, dst: str) -> dnnl.MatmulDesc:
    """A product with tails everywhere."""
    return dnnl.MatmulDesc(
        plain(2, 30, 43).with_data_type(src),
        any_desc(1, 43, 50).with_data_type(weights),
        plain(2, 30, 50).with_data_type(dst),
    )


def exact(function: str, dst: str, *srcs: str) -> dnnl.ExactDesc:
    """A function of tensors of these types, of which the last one is broadcast."""
    descs = [plain(3, 50).with_data_type(src) for src in srcs[:-1]]
    descs.append(plain(3, 50 if len(srcs) == 1 else 1).with_data_type(srcs[-1]))
    return dnnl.ExactDesc(function, descs, plain(3, 50).with_data_type(dst))


ODD = (2, 19, 5, 7)
QUANTIZED = {
    "scales": ((dnnl.Arg.SRC, 0), (dnnl.Arg.DST, 2)),
    "zero_points": ((dnnl.Arg.DST, 2),),
}

CASES: dict[str, Case] = {
    "reorder": Case(reorder(ODD, "f32:abcd", "f32:aBcd16b")),
    "transposition": Case(reorder((2, 32, 8, 8), "f32:abcd", "f32:acdb")),
    "reorder to s8": Case(reorder(ODD, "f32:abcd", "s8:acdb"), **QUANTIZED),
    "reorder of u8": Case(reorder(ODD, "u8:aBcd16b", "f32:abcd"), (), ((dnnl.Arg.SRC, 0),)),
    "reorder to bf16": Case(reorder(ODD, "f32:acdb", "bf16:abcd")),
    "reorder of f16": Case(reorder(ODD, "f16:aBcd8b", "f64:acdb")),
    "reorder to f8": Case(reorder(ODD, "f32:abcd", "f8_e4m3:ABcd4b16a4b")),
    "reorder to s4": Case(reorder((2, 19, 5, 8), "f32:abcd", "s4:aBcd16b"), **QUANTIZED),
    "reorder of f4": Case(reorder(ODD, "f4_e2m1:abcd", "bf16:acdb")),
    "weights with sums": Case(
        dnnl.ReorderDesc(
            plain(24, 20, 3, 3),
            dnnl.MemoryDesc(
                (24, 20, 3, 3), "s8", "OIhw4i16o4i", compensation=dnnl.Compensation(1, 1, 0.5)
            ),
        )
    ),
    "reorder and sum": Case(reorder(ODD, "f32:abcd", "f32:dcba"), (("sum", 0.5),)),
    "eltwise": Case(
        dnnl.EltwiseDesc.forward(INFERENCE, "eltwise_gelu_erf", plain(3, 50), plain(3, 50))
    ),
    "power": Case(
        dnnl.EltwiseDesc.forward(INFERENCE, "eltwise_pow", plain(3, 50), plain(3, 50), 1.0, 0.3)
    ),
    "reduction": Case(
        dnnl.ReductionDesc("reduction_norm_lp_sum", plain(3, 50), plain(3, 1), 2.5),
        (("sum", 0.5),),
    ),
    "reduction of bytes": Case(
        dnnl.ReductionDesc(
            "reduction_max", plain(300, 500).with_data_type("s8"),
            plain(1, 500).with_data_type("s32"),
        )
    ),
    "resampling": Case(
        dnnl.ResamplingDesc.forward(INFERENCE, "resampling_linear", plain(*ODD), plain(2, 19, 8, 3))
    ),
    "gradient of resampling": Case(
        dnnl.ResamplingDesc.backward(
            "resampling_nearest", dnnl.MemoryDesc(ODD, "bf16", "nhwc"), plain(2, 19, 8, 3)
        )
    ),
    "binary": Case(dnnl.BinaryDesc("binary_add", plain(3, 50), plain(3, 1), plain(3, 50))),
    "quotients": Case(exact("div", "s64", "s64", "s64")),
    "quotients of bytes": Case(exact("mod", "s8", "s8", "s8")),
    "remainders of floats": Case(exact("mod", "f32", "f32", "f32")),
    "powers of integers": Case(exact("pow", "u32", "u32", "s16")),
    "comparison": Case(exact("less", "boolean", "u16", "u16")),
    "choice": Case(exact("where", "f16", "boolean", "f16", "f16")),
    "cast of floats": Case(exact("cast", "u64", "f32")),
    "cast of integers": Case(exact("cast", "bf16", "u64")),
    "softmax": Case(
        dnnl.SoftmaxDesc.forward(INFERENCE, "softmax_accurate", plain(4, 50), plain(4, 50), 1)
    ),
    "softmax with dropout": Case(
        dnnl.SoftmaxDesc.forward(INFERENCE, "softmax_accurate", plain(4, 50), plain(4, 50), 1),
        dropout=(dnnl.MemoryDesc((4, 50), "u8"), "s64", True),
    ),
    "softmax across": Case(
        dnnl.SoftmaxDesc.forward(INFERENCE, "softmax_log", plain(*ODD), plain(*ODD), 1)
    ),
    "pooling": Case(
        dnnl.PoolingDesc.forward(
            INFERENCE, "pooling_max", plain(1, 16, 9, 9), any_desc(1, 16, 5, 5),
            (2, 2), (3, 3), (1, 1), (1, 1),
        )
    ),
    "prelu": Case(dnnl.PreluDesc.forward(INFERENCE, plain(*ODD), plain(1, 19, 1, 1), plain(*ODD))),
    "gradients of a prelu": Case(
        dnnl.PreluDesc.backward(
            plain(8, 20, 20, 20), plain(1, 20, 1, 1), plain(8, 20, 20, 20),
            dnnl.MemoryDesc((1, 20, 1, 1), "f32", "ABcd4a16b"), plain(8, 20, 20, 20),
        )
    ),
    "shuffle": Case(
        dnnl.ShuffleDesc.forward(
            INFERENCE, plain(2, 24, 5, 7), dnnl.MemoryDesc((2, 24, 5, 7), "f32", "aBcd16b"), 1, 3
        )
    ),
    "shuffle in turns": Case(
        dnnl.ShuffleDesc.backward(
            dnnl.MemoryDesc((2, 24, 5, 7), "bf16", "acdb"),
            dnnl.MemoryDesc((2, 24, 5, 7), "bf16", "acdb"), 1, 3,
        )
    ),
    "gather of rows": Case(
        dnnl.GatherDesc(plain(30, 40), dnnl.MemoryDesc((7,), "s64"), plain(7, 40), 0)
    ),
    "gather along vectors": Case(
        dnnl.GatherDesc(plain(30, 40), dnnl.MemoryDesc((19,), "s32"), plain(30, 19), 1)
    ),
    "convolution": Case(
        dnnl.ConvolutionDesc.forward(
            INFERENCE, "convolution_direct", any_desc(1, 32, 14, 14), any_desc(48, 32, 3, 3),
            any_desc(1, 48, 14, 14), (1, 1), (1, 1), bias_desc=any_desc(48),
        )
    ),
    "plain convolution": Case(
        dnnl.ConvolutionDesc.forward(
            INFERENCE, "convolution_direct", plain(1, 3, 20, 20), plain(20, 3, 5, 5),
            plain(1, 20, 8, 8), (2, 2), (0, 0),
        )
    ),
    "grouped convolution": Case(
        dnnl.ConvolutionDesc.forward(
            INFERENCE, "convolution_direct", plain(2, 96, 5, 6), any_desc(2, 1, 48, 3, 3),
            plain(2, 2, 5, 6), (1, 1), (1, 1),
        )
    ),
    "depthwise": Case(
        dnnl.ConvolutionDesc.forward(
            INFERENCE, "convolution_direct", any_desc(1, 24, 9, 9), any_desc(24, 1, 1, 3, 3),
            any_desc(1, 24, 9, 9), (1, 1), (1, 1),
        )
    ),
    "matmul": Case(
        dnnl.MatmulDesc(any_desc(2, 30, 40), any_desc(1, 40, 50), any_desc(2, 30, 50))
    ),
    "convolution of bytes": Case(
        dnnl.ConvolutionDesc.forward(
            INFERENCE, "convolution_direct", dnnl.MemoryDesc((1, 12, 9, 7), "s8", "any"),
            dnnl.MemoryDesc((2, 5, 6, 3, 3), "s8", "any"),
            dnnl.MemoryDesc((1, 10, 9, 7), "u8", "any"), (1, 1), (1, 1),
        ),
        zero_points=((dnnl.Arg.SRC, 0), (dnnl.Arg.WEIGHTS, 3)),
    ),
    "matmul with all": Case(
        dnnl.MatmulDesc(plain(2, 30, 40), plain(2, 40, 51), plain(2, 30, 51), plain(1, 1, 51)),
        (
            ("eltwise", "eltwise_gelu_tanh", 0.0, 0.0),
            ("binary", "binary_mul", plain(1, 30, 1)),
            ("sum", 0.5),
        ),
    ),
    "matmul of bf16": Case(typed_matmul("bf16", "bf16", "bf16")),
    "matmul of f16": Case(typed_matmul("f16", "f16", "f32")),
    "matmul of bytes": Case(typed_matmul("u8", "s8", "s32")),
    "matmul of signed bytes": Case(
        typed_matmul("s8", "s8", "s8"),
        (("sum", 0.5),),
        ((dnnl.Arg.SRC, 0), (dnnl.Arg.WEIGHTS, 4), (dnnl.Arg.DST, 0)),
        ((dnnl.Arg.SRC, 0), (dnnl.Arg.WEIGHTS, 0), (dnnl.Arg.DST, 0)),
    ),
    "matmul of integers": Case(typed_matmul("u64", "u64", "u64")),
    "matmul of nothing": Case(
        dnnl.MatmulDesc(plain(7, 0), any_desc(0, 19), plain(7, 19)), (("sum", 2.0),)
    ),
    "inner product": Case(
        dnnl.InnerProductDesc.forward(
            INFERENCE, any_desc(4, 8, 3, 3), any_desc(10, 8, 3, 3), any_desc(4, 10)
        )
    ),
    "reorder of any sizes": Case(reorder(OPEN, "f32:abcd", "f32:abcd")),
    "reorder of any sizes with all": Case(
        reorder(OPEN, "f16:abcd", "s8:acdb"), (("sum", 0.5),), **QUANTIZED
    ),
    "reorder of any sizes to s4": Case(reorder(OPEN, "u8:abcd", "s4:aBcd16b")),
}  # fmt: skip

FOR_DEVICES: dict[str, Case] = {
    **CASES,
    "softmax of any sizes": Case(
        dnnl.SoftmaxDesc.forward(INFERENCE, "softmax_accurate", plain(*OPEN), plain(*OPEN), 1)
    ),
    "reduction of any sizes": Case(
        dnnl.ReductionDesc("reduction_mean", plain(*OPEN), plain(*OPEN[:3], 1))
    ),
    "matmul of any sizes": Case(
        dnnl.MatmulDesc(*(plain(*OPEN[:2]).with_data_type(kind) for kind in ("u8", "s8", "f32"))),
        (("eltwise", "eltwise_relu", 0.0, 0.0),),
        scales=((dnnl.Arg.SRC, 0),),
        zero_points=((dnnl.Arg.SRC, 0), (dnnl.Arg.WEIGHTS, 0)),
    ),
    "matmul of a sparse matrix": Case(
        dnnl.MatmulDesc(dnnl.MemoryDesc.coo((20, 30), "bf16", 99), plain(30, 50), plain(20, 50))
    ),
    "matmul by sparse weights": Case(
        dnnl.MatmulDesc(plain(20, 30), dnnl.MemoryDesc.csr((30, 50), "f32", 99), plain(20, 50))
    ),
    "packing of weights": Case(
        dnnl.ReorderDesc(
            plain(150, 70).with_data_type("s8"), dnnl.MemoryDesc.packed((150, 70), "s8", 99, 32, 4)
        )
    ),
    "matmul by packed weights": Case(
        dnnl.MatmulDesc(
            plain(20, 150).with_data_type("u8"),
            dnnl.MemoryDesc.packed((150, 70), "s8", 5000),
            plain(20, 70),
        )
    ),
}
"""These, and what has code of its own there."""
