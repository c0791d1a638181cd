"""Operators between floats and integers, one by one, beside PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import dnnl
from dnnl.graph.graph import ModelError
from dnnl.torch import private
from dnnl.torch.backend import compiled
from dnnl.torch.partition import Decision
from tests.pairs import every_pair

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
OPS = private.quantized_operators()
TYPES = (torch.uint8, torch.int8, torch.int16)
RANGES: dict[str, Callable[[torch.iinfo], tuple[int, int]]] = {
    "whole": lambda limits: (limits.min, limits.max),
    "reduced": lambda limits: (0, 127),
    "narrow": lambda limits: (limits.min // 2, limits.max - 1),
}


def check_steps(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal, or one step off where a value is in the middle between two integers: PyTorch
    multiplies by the inverse of a scale, and QuantizeLinear divides."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    distance = (found.int() - expected.int()).abs()
    assert int(distance.max()) <= 1
    assert int(distance.count_nonzero()) <= distance.numel() // 1000 + 1


def ours(function: Callable[..., Any], *arguments: Any) -> Any:
    """The results of the library, which computes all operators."""
    decisions: list[Decision] = []

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return compiled(module, inputs, decisions.extend)

    found = torch.compile(function, backend=backend)(*arguments)
    assert {own.where for own in decisions} == {"dnnl"}
    return found


@every_pair(
    pytest.mark.parametrize("threads", [1, 2]),
    pytest.mark.parametrize("ends", RANGES),
    pytest.mark.parametrize("dtype", TYPES, ids=str),
)
def test_one_scale(dtype: torch.dtype, ends: str, threads: int) -> None:
    low, high = RANGES[ends](torch.iinfo(dtype))
    scale, zero = 0.037, (low + high) // 2

    def quantize(x: torch.Tensor) -> torch.Tensor:
        return OPS.quantize_per_tensor(x, scale, zero, low, high, dtype)  # type: ignore[no-any-return]

    def back(q: torch.Tensor) -> torch.Tensor:
        return OPS.dequantize_per_tensor(q, scale, zero, low, high, dtype)  # type: ignore[no-any-return]

    x = torch.randn(3, 5, 67) * (high - low) * scale
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found, expected = ours(quantize, x), quantize(x)
        values = ours(back, expected)
    finally:
        torch.set_num_threads(before)
    check_steps(found, expected)
    assert found.min() == low or ends == "whole"
    assert found.max() == high or ends == "whole"
    torch.testing.assert_close(values, back(expected), rtol=1e-6, atol=0)


@every_pair(
    pytest.mark.parametrize("axis", [0, 2]),
    pytest.mark.parametrize("ends", RANGES),
    pytest.mark.parametrize("dtype", TYPES, ids=str),
)
def test_a_scale_for_each_channel(dtype: torch.dtype, ends: str, axis: int) -> None:
    low, high = RANGES[ends](torch.iinfo(dtype))
    x = torch.randn(4, 7, 19) * (high - low) / 20
    count = x.shape[axis]
    scales = torch.rand(count) / 9 + 0.01
    zeros = torch.randint(max(low, -100), min(high, 100), (count,))

    def quantize(x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
        return OPS.quantize_per_channel(x, scales, zeros, axis, low, high, dtype)  # type: ignore[no-any-return]

    def back(q: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
        return OPS.dequantize_per_channel(q, scales, zeros, axis, low, high, dtype)  # type: ignore[no-any-return]

    expected = quantize(x, scales, zeros)
    check_steps(ours(quantize, x, scales, zeros), expected)
    found = ours(back, expected, scales, zeros)
    torch.testing.assert_close(found, back(expected, scales, zeros), rtol=1e-6, atol=0)


def test_no_zero_points_and_another_type_of_floats() -> None:
    q, scales = torch.randint(-128, 128, (6, 9), dtype=torch.int8), torch.rand(6)
    one = torch.tensor([0.25]), torch.tensor([3])

    def channels(q: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        return OPS.dequantize_per_channel(q, scales, None, 0, -128, 127, torch.int8)  # type: ignore[no-any-return]

    def small(q: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
        return OPS.dequantize_per_tensor.tensor(  # type: ignore[no-any-return]
            q, scale, zero, -128, 127, torch.int8, out_dtype=torch.bfloat16
        )

    torch.testing.assert_close(ours(channels, q, scales), channels(q, scales))
    assert torch.equal(ours(small, q, *one), small(q, *one))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_integers_of_a_bias(axis: int | None) -> None:
    q = torch.randint(-(2**20), 2**20, (4, 5), dtype=torch.int32)
    ends = -(2**31), 2**31 - 1, torch.int32

    def back(q: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
        if axis is None:
            return OPS.dequantize_per_tensor.tensor(q, scales, zeros, *ends)  # type: ignore[no-any-return]
        return OPS.dequantize_per_channel(q, scales, zeros, axis, *ends)  # type: ignore[no-any-return]

    count = 1 if axis is None else q.shape[axis]
    given = q, torch.rand(count) / 1000, torch.randint(-9, 9, (count,))
    torch.testing.assert_close(ours(back, *given), back(*given), rtol=1e-6, atol=1e-6)


@every_pair(
    pytest.mark.parametrize("shape", [(), (3, 5, 37)], ids=str),
    pytest.mark.parametrize("ends", RANGES),
    pytest.mark.parametrize("dtype", [torch.uint8, torch.int8], ids=str),
    pytest.mark.parametrize("kind", ["choose_qparams", "choose_qparams_symmetric"]),
)
def test_the_range_of_a_run(
    kind: str, dtype: torch.dtype, ends: str, shape: tuple[int, ...]
) -> None:
    low, high = RANGES[ends](torch.iinfo(dtype))

    def net(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale, zero = getattr(OPS, kind).tensor(x, low, high, 2**-12, dtype)
        q = OPS.quantize_per_tensor.tensor(x, scale, zero, low, high, dtype)
        y = OPS.dequantize_per_tensor.tensor(q, scale, zero, low, high, dtype)
        return scale, zero, q, y

    samples = (torch.randn(shape) - 0.3, torch.rand(shape), torch.zeros(shape), -torch.ones(shape))
    for x in samples:
        (scale, zero, q, y), expected = ours(net, x), net(x)
        torch.testing.assert_close(scale, expected[0], rtol=1e-6, atol=0)
        assert torch.equal(zero, expected[1])
        check_steps(q, expected[2])
        torch.testing.assert_close(y, expected[3], rtol=1e-6, atol=1.01 * float(scale))


def test_weights_are_rounded_as_pytorch_does() -> None:
    """A symmetric range puts the largest weight of each channel at 127.5 steps."""
    net = torch.nn.Linear(33, 20)
    scales = net.weight.abs().amax(1) / 127.5
    zeros = torch.zeros(20, dtype=torch.int64)

    class Integers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = net.weight
            self.register_buffer("scales", scales)
            self.register_buffer("zeros", zeros)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = OPS.quantize_per_channel(
                self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8
            )
            return found + x

    x = torch.zeros(33, dtype=torch.int8)
    assert torch.equal(dnnl.from_torch(Integers(), x)(x), Integers()(x))


REFUSED = {
    "quant_min = 0, quant_max = 255: torch.int8 has -128 to 127": lambda x: OPS.quantize_per_tensor(
        x, 0.1, 0, 0, 255, torch.int8
    ),
    "a zero point between 128 and 128: torch.int8 has -128 to 127": lambda x: (
        OPS.quantize_per_tensor(x, 0.1, 128, -128, 127, torch.int8)
    ),
    "floats are not quantized to torch.int32; these are: torch.uint8": lambda x: (
        OPS.quantize_per_tensor(x, 0.1, 0, -9, 9, torch.int32)
    ),
    "the range of elements of torch.bfloat16: computed of f32 alone": lambda x: (
        OPS.choose_qparams.tensor(x.bfloat16(), 0, 255, 0.1, torch.uint8)[0]
    ),
    "quant_min = 1, quant_max = 255: 0 must be between them": lambda x: OPS.choose_qparams.tensor(
        x, 1, 255, 0.1, torch.uint8
    )[0],
    "the range of no elements": lambda x: OPS.choose_qparams.tensor(
        x[:0], 0, 255, 0.1, torch.uint8
    )[0],
    "quantized_decomposed.quantize_per_token.default is not known": lambda x: (
        OPS.quantize_per_token(x, x[:, :1], x[:, :1].long(), -9, 9, torch.int8)
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused(reason: str) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return REFUSED[reason](x)  # type: ignore[no-any-return]

    with pytest.raises(dnnl.Unimplemented, match=reason):
        dnnl.from_torch(Net(), torch.rand(3, 4))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), 1e-42])
def test_scales_that_nothing_is_divided_by(scale: float) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return OPS.quantize_per_tensor(x, scale, 0, 0, 255, torch.uint8)  # type: ignore[no-any-return]

    model = dnnl.from_torch(Net(), torch.rand(3, 4))
    with pytest.raises(ModelError, match="a scale of"):
        model(torch.rand(3, 4))
