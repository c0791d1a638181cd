"""Functions on arrays of ever other sizes: results, and that few kernels serve all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import ops
from tests.ops.test_ops import drawn

LENGTHS = (23, 31, 27, 40, 33, 52, 38, 25, 61, 47)
OPEN = 5
"""After so many lengths there are kernels for all others."""

BIAS = drawn(24)
FILTER, SQUARE = drawn(5, 8, 3, 3), drawn(24, 24)
of_attention: Any = F.scaled_dot_product_attention


def _heads(length: int, seed: int, rows: int | None = None) -> Any:
    return drawn(2, 3, length if rows is None else rows, 16, seed=seed)


CASES: dict[
    str, tuple[Callable[[int], tuple[Any, ...]], Callable[..., Any], Callable[..., Any]]
] = {
    "linear": (lambda n: (drawn(n, 24), SQUARE, BIAS), ops.linear, F.linear),
    "matmul": (lambda n: (drawn(n, n + 3), drawn(n + 3, 2 * n)), ops.matmul, torch.matmul),
    "transposed": (lambda n: (drawn(9, n).T, drawn(9, n)), ops.matmul, torch.matmul),
    "add": (lambda n: (drawn(n, 24), BIAS), ops.add, torch.add),
    "add of views": (lambda n: (drawn(70, 90)[:n, :n], drawn(n, n)), ops.add, torch.add),
    "gelu": (lambda n: (drawn(3, n),), ops.gelu, F.gelu),
    "softmax": (lambda n: (drawn(4, n, n),), ops.softmax, lambda x: F.softmax(x, -1)),
    "layer_norm": (
        lambda n: (drawn(2, n, 24), BIAS),
        lambda x, g: ops.layer_norm(x, (24,), g),
        lambda x, g: F.layer_norm(x, (24,), g),
    ),
    "sum": (lambda n: (drawn(n, 13, 7),), lambda x: ops.sum(x, 1), lambda x: x.sum(1)),
    "concatenate": (
        lambda n: (drawn(n, 24), drawn(3, 24)),
        lambda *own: ops.concatenate(own),
        lambda *own: torch.cat(own),
    ),
    "conv2d": (lambda n: (drawn(1, 8, n, n + 5), FILTER), ops.conv2d, F.conv2d),
    "attention": (
        lambda n: (_heads(n, 1), _heads(n, 2), _heads(n, 3)),
        ops.attention,
        of_attention,
    ),
    "attention of one row": (
        lambda n: (_heads(n, 1, rows=1), _heads(n, 2), _heads(n, 3)),
        ops.attention,
        of_attention,
    ),
    "masked attention": (
        lambda n: (_heads(n, 1), _heads(n, 2), _heads(n, 3), drawn(n, n)),
        ops.attention,
        of_attention,
    ),
}


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["NumPy", "PyTorch"])
@pytest.mark.parametrize("name", CASES)
def test_lengths_that_change(name: str, kind: Any, loaded: list[Any]) -> None:
    make, function, same = CASES[name]
    for number, length in enumerate(LENGTHS):
        arrays = [torch.from_numpy(own) for own in make(length)]
        got = function(*(kind(own.numpy()) for own in arrays))
        torch.testing.assert_close(torch.as_tensor(got), same(*arrays), rtol=1e-4, atol=1e-4)
        if number < OPEN:
            before = len(loaded)
    assert 0 < before == len(loaded)
