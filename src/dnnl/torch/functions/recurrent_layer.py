"""One layer of a recurrent network, in one direction or both, as a custom operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from dnnl.primitives.rnn import RnnDesc
from dnnl.torch.functions.execution import Descs, run, undecided
from dnnl.torch.functions.gradients import only_once
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class Cell:
    """A kind of cells: our gates by their places in PyTorch's, how many states and biases there
    are, and how many values of each channel of a step the gradient reads besides the states."""

    alg: str
    order: tuple[int, ...]
    states: int = 1
    biases: int = 1
    saved: int = 0
    activation: str | None = None


CELLS = {
    "lstm": Cell("vanilla_lstm", (0, 1, 2, 3), 2, 4, 4),
    "gru": Cell("lbr_gru", (1, 0, 2), 1, 4, 4),
    "tanh": Cell("vanilla_rnn", (0,), activation="eltwise_tanh"),
    "relu": Cell("vanilla_rnn", (0,), activation="eltwise_relu"),
}
_Four: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@torch.library.custom_op("dnnl::recurrent_layer", mutates_args=())
def recurrent_layer(
    x: torch.Tensor,
    h: torch.Tensor | None,
    c: torch.Tensor | None,
    inputs: torch.Tensor,
    states: torch.Tensor,
    bias: torch.Tensor | None,
    projection: torch.Tensor | None,
    lengths: torch.Tensor | None,
    cell: str,
    training: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The results [T, N, D P], the last states and cells, and what a gradient reads.

    x is [T, N, I], h [D, N, P], c [D, N, H], inputs [D, gates, H, I], states [D, gates, H, P], bias
    [D, biases, H] in f32, projection [D, P, H], lengths [N] in s32. Cells are empty where there are
    none, and what a gradient reads is unless ``training``.
    """
    made = _made(x, inputs, states, cell, training)
    given = _given(x, h, c, inputs, states, bias, projection, lengths)
    outputs = _outputs(made, cell, training)
    run(_forward, given | outputs, cell, training)
    return made


@recurrent_layer.register_fake
def _(x: torch.Tensor, _h: Any, _c: Any, inputs: Any, states: Any, *others: Any) -> _Four:
    return _made(x, inputs, states, *others[-2:])


def _made(
    x: torch.Tensor, inputs: torch.Tensor, states: torch.Tensor, cell: str, training: bool
) -> _Four:
    (steps, rows, _), kind = x.shape, CELLS[cell]
    directions, _, hidden, _ = inputs.shape
    outputs, has_cells = states.shape[3], kind.states > 1
    per_step = rows * (outputs + hidden * has_cells)
    workspace = directions * (steps * rows * kind.saved * hidden + (steps + 1) * per_step)
    return (
        x.new_empty((steps, rows, directions * outputs)),
        x.new_empty((directions, rows, outputs)),
        x.new_empty((directions, rows, hidden) if has_cells else (0,)),
        torch.empty((workspace if training else 0,), dtype=torch.float32, device=x.device),
    )


def _given(
    x: torch.Tensor,
    h: torch.Tensor | None,
    c: torch.Tensor | None,
    inputs: torch.Tensor,
    states: torch.Tensor,
    bias: torch.Tensor | None,
    projection: torch.Tensor | None,
    lengths: torch.Tensor | None,
) -> dict[int, torch.Tensor | None]:
    return {
        Arg.SRC_LAYER: x.contiguous(),
        Arg.SRC_ITER: _first(h),
        Arg.SRC_ITER_C: _first(c),
        Arg.WEIGHTS_LAYER: _weights(inputs),
        Arg.WEIGHTS_ITER: _weights(states),
        Arg.WEIGHTS_PROJECTION: None if projection is None else _weights(projection),
        Arg.BIAS: _first(bias),
        Arg.SEQUENCE_LENGTHS: lengths,
    }


def _first(own: torch.Tensor | None) -> torch.Tensor | None:
    """A tensor with the axis of layers in front."""
    return None if own is None else own.contiguous()[None]


def _weights(own: torch.Tensor) -> torch.Tensor:
    """Weights with the axes in the library's order: inputs before gates and outputs."""
    return own.contiguous()[None].movedim(-1, 2)


def _outputs(made: Sequence[torch.Tensor], cell: str, training: bool) -> dict[int, Any]:
    result, h, c, workspace = made
    return {
        Arg.DST_LAYER: result.contiguous(),
        Arg.DST_ITER: _first(h),
        Arg.DST_ITER_C: _first(c) if CELLS[cell].states > 1 else None,
        Arg.WORKSPACE: workspace if training else None,
    }


