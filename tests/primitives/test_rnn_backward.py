"""Gradients of recurrent networks, against the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    AugruDesc,
    GruDesc,
    InvalidArguments,
    LbrAugruDesc,
    LbrGruDesc,
    LstmDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    RnnDesc,
    RnnFlags,
    Stream,
    Unimplemented,
    VanillaRnnDesc,
    config,
)
from dnnl.kernels.rnn import weight_products
from dnnl.reference.arrays import Array
from dnnl.reference.rnn_check import SPECIFICATION
from dnnl.reference.rule import compare
from dnnl.types.arg import GRADIENT
from dnnl.types.dtype import DataType
from tests.check import logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS, every_isa, execute_all
from tests.primitives.rnn_networks import ADDED, BOTH, ONE, gradient, md, network
from tests.work_items import assert_apart

CELLS = (
    "vanilla_rnn", "vanilla_lstm", "vanilla_gru", "lbr_gru", "vanilla_augru", "lbr_augru",
)  # fmt: skip


def check(desc: RnnDesc) -> None:
    """Gradients are those of the reference, whatever the threads."""
    pd, values = PrimitiveDesc(desc, ENGINE), SPECIFICATION.fill(desc)
    made = {
        tensor.argument: memory_of(values[tensor.argument], tensor.desc, ENGINE)
        for tensor in pd.desc.tensors
        if tensor.argument in values
    }
    written = {tensor.argument for tensor in pd.desc.outputs}
    got = execute_all(
        pd,
        {argument: own for argument, own in made.items() if argument not in written},
        {argument: own for argument, own in made.items() if argument in written},
    )
    judge(pd, values, got)


def judge(pd: PrimitiveDesc, values: dict[int, Array], got: dict[int, Memory]) -> None:
    want = SPECIFICATION.compute(pd.desc, values)
    for tensor in pd.desc.outputs:
        rule = SPECIFICATION.rule(pd.desc, tensor.argument, values)
        verdict = compare(
            tensor.name, logical(got[tensor.argument]), want[tensor.argument],
            tensor.desc.data_type, DataType.f32, rule,
        )  # fmt: skip
        assert not verdict.errors, verdict.lines


@every_isa
@pytest.mark.parametrize("alg", CELLS)
def test_instruction_sets(isa: str, alg: str) -> None:
    with config.override("max_cpu_isa", isa):
        check(gradient(network(alg, direction=BOTH, inputs=19)))


@every_isa
@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_types(isa: str, kind: str) -> None:
    with config.override("max_cpu_isa", isa):
        check(gradient(network(kind=kind, layers=2), kind=kind))


@every_pair(direction=[ONE, "unidirectional_right2left", BOTH, ADDED], layers=[1, 3], alg=CELLS)
def test_directions_and_lengths(alg: str, layers: int, direction: str) -> None:
    check(gradient(network(alg, 4, 6, 9, layers=layers, direction=direction, lengths=True)))


@every_pair(layers=[1, 2], lengths=[False, True], direction=[ONE, ADDED])
def test_peepholes_and_projections(direction: str, lengths: bool, layers: int) -> None:
    check(gradient(network(
        direction=direction, lengths=lengths, layers=layers, peephole=True, projection=18
    )))  # fmt: skip


@every_pair(isa=ISAS, before=[1, 53], alg=["vanilla_rnn", "vanilla_lstm"])
def test_one_step_from_states_of_other_channels(alg: str, before: int, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        check(gradient(network(alg, 1, before=before, direction=BOTH)))
        check(gradient(network(alg, 1, 9, before=before, layers=2, tag="abcde", states=False)))


@pytest.mark.parametrize(("before", "channels"), [(256, 34), (256, 128), (128, 256), (34, 256)])
def test_pairs_of_blocks_of_states_of_other_channels(before: int, channels: int) -> None:
    check(gradient(network("vanilla_lstm", 1, 3, channels, before=before, inputs=20)))


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("before", [9, 40])
def test_projections_from_states_of_other_channels(before: int, kind: str) -> None:
    for channels, projection in ((33, 18), (18, 33)):
        check(gradient(network(
            steps=1, channels=channels, before=before, projection=projection, kind=kind,
            peephole=True, direction=ADDED,
        ), kind=kind))  # fmt: skip


@pytest.mark.parametrize("activation", ["eltwise_relu", "eltwise_tanh", "eltwise_logistic"])
@pytest.mark.parametrize("alpha", [0.0, 0.25])
def test_activations(activation: str, alpha: float) -> None:
    check(gradient(replace(network("vanilla_rnn", activation=activation), alpha=alpha)))


@pytest.mark.parametrize("rows", [1, 9, 50])
@pytest.mark.parametrize("channels", [1, 16, 70])
def test_batches_and_channels(rows: int, channels: int) -> None:
    check(gradient(network(steps=2, rows=rows, channels=channels, inputs=channels + 1)))


@every_pair(
    alg=["vanilla_lstm", "vanilla_gru"],
    sizes=[(0, 3), (2, 0), (1, 4), (30, 1)],
    flags=["undef", "diff_weights_overwrite"],
)
def test_steps(alg: str, sizes: tuple[int, int], flags: str) -> None:
    """Without a step gradients of states pass through, and those of weights are zeros."""
    steps, rows = sizes
    check(gradient(network(alg, steps, rows, 10, direction=BOTH), flags=flags))


@every_pair(
    isa=ISAS,
    flags=["undef", "diff_weights_overwrite"],
    layout=["abcde", "abdec"],
    terms=[(13, 11), (16, 8), (5, 13)],
)
def test_terms_in_several_blocks(
    terms: tuple[int, int], layout: str, flags: str, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 64 terms at most, as if caches were small."""
    monkeypatch.setattr(weight_products, "_PART_OF_PANEL", 2**30)
    forward = network("vanilla_lstm", *terms, 23, direction=BOTH, inputs=70)
    given: dict[str, Any] = {
        name: MemoryDesc(getattr(forward, name.removeprefix("diff_")).dims, "f32", layout)
        for name in ("diff_weights_layer_desc", "diff_weights_iter_desc")
    }
    with config.override("max_cpu_isa", isa):
        check(gradient(forward, flags=flags, **given))


