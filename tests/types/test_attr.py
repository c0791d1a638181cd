"""Attributes and post-ops: what is kept, what is refused, keys and verbose text."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from dnnl.errors import InvalidArguments
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.expression import Function
from dnnl.types.kinds import Alg, FpmathMode, ScratchpadMode
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import (
    PostOpBinary,
    PostOpDepthwise,
    PostOpEltwise,
    PostOpFunction,
    PostOpPrelu,
    PostOps,
    PostOpSum,
)
from dnnl.types.scalar import Scalar, trace, traced
from dnnl.types.scales import ScaleSpec

PER_CHANNEL = MemoryDesc((1, 16, 1, 1), "f32", "nchw")
FULL = MemoryDesc((2, 16, 4, 4), "s8", "nhwc")


def fused(value: Scalar, scale: Scalar, other: Scalar) -> Scalar:
    return value * scale + other


def full_attr() -> PrimitiveAttr:
    """An attribute with everything set."""
    attr = PrimitiveAttr(
        "user", "bf16", True, fpmath_apply_to_int=True, accumulation_mode="relaxed"
    )
    attr.set_scales(Arg.SRC)
    attr.set_scales("WEIGHTS", mask=3, groups=(32, 1), data_type="f8_e4m3")
    attr.set_scales(Arg.multiple_src(2))
    attr.set_zero_points(Arg.DST, data_type="s8")
    attr.set_dropout(MemoryDesc((2, 16, 4, 4), "u8", "nhwc"), "s32", use_offset=True)
    attr.set_rnn_data_qparams(127, 128)
    attr.set_rnn_weights_qparams(24, [1.0, 2.0])
    attr.set_rnn_weights_projection_qparams(0, 3.0)
    attr.post_ops.append_sum(0.5, 3, "s8")
    attr.post_ops.append_eltwise("eltwise_relu", 0.1)
    attr.post_ops.append_binary("binary_add", PER_CHANNEL)
    attr.post_ops.append_prelu(2)
    attr.post_ops.append_depthwise("s8", "f32", "u8", 3, 2, 1)
    attr.post_ops.append_function(fused, PER_CHANNEL, FULL)
    return attr


def test_defaults() -> None:
    attr = PrimitiveAttr()
    assert attr.scratchpad_mode is ScratchpadMode.library
    assert attr.fpmath_mode is FpmathMode.strict
    assert attr.deterministic is False
    assert len(attr.post_ops) == 0
    assert attr.scales == {}
    assert attr.zero_points == {}
    assert str(attr) == ""
    assert attr.non_default() == frozenset()
    assert attr == PrimitiveAttr()
    assert repr(attr) == "<PrimitiveAttr default>"


def test_verbose_text_of_everything() -> None:
    assert str(full_attr()) == (
        "attr-scratchpad:user attr-fpmath:bf16:true attr-acc-mode:relaxed attr-deterministic:1 "
        "attr-scales:src0:0:f32+wei:3:f8_e4m3:32x1+msrc2:0:f32 attr-zero-points:dst:0:s8 "
        "attr-dropout:acdb:s32:1:0 "
        "attr-post-ops:sum:0.5:3:s8+eltwise_relu:0.1+binary_add:f32:2:abcd+prelu:2+dw:k3s2p1:u8"
        "+function:fused:f32:s8 "
        "rnn_data_qparams:127:128 attr-rnn-weights-qparams:24 attr-rnn-projection-qparams:0"
    )
    assert full_attr().non_default() == {
        "scratchpad_mode",
        "fpmath_mode",
        "accumulation_mode",
        "deterministic",
        "scales",
        "zero_points",
        "dropout",
        "rnn_qparams",
        "post_ops",
    }


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), "undef:s64:0:0"),
        ((MemoryDesc((2, 3), "u8", "any"),), "any:s64:0:0"),
        ((MemoryDesc((2, 3), "u8", "ba"), "s32", True, True), "ba:s32:1:1"),
    ],
)
def test_verbose_text_of_a_dropout(args: tuple[Any, ...], text: str) -> None:
    attr = PrimitiveAttr()
    attr.set_dropout(*args)
    assert str(attr) == f"attr-dropout:{text}"


@pytest.mark.parametrize(
    ("add", "text"),
    [
        (lambda p: p.append_sum(), "sum"),
        (lambda p: p.append_sum(2), "sum:2"),
        (lambda p: p.append_sum(1, 4), "sum:1:4"),
        (lambda p: p.append_sum(data_type="u8"), "sum:1:0:u8"),
        (lambda p: p.append_sum(data_type="undef"), "sum"),
        (lambda p: p.append_eltwise(Alg.eltwise_exp), "eltwise_exp"),
        (lambda p: p.append_eltwise("eltwise_linear", 2, 0.25), "eltwise_linear:2:0.25"),
        (lambda p: p.append_eltwise("eltwise_clip", 0, 6), "eltwise_clip:0:6"),
        (lambda p: p.append_binary("binary_mul", FULL), "binary_mul:s8:15:acdb"),
        (
            lambda p: p.append_binary("binary_mul", MemoryDesc((1, 1), "f32")),
            "binary_mul:f32:0",
        ),
        (
            lambda p: p.append_binary("binary_max", MemoryDesc((2, 1), "bf16", "any")),
            "binary_max:bf16:1:any",
        ),
        (
            lambda p: p.append_binary("binary_sub", MemoryDesc((2, 3), "f32", (8, 1))),
            "binary_sub:f32:3:ab:8x1",
        ),
        (lambda p: p.append_depthwise("f32", "undef", "f32", 3, 1, 1), "dw:k3s1p1"),
    ],
)
def test_verbose_text_of_entries(add: Callable[[PostOps], int], text: str) -> None:
    post_ops = PostOps()
    assert add(post_ops) == 0
    assert str(post_ops) == text


def test_entries() -> None:
    entries = list(full_attr().post_ops)
    assert entries == [
        PostOpSum(0.5, 3, DataType.s8),
        PostOpEltwise(Alg.eltwise_relu, 0.1, 0.0),
        PostOpBinary(Alg.binary_add, PER_CHANNEL),
        PostOpPrelu(2),
        PostOpDepthwise(DataType.s8, DataType.f32, DataType.u8, 3, 2, 1),
        PostOpFunction(traced(fused, 3), (PER_CHANNEL, FULL)),
    ]
    post_ops = PostOps(entries)
    assert post_ops[1] is entries[1]
    assert post_ops[-1] is entries[-1]
    assert post_ops[1:3] == entries[1:3]
    assert len(post_ops) == 6
    assert [entry.operands for entry in post_ops] == [
        (),
        (),
        ((Arg.SRC_1, PER_CHANNEL),),
        (),
        (),
        ((Arg.SRC_1, PER_CHANNEL), (Arg.SRC_2, FULL)),
    ]


def test_select_reads_its_condition() -> None:
    post_ops = PostOps()
    post_ops.append_binary("binary_select", PER_CHANNEL, FULL)
    assert post_ops[0].operands == ((Arg.SRC_1, PER_CHANNEL), (Arg.SRC_2, FULL))


def test_equal_contents_are_equal_keys() -> None:
    one, other = full_attr(), full_attr()
    assert one == other
    assert hash(one.key) == hash(other.key)
    with pytest.raises(TypeError):
        hash(one)


def test_order_of_setting_scales_does_not_count() -> None:
    one, other = PrimitiveAttr(), PrimitiveAttr()
    one.set_scales(Arg.SRC)
    one.set_scales(Arg.DST)
    other.set_scales(Arg.DST)
    other.set_scales(Arg.SRC)
    assert one.key == other.key
    assert str(one) == str(other)


CHANGES: list[Callable[[PrimitiveAttr], object]] = [
    lambda a: setattr(a, "scratchpad_mode", "library"),
    lambda a: setattr(a, "fpmath_mode", "f16"),
    lambda a: setattr(a, "fpmath_apply_to_int", False),
    lambda a: setattr(a, "accumulation_mode", "any"),
    lambda a: setattr(a, "deterministic", False),
    lambda a: a.set_scales(Arg.SRC, mask=1),
    lambda a: a.set_zero_points(Arg.SRC),
    lambda a: a.set_dropout(),
    lambda a: a.set_rounding_mode(Arg.DST, "stochastic"),
    lambda a: a.post_ops.append_sum(),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_is_independent_and_every_field_counts(
    change: Callable[[PrimitiveAttr], object],
) -> None:
    original = full_attr()
    for made in (original.copy(), copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert made == original
        change(made)
        assert made.key != original.key
        assert original == full_attr()


def test_with_post_ops_replaces_them_in_a_copy() -> None:
    original = full_attr()
    made = original.with_post_ops([PostOpSum()])
    assert str(made.post_ops) == "sum"
    assert made.scales == original.scales
    assert len(original.post_ops) == 6


def test_functions_are_equal_by_what_they_compute() -> None:
    first = Function(trace(lambda x: 2 * x + 1, 1), "a")
    second = Function(trace(lambda value: 2.0 * value + 1.0, 1), "b")
    other = Function(trace(lambda x: 2 * x - 1, 1))
    assert PostOpFunction(first) == PostOpFunction(second)
    assert hash(PostOpFunction(first)) == hash(PostOpFunction(second))
    assert PostOpFunction(first) != PostOpFunction(other)
    assert PostOpFunction(first) != PostOpFunction(first, (FULL,))
    assert pickle.loads(pickle.dumps(PostOpFunction(first, (FULL,)))) == PostOpFunction(
        first, (FULL,)
    )


def test_views_are_read_only() -> None:
    attr = full_attr()
    with pytest.raises(TypeError):
        attr.scales[Arg.SRC] = ScaleSpec(0, (), DataType.f32)  # type: ignore[index]
    with pytest.raises(AttributeError):
        attr.post_ops[0].scale = 2.0  # type: ignore[attr-defined]


def test_at_most_32_post_ops() -> None:
    post_ops = PostOps()
    for index in range(32):
        assert post_ops.append_eltwise("eltwise_relu") == index
    with pytest.raises(InvalidArguments, match="at most 32"):
        post_ops.append_sum()


@pytest.mark.parametrize(
    ("mask", "groups", "dims", "shape"),
    [
        (0, (), (4, 6), (1, 1)),
        (2, (), (4, 6), (1, 6)),
        (3, (2, 3), (4, 6), (2, 2)),
        (3, (1, 6), (4, 6), (4, 1)),
        (2, (1, 3), (4, 6), (1, 2)),
        (5, (1, 2), (4, 5, 6), (4, 1, 3)),
        (0, (), (), ()),
    ],
)
def test_shape_of_scales(
    mask: int, groups: tuple[int, ...], dims: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    assert ScaleSpec(mask, groups, DataType.f32).shape(dims) == shape


@pytest.mark.parametrize(
    ("mask", "groups", "dims", "argument"),
    [
        (4, (), (4, 6), "mask"),
        (1, (2, 3), (4,), "groups"),
        (3, (3, 1), (4, 6), "groups"),
        (2, (2, 1), (4, 6), "groups"),
    ],
)
def test_shape_of_scales_refusals(
    mask: int, groups: tuple[int, ...], dims: tuple[int, ...], argument: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        ScaleSpec(mask, groups, DataType.f32).shape(dims)
    assert caught.value.argument == argument


def call(name: str, *args: Any, **kwargs: Any) -> Callable[[PrimitiveAttr], object]:
    """Return a call of a method of the attribute, or of its post-ops."""

    def run(attr: PrimitiveAttr) -> object:
        owner = attr if hasattr(attr, name) else attr.post_ops
        return getattr(owner, name)(*args, **kwargs)

    return run


@pytest.mark.parametrize(
    ("action", "argument", "part"),
    [
        (
            call("append_eltwise", "relu"),
            "alg",
            "an eltwise function; did you mean 'eltwise_relu'?",
        ),
        (call("append_eltwise", "binary_add"), "alg", "append_binary takes 'binary_add'"),
        (call("append_eltwise", Alg.binary_add), "alg", "append_binary takes 'binary_add'"),
        (call("append_eltwise", None), "alg", "alg = None: expected an eltwise function"),
        (call("append_eltwise", "eltwise_relu", float("nan")), "alpha", "number"),
        (call("append_binary", "add", FULL), "alg", "a binary function; did you mean 'binary_add'"),
        (call("append_eltwise", "eltwise_relu", "0.1"), "alpha", "number"),
        (call("append_eltwise", "eltwise_clip", 1, 0), "beta", "beta >= alpha = 1"),
        (call("append_eltwise", "eltwise_clip_v2", 1, float("nan")), "beta", "number"),
        (call("append_binary", "eltwise_relu", FULL), "alg", "binary function"),
        (call("append_binary", "binary_add", None), "src1_desc", "MemoryDesc"),
        (call("append_binary", "binary_add", MemoryDesc.zero()), "src1_desc", "MemoryDesc"),
        (call("append_binary", "binary_add", FULL, FULL), "src2_desc", "none"),
        (call("append_binary", "binary_select", FULL), "src2_desc", "binary_select takes"),
        (call("append_binary", "binary_select", FULL, PER_CHANNEL), "src2_desc", "s8"),
        (call("append_sum", None), "scale", "number"),
        (call("append_sum", 1, 0.5), "zero_point", "integer"),
        (call("append_sum", 1, 0, "f31"), "data_type", "f32"),
        (call("append_prelu", -1), "mask", "12"),
        (call("append_prelu", 4096), "mask", "12"),
        (call("append_depthwise", "f32", "f32", "f32", 0, 1, 0), "kernel", "at least 1"),
        (call("append_depthwise", "f32", "f32", "f32", 3, 0, 0), "stride", "at least 1"),
        (call("append_depthwise", "f32", "f32", "f32", 3, 1, 3), "padding_l", "less than"),
        (call("append_depthwise", "undef", "f32", "f32", 3, 1, 1), "weights_dt", "bias"),
        (call("append_function", 3), "fn", "function"),
        (call("append_function", len, 3), "operand_descs", "MemoryDesc"),
        (call("append_function", len, *[FULL] * 16), "operand_descs", "at most 15"),
        (call("append", "sum"), "entry", "post-op"),
        (call("set_scales", "SRCC"), "arg", "'SRC'"),
        (call("set_scales", 0), "arg", "positive"),
        (call("set_scales", Arg.SRC, 0, (), "s8"), "data_type", "expected one of f32"),
        (call("set_scales", Arg.SRC, 0, (), "e8m0"), "mask", "not 0"),
        (call("set_scales", Arg.SRC, -1), "mask", "12"),
        (call("set_scales", Arg.SRC, 1.5), "mask", "integer"),
        (call("set_scales", Arg.SRC, 3, (2,)), "groups", "(32, 1)"),
        (call("set_scales", Arg.SRC, 3, (0, 1)), "groups", "1 or more"),
        (call("set_scales", Arg.SRC, 3, 4), "groups", "two integers"),
        (call("set_scales", Arg.SRC, 0, (2, 1)), "groups", "no groups"),
        (call("set_zero_points", Arg.SRC, 0, (), "f32"), "data_type", "expected one of s32"),
        (call("set_rounding_mode", Arg.SRC, "stochastic"), "arg", "DIFF_WEIGHTS"),
        (call("set_rounding_mode", Arg.DST, "nearest"), "mode", "stochastic"),
        (call("set_dropout", "ab"), "mask_desc", "MemoryDesc"),
        (call("set_dropout", FULL), "mask_desc", "u8"),
        (call("set_dropout", None, "f32"), "seed_data_type", "expected one of s32, s64"),
        (call("set_dropout", None, "s64", 1), "use_offset", "True or False"),
        (call("set_dropout", None, "s64", False, 0), "use_host_scalars", "True or False"),
        (lambda a: setattr(a, "fpmath_mode", "bf17"), "fpmath_mode", "'bf16'"),
        (lambda a: setattr(a, "scratchpad_mode", 3), "scratchpad_mode", "library"),
        (lambda a: setattr(a, "scratchpad_mod", "user"), "scratchpad_mod", "'scratchpad_mode'"),
        (lambda a: setattr(a, "deterministic", "no"), "deterministic", "True or False"),
        (lambda a: setattr(a, "post_ops", []), "post_ops", "with_post_ops"),
        (lambda a: setattr(a, "fpmath_apply_to_int", 1), "fpmath_apply_to_int", "True or False"),
    ],
)
def test_refusals(action: Callable[[PrimitiveAttr], object], argument: str, part: str) -> None:
    attr = full_attr()
    with pytest.raises(InvalidArguments) as caught:
        action(attr)
    assert caught.value.argument == argument
    assert part in str(caught.value)
    assert attr == full_attr()
