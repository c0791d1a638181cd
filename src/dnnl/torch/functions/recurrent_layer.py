"""One layer of a recurrent network, in one direction or both, as a custom operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from dnnl.primitives.rnn import RnnDesc
from dnnl.torch.functions.execution import Descs, run
from dnnl.torch.functions.gradients import only_once
from dnnl.torch.functions.operators import operator
from dnnl.torch.functions.recurrent_weights import CELLS, Gradients, Weights
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

_Four: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@operator("recurrent_layer")
def recurrent_layer(
    x: torch.Tensor,
    h: torch.Tensor | None,
    c: torch.Tensor | None,
    weights: Sequence[torch.Tensor],
    lengths: torch.Tensor | None,
    directions: int,
    cell: str,
    training: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The results [T, N, D P], the last states and cells, and what a gradient reads.

    x is [T, N, I], h [D, N, P], c [D, N, H], lengths [N] in s32, and weights those of PyTorch for
    each direction, see `Weights.of`. Cells are empty where there are none, and what a gradient
    reads is unless ``training``.
    """
    made = _made(x, weights, directions, cell, training)
    own = Weights.of(CELLS[cell], weights, directions)
    given = _given(x, h, c, own, lengths)
    run(_forward, given | _outputs(made, cell, training), cell, training)
    return made


@recurrent_layer.register_fake
def _(
    x: torch.Tensor,
    _h: Any,
    _c: Any,
    weights: Sequence[torch.Tensor],
    _lengths: Any,
    directions: int,
    cell: str,
    training: bool,
) -> _Four:
    return _made(x, weights, directions, cell, training)


def _made(
    x: torch.Tensor, weights: Sequence[torch.Tensor], directions: int, cell: str, training: bool
) -> _Four:
    (steps, rows, _), kind = x.shape, CELLS[cell]
    hidden, outputs = weights[0].shape[0] // len(kind.gates), weights[1].shape[1]
    has_cells = kind.states > 1
    per_step = rows * (outputs + hidden * has_cells)
    workspace = directions * (steps * rows * kind.saved * hidden + (steps + 1) * per_step)
    return (
        x.new_empty((steps, rows, directions * outputs)),
        x.new_empty((directions, rows, outputs)),
        x.new_empty((directions, rows, hidden) if has_cells else (0,)),
        x.new_empty((workspace if training else 0,), dtype=torch.float32),
    )


def _given(
    x: torch.Tensor,
    h: torch.Tensor | None,
    c: torch.Tensor | None,
    own: Weights,
    lengths: torch.Tensor | None,
) -> dict[int, torch.Tensor | None]:
    return {
        Arg.SRC_LAYER: x.contiguous(),
        Arg.SRC_ITER: _first(h),
        Arg.SRC_ITER_C: _first(c),
        Arg.WEIGHTS_LAYER: own.inputs,
        Arg.WEIGHTS_ITER: own.states,
        Arg.WEIGHTS_PROJECTION: own.projection,
        Arg.BIAS: own.bias,
        Arg.SEQUENCE_LENGTHS: lengths,
    }


def _first(own: torch.Tensor | None) -> torch.Tensor | None:
    """A tensor with the axis of layers in front."""
    return None if own is None else own.contiguous().unsqueeze(0)


def _outputs(made: Sequence[torch.Tensor], cell: str, training: bool) -> dict[int, Any]:
    result, h, c, workspace = made
    return {
        Arg.DST_LAYER: result.contiguous(),
        Arg.DST_ITER: _first(h),
        Arg.DST_ITER_C: _first(c) if CELLS[cell].states > 1 else None,
        Arg.WORKSPACE: workspace if training else None,
    }


@operator("recurrent_layer_backward")
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
    lengths: torch.Tensor | None,
    weights: Sequence[torch.Tensor],
    directions: int,
    cell: str,
    of_inputs: bool,
) -> list[torch.Tensor]:
    """The gradients of x, if they are wanted ``of_inputs``, of h and c if these are there, and of
    the weights."""
    kind = CELLS[cell]
    own = Weights.of(kind, weights, directions)
    gradients = Gradients(kind, weights, directions)
    sources = {
        argument: source.new_empty(source.shape)
        for argument, source in (
            (Arg.DIFF_SRC_LAYER, x if of_inputs else None),
            (Arg.DIFF_SRC_ITER, h),
            (Arg.DIFF_SRC_ITER_C, c),
        )
        if source is not None
    }
    given = _given(x, h, c, own, lengths)
    given |= _outputs((result, h_n, c_n, workspace), cell, training=True)
    given |= {
        Arg.DIFF_DST_LAYER: gradient.contiguous(),
        Arg.DIFF_DST_ITER: _first(h_gradient),
        Arg.DIFF_DST_ITER_C: _first(c_gradient),
        Arg.DIFF_WEIGHTS_LAYER: gradients.weights.inputs,
        Arg.DIFF_WEIGHTS_ITER: gradients.weights.states,
        Arg.DIFF_BIAS: gradients.weights.bias,
        Arg.DIFF_WEIGHTS_PROJECTION: gradients.weights.projection,
    }
    for argument, made in sources.items():
        given[argument] = made if argument == Arg.DIFF_SRC_LAYER else _first(made)
    run(_gradient_of, given, cell)
    return [*sources.values(), *gradients.parted(x.dtype)]


@_backward.register_fake
def _(*given: Any) -> list[torch.Tensor]:
    x, h, c, _, weights, _, _, of_inputs = given[7:]
    sources = [x if of_inputs else None, h, c, *weights]
    return [own.new_empty(own.shape) for own in sources if own is not None]


only_once(_backward, "recurrent networks")


def _saved(ctx: Any, inputs: tuple[Any, ...], output: _Four) -> None:
    *tensors, weights, lengths, ctx.directions, ctx.cell, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *tensors, lengths, *weights)


def _gradient(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
    *sources, lengths, first = ctx.saved_tensors[4:9]
    weights = [first, *ctx.saved_tensors[9:]]
    last, h, c, _ = gradients
    if last is None:
        last = torch.zeros_like(ctx.saved_tensors[0])
    outputs, params = ctx.saved_tensors[:4], (ctx.directions, ctx.cell, ctx.needs_input_grad[0])
    made = _backward(last, h, c, *outputs, *sources, lengths, weights, *params)
    wanted = ctx.needs_input_grad[0], sources[1] is not None, sources[2] is not None
    found = [made.pop(0) if own else None for own in wanted]
    return *found, made, None, None, None, None


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


def _described(descs: Descs, cell: str, **fields: Any) -> RnnDesc:
    kind, found = CELLS[cell], dict[str, MemoryDesc]()
    for name, argument in _FIELDS.items():
        if argument in descs:
            found[f"{name}_desc"] = descs[argument]
    both = descs[Arg.WEIGHTS_LAYER].dims[1] > 1
    return RnnDesc.made(
        alg_kind=kind.alg,
        activation=kind.activation,
        direction="bidirectional_concat" if both else "unidirectional_left2right",
        gate_order=kind.gates,
        **found,
        **fields,
    )


def _forward(descs: Descs, cell: str, training: bool) -> RnnDesc:
    prop_kind = "forward_training" if training else "forward_inference"
    return _described(descs, cell, prop_kind=prop_kind)


def _gradient_of(descs: Descs, cell: str) -> RnnDesc:
    return _described(descs, cell, prop_kind="backward", flags="diff_weights_overwrite")