@pytest.mark.parametrize("layout", ["abcde", "abdec"])
def test_sums_of_many_terms_are_rounded_once(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_products, "_PART_OF_PANEL", 2**30)
    forward = network("vanilla_lstm", 17, 33, 19, kind="f16")
    given = {
        f"diff_{name}": MemoryDesc(getattr(forward, name).dims, "f16", layout)
        for name in ("weights_layer_desc", "weights_iter_desc")
    }
    desc = gradient(forward, kind="f16", flags="diff_weights_overwrite", **given)
    pd, values = PrimitiveDesc(desc, ENGINE), SPECIFICATION.fill(desc)
    made = {
        tensor.argument: memory_of(values[tensor.argument], tensor.desc, ENGINE)
        if tensor.argument in values
        else Memory(tensor.desc, ENGINE)
        for tensor in pd.desc.tensors
    }
    Primitive(pd).execute(Stream(ENGINE, 1), made)
    want = SPECIFICATION.compute(pd.desc, values)
    for argument in (Arg.DIFF_WEIGHTS_LAYER, Arg.DIFF_WEIGHTS_ITER):
        exact = np.asarray(want[argument], np.float64)
        ulps = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64)
        wrong = np.abs(logical(made[argument]).astype(np.float64) - exact)
        assert (wrong <= 0.51 * ulps + 1e-4 * np.abs(exact).max()).all(), (wrong / ulps).max()


