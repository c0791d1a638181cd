"""Products of pairs of bytes in recurrent networks whose weights are bytes: where they are chosen,
and what their roundings, numbers that are not finite and the ends of rows do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    CellFunctions,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    RnnDesc,
    Stream,
    config,
    math,
)
from dnnl.codegen.isa import Isa
from dnnl.primitives.primitive_desc import select_isa
from dnnl.primitives.rnn_plans import multiplies_byte_pairs
from dnnl.reference.arrays import Array
from dnnl.reference.rnn_check import SPECIFICATION
from tests import processor
from tests.check import logical
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, execute_all
from tests.primitives.rnn_networks import ADDED, BOTH
from tests.primitives.test_rnn_compressed import (
    check,
    compared,
    described,
    meant,
    memories,
    quantization,
    values_of,
)
from tests.work_items import assert_apart


def isa_named(name: str) -> Isa:
    with config.override("max_cpu_isa", name):
        return select_isa(ENGINE)


ISAS = [name for name in processor.ISAS if multiplies_byte_pairs(isa_named(name))]
"""The instruction sets that multiply bytes."""
every_isa = pytest.mark.parametrize("isa", ISAS)


def groups(desc: RnnDesc, attr: PrimitiveAttr | None = None) -> int:
    """How many inputs the groups of weights have that a primitive chooses: 4 in pairs of bytes."""
    inner = PrimitiveDesc(desc, ENGINE, attr).arg_desc(Arg.WEIGHTS_ITER).inner_blocks
    return inner[-1][1] if inner[-1][0] == 2 else 1


@every_isa
def test_where_pairs_are_chosen(isa: str) -> None:
    """States need a bound, and weights are all of one type of bytes."""
    own = CellFunctions.of(math.sigmoid, math.tanh, math.tanh)
    lstm = described("lstm")
    floats = {
        "functions": replace(lstm, functions=(own,)),
        "projection": described("lstm", 3, 5, 21, projection=9),
        "relu": described("rnn", activation="eltwise_relu"),
        "attention": described("augru"),
        "mixed": lstm.laid_out(weights_layer_desc=lstm.weights_layer_desc.with_data_type("u8")),
        "long": described("rnn", 1, 1, 1, inputs=2**16 + 1),
    }
    with config.override("max_cpu_isa", isa):
        assert {name: groups(desc) for name, desc in floats.items()} == dict.fromkeys(floats, 1)
        for alg in ("lstm", "gru", "rnn"):
            for weights in ("s8", "u8"):
                assert groups(described(alg, weights=weights)) == 4
    with config.override("max_cpu_isa", "avx2"):
        assert groups(lstm) == 1


@every_pair(
    isa=ISAS,
    alg=["lstm", "gru", "rnn"],
    weights=["s8", "u8"],
    zeros=["", "s32"],
    steps=[1, 3],
    layers=[1, 2],
    activation=["eltwise_tanh", "eltwise_logistic"],
)
def test_steps_and_layers(
    isa: str, alg: str, weights: str, zeros: str, steps: int, layers: int, activation: str
) -> None:
    """A single step shifts weights without AMX, so that what pads states must be zeros, which the
    logistic function does not give."""
    with config.override("max_cpu_isa", isa):
        options: dict[str, Any] = {"layers": layers, "activation": activation, "weights": weights}
        check(described(alg, steps, 5, 21, direction=ADDED, **options), zeros=zeros)


@every_pair(isa=ISAS, rows=[1, 4, 17, 40], channels=[1, 16, 130], inputs=[1, 63, 129])
def test_sizes(isa: str, rows: int, channels: int, inputs: int) -> None:
    with config.override("max_cpu_isa", isa):
        check(described("lstm", 2, rows, channels, inputs=inputs, direction=BOTH), zeros="s8")
        check(described("gru", 1, rows, channels, inputs=inputs))


@every_isa
@pytest.mark.parametrize("tag", ["abcde", "badce"])
def test_row_major_weights(tag: str, isa: str) -> None:
    """They are packed where all steps have many rows; few rows read them, as floats."""
    with config.override("max_cpu_isa", isa):
        check(described("lstm", 5, 5, 37, tag=tag, direction=BOTH), zeros="s8")
        check(described("gru", 5, 5, 37, tag=tag, weights="u8"))
        check(described("lstm", 1, 1, 37, tag=tag), zeros="s8")


@every_isa
def test_the_longest_sums_have_32_bits(isa: str) -> None:
    """The largest numbers by the largest weights, with one sign."""
    for weights, largest in (("s8", -128), ("u8", 255)):
        desc = described("rnn", 2, 1, 1, inputs=2**16, weights=weights)
        attr = PrimitiveAttr()
        attr.set_scales(Arg.WEIGHTS_LAYER)
        parameters = {Arg.SCALES | Arg.WEIGHTS_LAYER: np.array([2.0**-25])}
        with config.override("max_cpu_isa", isa):
            pd, values = PrimitiveDesc(desc, ENGINE, attr), values_of(desc)
            for number in (-1.0, 1.0, -127 / 32512, -128 / 32512):
                row = values[Arg.SRC_LAYER]
                row[:] = number
                row[:, :, 0] = 1.0
                values[Arg.WEIGHTS_LAYER][:] = largest
                got = execute_all(pd, memories(pd, values, parameters))
                compared(desc, got, meant_by(values, 2.0**-25))


def meant_by(values: dict[int, Array], scale: float) -> dict[int, Array]:
    return {**values, Arg.WEIGHTS_LAYER: values[Arg.WEIGHTS_LAYER] * scale}


@every_isa
@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-20, 3.0, 1e30])
def test_rows_of_all_sizes(isa: str, size: float) -> None:
    """Each row has a scale of its own."""
    desc = described("gru", 3, 3, 20)
    attr, parameters = quantization(desc)
    with config.override("max_cpu_isa", isa):
        pd, values = PrimitiveDesc(desc, ENGINE, attr), values_of(desc)
        want = logical(execute_all(pd, memories(pd, values, parameters))[Arg.DST_LAYER])
        values[Arg.SRC_LAYER][:, 1] *= size
        values[Arg.SRC_ITER][:, :, 1] *= min(size, 3.0)
        got = execute_all(pd, memories(pd, values, parameters))
    np.testing.assert_array_equal(logical(got[Arg.DST_LAYER])[:, ::2], want[:, ::2])
    compared(desc, got, meant(values, attr, parameters))


@every_isa
def test_roundings_are_not_added_up(isa: str) -> None:
    """A GRU that forgets little adds small numbers to its states, which 16 bits would not have."""
    steps = 300
    desc = described("gru", steps, 2, 16)
    attr, parameters = quantization(desc)
    values = values_of(desc)
    values[Arg.WEIGHTS_ITER][:] = 0
    values[Arg.WEIGHTS_LAYER][:] = 0
    values[Arg.SRC_ITER][:] = 0
    values[Arg.BIAS][:, :, 0] = 12.0  # 1 - u is 6e-6, below half of 2^-16
    values[Arg.BIAS][:, :, 2] = 1.0
    with config.override("max_cpu_isa", isa):
        pd = PrimitiveDesc(desc, ENGINE, attr)
        got = execute_all(pd, memories(pd, values, parameters))
    want = SPECIFICATION.compute(desc, meant(values, attr, parameters))
    assert want[Arg.DST_ITER].min() > 1e-3
    np.testing.assert_allclose(logical(got[Arg.DST_ITER]), want[Arg.DST_ITER], rtol=0.02)


@every_pair(
    isa=ISAS,
    alg=["lstm", "gru", "rnn"],
    place=[Arg.SRC_LAYER, Arg.SRC_ITER],
    number=[np.nan, np.inf, -np.inf],
)
def test_what_is_not_finite_stays_in_its_row(isa: str, alg: str, place: Arg, number: float) -> None:
    """A row is NaN from the step on that has such a number; other rows are as without it."""
    desc = described(alg, 4, 3, 37, layers=2)
    attr, parameters = quantization(desc)
    with config.override("max_cpu_isa", isa):
        pd, values = PrimitiveDesc(desc, ENGINE, attr), values_of(desc)
        whole = logical(execute_all(pd, memories(pd, values, parameters))[Arg.DST_LAYER])
        values[place][(1, 2, 30) if place == Arg.SRC_LAYER else (0, 0, 2, 30)] = number
        found = logical(execute_all(pd, memories(pd, values, parameters))[Arg.DST_LAYER])
    first = 1 if place == Arg.SRC_LAYER else 0
    np.testing.assert_array_equal(found[:, :2], whole[:, :2])
    np.testing.assert_array_equal(found[:first], whole[:first])
    assert np.isnan(found[first:, 2]).all()


@every_pair(isa=ISAS, alg=["lstm", "gru", "rnn"], direction=[BOTH, ADDED])
def test_what_is_behind_a_sequence_is_not_read(isa: str, alg: str, direction: str) -> None:
    """One direction begins with it."""
    desc = described(alg, 5, 3, 20, direction=direction, lengths=True)
    attr, parameters = quantization(desc)
    with config.override("max_cpu_isa", isa):
        pd, values = PrimitiveDesc(desc, ENGINE, attr), values_of(desc)
        values[Arg.SEQUENCE_LENGTHS][:] = (5, 2, 0)
        want = execute_all(pd, memories(pd, values, parameters))
        compared(desc, want, meant(values, attr, parameters))
        for row, length in enumerate((5, 2, 0)):
            values[Arg.SRC_LAYER][length:, row] = np.nan
        got = execute_all(pd, memories(pd, values, parameters))
    for argument, own in want.items():
        np.testing.assert_array_equal(logical(got[argument]), logical(own))


@every_pair(alg=["lstm", "gru"], isa=ISAS, tag=["any", "abcde"], threads=[1, 2])
def test_open_sizes(alg: str, isa: str, tag: str, threads: int) -> None:
    """One primitive serves all steps and rows."""
    options: dict[str, Any] = {"direction": BOTH, "tag": tag}
    open_desc = described(alg, RUNTIME_DIM, RUNTIME_DIM, 20, **options)
    attr, parameters = quantization(open_desc, zeros="s32")
    with config.override("max_cpu_isa", isa):
        pd = PrimitiveDesc(open_desc, ENGINE, attr)
        primitive = Primitive(pd)
        for steps, rows in ((3, 5), (1, 1), (4, 19), (2, 40), (0, 2)):
            desc = described(alg, steps, rows, 20, **options)
            values = values_of(desc)
            known = desc.laid_out(
                weights_layer_desc=pd.arg_desc(Arg.WEIGHTS_LAYER),
                weights_iter_desc=pd.arg_desc(Arg.WEIGHTS_ITER),
            )
            args = memories(PrimitiveDesc(known, ENGINE, attr), values, parameters)
            got = {own.argument: Memory(own.desc, ENGINE) for own in known.outputs}
            primitive.execute(Stream(ENGINE, threads), {**args, **got})
            compared(desc, got, meant(values, attr, parameters))


@every_isa
@pytest.mark.parametrize("alg", ["lstm", "gru"])
def test_work_items_write_apart(alg: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        desc = described(alg, 2, 70, 20, direction=ADDED, tag="abcde")
        attr, parameters = quantization(desc, zeros="s8")
        pd = PrimitiveDesc(desc, ENGINE, attr)
        args = memories(pd, values_of(desc), parameters)
        args |= {own.argument: Memory(own.desc, ENGINE) for own in pd.desc.outputs}
        assert_apart(Primitive(pd), args)


@every_isa
def test_absent_tensors(isa: str) -> None:
    absent: dict[str, Any] = dict.fromkeys(
        ("src_iter_desc", "dst_iter_desc", "src_iter_c_desc", "dst_iter_c_desc"), MemoryDesc.zero()
    )
    with config.override("max_cpu_isa", isa):
        check(replace(described("lstm", 3, 5, 20, bias=False), **absent))
        check(described("lstm", 3, 19, 20, peephole=True, lengths=True, direction=BOTH))
        check(described("lstm", 1, 9, 34, before=65), zeros="s8")
        check(described("lstm", 1, 9, 66, before=1))
