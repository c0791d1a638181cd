"""Recurrent networks of PyTorch: its functions on weights of our layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dnnl.errors import Unimplemented
from dnnl.primitives.rnn import RnnDesc
from dnnl.tools.bench.peers.pytorch_program import (
    Program,
    Tensors,
    Values,
    equal_floats,
    gradients,
    plain_views,
)
from dnnl.tools.bench.peers.pytorch_tensors import Run, Tensor, Torch
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import Alg, Direction, RnnFlags

_GATES = {Alg.vanilla_rnn: (0,), Alg.vanilla_lstm: (0, 1, 2, 3), Alg.lbr_gru: (1, 0, 2)}
"""Our gates in PyTorch's order."""
_FUNCTIONS = {Alg.eltwise_tanh: "rnn_tanh", Alg.eltwise_relu: "rnn_relu"}
_SOURCES = (
    *(Arg.SRC_LAYER, Arg.SRC_ITER, Arg.SRC_ITER_C, Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER),
    *(Arg.WEIGHTS_PROJECTION, Arg.BIAS),
)
_RESULTS = (Arg.DST_LAYER, Arg.DST_ITER, Arg.DST_ITER_C)


def recurrent(desc: RnnDesc, _: PrimitiveAttr) -> Program:
    """Cells that PyTorch has; raises Unimplemented for others."""
    name = _function(desc)
    equal_floats(desc, Arg.BIAS, Arg.DIFF_BIAS)
    compute = _differentiated if not desc.propagation.is_forward else _forward
    return Program(name, plain_views(desc), compute(desc, name), complete=True)


def _function(desc: RnnDesc) -> str:
    """The name of PyTorch's function."""
    two = desc.direction is Direction.bidirectional_concat
    layers, states = desc.weights_layer_desc.dims[0], desc.weights_iter_desc.dims[2]
    refused = {
        f"cells {desc.alg_kind}": desc.alg_kind not in _GATES,
        f"activation {desc.activation} with alpha {desc.alpha:g}": desc.alg_kind is Alg.vanilla_rnn
        and (desc.activation not in _FUNCTIONS or desc.alpha != 0),
        "functions of cells": desc.functions is not None,
        f"gate_order {desc.gate_order}": bool(desc.gate_order),
        "lengths of this form": not desc.lengths_desc.is_zero,
        "peephole": not desc.weights_peephole_desc.is_zero,
        f"{desc.direction}": not two and desc.direction is not Direction.unidirectional_left2right,
        "layers that read one direction": two and layers > 1,
        "states of another size": states != desc.outputs_of_cells,
    }
    for what, lacking in refused.items():
        if lacking:
            raise Unimplemented(f"PyTorch has no recurrent networks with {what}")
    if desc.activation is not None:
        return _FUNCTIONS[desc.activation]
    return "lstm" if desc.alg_kind is Alg.vanilla_lstm else "gru"


def _layers(torch: Torch, desc: RnnDesc, sources: dict[int, Tensor]) -> list[Tensor]:
    """The weights as PyTorch has them: for each layer and direction those of inputs and of states,
    the biases of both, the projection."""
    gates, flat = list(_GATES[desc.alg_kind]), []
    layers, directions = desc.weights_layer_desc.dims[:2]
    for place in ((layer, way) for layer in range(layers) for way in range(directions)):
        for argument in (Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER):
            own = sources[argument][place][:, gates]
            flat.append(own.flatten(1).t().contiguous())
        if Arg.BIAS in sources:
            bias = sources[Arg.BIAS][place].to(flat[-1].dtype)
            inputs, states = bias[gates], torch.zeros_like(bias[gates])
            if desc.alg_kind is Alg.lbr_gru:
                states = torch.cat([states[:2], bias[3:]])
            flat += [inputs.flatten(), states.flatten()]
        if Arg.WEIGHTS_PROJECTION in sources:
            flat.append(sources[Arg.WEIGHTS_PROJECTION][place].t().contiguous())
    return flat


def _states(torch: Torch, desc: RnnDesc, sources: dict[int, Tensor]) -> list[Tensor]:
    """The first states, zeros where they are absent."""
    layers, directions, *_, units = desc.weights_layer_desc.dims
    src = sources[Arg.SRC_LAYER]
    sizes = {Arg.SRC_ITER: desc.outputs_of_cells}
    if desc.alg_kind is Alg.vanilla_lstm:
        sizes[Arg.SRC_ITER_C] = units
    return [
        sources[argument].flatten(0, 1)
        if argument in sources
        else src.new_zeros((layers * directions, src.shape[1], size))
        for argument, size in sizes.items()
    ]


def _call(
    torch: Torch, desc: RnnDesc, name: str, sources: dict[int, Tensor], *, train: bool
) -> Callable[[], tuple[Tensor, ...]]:
    """What computes dst_layer and the last states."""
    flat, states = _layers(torch, desc, sources), _states(torch, desc, sources)
    first = states if name == "lstm" else states[0]
    layers, directions = desc.weights_layer_desc.dims[:2]
    options = (Arg.BIAS in sources, layers, 0.0, train, directions == 2, False)
    function = getattr(torch, name)
    return lambda: function(sources[Arg.SRC_LAYER], first, flat, *options)


def _present(tensors: Tensors, arguments: Sequence[Arg]) -> list[Arg]:
    return [argument for argument in arguments if argument in tensors]


def _forward(desc: RnnDesc, name: str) -> Callable[[Torch, Tensors, Values, Tensor], Run]:
    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        sources: dict[int, Tensor] = {own: tensors[own] for own in _present(tensors, _SOURCES)}
        run = _call(torch, desc, name, sources, train=False)
        wanted = {own: tensors[own].shape for own in _present(tensors, _RESULTS)}

        def compute() -> dict[int, Tensor]:
            found = dict(zip(_RESULTS, run(), strict=False))
            return {own: found[own].reshape(shape) for own, shape in wanted.items()}

        return compute

    return build


def _differentiated(desc: RnnDesc, name: str) -> Callable[[Torch, Tensors, Values, Tensor], Run]:
    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        known = _present(tensors, _SOURCES)
        results = [own for own in _RESULTS if _gradient(own) in tensors]
        adds = RnnFlags.diff_weights_overwrite not in desc.flags
        shapes = {own: tensors[_gradient(own)].shape for own in results}

        def joined(*given: Tensor) -> Tensor:
            """The results that have gradients, one behind the other."""
            run = _call(torch, desc, name, dict(zip(known, given, strict=True)), train=True)
            found = dict(zip(_RESULTS, run(), strict=False))
            return torch.cat([found[own].reshape(shapes[own]).flatten() for own in results])

        given = torch.cat([tensors[_gradient(own)].flatten() for own in results])
        compute = gradients(torch, joined, [tensors[own] for own in known], given)

        def run() -> dict[int, Tensor]:
            found: dict[int, Tensor] = {}
            for own, one in zip(map(_gradient, known), compute(), strict=True):
                if own in tensors:
                    found[own] = one + tensors[own] if adds and own in _ADDED else one
            return found

        return run

    return build


def _gradient(argument: Arg) -> Arg:
    return Arg[f"DIFF_{argument.name}"]


_ADDED = tuple(map(_gradient, _SOURCES[3:]))
"""Gradients that are added to what memory holds."""
