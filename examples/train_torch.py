"""Train two networks of PyTorch through ``torch.compile(net, backend="dnnl")`` beside eager.

    python examples/train_torch.py --steps 120 --picture build/train.png

A convolutional network tells the direction of stripes, an LSTM which bit has been more frequent.
Both start from the same weights as their eager twins and see the same data. ``--inductor`` times
PyTorch's own compiler as well. Without a picture, nothing is drawn. The LSTM is `dnnl.torch.LSTM`:
torch.compile breaks graphs at torch.nn's.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

import torch
from torch import nn

import dnnl.torch

Batch = tuple[torch.Tensor, torch.Tensor]


def stripes() -> Batch:
    """Images [32, 1, 24, 24] of stripes in noise, and which of four directions these have."""
    labels = torch.randint(4, (32,))
    rows, columns = torch.meshgrid(torch.arange(24.0), torch.arange(24.0), indexing="ij")
    places = torch.stack([rows, columns, rows + columns, rows - columns])[labels]
    phases = 6 * torch.rand(32, 1, 1)
    return (places + phases).sin()[:, None] + 0.7 * torch.randn(32, 1, 24, 24), labels


def majorities() -> Batch:
    """Bits [20, 32, 1] of sequences, and whether 0, none or 1 is more frequent up to each step."""
    bits = torch.randint(2, (20, 32))
    return bits[..., None].float(), (2 * bits - 1).cumsum(0).sign() + 1


class Tagger(nn.Module):
    """A class for each step of a sequence."""

    def __init__(self, cells: type[nn.Module]) -> None:
        super().__init__()
        self.cells, self.head = cells(1, 64), nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores [T, N, 3]."""
        found: torch.Tensor = self.head(self.cells(x)[0])
        return found


def convolutional() -> nn.Module:
    """Scores [N, 4]."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 16), (16, 32), (32, 32)):
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 9, 4))


class Trained:
    """A network in training: its losses, and the processor seconds of its steps."""

    def __init__(self, net: nn.Module, call: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._call, self._optimizer = call, torch.optim.Adam(net.parameters(), 0.003)
        self.losses: list[float] = []
        self._seconds: list[float] = []

    def step(self, x: torch.Tensor, labels: torch.Tensor) -> None:
        """One step by the gradients of a batch."""
        start = time.process_time()
        self._optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self._call(x).flatten(0, -2), labels.flatten())
        torch.autograd.backward(loss)
        self._optimizer.step()
        self._seconds.append(time.process_time() - start)
        self.losses.append(loss.item())

    @property
    def time(self) -> str:
        """The median time of a step behind the first ones, which compile."""
        seconds = self._seconds[min(3, len(self._seconds) - 1) :]
        return f"{1e3 * median(seconds):.1f} ms"


def train(twins: Iterable[Trained], data: Callable[[], Batch], steps: int) -> None:
    """Take each step with all networks in turn: on the same data, with the same random numbers."""
    torch.manual_seed(1)
    for _ in range(steps):
        batch = data()
        state = torch.get_rng_state()
        for own in twins:
            torch.set_rng_state(state)
            own.step(*batch)


def networks() -> dict[str, tuple[nn.Module, nn.Module, Callable[[], Batch]]]:
    """Networks by name: of the library's modules and of PyTorch's, and their data."""
    torch.manual_seed(0)
    images, tagger = convolutional(), Tagger(nn.LSTM)
    own = Tagger(dnnl.torch.LSTM)
    own.load_state_dict(tagger.state_dict())
    return {
        "convolutional": (images, copy.deepcopy(images), stripes),
        "LSTM": (own, tagger, majorities),
    }


def main() -> None:
    """Train both, print a row for each, and draw the losses."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--inductor", action="store_true", help="needs a C++ compiler")
    given = parser.parse_args()
    torch.set_num_threads(1)
    curves = {}
    for name, (own, eager, data) in networks().items():
        twins = {
            "dnnl": Trained(own, torch.compile(own, backend="dnnl")),
            "eager": Trained(eager, eager),
        }
        if given.inductor:
            other = copy.deepcopy(eager)
            twins["inductor"] = Trained(other, torch.compile(other))
        train(twins.values(), data, given.steps)
        ours, theirs = curves[name] = twins["dnnl"].losses, twins["eager"].losses
        times = ", ".join(f"{by} {one.time}" for by, one in twins.items())
        print(
            f"{name}: loss {ours[0]:.3f} -> {ours[-1]:.3f}, eager {theirs[-1]:.3f}; a step: {times}"
        )
    if given.picture:
        from matplotlib import pyplot

        _, axes = pyplot.subplots(1, len(curves), figsize=(9, 3.5), layout="constrained")
        for place, (name, (ours, theirs)) in zip(axes, curves.items(), strict=True):
            place.plot(theirs, label="eager", linewidth=3, alpha=0.5)
            place.plot(ours, label="dnnl")
            place.set(title=name, xlabel="step", ylabel="loss")
            place.legend()
        given.picture.parent.mkdir(parents=True, exist_ok=True)
        pyplot.savefig(given.picture, dpi=120)


if __name__ == "__main__":
    main()