@pytest.mark.parametrize("alg", ["vanilla_lstm", "vanilla_gru", "lbr_gru"])
@pytest.mark.parametrize("tag", ["any", "abcde", "abdec", "badec"])
def test_layouts_of_weights(alg: str, tag: str) -> None:
    forward = network(alg, layers=2, direction=ADDED, channels=36)
    weights: dict[str, Any] = {
        name: MemoryDesc(getattr(forward, name).dims, "f32", tag)
        for name in ("weights_layer_desc", "weights_iter_desc")
    }
    check(gradient(forward, **weights))


@every_pair(
    isa=ISAS,
    alg=["vanilla_rnn", "vanilla_lstm", "vanilla_gru", "lbr_gru"],
    sizes=[(21, 9), (70, 33), (16, 64)],
    flags=["undef", "diff_weights_overwrite"],
    kind=["f32", "bf16"],
    rows=[1, 9],
)
def test_gradients_whose_inputs_are_contiguous(
    alg: str, sizes: tuple[int, int], flags: str, kind: str, rows: int, isa: str
) -> None:
    """As PyTorch has weights."""
    channels, inputs = sizes
    projection = 13 if alg == "vanilla_lstm" else 0
    forward = network(
        alg, 4, rows, channels, inputs=inputs, direction=BOTH, kind=kind, projection=projection
    )
    layouts = {"weights_layer": "abdec", "weights_iter": "abdec", "weights_projection": "abdc"}
    given: dict[str, Any] = {}
    for name, tag in layouts.items():
        own = getattr(forward, f"{name}_desc")
        if not own.is_zero:
            given |= {f"{start}{name}_desc": MemoryDesc(own.dims, own.data_type, tag)
                      for start in ("", "diff_")}  # fmt: skip
    with config.override("max_cpu_isa", isa):
        check(gradient(forward, kind=kind, flags=flags, **given))


def test_gaps_between_rows() -> None:
    check(gradient(
        network(channels=20),
        src_layer_desc=md(3, 5, 20, layout=(300, 30, 1)),
        diff_src_layer_desc=md(3, 5, 20, layout=(25, 100, 1)),
        diff_dst_layer_desc=md(3, 5, 20, layout=(21, 70, 1)),
        diff_src_iter_c_desc=md(1, 1, 5, 20, layout=(999, 999, 23, 1)),
        diff_weights_layer_desc=md(1, 1, 20, 4, 20, layout=(9999, 9999, 1, 500, 21)),
        diff_weights_iter_desc=md(1, 1, 20, 4, 20, layout=(9999, 9999, 90, 21, 1)),
        weights_layer_desc=md(1, 1, 20, 4, 20, layout=(9999, 9999, 1, 500, 21)),
    ))  # fmt: skip


