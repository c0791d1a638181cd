"""Functions on arrays, and modules of PyTorch in training, whose sizes change with every call.

    python -m bench.new_lengths
    DNNL_SPECIAL_KERNELS=always python -m bench.new_lengths

Each case has ``--count`` lengths, drawn without repetition. The table has the milliseconds of the
first call with the first lengths, with the fourth, whose kernels serve many sizes, the median and
the longest of the first calls with the others, and of their repeated calls. The disk cache of
kernels is off.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import click
import numpy as np
import torch

import dnnl.torch as modules
from bench.context import SEED
from dnnl import config, ops
from dnnl.runtime.threads import set_num_threads

_LENGTHS = range(17, 257)
_ALONE = 3
"""Lengths whose kernels are for them alone."""
_REPEATS = 5

_rng = np.random.default_rng(SEED)


def _array(*dims: int) -> Any:
    return _rng.standard_normal(dims, np.float32)


def _tensor(*dims: int) -> Any:
    return torch.from_numpy(_array(*dims)).requires_grad_()


def _trained(module: Any) -> Callable[[Any], None]:
    def step(x: Any) -> None:
        result = module(x)
        (result[0] if isinstance(result, tuple) else result).sum().backward()

    return step


def _attended(module: Any) -> Callable[[Any], None]:
    return _trained(lambda x: module(x, x, x, need_weights=False))


def _cases() -> dict[str, tuple[Callable[[int], tuple[Any, ...]], Callable[..., Any]]]:
    """By name what makes the arrays of a length, and what is called with them."""
    weight, bias, taps = _array(256, 256), _array(256), _array(32, 16, 3, 3)
    heads = (2, 4)
    return {
        "`linear`, N x 256": (lambda n: (_array(n, 256), weight, bias), ops.linear),
        "`matmul`, N x N by N x 2N": (lambda n: (_array(n, n), _array(n, 2 * n)), ops.matmul),
        "`softmax`, 4 x N x N": (lambda n: (_array(4, n, n),), ops.softmax),
        "`add`, N x 256 and 256": (lambda n: (_array(n, 256), bias), ops.add),
        "`layer_norm`, 2 x N x 256": (
            lambda n: (_array(2, n, 256), (256,), bias, bias),
            ops.layer_norm,
        ),
        "`conv2d`, 16 to 32 channels, N x N": (lambda n: (_array(1, 16, n, n), taps), ops.conv2d),
        "`attention`, 2 x 4 x N x 64": (
            lambda n: tuple(_array(*heads, n, 64) for _ in range(3)),
            ops.attention,
        ),
        "`attention` of one row by N": (
            lambda n: (_array(*heads, 1, 64), _array(*heads, n, 64), _array(*heads, n, 64)),
            ops.attention,
        ),
        "`Linear`, N x 256, training": (
            lambda n: (_tensor(n, 256),),
            _trained(modules.Linear(256, 256)),
        ),
        "`LayerNorm`, N x 256, training": (
            lambda n: (_tensor(n, 256),),
            _trained(modules.LayerNorm(256)),
        ),
        "`LSTM`, N x 8 x 64, training": (
            lambda n: (_tensor(n, 8, 64),),
            _trained(modules.LSTM(64, 64)),
        ),
        "`GRU`, N x 8 x 64, training": (
            lambda n: (_tensor(n, 8, 64),),
            _trained(modules.GRU(64, 64)),
        ),
        "`MultiheadAttention`, 2 x N x 128, training": (
            lambda n: (_tensor(2, n, 128),),
            _attended(modules.MultiheadAttention(128, 4, batch_first=True)),
        ),
        "`Conv2d`, 16 to 32 channels, N x N, training": (
            lambda n: (_tensor(1, 16, n, n),),
            _trained(modules.Conv2d(16, 32, 3, padding=1)),
        ),
        "`Conv2d` with strides, N x N, training": (
            lambda n: (_tensor(1, 16, n, n),),
            _trained(modules.Conv2d(16, 32, 3, 2, 1)),
        ),
        "`Conv2d`, depthwise, 32 channels, N x N, training": (
            lambda n: (_tensor(1, 32, n, n),),
            _trained(modules.Conv2d(32, 32, 3, padding=1, groups=32)),
        ),
    }


def _milliseconds(call: Callable[..., object], given: tuple[Any, ...]) -> float:
    started = perf_counter()
    call(*given)
    return 1e3 * (perf_counter() - started)


@click.command(help=__doc__)
@click.option("--count", default=30, show_default=True, help="lengths of each case")
@click.option("--threads", default=1, show_default=True)
def main(count: int, threads: int) -> None:
    """Print the table."""
    config.set("cache_limit", 0)
    set_num_threads(threads)
    torch.set_num_threads(threads)
    lengths = [int(n) for n in _rng.permutation(_LENGTHS)[:count]]
    print(
        "| case | first lengths | fourth | others | longest | repeated |\n|---|---|---|---|---|---|"
    )
    for name, (make, call) in _cases().items():
        first, again = [], []
        for length in lengths:
            given = make(length)
            first.append(_milliseconds(call, given))
            again.append(min(_milliseconds(call, given) for _ in range(_REPEATS)))
        others = first[_ALONE + 1 :]
        numbers = (
            median(first[1:_ALONE]), first[_ALONE], median(others), max(others),
            median(again[_ALONE + 1 :]),
        )  # fmt: skip
        print(f"| {name} | {' | '.join(f'{own:.3g}' for own in numbers)} |", flush=True)


if __name__ == "__main__":
    main()