@torch.library.custom_op("dnnl::recurrent_layer_backward", mutates_args=())
def _backward(
    gradient: torch.Tensor,
    h_gradient: torch.Tensor | None,
    c_gradient: torch.Tensor | None,
    result: torch.Tensor,
    h_n: torch.Tensor,
    c_n: torch.Tensor,
    workspace: torch.Tensor,
    x: torch.Tensor,
    h: torch.Tensor | None,
    c: torch.Tensor | None,
    inputs: torch.Tensor,
    states: torch.Tensor,
    bias: torch.Tensor | None,
    projection: torch.Tensor | None,
    lengths: torch.Tensor | None,
    cell: str,
) -> list[torch.Tensor]:
    """The gradients of x, h, c, inputs, states, bias and projection; those that are absent are
    empty."""
    made = _gradients_made(x, h, c, inputs, states, bias, projection)
    given = _given(x, h, c, inputs, states, bias, projection, lengths)
    given |= _outputs((result, h_n, c_n, workspace), cell, training=True)
    given |= {
        Arg.DIFF_DST_LAYER: gradient.contiguous(),
        Arg.DIFF_DST_ITER: _first(h_gradient),
        Arg.DIFF_DST_ITER_C: _first(c_gradient),
        Arg.DIFF_SRC_LAYER: made[0],
        Arg.DIFF_SRC_ITER: None if h is None else _first(made[1]),
        Arg.DIFF_SRC_ITER_C: None if c is None else _first(made[2]),
        Arg.DIFF_WEIGHTS_LAYER: _weights(made[3]),
        Arg.DIFF_WEIGHTS_ITER: _weights(made[4]),
        Arg.DIFF_BIAS: None if bias is None else _first(made[5]),
        Arg.DIFF_WEIGHTS_PROJECTION: None if projection is None else _weights(made[6]),
    }
    run(_gradient_of, given, cell)
    return made


@_backward.register_fake
def _(*given: Any) -> list[torch.Tensor]:
    return _gradients_made(*given[7:14])


def _gradients_made(x: torch.Tensor, *others: torch.Tensor | None) -> list[torch.Tensor]:
    return [x.new_empty((0,)) if own is None else own.new_empty(own.shape) for own in (x, *others)]


only_once(_backward, "recurrent networks")


def _saved(ctx: Any, inputs: tuple[Any, ...], output: _Four) -> None:
    *tensors, ctx.cell, ctx.training = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *tensors)


def _gradient(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    result, *_, tensors = own = ctx.saved_tensors
    tensors = own[4:]
    last, h, c, _ = gradients
    if last is None:
        last = torch.zeros_like(result)
    made = _backward(last, h, c, *own, ctx.cell)
    found = [None if own is None else each for own, each in zip(tensors[:7], made, strict=True)]
    return *found, None, None, None


recurrent_layer.register_autograd(_gradient, setup_context=_saved)

_FIELDS = {
    "src_layer": Arg.SRC_LAYER,
    "src_iter": Arg.SRC_ITER,
    "src_iter_c": Arg.SRC_ITER_C,
    "weights_layer": Arg.WEIGHTS_LAYER,
    "weights_iter": Arg.WEIGHTS_ITER,
    "weights_projection": Arg.WEIGHTS_PROJECTION,
    "bias": Arg.BIAS,
    "lengths": Arg.SEQUENCE_LENGTHS,
    "dst_layer": Arg.DST_LAYER,
    "dst_iter": Arg.DST_ITER,
    "dst_iter_c": Arg.DST_ITER_C,
    "diff_dst_layer": Arg.DIFF_DST_LAYER,
    "diff_dst_iter": Arg.DIFF_DST_ITER,
    "diff_dst_iter_c": Arg.DIFF_DST_ITER_C,
    "diff_src_layer": Arg.DIFF_SRC_LAYER,
    "diff_src_iter": Arg.DIFF_SRC_ITER,
    "diff_src_iter_c": Arg.DIFF_SRC_ITER_C,
    "diff_weights_layer": Arg.DIFF_WEIGHTS_LAYER,
    "diff_weights_iter": Arg.DIFF_WEIGHTS_ITER,
    "diff_weights_projection": Arg.DIFF_WEIGHTS_PROJECTION,
    "diff_bias": Arg.DIFF_BIAS,
}
_CHOSEN = "weights_layer", "weights_iter", "weights_projection"


def _described(descs: Descs, cell: str, **fields: Any) -> RnnDesc:
    kind, found = CELLS[cell], dict[str, MemoryDesc]()
    for name, argument in _FIELDS.items():
        if argument in descs:
            chosen = name.removeprefix("diff_") in _CHOSEN
            own = descs[argument]
            found[f"{name}_desc"] = undecided(own) if chosen else own
    both = descs[Arg.WEIGHTS_LAYER].dims[1] > 1
    return RnnDesc.made(
        alg_kind=kind.alg,
        activation=kind.activation,
        direction="bidirectional_concat" if both else "unidirectional_left2right",
        **found,
        **fields,
    )


def _forward(descs: Descs, cell: str, training: bool) -> RnnDesc:
    prop_kind = "forward_training" if training else "forward_inference"
    return _described(descs, cell, prop_kind=prop_kind)


def _gradient_of(descs: Descs, cell: str) -> RnnDesc:
    return _described(descs, cell, prop_kind="backward", flags="diff_weights_overwrite")
