"""Recurrent networks: what records have no case for, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Alg,
    Arg,
    AugruDesc,
    Engine,
    GruDesc,
    InvalidArguments,
    LbrAugruDesc,
    LbrGruDesc,
    LstmDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    PropKind,
    RnnDesc,
    Stream,
    Unimplemented,
    VanillaRnnDesc,
    config,
)
from dnnl.reference.rnn_check import SPECIFICATION
from dnnl.reference.rule import compare
from dnnl.types.dtype import DataType
from tests.check import logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, every_isa, execute_all
from tests.primitives.rnn_networks import network
from tests.work_items import assert_apart

INFERENCE = "forward_inference"
BOTH = "bidirectional_concat"
ONE = "unidirectional_left2right"


def md(*dims: int, kind: str = "f32", layout: Any = None) -> MemoryDesc:
    return MemoryDesc(dims, kind, layout)


def lstm(
    steps: int = 3,
    rows: int = 5,
    channels: int = 21,
    *,
    layers: int = 1,
    direction: str = ONE,
    tag: str = "any",
    states: bool = True,
    bias: bool = True,
    kind: str = "f32",
    lengths: bool = False,
    inputs: int = 0,
    before: int = 0,
) -> RnnDesc:
    """A network of LSTM cells; the states ``before`` a step may have channels of their own."""
    d = 1 + ("bidirectional" in direction)
    joined = channels * (2 if direction == BOTH else 1)
    state = md(layers, d, rows, channels, kind=kind) if states else None
    weights = md(layers, d, inputs or channels, 4, channels, kind=kind, layout=tag)
    return LstmDesc.forward(
        INFERENCE, direction, md(steps, rows, inputs or channels, kind=kind),
        md(layers, d, rows, before or channels, kind=kind) if states else None, state,
        weights, md(layers, d, before or channels, 4, channels, kind=kind, layout=tag),
        md(layers, d, 4, channels) if bias else None, md(steps, rows, joined, kind=kind), state,
        state, lengths_desc=md(rows, kind="s32") if lengths else None,
    )  # fmt: skip


def check(desc: RnnDesc) -> None:
    """Results are those of the reference, whatever the threads."""
    pd = PrimitiveDesc(desc, ENGINE)
    values = SPECIFICATION.fill(desc)
    args = {
        tensor.argument: memory_of(values[tensor.argument], tensor.desc, ENGINE)
        for tensor in pd.desc.tensors
        if not tensor.output
    }
    got = execute_all(pd, args)
    want = SPECIFICATION.compute(pd.desc, values)
    for tensor in pd.desc.outputs:
        kind = tensor.desc.data_type
        rule = SPECIFICATION.rule(pd.desc, tensor.argument, values)
        verdict = compare(
            tensor.name, logical(got[tensor.argument]), want[tensor.argument], kind, DataType.f32,
            rule,
        )  # fmt: skip
        assert not verdict.errors, verdict.lines


@every_isa
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_instruction_sets(isa: str, kind: str) -> None:
    with config.override("max_cpu_isa", isa):
        check(lstm(direction=BOTH, kind=kind))


@every_pair(kind=["f32", "bf16"], rows=[2, 7], tag=["any", "abcde", "badce", "abdce"])
def test_layouts_of_weights(tag: str, rows: int, kind: str) -> None:
    """Many rows make it worth while to copy those that are row-major."""
    check(lstm(3, rows, tag=tag, layers=2, direction="bidirectional_sum", kind=kind))


@every_pair(
    every_isa,
    pytest.mark.parametrize("kind", ["f32", "bf16"]),
    pytest.mark.parametrize("sizes", [(2, 3, 21, 9), (1, 33, 70, 37), (3, 1, 16, 64)]),
)
def test_weights_whose_inputs_are_contiguous(
    sizes: tuple[int, int, int, int], kind: str, isa: str
) -> None:
    """As PyTorch has them; they are copied into blocks, however few the rows."""
    steps, rows, channels, inputs = sizes
    with config.override("max_cpu_isa", isa):
        for tag in ("abdec", "badec"):
            check(lstm(steps, rows, channels, inputs=inputs, tag=tag, direction=BOTH, kind=kind))


@pytest.mark.parametrize("rows", [1, 2, 6, 7, 49, 97])
def test_batches(rows: int) -> None:
    check(lstm(2, rows, 18))


@pytest.mark.parametrize("steps", [0, 1, 40])
def test_steps(steps: int) -> None:
    check(lstm(steps, 2, 8, direction=BOTH))


@pytest.mark.parametrize("states", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_what_may_be_absent(states: bool, bias: bool) -> None:
    check(lstm(states=states, bias=bias))


@every_pair(
    every_isa,
    pytest.mark.parametrize("kind", ["f32", "bf16"]),
    pytest.mark.parametrize("before", [1, 16, 53]),
)
def test_one_step_from_states_of_other_channels(before: int, kind: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        check(lstm(1, 5, 21, before=before, kind=kind, direction=BOTH))
        check(lstm(1, 17, 21, before=before, kind=kind, layers=3, tag="abcde"))
        check(lstm(1, 2, 21, before=before, kind=kind, states=False))


@pytest.mark.parametrize("before", [9, 40])
@pytest.mark.parametrize("alg", ["vanilla_rnn", "vanilla_lstm"])
def test_training_from_states_of_other_channels(alg: str, before: int) -> None:
    """The workspace has zeros behind the fewer channels."""
    is_lstm = alg == "vanilla_lstm"
    for layers, direction in ((1, ONE), (2, BOTH)):
        check(network(alg, 1, before=before, layers=layers, direction=direction, peephole=is_lstm))
    if is_lstm:
        check(network(alg, 1, 6, 33, before=before, projection=18))
        inference = network(alg, 1, 6, 18, before=before, projection=33)
        check(replace(inference, prop_kind=PropKind.forward_inference))


def test_no_rows_and_no_inputs() -> None:
    check(lstm(rows=0))
    check(lstm(inputs=21, steps=2))
    desc = lstm(2, 3, 8)
    weights, src = md(1, 1, 0, 4, 8), md(2, 3, 0)
    check(desc.laid_out(src_layer_desc=src, weights_layer_desc=weights))


def test_gaps_between_rows() -> None:
    desc = lstm(3, 5, 20)
    desc = desc.laid_out(
        src_layer_desc=md(3, 5, 20, layout=(300, 30, 1)),
        dst_layer_desc=md(3, 5, 20, layout=(25, 100, 1)),
        src_iter_desc=md(1, 1, 5, 20, layout=(999, 999, 40, 1)),
        dst_iter_c_desc=md(1, 1, 5, 20, layout=(999, 999, 23, 1)),
    )
    check(desc)


@pytest.mark.parametrize("direction", [ONE, "unidirectional_right2left", BOTH, "bidirectional_sum"])
@pytest.mark.parametrize("layers", [1, 2])
def test_lengths_of_sequences(layers: int, direction: str) -> None:
    check(lstm(6, 9, 10, lengths=True, layers=layers, direction=direction))


@pytest.mark.parametrize("alpha", [0.0, 0.25])
def test_slope_of_a_relu(alpha: float) -> None:
    state, weights = md(1, 1, 4, 9), md(1, 1, 9, 1, 9)
    desc = VanillaRnnDesc.forward(
        INFERENCE, "eltwise_relu", ONE, md(3, 4, 9), state, weights, weights, md(1, 1, 1, 9),
        md(3, 4, 9), state, alpha,
    )  # fmt: skip
    assert ("alpha:0.25" in desc.auxiliary) == bool(alpha)
    check(desc)


GRUS: dict[str, Any] = {
    "vanilla_gru": GruDesc, "lbr_gru": LbrGruDesc, "vanilla_augru": AugruDesc,
    "lbr_augru": LbrAugruDesc,
}  # fmt: skip


@pytest.mark.parametrize("alg", GRUS)
def test_each_cell_has_a_class(alg: str) -> None:
    state, weights = md(1, 2, 4, 9), md(1, 2, 9, 3, 9)
    attention = [md(3, 4, 1)] if "augru" in alg else []
    biases = md(1, 2, 3 + ("lbr" in alg), 9)
    made: Callable[..., RnnDesc] = GRUS[alg].forward
    desc = made(
        INFERENCE, BOTH, md(3, 4, 9), state, *attention, weights, weights, biases, md(3, 4, 18),
        state,
    )  # fmt: skip
    assert desc.alg_kind is Alg[alg]
    check(desc)


def test_one_primitive_for_several_sizes() -> None:
    anything = RUNTIME_DIM
    state = md(1, 1, anything, 20)
    desc = LstmDesc.forward(
        INFERENCE, ONE, md(anything, anything, 20), state, state, md(1, 1, 20, 4, 20),
        md(1, 1, 20, 4, 20), None, md(anything, anything, 20), state, state,
    )  # fmt: skip
    primitive = Primitive(PrimitiveDesc(desc, ENGINE))
    for steps, rows in ((3, 4), (1, 1), (7, 2)):
        known = lstm(steps, rows, 20, bias=False, tag="abcde")
        values = SPECIFICATION.fill(known)
        args = {argument: memory_of(own, known.desc_of(argument), ENGINE)
                for argument, own in values.items()}  # fmt: skip
        args |= {t.argument: Memory(t.desc, ENGINE) for t in known.outputs}
        primitive.execute(Stream(ENGINE), args)
        want = SPECIFICATION.compute(known, values)
        np.testing.assert_allclose(args[Arg.DST_LAYER].numpy(), want[Arg.DST_LAYER], atol=1e-5)
        np.testing.assert_allclose(args[Arg.DST_ITER_C].numpy(), want[Arg.DST_ITER_C], atol=1e-5)


def test_what_is_wrong_is_named() -> None:
    def changed(rule: str, **descs: MemoryDesc) -> None:
        desc = lstm(direction=BOTH)
        with pytest.raises(InvalidArguments, match=rule):
            RnnDesc(**{name: descs.get(name, getattr(desc, name)) for name in desc.fields()})

    changed(r"weights_iter_desc.*DHC = 21, as in src_iter_c", weights_iter_desc=md(1, 2, 21, 4, 20))
    changed(r"bias_desc.*GB = 4, that of vanilla_lstm", bias_desc=md(1, 2, 3, 21))
    changed(r"dst_layer_desc.*expected 42 channels, 2 times DIC", dst_layer_desc=md(3, 5, 21))
    changed(r"src_layer_desc.*expected 3 dimensions, \(T, N, SLC\)", src_layer_desc=md(3, 5))
    changed(r"weights_layer_desc.*SLC", weights_layer_desc=md(1, 2, 9, 4, 21))
    changed(r"lengths_desc.*are s32", lengths_desc=md(5))
    for steps in (0, 3, RUNTIME_DIM):
        with pytest.raises(InvalidArguments, match=r"weights_iter_desc.*SIC = DIC = 21.*T = 1"):
            lstm(steps, before=9)
    with pytest.raises(InvalidArguments, match=r"SIC = DIC = 21.*T = 1 needs no lengths"):
        lstm(1, before=9, lengths=True)
    with pytest.raises(InvalidArguments, match="at least one layer"):
        lstm(layers=0)
    with pytest.raises(InvalidArguments, match="a layer reads what the one below gives"):
        lstm(layers=2, inputs=9)
    changed(r"bias_desc.*D = 2, that of bidirectional_concat", bias_desc=md(1, 1, 4, 21))
    with pytest.raises(InvalidArguments, match="expected one of eltwise_relu, eltwise_tanh"):
        VanillaRnnDesc.forward(
            INFERENCE, "eltwise_exp", ONE, md(1, 1, 2), None, md(1, 1, 2, 1, 2),
            md(1, 1, 2, 1, 2), None, md(1, 1, 2), None,
        )  # fmt: skip
    with pytest.raises(InvalidArguments, match=r"a gradient is backward\(\)"):
        LstmDesc.forward(
            "backward", ONE, md(1, 1, 2), None, None, md(1, 1, 2, 4, 2), md(1, 1, 2, 4, 2), None,
            md(1, 1, 2), None, None,
        )  # fmt: skip


def test_what_is_refused_says_why() -> None:
    def refused(desc: RnnDesc, rule: str) -> None:
        with pytest.raises(Unimplemented, match=rule):
            PrimitiveDesc(desc, Engine("cpu"))

    refused(lstm(tag="abced"), "channels are contiguous, or abEcd.*, or inputs are")
    refused(lstm(kind="f64"), "unsupported data type: f64 of src_layer_desc")


@pytest.mark.parametrize("direction", [ONE, "bidirectional_sum"])
def test_work_items_write_apart(direction: str) -> None:
    desc = lstm(2, 50, 20, direction=direction, kind="bf16")
    pd, values = PrimitiveDesc(desc, ENGINE), SPECIFICATION.fill(desc)
    args = {
        tensor.argument: Memory(tensor.desc, ENGINE)
        if tensor.output
        else memory_of(values[tensor.argument], tensor.desc, ENGINE)
        for tensor in pd.desc.tensors
    }
    assert_apart(Primitive(pd), args)
