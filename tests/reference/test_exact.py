"""Functions in the types of the elements, against PyTorch, and ONNX's own where that has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dnnl.reference.expression import exact
from dnnl.types.dtype import DataType
from tests.primitives.typed import Typed, drawn

SIGNED = ["s8", "s16", "s32", "s64"]
SAME: dict[str, Callable[..., Any]] = {
    "abs": torch.abs,
    "add": torch.add,
    "and": torch.bitwise_and,
    "equal": torch.eq,
    "greater": torch.gt,
    "greater_or_equal": torch.ge,
    "less": torch.lt,
    "less_or_equal": torch.le,
    "max": torch.maximum,
    "min": torch.minimum,
    "mul": torch.mul,
    "neg": torch.neg,
    "not": torch.bitwise_not,
    "not_equal": torch.ne,
    "or": torch.bitwise_or,
    "sign": torch.sign,
    "sub": torch.sub,
    "xor": torch.bitwise_xor,
}
DIVISIONS: dict[str, Callable[..., Any]] = {
    "div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "mod": torch.remainder,
    "remainder": torch.fmod,
}


def sources(kind: str, count: int = 2) -> list[Typed]:
    return [drawn(DataType[kind], (5, 31), seed) for seed in range(count)]


def by_torch(function: Callable[..., Any], arrays: list[Typed]) -> Typed:
    result: Typed = function(*map(torch.from_numpy, arrays)).numpy()
    return result


@pytest.mark.parametrize("function", SAME)
@pytest.mark.parametrize("kind", [*SIGNED, "u8"])
def test_as_torch(function: str, kind: str) -> None:
    arrays = sources(kind, 1 if function in ("abs", "neg", "not", "sign") else 2)
    want = by_torch(SAME[function], arrays)
    dst = DataType.from_numpy(want.dtype)
    np.testing.assert_array_equal(exact(function, arrays, dst), want)


@pytest.mark.parametrize("function", DIVISIONS)
@pytest.mark.parametrize("kind", [*SIGNED, "u8"])
def test_divisions(function: str, kind: str) -> None:
    a, b = sources(kind)
    b[b == 0] = 7
    if DataType[kind].min < 0:
        b[b == -1] = 7
    want = by_torch(DIVISIONS[function], [a, b])
    np.testing.assert_array_equal(exact(function, [a, b], DataType[kind]), want)


@pytest.mark.parametrize("kind", SIGNED)
def test_where_mathematics_has_no_answer(kind: str) -> None:
    least = np.array([DataType[kind].min], DataType[kind].numpy)
    zero, minus = np.zeros_like(least), -np.ones_like(least)
    data_type = DataType[kind]
    for function in DIVISIONS:
        assert exact(function, [least, zero], data_type) == 0
    assert exact("div", [least, minus], data_type) == least
    assert exact("mod", [least, minus], data_type) == 0
    assert exact("remainder", [least, minus], data_type) == 0


@pytest.mark.parametrize("direction", ["left", "right"])
@pytest.mark.parametrize("kind", ["u8", "u16", "u32", "u64", "s8", "s64"])
def test_shifts(direction: str, kind: str) -> None:
    arrays = sources(kind)
    node = helper.make_node("BitShift", ["a", "b"], ["y"], direction=direction.upper())
    (want,) = ReferenceEvaluator(node).run(None, dict(zip("ab", arrays, strict=True)))
    got = exact(f"shift_{direction}", arrays, DataType[kind])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["s32", "s64"])
def test_powers(kind: str) -> None:
    base, exponent = sources(kind)
    exponent = np.abs(exponent) % 9
    want = by_torch(torch.pow, [base, exponent])
    np.testing.assert_array_equal(exact("pow", [base, exponent], DataType[kind]), want)
    units = np.array([-2, -1, 0, 1, 2], base.dtype)
    for power, expected in ((-1, [0, -1, 0, 1, 0]), (-2, [0, 1, 0, 1, 0])):
        got = exact("pow", [units, np.full_like(units, power)], DataType[kind])
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("src", [*SIGNED, "u8", "boolean", "f32", "f64"])
@pytest.mark.parametrize("dst", [*SIGNED, "u8", "boolean", "f32", "f64", "f16"])
def test_casts(src: str, dst: str) -> None:
    array = drawn(DataType[src], (5, 31), 3)
    kind = DataType[dst]
    if DataType[src].is_float and kind.is_integer and dst != "boolean":
        # Elsewhere PyTorch leaves the result to the processor.
        array = np.clip(np.nan_to_num(array), max(kind.min, -(2.0**30)), min(kind.max, 2.0**30))
    target = torch.from_numpy(np.zeros(1, kind.numpy)).dtype
    want = by_torch(lambda a: a.to(target), [array])
    np.testing.assert_array_equal(exact("cast", [array], kind), want)


def test_floats_stop_at_the_ends() -> None:
    array = np.array([-np.inf, -129.0, -128.9, -0.9, np.nan, 127.9, 128.0, 1e30])
    want = [-128, -128, -128, 0, 0, 127, 127, 127]
    np.testing.assert_array_equal(exact("cast", [array], DataType.s8), want)
    got = exact("cast", [np.array([2.0**63, -1.0])], DataType.s64)
    np.testing.assert_array_equal(got, [2**63 - 1, -1])


def test_choice() -> None:
    condition = drawn(DataType.boolean, (5, 31), 2)
    a, b = sources("u16")
    want = by_torch(torch.where, [condition, a, b])
    np.testing.assert_array_equal(exact("where", [condition, a, b], DataType.u16), want)