@pytest.mark.parametrize("overwrites", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_what_may_be_absent(overwrites: bool, bias: bool) -> None:
    desc = gradient(network(states=False, bias=bias))
    desc = replace(desc, flags=RnnFlags(overwrites))
    check(desc)
    check(replace(desc, diff_bias_desc=MemoryDesc.zero()))
    check(replace(desc, diff_src_layer_desc=MemoryDesc.zero()))


def test_gradients_of_layers_below_need_none_of_src() -> None:
    check(gradient(network(layers=2), diff_src_layer_desc=MemoryDesc.zero()))


def test_first_states_that_are_zeros_have_gradients() -> None:
    state = md(1, 1, 5, 21)
    check(gradient(network(states=False), diff_src_iter_desc=state, diff_src_iter_c_desc=state))
    check(gradient(network(states=False), diff_dst_iter_desc=state))


def test_what_is_behind_the_end_of_a_sequence_may_be_anything() -> None:
    forward = network("lbr_gru", 5, 3, 17, lengths=True, layers=2)
    values = SPECIFICATION.fill(forward)
    lengths = np.array([2, 5, 0])
    values[Arg.SEQUENCE_LENGTHS] = lengths
    clean = values[Arg.SRC_LAYER].copy()
    clean[np.arange(5)[:, None] >= lengths] = 0
    dirty = values[Arg.SRC_LAYER].copy()
    dirty[np.arange(5)[:, None] >= lengths] = np.nan
    results = []
    for source in (clean, dirty):
        pd = PrimitiveDesc(forward, ENGINE)
        held = {argument: memory_of(own, pd.arg_desc(argument), ENGINE)
                for argument, own in (values | {Arg.SRC_LAYER: source}).items()}  # fmt: skip
        held |= {tensor.argument: Memory(tensor.desc, ENGINE) for tensor in pd.desc.outputs}
        Primitive(pd).execute(Stream(ENGINE), held)
        back = PrimitiveDesc(gradient(forward, flags="diff_weights_overwrite"), ENGINE, hint=pd)
        filled = SPECIFICATION.fill(back.desc)
        for tensor in back.desc.tensors:
            if tensor.output:
                held[tensor.argument] = Memory(tensor.desc, ENGINE)
            elif tensor.argument not in held:
                own = filled[tensor.argument]
                held[tensor.argument] = memory_of(own, tensor.desc, ENGINE)
        Primitive(back).execute(Stream(ENGINE), held)
        results.append({t.argument: held[t.argument].numpy().copy() for t in back.desc.outputs})
    for argument, own in results[0].items():
        np.testing.assert_array_equal(own, results[1][argument])
        assert np.isfinite(own).all()


def test_layouts_are_those_of_the_hint() -> None:
    forward = PrimitiveDesc(
        replace(network(), src_layer_desc=md(3, 5, 21, layout="bac")), ENGINE
    )  # fmt: skip
    back = PrimitiveDesc(
        gradient(replace(network(), src_layer_desc=md(3, 5, 21, layout="any"))), ENGINE,
        hint=forward,
    )  # fmt: skip
    for argument in (Arg.SRC_LAYER, Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER, Arg.WORKSPACE):
        assert back.arg_desc(argument) == forward.arg_desc(argument)
    assert back.arg_desc(Arg.DIFF_SRC_LAYER) == forward.arg_desc(Arg.SRC_LAYER)
    assert back.arg_desc(Arg.DIFF_WEIGHTS_LAYER) == md(1, 1, 21, 4, 21)


def test_one_primitive_for_several_sizes() -> None:
    def opened(desc: RnnDesc) -> RnnDesc:
        made: dict[str, Any] = {}
        for name, own in desc.present():
            letters = {"src_layer": (0, 1), "dst_layer": (0, 1), "iter": (2,)}
            key = next((key for key in letters if key in name and "weights" not in name), "")
            dims = [RUNTIME_DIM if n in letters.get(key, ()) else size
                    for n, size in enumerate(own.dims)]  # fmt: skip
            transposed = name == "diff_weights_iter_desc"
            made[name] = MemoryDesc(dims, own.data_type, "abdec" if transposed else None)
        return replace(desc, **made)

    pattern = gradient(network(channels=20))
    primitive = Primitive(PrimitiveDesc(opened(pattern), ENGINE))
    for steps, rows in ((3, 4), (1, 1), (7, 2)):
        forward = network("vanilla_lstm", steps, rows, 20, tag="abcde")
        weights = md(1, 1, 20, 4, 20, layout="abdec")
        known = PrimitiveDesc(gradient(forward, diff_weights_iter_desc=weights), ENGINE)
        values = SPECIFICATION.fill(known.desc)
        held = {argument: memory_of(own, known.arg_desc(argument), ENGINE)
                for argument, own in values.items()}  # fmt: skip
        held |= {t.argument: Memory(t.desc, ENGINE) for t in known.desc.outputs
                 if t.argument not in held}  # fmt: skip
        primitive.execute(Stream(ENGINE), held)
        judge(known, values, held)


def test_what_is_wrong_is_named() -> None:
    state, weights, data = md(1, 1, 2, 4), md(1, 1, 4, 3, 4), md(3, 2, 4)
    made: Callable[..., RnnDesc] = GruDesc.backward
    given: list[Any] = [ONE, data, state, weights, weights, None, data, state]
    given += [data, state, weights, weights, None, data, state]
    assert made("backward", *given).problem == "l1t3mb2sic4slc4dhc4dic4"
    with pytest.raises(InvalidArguments, match=r"prop_kind.*expected backward: all gradients"):
        made("backward_data", *given)
    with pytest.raises(InvalidArguments, match=r"diff_weights_iter_desc.*G = 3, that of vanilla_"):
        made("backward", *given[:11], md(1, 1, 4, 4, 4), *given[12:])
    with pytest.raises(InvalidArguments, match=r"diff_weights_layer_desc.*required"):
        made("backward", *given[:10], None, *given[11:])
    with pytest.raises(InvalidArguments, match="flags = 'overwrite'"):
        made("backward", *given, flags="overwrite")
    with pytest.raises(InvalidArguments, match="SLC = 4"):
        made("backward", *given[:8], md(3, 2, 5), *given[9:])
    with pytest.raises(Unimplemented, match=r"diff_weights_layer_desc.*channels are contiguous"):
        PrimitiveDesc(
            gradient(network(), diff_weights_layer_desc=md(1, 1, 21, 4, 21, layout="abced")), ENGINE
        )


def test_each_cell_has_a_class() -> None:
    """Arguments are in oneDNN's order."""
    state, data, a = md(1, 1, 2, 4), md(3, 2, 4), md(3, 2, 1)

    def of(gates: int) -> tuple[MemoryDesc, MemoryDesc]:
        return md(1, 1, 4, gates, 4), md(1, 1, 4, gates, 4)

    def bias(gates: int) -> MemoryDesc:
        return md(1, 1, gates, 4)

    made = [
        VanillaRnnDesc.backward(
            "backward", "eltwise_tanh", ONE, data, state, *of(1), bias(1), data, state,
            data, state, *of(1), bias(1), data, state,
        ),
        LstmDesc.backward(
            "backward", ONE, data, state, state, *of(4), bias(4), data, state, state,
            data, state, state, *of(4), bias(4), data, state, state,
            flags="diff_weights_overwrite",
        ),
        GruDesc.backward(
            "backward", ONE, data, state, *of(3), bias(3), data, state, data, state, *of(3),
            bias(3), data, state,
        ),
        LbrGruDesc.backward(
            "backward", ONE, data, state, *of(3), bias(4), data, state, data, state, *of(3),
            bias(4), data, state,
        ),
        AugruDesc.backward(
            "backward", ONE, data, state, a, *of(3), bias(3), data, state, data, state, a, *of(3),
            bias(3), data, state,
        ),
        LbrAugruDesc.backward(
            "backward", ONE, data, state, a, *of(3), bias(4), data, state, data, state, a, *of(3),
            bias(4), data, state,
        ),
    ]  # fmt: skip
    for desc in made:
        assert str(desc.propagation) == "backward"
        diffs = [t for t in desc.tensors if t.argument - GRADIENT in Arg.__members__.values()]
        assert len(diffs) >= 7
        check(desc)
    assert made[1].flags == RnnFlags.diff_weights_overwrite
    assert "flags:O" in made[1].auxiliary


@pytest.mark.parametrize("alg", ["vanilla_lstm", "vanilla_augru"])
def test_work_items_write_apart(alg: str) -> None:
    desc = gradient(network(alg, 2, 50, 20, direction=ADDED, layers=2))
    pd, values = PrimitiveDesc(desc, ENGINE), SPECIFICATION.fill(desc)
    args = {
        tensor.argument: memory_of(values[tensor.argument], tensor.desc, ENGINE)
        if tensor.argument in values
        else Memory(tensor.desc, ENGINE)
        for tensor in pd.desc.tensors
    }
    assert_apart(Primitive(pd), args)
