"""The binary, prelu, sum and concat references against PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl.reference import binary as reference
from dnnl.reference.binary import binary
from dnnl.reference.concat import concat
from dnnl.reference.prelu import prelu, prelu_backward
from dnnl.reference.sum import sum_
from dnnl.types.kinds import Alg
from tests.reference.agreement import assert_agree, random, tensor

BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "ge": torch.ge,
    "gt": torch.gt,
    "le": torch.le,
    "lt": torch.lt,
    "eq": torch.eq,
    "ne": torch.ne,
}


@pytest.mark.parametrize("alg", BINARY)
@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (1, 3, 1)), ((1, 1, 4), (2, 3, 1)), ((), ())],
)
def test_binary(alg: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    # Halves of small integers meet each other often enough for the comparisons.
    src0, src1 = (np.round(2 * random(seed, *dims)) / 2 for seed, dims in ((1, left), (2, right)))
    want = BINARY[alg](tensor(src0), tensor(src1)).double()
    assert_agree(binary(f"binary_{alg}", src0, src1), want.reshape(np.broadcast(src0, src1).shape))


def test_select() -> None:
    src0, src1 = random(1, 2, 3), random(2, 2, 3)
    chosen = np.array([[1, 0, 2], [0, 0, 1]], np.int8)
    want = torch.where(torch.from_numpy(chosen) != 0, tensor(src0), tensor(src1))
    assert_agree(binary("binary_select", src0, src1, chosen), want, rtol=0)
    with pytest.raises(TypeError, match="src2"):
        binary("binary_select", src0, src1)


def test_every_binary_algorithm_is_there() -> None:
    assert {alg.name for alg in Alg if alg.is_binary} == set(reference.ALGS)


def test_prelu() -> None:
    src, weights = random(1, 2, 3, 4), random(2, 3)
    want = F.prelu(tensor(src), tensor(weights))
    assert_agree(prelu(src, weights.reshape(1, 3, 1)), want, rtol=0)


@pytest.mark.parametrize(
    ("dims", "shared"),
    [
        ((2, 3, 4), (1, 3, 1)),
        ((2, 3, 4), (2, 3, 4)),
        ((2, 3, 4, 5, 2), (1, 3, 1, 5, 1)),
        ((2, 3), (1, 1)),
        ((1, 3), (1, 3)),
        ((1,), (1,)),
        ((5,), (1,)),
    ],
)
def test_prelu_backward(dims: tuple[int, ...], shared: tuple[int, ...]) -> None:
    src, weights, diff_dst = random(1, *dims), random(2, *shared), random(3, *dims)
    leaves = [tensor(values).requires_grad_() for values in (src, weights)]
    want = torch.where(leaves[0] > 0, leaves[0], leaves[0] * leaves[1])
    assert_agree(prelu(src, weights), want, rtol=0)
    wanted = torch.autograd.grad(want, leaves, tensor(diff_dst))
    for gradient, expected in zip(prelu_backward(src, weights, diff_dst), wanted, strict=True):
        assert_agree(gradient, expected)


def test_prelu_at_zero_and_infinity() -> None:
    src, weights = np.array([[0.0, np.inf, -1.0]]), np.array([[3.0]])
    diff_src, diff_weights = prelu_backward(src, weights, np.array([[5.0, 7.0, 2.0]]))
    np.testing.assert_array_equal(diff_src, [[15, 7, 6]])
    np.testing.assert_array_equal(diff_weights, [[-2]])


def test_prelu_of_integers_and_of_no_elements() -> None:
    src, weights = np.array([[-100, 100, 3]], np.int8), np.array([[2, 2, 2]], np.uint8)
    np.testing.assert_array_equal(prelu(src, weights), [[-200, 100, 3]])
    diff_src, diff_weights = prelu_backward(src, weights, src)
    np.testing.assert_array_equal(diff_src, [[-200, 100, 3]])
    np.testing.assert_array_equal(diff_weights, [[10000, 0, 0]])
    none = np.zeros((0, 3))
    diff_src, diff_weights = prelu_backward(none, weights, none)
    assert diff_src.shape == (0, 3)
    np.testing.assert_array_equal(diff_weights, [[0, 0, 0]])


def test_sum() -> None:
    srcs = [random(seed, 2, 3) for seed in range(3)]
    want = 0.5 * tensor(srcs[0]) - 2 * tensor(srcs[1]) + tensor(srcs[2])
    assert_agree(sum_(srcs, [0.5, -2.0, 1.0]), want)
    assert_agree(sum_(srcs), tensor(srcs[0]) + tensor(srcs[1]) + tensor(srcs[2]))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat(axis: int) -> None:
    dims = [[2, 3, 4] for _ in range(3)]
    for extent, shape in enumerate(dims):
        shape[axis] = extent
    srcs = [random(seed, *shape) for seed, shape in enumerate(dims)]
    assert_agree(concat(srcs, axis), torch.cat([tensor(src) for src in srcs], axis), rtol=0)
