"""Post-ops and scratchpads of convolutions: every kind, on every way that a convolution takes."""

from __future__ import annotations

import pytest

from dnnl import Arg, Memory, Primitive, PrimitiveAttr, PrimitiveDesc, Stream, config
from dnnl.reference.convolution import TOLERANCE
from dnnl.types.arg import MAX_POST_OPS
from tests.check import check, logical, poisoned_memory
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, LAYOUTS, every_isa
from tests.primitives.products import (
    Dims,
    Window,
    attr_of,
    broadcast_dims,
    convolution_desc,
    expected,
    inputs,
    lay_out,
    verify,
)

CROSS = Window((5, 6), (3, 3), padding_l=(1, 1))
POINT = Window((5, 6), (1, 1))
LINE = Window((30,), (1,))
CUBE = Window((2, 3, 5), (1, 1, 1))

# The ways that results take: the tile itself, a copy to a layout that tiles cannot write, a group,
# a depthwise nest; 1x1 kernels walk pixels as one line where layouts allow it.
Way = tuple[Window, Dims, str]
WAYS: list[Way] = [
    (CROSS, (19, 5), "plain"), (CROSS, (19, 5), "nhwc"), (CROSS, (19, 5), "nChw16c"),
    (CROSS, (19, 5), "ABcd4b16a4b"),  # copied
    (CROSS, (2, 9, 3), "plain"), (CROSS, (2, 9, 3), "nChw8c"),  # groups, without padding and with
    (CROSS, (19, 1, 1), "nChw8c"),
    (POINT, (19, 5), "plain"), (POINT, (19, 5), "nhwc"), (POINT, (19, 5), "nChw16c"),  # lines
    (POINT, (19, 5), "part"),
]  # fmt: skip


@every_pair(way=WAYS, mask=[0, 2, 15, 6, 9, 12], operand=["plain", "nhwc"], kind=["sub", "max"])
def test_binary(mask: int, operand: str, kind: str, way: Way) -> None:
    window, channels, layout = way
    desc = convolution_desc(window, 2, channels, ("any", "any", layout))
    src1 = lay_out(broadcast_dims(desc.dst_desc.dims, mask), operand)
    verify(desc, attr_of(("binary", f"binary_{kind}", src1)))


@every_pair(operand=[*LAYOUTS, "any", "behind"], dst=["plain", "nChw16c"], window=[CROSS, POINT])
def test_layouts_of_a_full_operand(window: Window, dst: str, operand: str) -> None:
    desc = convolution_desc(window, 2, (19, 5), ("any", "any", dst))
    src1 = lay_out(desc.dst_desc.dims, operand)
    verify(desc, attr_of(("binary", "binary_add", src1), ("eltwise", "eltwise_relu")))


@pytest.mark.parametrize(("window", "channels", "layout"), WAYS)
@pytest.mark.parametrize("mask", [0b0010, 0b0011, 0b1111, 0b1010])
def test_prelu(mask: int, window: Window, channels: Dims, layout: str) -> None:
    verify(convolution_desc(window, 2, channels, ("any", "any", layout)), attr_of(("prelu", mask)))


@pytest.mark.parametrize("window", [LINE, CUBE], ids=["1D", "3D"])
@pytest.mark.parametrize("layout", ["plain", "last", "block16", "any"])
def test_other_ranks(layout: str, window: Window) -> None:
    desc = convolution_desc(window, 2, (19, 5), ("any", "any", layout))
    dims = desc.dst_desc.dims
    attr = attr_of(
        ("binary", "binary_add", lay_out(dims, "last")),
        ("prelu", (1 << len(dims)) - 1),
        ("binary", "binary_mul", lay_out(broadcast_dims(dims, 2), "plain")),
        ("prelu", 2),
        ("sum", 2.0),
    )
    verify(desc, attr)


@pytest.mark.parametrize(("window", "channels", "layout"), WAYS)
def test_sum_reads_what_the_destination_held(window: Window, channels: Dims, layout: str) -> None:
    desc = convolution_desc(window, 2, channels, ("any", "any", layout))
    verify(desc, attr_of(("eltwise", "eltwise_abs"), ("sum", -2.0), ("eltwise", "eltwise_relu")))
    verify(desc, attr_of(("sum",), ("sum", 3.0)))


@pytest.mark.parametrize(("window", "channels", "layout"), WAYS)
def test_a_chain_of_as_many_as_there_can_be(window: Window, channels: Dims, layout: str) -> None:
    desc = convolution_desc(window, 2, channels, ("any", "any", layout))
    dims = desc.dst_desc.dims
    kinds = [
        ("binary", "binary_add", lay_out(dims, "reversed")),
        ("eltwise", "eltwise_relu", 0.5),
        ("binary", "binary_max", lay_out(broadcast_dims(dims, 2), "plain")),
        ("sum", 0.5),
        ("prelu", 0b10),
        ("eltwise", "eltwise_clip", -50.0, 60.0),
        ("binary", "binary_sub", lay_out(broadcast_dims(dims, 0b1001), "nhwc")),
    ]
    chain = (kinds * MAX_POST_OPS)[:MAX_POST_OPS]
    verify(desc, attr_of(*chain))


def test_long_chains_do_not_multiply_code() -> None:
    desc = convolution_desc(CROSS, 2, (32, 16), ("nhwc", "any", "nhwc"))
    plain = len(Primitive(PrimitiveDesc(desc, ENGINE)).llvm_ir())
    chain = attr_of(*[("eltwise", "eltwise_gelu_erf")] * MAX_POST_OPS)
    # Written out for every register of every tile it would be thousands of times as much.
    assert len(Primitive(PrimitiveDesc(desc, ENGINE, chain)).llvm_ir()) < 20 * plain


@every_isa
@pytest.mark.parametrize("alg", ["eltwise_gelu_erf", "eltwise_swish", "eltwise_exp"])
def test_functions_leave_padding_zero(alg: str, isa: str) -> None:
    # f(0) is not 0 for exp, and padded channels hold sums of nothing.
    with config.override("max_cpu_isa", isa):
        desc = convolution_desc(CROSS, 1, (19, 2), ("any", "any", "nChw16c"))
        verify(desc, attr_of(("eltwise", alg, 1.0)), "normal")


@pytest.mark.parametrize("at", ["user", "library"])
def test_scratchpad(at: str) -> None:
    desc = convolution_desc(CROSS, 2, (19, 5), ("ABcd4b16a4b", "plain", "dcba"))
    attr = PrimitiveAttr(scratchpad_mode=at)
    attr.post_ops.append_eltwise("eltwise_relu")
    pd = PrimitiveDesc(desc, ENGINE, attr)
    assert not pd.scratchpad_desc.is_zero
    args = inputs(pd)
    want, length, _ = expected(
        PrimitiveDesc(desc, ENGINE), {arg: logical(memory) for arg, memory in args.items()}
    )
    dst = poisoned_memory(desc.dst_desc, ENGINE)
    given: dict[int, Memory] = {**args, Arg.DST: dst}
    if at == "user":
        given[Arg.SCRATCHPAD] = poisoned_memory(pd.scratchpad_desc, ENGINE)
    Primitive(pd).execute(Stream(ENGINE, 2), given)
    check(dst, want.clip(0), TOLERANCE("f32", length))


def test_nothing_to_copy_takes_no_scratchpad() -> None:
    desc = convolution_desc(CROSS, 2, (32, 16), ("nhwc", "any", "nchw"))
    assert PrimitiveDesc(desc, ENGINE).scratchpad_desc.is_zero
