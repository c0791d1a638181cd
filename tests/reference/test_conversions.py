"""The conversions against PyTorch, ml_dtypes and tables of edge cases."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from dnnl.reference.arrays import f64
from dnnl.reference.conversions import convert, exactly
from dnnl.types.dtype import DataType

INF, NAN = np.inf, np.nan

EDGES: list[tuple[str, list[tuple[float, float]]]] = [
    ("s8", [(1024, 127), (-1024, -128), (0.5, 0), (1.5, 2), (-0.5, 0), (-2.5, -2), (INF, 127)]),
    ("u8", [(-124, 0), (255.5, 255), (300, 255), (2.5, 2), (3.5, 4), (-INF, 0)]),
    ("s4", [(7.5, 7), (-9, -8), (6.5, 6), (-0.5, 0)]),
    ("u4", [(15.5, 15), (-1, 0), (14.5, 14)]),
    (
        "s32",
        [(2.0**31, 2.0**31 - 1), (-(2.0**31), -(2.0**31)), (-1e20, -(2.0**31))],
    ),
    ("f32", [(1e39, INF), (-1e39, -INF), (1 + 2.0**-24, 1), (1 + 3 * 2.0**-24, 1 + 2.0**-22)]),
    ("f16", [(65519, 65504), (65520, INF), (2.0**-24, 2.0**-24), (2.0**-25, 0), (NAN, NAN)]),
    ("bf16", [(1 + 2.0**-8, 1), (1 + 3 * 2.0**-8, 1 + 2.0**-6), (3.4e38, INF), (-INF, -INF)]),
    ("f8_e5m2", [(57344, 57344), (61439, 57344), (61440, INF), (NAN, NAN), (2.0**-17, 0)]),
    ("f8_e4m3", [(448, 448), (464, 448), (465, NAN), (INF, NAN), (2.0**-10, 0), (0.0011, 2.0**-9)]),
    (
        "f4_e2m1",
        [
            (5, 4),
            (0.25, 0),
            (0.75, 1),
            (2.5, 2),
            (3.5, 4),
            (100, 6),
            (-INF, -6),
            (NAN, 6),
            (1.2, 1),
        ],
    ),
    ("s64", [(2.0**70, 2.0**63), (-(2.0**70), -(2.0**63)), (2.5, 2)]),
    ("u64", [(-1, 0), (2.0**63, 2.0**63), (INF, 2.0**64)]),
    ("boolean", [(0, 0), (-0.0, 0), (1e-30, 1), (-3, 1), (NAN, 1), (INF, 1)]),
    ("e8m0", [(1, 1), (-3, 2), (0.99, 0.5), (0, 2.0**-127), (1e-45, 2.0**-127), (INF, NAN)]),
]


@pytest.mark.parametrize(("data_type", "pairs"), EDGES)
def test_edges(data_type: str, pairs: list[tuple[float, float]]) -> None:
    given, wanted = zip(*pairs, strict=True)
    np.testing.assert_array_equal(convert(given, data_type), wanted)


def every_f16() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)


@pytest.mark.parametrize(
    ("data_type", "peer"),
    [
        ("f32", torch.float32),
        ("f16", torch.float16),
        ("bf16", torch.bfloat16),
        ("f8_e5m2", torch.float8_e5m2),
    ],
)
def test_every_f16_to_floats_of_pytorch(data_type: str, peer: torch.dtype) -> None:
    values = every_f16()
    want = torch.from_numpy(values).float().to(peer).double().numpy()
    np.testing.assert_array_equal(convert(values, data_type), want)


@pytest.mark.parametrize("data_type", ["bf16", "f16"])
def test_halfway_values_go_to_even(data_type: str) -> None:
    peer = {"bf16": torch.bfloat16, "f16": torch.float16}[data_type]
    bits = np.random.default_rng(1).integers(0, 2**32, 100_000, np.uint32)
    cut = 16 if data_type == "bf16" else 13
    halfway = (bits >> cut << cut | 1 << (cut - 1)).astype(np.uint32).view(np.float32)
    want = torch.from_numpy(halfway).to(peer).double().numpy()
    np.testing.assert_array_equal(convert(halfway, data_type), want)


@pytest.mark.parametrize("data_type", ["s8", "u8", "s32"])
def test_integers_against_pytorch(data_type: str) -> None:
    limits = torch.iinfo({"s8": torch.int8, "u8": torch.uint8, "s32": torch.int32}[data_type])
    values = every_f16()
    values = values[~np.isnan(values)]
    want = torch.from_numpy(values).round().clamp(limits.min, limits.max).numpy()
    np.testing.assert_array_equal(convert(values, data_type), want)


@pytest.mark.parametrize("data_type", [d for d in DataType if d.bits and d.bits <= 16])
def test_a_value_of_the_type_stays_itself(data_type: DataType) -> None:
    codes = np.arange(2**data_type.bits, dtype=np.uint16 if data_type.bits == 16 else np.uint8)
    if data_type.is_integer:
        span = range(int(data_type.min), int(data_type.max) + 1)
        values = np.array(span, np.float64)
    else:
        values = f64(codes.view(data_type.numpy))
    np.testing.assert_array_equal(convert(values, data_type), values)


def test_f4_lattice_is_that_of_ml_dtypes() -> None:
    values = np.linspace(-7, 7, 1401)
    want = np.clip(values, -6, 6).astype(np.float32).astype(ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(convert(values, "f4_e2m1"), want.astype(np.float64))


@pytest.mark.parametrize("data_type", ["f16", "bf16", "f8_e5m2", "f8_e4m3", "f4_e2m1"])
def test_doubles_are_rounded_once(data_type: str) -> None:
    """The nearest of all numbers of the type, which a search finds; f32 would make ties of some."""
    kind = DataType[data_type]
    codes = np.arange(2 ** (kind.bits - 1), dtype=np.uint16 if kind.bits == 16 else np.uint8)
    numbers = np.unique(f64(codes.view(kind.numpy)))
    numbers = numbers[np.isfinite(numbers)]
    middles = (numbers[1:] + numbers[:-1]) / 2
    near = np.concatenate([middles * (1 + side * 2.0**-50) for side in (-1, 0, 1)])
    place = np.searchsorted(middles, near)
    tied = np.isin(near, middles)
    even = np.arange(numbers.size) % 2 == 0
    place = np.where(tied & ~even[place], place + 1, place)
    np.testing.assert_array_equal(convert(near, data_type, core="f64"), numbers[place])
    assert (convert(near, data_type) != numbers[place]).any()


def test_integers_that_no_double_holds() -> None:
    values = np.array([2**63 - 1, 2**53 + 1, 2**31, -(2**63), -1, 0])
    assert exactly(values, "s32").tolist() == [2**31 - 1, 2**31 - 1, 2**31 - 1, -(2**31), -1, 0]
    assert exactly(values, "u64").tolist() == [2**63 - 1, 2**53 + 1, 2**31, 0, 0, 0]
    assert exactly(values.astype(np.uint64), "s64").tolist() == [
        *values[:3],
        2**63 - 1,
        2**63 - 1,
        0,
    ]
    assert exactly(values, "boolean").tolist() == [True] * 5 + [False]
    above = np.array([2**62 + 2**54 + 1, 2**62 + 2**54, -(2**62) - 2**54 - 1])
    up, even = 2.0**62 + 2.0**55, 2.0**62
    assert f64(exactly(above, "bf16")).tolist() == [up, even, -up]
