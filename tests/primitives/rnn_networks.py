"""Networks of recurrent cells, in training and in inference, and their gradients, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dnnl import MemoryDesc, PropKind, RnnDesc

ONE, BOTH = "unidirectional_left2right", "bidirectional_concat"
ADDED = "bidirectional_sum"
GATES = {"vanilla_rnn": 1, "vanilla_lstm": 4}
"""Those of cells that have not three."""
SHORT = {"lstm": "vanilla_lstm", "rnn": "vanilla_rnn", "gru": "vanilla_gru", "augru": "lbr_augru"}
"""A cell of each kind."""


def md(*dims: int, kind: str = "f32", layout: Any = None) -> MemoryDesc:
    return MemoryDesc(dims, kind, layout)


def network(
    alg: str = "vanilla_lstm",
    steps: int = 3,
    rows: int = 5,
    channels: int = 21,
    *,
    inputs: int = 0,
    layers: int = 1,
    direction: str = ONE,
    tag: str = "any",
    kind: str = "f32",
    states: bool = True,
    bias: bool = True,
    lengths: bool = False,
    peephole: bool = False,
    projection: int = 0,
    before: int = 0,
    activation: str = "eltwise_tanh",
) -> RnnDesc:
    """A forward pass in training; the states ``before`` a single step may have channels of their
    own."""
    d, outputs = 1 + ("bidirectional" in direction), projection or channels
    source, gates = inputs or outputs, GATES.get(alg, 3)
    joined = outputs * (2 if direction == BOTH else 1)
    is_lstm = alg == "vanilla_lstm"
    state = md(layers, d, rows, outputs, kind=kind) if states else None
    first = md(layers, d, rows, before or outputs, kind=kind) if states else None
    cells = md(layers, d, rows, channels) if states and is_lstm else None
    return RnnDesc.made(
        prop_kind="forward_training",
        alg_kind=alg,
        activation=activation if alg == "vanilla_rnn" else None,
        direction=direction,
        src_layer_desc=md(steps, rows, source, kind=kind),
        src_iter_desc=first,
        src_iter_c_desc=cells,
        attention_desc=md(steps, rows, 1, kind=kind) if "augru" in alg else None,
        weights_layer_desc=md(layers, d, source, gates, channels, kind=kind, layout=tag),
        weights_iter_desc=md(layers, d, before or outputs, gates, channels, kind=kind, layout=tag),
        weights_peephole_desc=md(layers, d, 3, channels) if peephole else None,
        weights_projection_desc=md(layers, d, channels, projection) if projection else None,
        bias_desc=md(layers, d, gates + ("lbr" in alg), channels) if bias else None,
        dst_layer_desc=md(steps, rows, joined, kind=kind),
        dst_iter_desc=state,
        dst_iter_c_desc=cells,
        lengths_desc=md(rows, kind="s32") if lengths else None,
    )


def inference(
    alg: str,
    *sizes: int,
    src: str,
    weights: str,
    dst: str = "f32",
    states: str = "f32",
    tag: str = "any",
    **options: Any,
) -> RnnDesc:
    """A forward pass in inference, of a type for each kind of tensor."""
    desc = network(SHORT[alg], *sizes, tag=tag, **options)
    of_projection = "any" if tag == "any" else None
    forms = {
        "src_layer_desc": (src, None),
        "weights_layer_desc": (weights, tag),
        "weights_iter_desc": (weights, tag),
        "weights_projection_desc": (weights, of_projection),
        "dst_layer_desc": (dst, None),
        "src_iter_desc": (states, None),
        "dst_iter_desc": (states, None),
    }
    given: dict[str, Any] = {
        name: md(*own.dims, kind=kind, layout=layout)
        for name, (kind, layout) in forms.items()
        if not (own := getattr(desc, name)).is_zero
    }
    return replace(desc, prop_kind=PropKind.forward_inference, **given)


def gradient(forward: RnnDesc, kind: str = "f32", flags: str = "undef", **others: Any) -> RnnDesc:
    """The gradient of a forward pass, with the layouts that it chooses."""
    diffs: dict[str, Any] = {"prop_kind": "backward", "flags": flags}
    for name in RnnDesc.fields():
        own = getattr(forward, name.removeprefix("diff_"), None)
        if name.startswith("diff_") and isinstance(own, MemoryDesc) and not own.is_zero:
            diffs[name] = MemoryDesc(own.dims, kind, "any")
    return replace(forward, **(diffs | others))
