"""Training with PyTorch: the passes of single layers, and steps of networks, beside eager.

    python -m bench.training --layers --dtype f32 --only linear
    python -m bench.training --networks --dtype f32 --dtype bf16

prints a row for each: the least processor time of the library's calls in ms, and the median ratio
of eager's time to it over pairs in turn, so that above 1 the library is faster. Layers have columns
for the forward pass, the gradient by data and that by weights; a network has a step of both passes.
``DNNL_MAX_CPU_ISA`` limits the library, ``ONEDNN_MAX_CPU_ISA``, ``MKL_ENABLE_INSTRUCTIONS`` and
``ATEN_CPU_CAPABILITY`` limit PyTorch.
"""

from __future__ import annotations

import itertools
import re
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click
import torch
from torch import nn

import dnnl.torch.modules

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_TURN = 0.02
"""The least processor seconds of a measured turn."""

Call = Callable[[], object]

LINEAR = {
    "linear 1024 -> 1024, 256 rows": (256, 1024, 1024),
    "linear 768 -> 3072, 256 rows": (256, 768, 3072),
    "linear 3072 -> 768, 256 rows": (256, 3072, 768),
    "linear 1024 -> 1024, 4096 rows": (4096, 1024, 1024),
}
"""Rows, inputs, outputs."""

CONVOLUTIONS = {
    "3x3, 32 -> 32, 64x64, 32 images": (32, 32, 64, 32, 3, 1),
    "3x3, 64 -> 64, 64x64, 32 images": (32, 64, 64, 64, 3, 1),
    "7x7 / 2, 3 -> 64, 224x224": (8, 3, 224, 64, 7, 2),
    "1x1, 64 -> 64, 56x56": (8, 64, 56, 64, 1, 1),
    "3x3, 64 -> 64, 56x56": (8, 64, 56, 64, 3, 1),
    "1x1, 64 -> 256, 56x56": (8, 64, 56, 256, 1, 1),
    "1x1 / 2, 256 -> 512, 56x56": (8, 256, 56, 512, 1, 2),
    "3x3 / 2, 128 -> 128, 56x56": (8, 128, 56, 128, 3, 2),
    "3x3, 128 -> 128, 28x28": (8, 128, 28, 128, 3, 1),
    "1x1, 512 -> 128, 28x28": (8, 512, 28, 128, 1, 1),
    "3x3, 256 -> 256, 14x14": (8, 256, 14, 256, 3, 1),
    "1x1, 256 -> 1024, 14x14": (8, 256, 14, 1024, 1, 1),
    "3x3, 512 -> 512, 7x7": (8, 512, 7, 512, 3, 1),
    "1x1, 2048 -> 512, 7x7": (8, 2048, 7, 512, 1, 1),
}
"""Images, channels, pixels along each side, outputs, kernel, stride."""


def _linear(rows: int, inputs: int, outputs: int, dtype: torch.dtype) -> list[tuple[Call, Call]]:
    x, dy = torch.randn(rows, inputs).to(dtype), torch.randn(rows, outputs).to(dtype)
    weight, own = torch.randn(outputs, inputs).to(dtype), torch.ops.dnnl
    return [
        (lambda: own.linear(x, weight, None), lambda: nn.functional.linear(x, weight)),
        (lambda: own.linear_backward_data(dy, weight), lambda: dy @ weight),
        (lambda: own.linear_backward_weights(x, dy, False), lambda: dy.t() @ x),
    ]


def _convolution(
    images: int,
    channels: int,
    size: int,
    outputs: int,
    kernel: int,
    stride: int,
    dtype: torch.dtype,
    layout: torch.memory_format,
) -> list[tuple[Call, Call]]:
    x = torch.randn(images, channels, size, size).to(dtype).contiguous(memory_format=layout)
    weight = torch.randn(outputs, channels, kernel, kernel).to(dtype)
    padding = kernel // 2
    dy = nn.functional.conv2d(x, weight, None, stride, padding)
    own, eager = torch.ops.dnnl, torch.ops.aten.convolution_backward
    window = [stride] * 2, [padding] * 2, [1] * 2

    def gradient(data: bool) -> object:
        mask = [data, not data, False]
        return eager(dy, x, weight, None, *window, False, [0, 0], 1, mask)

    return [
        (
            lambda: own.convolution(x, weight, None, *window, 1),
            lambda: nn.functional.conv2d(x, weight, None, stride, padding),
        ),
        (
            lambda: own.convolution_backward_data(dy, weight, x, *window, 1),
            lambda: gradient(data=True),
        ),
        (
            lambda: own.convolution_backward_weights(x, dy, [kernel] * 2, *window, 1, False),
            lambda: gradient(data=False),
        ),
    ]


