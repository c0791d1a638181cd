"""Training of recurrent networks by products of pairs of bf16, against the reference in f64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    RnnDesc,
    Stream,
    config,
)
from dnnl.reference.arrays import Array
from dnnl.reference.rnn_check import SPECIFICATION
from dnnl.types.dtype import DataType
from tests import processor
from tests.check import logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, execute_all
from tests.primitives.rnn_networks import ADDED, BOTH, ONE, gradient, md, network
from tests.primitives.test_rnn_types import NARROW
from tests.work_items import assert_apart

CELLS = (
    "vanilla_rnn", "vanilla_lstm", "vanilla_gru", "lbr_gru", "vanilla_augru", "lbr_augru",
)  # fmt: skip
BF16 = DataType.bf16


def close(name: str, found: Array, want: Array, kind: DataType) -> None:
    """Roundings of operands move each gradient by a share of all."""
    if not want.size:
        return
    scale = np.sqrt(np.square(want).mean()) + 1e-3
    error = np.abs(found - want)
    own = BF16.eps * np.abs(want) if kind is BF16 else 0
    assert (error <= own + 8 * BF16.eps * scale).all(), (name, (error / scale).max())
    assert np.sqrt(np.square(error).mean()) <= 1.5 * BF16.eps * scale, name


def check(desc: RnnDesc, hint: PrimitiveDesc | None = None) -> None:
    """Gradients are near those of the reference, with the same bits on any threads."""
    pd = PrimitiveDesc(desc, ENGINE, hint=hint)
    values = SPECIFICATION.fill(pd.desc)
    made = {t.argument: memory_of(values[t.argument], t.desc, ENGINE)
            for t in pd.desc.tensors if t.argument in values}  # fmt: skip
    written = {tensor.argument for tensor in pd.desc.outputs}
    got = execute_all(
        pd,
        {argument: own for argument, own in made.items() if argument not in written},
        {argument: own for argument, own in made.items() if argument in written},
    )
    want = SPECIFICATION.compute(pd.desc, values)
    for tensor in pd.desc.outputs:
        own = logical(got[tensor.argument])
        close(tensor.name, own, want[tensor.argument], tensor.desc.data_type)


def of_weights(forward: RnnDesc, kind: str, layout: str, *, diffs: str = "") -> dict[str, Any]:
    """Weights, and their gradients, in a layout: that of axes, the projection without gates."""
    made: dict[str, Any] = {}
    for name in ("weights_layer", "weights_iter", "weights_projection"):
        own = getattr(forward, f"{name}_desc")
        if own.is_zero:
            continue
        tag = layout.replace("e", "") if own.ndims == 4 and layout != "any" else layout
        made[f"{name}_desc"] = MemoryDesc(own.dims, "bf16", tag)
        made[f"diff_{name}_desc"] = MemoryDesc(own.dims, kind, diffs or tag)
    return made


@every_pair(
    isa=NARROW,
    alg=CELLS,
    direction=[ONE, "unidirectional_right2left", BOTH, ADDED],
    layers=[1, 2],
    rows=[1, 9, 40],
    channels=[21, 70, 256],
    tag=["abcde", "abdec"],
    kind=["f32", "bf16"],
    flags=["undef", "diff_weights_overwrite"],
    lengths=[False, True],
)
def test_gradients(
    isa: str,
    alg: str,
    direction: str,
    layers: int,
    rows: int,
    channels: int,
    tag: str,
    kind: str,
    flags: str,
    lengths: bool,
) -> None:
    options: dict[str, Any] = {"inputs": 37 if layers == 1 else 0, "layers": layers}
    forward = network(
        alg, 4, rows, channels, direction=direction, kind="bf16", lengths=lengths, **options
    )
    given = of_weights(forward, kind, tag)
    with config.override("max_cpu_isa", isa):
        check(gradient(forward, kind=kind, flags=flags, **given))


@every_pair(
    isa=NARROW, projection=[5, 40], lengths=[False, True], tag=["abcd", "abdc"], before=[0, 200]
)
def test_projections(isa: str, projection: int, lengths: bool, tag: str, before: int) -> None:
    if before:
        lengths = False
    forward = network(
        steps=1 if before else 4, channels=35, projection=projection, before=before,
        lengths=lengths, direction=BOTH, kind="bf16", peephole=True,
    )  # fmt: skip
    own = forward.weights_projection_desc.dims
    given: dict[str, Any] = {"weights_projection_desc": MemoryDesc(own, "bf16", tag),
             "diff_weights_projection_desc": MemoryDesc(own, "f32", tag)}  # fmt: skip
    with config.override("max_cpu_isa", isa):
        check(gradient(forward, **given))


@every_pair(
    isa=processor.ISAS, alg=["vanilla_lstm", "vanilla_gru"], channels=[16, 40], steps=[3, 1]
)
def test_a_hint_has_blocks_of_pairs(isa: str, alg: str, channels: int, steps: int) -> None:
    """The same memory of weights serves both passes."""
    forward = network(alg, steps, 19, channels, inputs=50, kind="bf16")
    with config.override("max_cpu_isa", isa):
        hint = PrimitiveDesc(forward, ENGINE)
        assert len(hint.arg_desc(Arg.WEIGHTS_ITER).inner_blocks) > 1
        back = PrimitiveDesc(gradient(forward, kind="bf16"), ENGINE, hint=hint)
        assert back.arg_desc(Arg.WEIGHTS_ITER) == hint.arg_desc(Arg.WEIGHTS_ITER)
        check(gradient(
            forward, weights_layer_desc=back.arg_desc(Arg.WEIGHTS_LAYER),
            weights_iter_desc=back.arg_desc(Arg.WEIGHTS_ITER),
        ))  # fmt: skip


@pytest.mark.parametrize("isa", NARROW)
@pytest.mark.parametrize("alg", CELLS)
def test_a_workspace_is_f32(isa: str, alg: str) -> None:
    """What a pass leaves for the gradient are states before they are rounded."""
    desc = network(alg, 5, 17, 40, kind="bf16", direction=BOTH, layers=2)
    with config.override("max_cpu_isa", isa):
        pd, values = PrimitiveDesc(desc, ENGINE), SPECIFICATION.fill(desc)
        given = {t.argument: memory_of(values[t.argument], t.desc, ENGINE)
                 for t in pd.desc.tensors if not t.output}  # fmt: skip
        left = logical(execute_all(pd, given)[Arg.WORKSPACE])
        want = SPECIFICATION.compute(desc, values)[Arg.WORKSPACE]
    np.testing.assert_allclose(left, want, atol=BF16.eps, rtol=0)
    assert (left != left.astype(BF16.numpy)).mean() > 0.5


def test_open_sizes_read_blocks_of_pairs() -> None:
    """Their products are of f32; weights are those of a forward pass of any sizes."""
    forward = network("vanilla_lstm", 3, 5, 20, kind="bf16", states=False)
    hint = PrimitiveDesc(forward, ENGINE)
    names = ("weights_layer_desc", "weights_iter_desc")
    weights = {name: getattr(hint.desc, name) for name in names}
    diffs: dict[str, Any] = {f"diff_{name}": md(1, 1, 20, 4, 20, kind="bf16") for name in names}
    diffs["diff_bias_desc"] = md(1, 1, 4, 20, kind="bf16")
    known: Any = PrimitiveDesc(gradient(forward, kind="bf16", **weights, **diffs), ENGINE).desc
    by_rows = "src_layer_desc", "dst_layer_desc", "diff_src_layer_desc", "diff_dst_layer_desc"
    opened = {name: md(RUNTIME_DIM, 5, 20, kind="bf16") for name in by_rows}
    pd = PrimitiveDesc(replace(known, **opened), ENGINE)
    values = SPECIFICATION.fill(known)
    want = SPECIFICATION.compute(known, values)
    held = {argument: memory_of(own, known.desc_of(argument), ENGINE)
            for argument, own in values.items()}  # fmt: skip
    held |= {t.argument: Memory(known.desc_of(t.argument), ENGINE)
             for t in pd.desc.outputs if t.argument not in held}  # fmt: skip
    Primitive(pd).execute(Stream(ENGINE), held)
    for tensor in pd.desc.outputs:
        close(tensor.name, logical(held[tensor.argument]), want[tensor.argument], BF16)


@pytest.mark.parametrize("tag", ["abcde", "abdec"])
def test_work_items_write_apart(tag: str) -> None:
    forward = network("vanilla_lstm", 2, 50, 40, direction=ADDED, kind="bf16", layers=2)
    desc = gradient(forward, **of_weights(forward, "f32", tag))
    pd, values = PrimitiveDesc(desc, ENGINE), SPECIFICATION.fill(desc)
    args = {t.argument: memory_of(values[t.argument], t.desc, ENGINE) if t.argument in values
            else Memory(t.desc, ENGINE) for t in pd.desc.tensors}  # fmt: skip
    assert_apart(Primitive(pd), args)
