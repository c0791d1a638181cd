"""What the specification of prelu fills tensors with, and what it accepts."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import Arg, DataType, MemoryDesc, PreluDesc
from dnnl.reference.conversions import convert
from dnnl.reference.prelu import SPECIFICATION
from dnnl.reference.rule import compare


def described(data_type: str) -> PreluDesc:
    plain = MemoryDesc((6, 5, 7), data_type)
    weights = MemoryDesc((1, 5, 1), data_type)
    return PreluDesc.backward(plain, weights, plain, weights, plain)


@pytest.mark.parametrize("data_type", ["f32", "bf16", "f16", "s8", "s32", "u8"])
def test_contents_are_what_their_types_hold(data_type: str) -> None:
    for values in SPECIFICATION.fill(described(data_type)).values():
        np.testing.assert_array_equal(convert(values, DataType[data_type]), values)


@pytest.mark.parametrize("data_type", ["f32", "bf16"])
@pytest.mark.parametrize("argument", [Arg.DIFF_SRC, Arg.DIFF_WEIGHTS])
def test_what_is_a_little_wrong_is_not_accepted(argument: Arg, data_type: str) -> None:
    desc, core = described(data_type), DataType[data_type]
    values = SPECIFICATION.fill(desc)
    want = SPECIFICATION.compute(desc, values)[argument]
    rule = SPECIFICATION.rule(desc, argument, values)
    verdict = compare("", convert(want * 0.97, core), want, core, DataType.f32, rule)
    assert verdict.errors > 0.9 * np.count_nonzero(want)


def test_a_weight_that_misses_one_element_is_not_accepted() -> None:
    desc = described("f32")
    values = SPECIFICATION.fill(desc)
    want = SPECIFICATION.compute(desc, values)[Arg.DIFF_WEIGHTS]
    place = np.argwhere((values[Arg.SRC] < 0) & (values[Arg.DIFF_DST] != 0))[0]
    less = dict(values)
    less[Arg.SRC] = values[Arg.SRC].copy()
    less[Arg.SRC][tuple(place)] = 0
    got = SPECIFICATION.compute(desc, less)[Arg.DIFF_WEIGHTS]
    rule = SPECIFICATION.rule(desc, Arg.DIFF_WEIGHTS, values)
    assert compare("", got, want, DataType.f32, DataType.f32, rule).errors == 1
