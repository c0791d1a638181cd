"""Recurrent networks in training and their gradients, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from dnnl import Arg, Memory, Primitive, PrimitiveDesc, Stream
from dnnl.reference.arrays import Array
from dnnl.types.arg import GRADIENT
from tests.check import memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.rnn_networks import BOTH, GATES, ONE, gradient, network

MODULES = {"vanilla_rnn": torch.nn.RNN, "vanilla_lstm": torch.nn.LSTM, "lbr_gru": torch.nn.GRU}
STEPS, ROWS, CHANNELS = 6, 4, 20
LENGTHS = torch.tensor([6, 1, 4, 5])


@dataclass(frozen=True)
class Case:
    """A module: its cells, channels behind a projection, layers and directions."""

    alg: str
    projection: int
    layers: int
    both: bool

    @property
    def outputs(self) -> int:
        return self.projection or CHANNELS

    @property
    def inputs(self) -> int:
        return 23 if self.layers == 1 else self.outputs

    @property
    def shape(self) -> tuple[int, int]:
        return self.layers, 1 + self.both

    def module(self) -> Any:
        options: dict[str, Any] = {"proj_size": self.projection} if self.projection else {}
        return MODULES[self.alg](
            self.inputs, CHANNELS, self.layers, bidirectional=self.both, **options
        )

    def parameters(
        self, net: Any, read: Callable[[torch.Tensor], torch.Tensor], second: float
    ) -> dict[int, Array]:
        """What ``read`` gives of the weights of a module, by argument. PyTorch has gates r, z, n of
        a GRU, and two biases, of which those of n stay apart. Others are one here: the first plus
        ``second`` times the second one."""
        gates = GATES.get(self.alg, 3)
        order = [1, 0, 2] if gates == 3 else list(range(gates))

        def stacked(name: str) -> Array:
            own = [
                [read(getattr(net, f"{name}_l{layer}{suffix}")).detach().numpy()
                 for suffix in ("", "_reverse")[: 1 + self.both]]
                for layer in range(self.layers)
            ]  # fmt: skip
            return np.asarray(own)

        def gated(name: str) -> Array:
            array = stacked(name)
            split: Array = array.reshape(*self.shape, gates, -1, *array.shape[3:])[:, :, order]
            return split

        made: dict[int, Array] = {
            Arg.WEIGHTS_LAYER: gated("weight_ih").transpose(0, 1, 4, 2, 3),
            Arg.WEIGHTS_ITER: gated("weight_hh").transpose(0, 1, 4, 2, 3),
        }
        if self.projection:
            made[Arg.WEIGHTS_PROJECTION] = stacked("weight_hr").transpose(0, 1, 3, 2)
        outer, inner = gated("bias_ih"), gated("bias_hh")
        made[Arg.BIAS] = outer + second * inner
        if self.alg == "lbr_gru":
            both = made[Arg.BIAS][:, :, :2]
            made[Arg.BIAS] = np.concatenate([both, outer[:, :, 2:], inner[:, :, 2:]], 2)
        return made


def of_gradient(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros(1) if tensor.grad is None else tensor.grad


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@every_pair(
    pytest.mark.parametrize("packed", [False, True]),
    pytest.mark.parametrize(("layers", "both"), [(1, False), (2, False), (1, True)]),
    pytest.mark.parametrize(
        ("alg", "projection"),
        [("vanilla_rnn", 0), ("vanilla_lstm", 0), ("vanilla_lstm", 9), ("lbr_gru", 0)],
    ),
)
def test_training_is_that_of_pytorch(
    alg: str, projection: int, layers: int, both: bool, packed: bool
) -> None:
    torch.manual_seed(7)
    case = Case(alg, projection, layers, both)
    net = case.module()
    x = torch.randn(STEPS, ROWS, case.inputs, requires_grad=True)
    firsts = [torch.randn(layers * (1 + both), ROWS, case.outputs, requires_grad=True)]
    if alg == "vanilla_lstm":
        firsts.append(torch.randn(layers * (1 + both), ROWS, CHANNELS, requires_grad=True))
    results = run(net, x, firsts, packed=packed)
    cotangents = [torch.randn_like(own) for own in results]
    torch.autograd.backward(results, cotangents)

    forward = network(
        alg, STEPS, ROWS, CHANNELS, inputs=case.inputs, layers=layers, projection=projection,
        direction=BOTH if both else ONE, lengths=packed, tag="abcde",
    )  # fmt: skip
    given: dict[int, Array] = {Arg.SRC_LAYER: x.detach().numpy()} | case.parameters(
        net, lambda own: own, 1
    )
    given |= by_argument((Arg.SRC_ITER, Arg.SRC_ITER_C), firsts, case)
    if packed:
        given[Arg.SEQUENCE_LENGTHS] = LENGTHS.numpy()
    pd = PrimitiveDesc(forward, ENGINE)
    held = executed(pd, given, {})
    want: dict[int, Array] = {Arg.DST_LAYER: results[0].detach().numpy()}
    want |= by_argument((Arg.DST_ITER, Arg.DST_ITER_C), results[1:], case)
    for argument, own in want.items():
        np.testing.assert_allclose(held[argument].numpy(), own, atol=2e-6)

    back = PrimitiveDesc(gradient(forward, flags="diff_weights_overwrite"), ENGINE, hint=pd)
    diffs: dict[int, Array] = {Arg.DIFF_DST_LAYER: cotangents[0].numpy()}
    diffs |= by_argument((Arg.DIFF_DST_ITER, Arg.DIFF_DST_ITER_C), cotangents[1:], case)
    held = executed(back, diffs, held)
    assert x.grad is not None
    slopes: dict[int, Array] = {Arg.SRC_LAYER: x.grad.numpy()} | case.parameters(
        net, of_gradient, 0
    )
    slopes |= by_argument((Arg.SRC_ITER, Arg.SRC_ITER_C), [of_gradient(f) for f in firsts], case)
    for argument, own in slopes.items():
        got = held[argument + GRADIENT].numpy()
        np.testing.assert_allclose(got, own, rtol=1e-4, atol=2e-5)


def run(
    net: Any, x: torch.Tensor, firsts: list[torch.Tensor], *, packed: bool
) -> list[torch.Tensor]:
    """The output and the last states of a module."""
    given: Any = x
    if packed:
        given = torch.nn.utils.rnn.pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    out, last = net(given, tuple(firsts) if len(firsts) > 1 else firsts[0])
    if packed:
        out, _ = torch.nn.utils.rnn.pad_packed_sequence(out, total_length=STEPS)
    return [out, *(last if len(firsts) > 1 else [last])]


def by_argument(
    arguments: tuple[int, int], tensors: list[torch.Tensor], case: Case
) -> dict[int, Array]:
    """States as [layers, directions, rows, channels]."""
    return {
        argument: own.detach().numpy().reshape(*case.shape, *own.shape[1:])
        for argument, own in zip(arguments, tensors, strict=False)
    }


def executed(
    pd: PrimitiveDesc, given: dict[int, Array], held: dict[int, Memory]
) -> dict[int, Memory]:
    """All memories after an execution with some new ones."""
    new = {argument: memory_of(own, pd.arg_desc(argument), ENGINE)
           for argument, own in given.items()}  # fmt: skip
    outputs = {tensor.argument: Memory(tensor.desc, ENGINE) for tensor in pd.desc.outputs}
    args = {**held, **new, **outputs}
    Primitive(pd).execute(Stream(ENGINE), args)
    return args
