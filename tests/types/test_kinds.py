"""Enums: values of the specification, names wherever a member is expected, argument keys."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from dnnl.errors import InvalidArguments
from dnnl.types.arg import Arg, coerce_arg, name_of
from dnnl.types.kinds import (
    AccumulationMode,
    Alg,
    Direction,
    FormatKind,
    FpmathMode,
    Kind,
    NormFlags,
    PropKind,
    ScratchpadMode,
    coerce,
    float_text,
)

ENUMS: list[type[Kind]] = [
    PropKind,
    Alg,
    FormatKind,
    FpmathMode,
    AccumulationMode,
    ScratchpadMode,
    Direction,
]


@pytest.mark.parametrize("enum_class", ENUMS)
def test_every_name_is_accepted_and_members_survive_pickling(enum_class: type[Kind]) -> None:
    for name, member in enum_class.__members__.items():
        assert coerce(enum_class, name, "x") is member
        assert coerce(enum_class, member, "x") is member
        assert pickle.loads(pickle.dumps(member)) is member
        assert copy.deepcopy(member) is member
        assert str(member) == member.name
        assert eval(repr(member), {enum_class.__name__: enum_class}) is member


@pytest.mark.parametrize(
    ("member", "value"),
    [
        (PropKind.forward, 64),
        (PropKind.forward_inference, 96),
        (PropKind.backward, 128),
        (PropKind.backward_data, 160),
        (PropKind.backward_weights, 192),
        (PropKind.backward_bias, 193),
        (Alg.convolution_auto, 3),
        (Alg.deconvolution_winograd, 0xB),
        (Alg.eltwise_relu, 0x20),
        (Alg.eltwise_relu_use_dst_for_bwd, 0x100),
        (Alg.pooling_avg_exclude_padding, 0x3FF),
        (Alg.lbr_augru, 0x6FFF),
        (Alg.binary_add, 0x1FFF0),
        (Alg.binary_select, 0x1FFFC),
        (Alg.resampling_linear, 0x2FFF1),
        (Alg.softmax_log, 0x30001),
    ],
)
def test_values_of_the_specification(member: Kind, value: int) -> None:
    assert member.value == value


def test_alg_values_are_distinct() -> None:
    assert len(Alg.__members__) == len({alg.value for alg in Alg})


def test_alg_families() -> None:
    assert Alg.eltwise_relu.is_eltwise
    assert not Alg.eltwise_relu.is_binary
    assert Alg.binary_add.is_binary
    assert Alg.eltwise_tanh_use_dst_for_bwd.uses_dst
    assert not Alg.eltwise_tanh.uses_dst
    assert PropKind.forward_training.is_forward
    assert not PropKind.backward_data.is_forward


@pytest.mark.parametrize(
    ("enum_class", "value", "text"),
    [
        (PropKind, "forwrd_inference", "'forward_inference'"),
        (Alg, "relu", "'eltwise_relu'"),
        (Direction, 7, "unidirectional_left2right"),
        (ScratchpadMode, None, "library"),
        (FormatKind, FpmathMode.any, "'any'"),
    ],
)
def test_refusal_names_argument_value_and_nearest(
    enum_class: type[Kind], value: object, text: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        coerce(enum_class, value, "my_argument")
    assert caught.value.argument == "my_argument"
    assert caught.value.value is value
    assert enum_class.__name__ in caught.value.rule
    assert text in caught.value.hint


def test_a_class_finds_its_members_by_name_and_by_value() -> None:
    assert PropKind("forward_inference") is PropKind(96) is PropKind.forward_inference
    with pytest.raises(InvalidArguments, match=r"value = 'relu'.*did you mean 'eltwise_relu'"):
        Alg("relu")
    with pytest.raises(InvalidArguments, match="value = 7: expected Direction"):
        Direction(7)


def test_the_family_of_a_function_is_what_people_leave_out() -> None:
    with pytest.raises(InvalidArguments, match="did you mean 'binary_add'"):
        coerce(Alg, "add", "alg_kind")


def test_norm_flags() -> None:
    both = NormFlags.use_scale | NormFlags.use_shift
    assert coerce(NormFlags, "use_scale|use_shift", "flags") == both
    assert NormFlags("use_scale|use_shift") == both  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="value = 'use_scales'"):
        NormFlags("use_scales")  # type: ignore[arg-type]
    assert coerce(NormFlags, "use_scale | use_shift", "flags") == both
    assert coerce(NormFlags, 6, "flags") == both
    assert coerce(NormFlags, None, "flags") == NormFlags.none
    assert coerce(NormFlags, "", "flags") == NormFlags.none
    assert both.letters == "CH"
    assert NormFlags(63).letters == "GCHRAM"
    assert str(both) == "use_scale|use_shift"
    assert str(NormFlags.none) == "none"
    assert eval(repr(both), {"NormFlags": NormFlags}) == both
    for wrong in (64, -1, True, "use_scal", 1.5):
        with pytest.raises(InvalidArguments):
            coerce(NormFlags, wrong, "flags")


def test_arguments_are_integers() -> None:
    assert {1: "found"}[Arg.SRC] == "found"
    assert {Arg.SCALES | Arg.SRC: "found"}[4097] == "found"
    assert (Arg.DST, Arg.WEIGHTS, Arg.BIAS, Arg.WORKSPACE, Arg.SCRATCHPAD) == (17, 33, 41, 64, 80)
    assert Arg.post_op(0) == 32768
    assert Arg.post_op(31) | Arg.SRC_1 == 32 * 32768 + 2
    assert Arg.multiple_src(3) == 1027
    assert Arg.multiple_dst(3) == 2051


@pytest.mark.parametrize("index", ["a", -1, 1.0, None])
@pytest.mark.parametrize("key", [Arg.post_op, Arg.multiple_src, Arg.multiple_dst])
def test_an_index_that_is_none_is_refused(key: Callable[[Any], int], index: object) -> None:
    with pytest.raises(InvalidArguments, match=r"index = .*: expected an integer of 0\.\."):
        key(index)


def test_ids_do_not_run_into_each_other() -> None:
    with pytest.raises(InvalidArguments, match=r"index = 32: expected an integer of 0\.\.31"):
        Arg.post_op(32)
    with pytest.raises(InvalidArguments, match=r"index = 1024: "):
        Arg.multiple_src(1024)


@pytest.mark.parametrize(
    ("name", "value"),
    [("SRC", 1), ("FROM", 1), ("DIFF_SHIFT", 256), ("ATTR_SCALES", 4096), ("SCALES", 4096)],
)
def test_argument_values(name: str, value: int) -> None:
    assert Arg[name].value == value
    assert Arg[name] is Arg(value)


@pytest.mark.parametrize(
    ("arg", "name"),
    [
        (Arg.SRC, "SRC"),
        (1, "SRC"),
        (Arg.SCALES | Arg.SRC, "SCALES|SRC"),
        (Arg.ZERO_POINTS | Arg.DST, "ZERO_POINTS|DST"),
        (Arg.post_op(0) | Arg.SRC_1, "post_op(0)|SRC_1"),
        (Arg.post_op(31) | 7, "post_op(31)|SRC_6"),
        (Arg.SCALES | Arg.POST_OP_DW | Arg.WEIGHTS, "SCALES|POST_OP_DW|WEIGHTS"),
        (Arg.SCALES | Arg.multiple_src(2), "SCALES|MULTIPLE_SRC+2"),
        (Arg.MULTIPLE_DST, "MULTIPLE_DST+0"),
        (Arg.PRECOMPUTED_REDUCTIONS | Arg.SRC, "PRECOMPUTED_REDUCTIONS|SRC"),
        (Arg.DROPOUT_SEED, "DROPOUT_SEED"),
        (300, "300"),
        (0, "0"),
        (-3, "-3"),
    ],
)
def test_argument_names(arg: int, name: str) -> None:
    assert name_of(arg) == name


@pytest.mark.parametrize("arg", list(Arg))
def test_every_argument_has_a_name_of_its_own(arg: Arg) -> None:
    if arg not in (Arg.MULTIPLE_SRC, Arg.MULTIPLE_DST):
        assert name_of(arg) == arg.name
    assert coerce_arg(arg.name, "arg") == arg == coerce_arg(int(arg), "arg")


def test_argument_by_name() -> None:
    assert coerce_arg("SCALES|SRC", "arg") == 4097
    with pytest.raises(InvalidArguments, match="did you mean 'WEIGHTS'"):
        coerce_arg("WEIGTHS", "arg")
    for wrong in (0, -1, 1.5, None):
        with pytest.raises(InvalidArguments):
            coerce_arg(wrong, "arg")


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -2.5, 1e-7, 4294967296.0, 1e22, math.inf])
def test_numbers_are_written_as_they_are(value: float) -> None:
    assert float(float_text(value)) == value
    assert "+" not in float_text(value)


def test_short_numbers_are_written_as_streams_do() -> None:
    texts = [float_text(value) for value in (1.0, 0.5, -1e-10, 1e20)]
    assert texts == ["1", "0.5", "-1e-10", "1e20"]