class _Recurrent(nn.Module):
    """What a recurrent network computes, without its states."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layers(x)[0]
        return output


def _convolutions() -> nn.Module:
    sizes = (32, 32, 64, 64, 64, 64, 64)
    pairs = itertools.pairwise(sizes)
    return nn.Sequential(*(nn.Conv2d(a, b, 3, padding=1) for a, b in pairs))


def _linears() -> nn.Module:
    return nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(3)))


def _recurrent(kind: str, owner: Any) -> nn.Module:
    return _Recurrent(getattr(owner, kind)(256, 256, num_layers=2, bidirectional=True))


Pair = tuple[nn.Module, nn.Module]


def _replaced(make: Callable[[], nn.Module]) -> Pair:
    return dnnl.torch.replace(make()), make()


def _networks(kind: str) -> Pair:
    return _recurrent(kind, dnnl.torch), _recurrent(kind, nn)


_IMAGES, _SEQUENCE = (32, 32, 64, 64), (50, 32, 256)
_LAST = torch.channels_last
NETWORKS: dict[str, tuple[Callable[[], Pair], tuple[int, ...], torch.memory_format | None]] = {
    "6 convolutions 3x3": (partial(_replaced, _convolutions), _IMAGES, None),
    "6 convolutions 3x3, channels-last": (partial(_replaced, _convolutions), _IMAGES, _LAST),
    "3 linear layers": (partial(_replaced, _linears), (256, 1024), None),
    "LSTM": (partial(_networks, "LSTM"), _SEQUENCE, None),
    "GRU": (partial(_networks, "GRU"), _SEQUENCE, None),
}
"""Ours and eager's, the dimensions of the input, and its layout."""


def _step(net: nn.Module, x: torch.Tensor) -> Call:
    def step() -> None:
        net.zero_grad()
        net(x).sum().backward()

    return step


def _compared(ours: Call, eager: Call, rounds: int) -> str:
    """The least time of ours, and the median ratio to eager's."""
    start = time.process_time()
    for call in (ours, eager, ours, eager):
        call()
    runs = max(1, round(_TURN / max(1e-6, (time.process_time() - start) / 4)))
    times: list[tuple[float, float]] = []
    for _ in range(rounds):
        pair = []
        for call in (ours, eager):
            start = time.process_time()
            for _ in range(runs):
                call()
            pair.append((time.process_time() - start) / runs)
        times.append((pair[0], pair[1]))
    ratio = statistics.median(theirs / own for own, theirs in times)
    return f"{min(own for own, _ in times) * 1e3:.2f} | {ratio:.2f}"


def _error(ours: Call, eager: Call) -> float:
    """The largest difference of results, relative to the largest result."""

    def of(results: Any) -> torch.Tensor:
        if isinstance(results, torch.Tensor):
            return results.float()
        found: torch.Tensor = next(own for own in results if own is not None and own.numel())
        return found.float()

    a, b = of(ours()), of(eager())
    return float((a - b).abs().max() / b.abs().max())


def _check(name: str, ours: Call, eager: Call) -> None:
    error = _error(ours, eager)
    if not error < 0.02:
        raise click.ClickException(f"{name}: results differ by {error:.1e} of the largest one")


@click.command(help=__doc__)
@click.option("--layers", is_flag=True, help="Single layers.")
@click.option("--networks", is_flag=True, help="Training steps of networks.")
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(list(DTYPES)), default=("f32",))
@click.option("--channels-last", is_flag=True, help="Layout of the images of single layers.")
@click.option("--only", default="", help="Layers and networks whose name this expression matches.")
@click.option("--threads", default=1, help="Threads of both.")
@click.option("--rounds", default=7, help="Pairs in turn.")
def main(
    layers: bool,
    networks: bool,
    dtypes: Sequence[str],
    channels_last: bool,
    only: str,
    threads: int,
    rounds: int,
) -> None:
    """Print the tables."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    for dtype in dtypes:
        kind = DTYPES[dtype]
        if layers:
            print(f"| {dtype} | forward, ms | | by data | | by weights | |\n|{'---|' * 7}")
            made = {
                **{name: partial(_linear, *sizes, kind) for name, sizes in LINEAR.items()},
                **{
                    name: partial(_convolution, *sizes, kind, layout)
                    for name, sizes in CONVOLUTIONS.items()
                },
            }
            for name, make in made.items():
                if re.search(only, name):
                    pairs = make()
                    for pair in pairs:
                        _check(name, *pair)
                    cells = (_compared(*pair, rounds) for pair in pairs)
                    print(f"| {name} | {' | '.join(cells)} |", flush=True)
        if networks:
            print(f"| {dtype} | step, ms | |\n|---|---|---|")
            for name, (build, dims, own) in NETWORKS.items():
                if re.search(only, name):
                    x = torch.randn(dims).to(kind)
                    x = x if own is None else x.contiguous(memory_format=own)
                    ours, eager = (_step(net.to(kind), x) for net in build())
                    print(f"| {name} | {_compared(ours, eager, rounds)} |", flush=True)


if __name__ == "__main__":
    main()
