"""Recurrent cells with functions of their own: against the reference, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dnnl import (
    Alg,
    Arg,
    CellFunctions,
    InvalidArguments,
    LstmDesc,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    PropKind,
    RnnDesc,
    Unimplemented,
    VanillaRnnDesc,
    config,
)
from dnnl import math as m
from dnnl.language.errors import BadValue
from dnnl.language.verbose import OperationLine
from dnnl.reference.rnn_check import SPECIFICATION
from dnnl.tools.bench.verbose_line import operation_tokens
from dnnl.types.cell_functions import places_of
from dnnl.types.scalar import Scalar
from tests.check import logical, memory_of, same_bits
from tests.primitives.harness import ENGINE, every_isa, execute_all
from tests.primitives.rnn_networks import ADDED, BOTH, GATES, ONE, gradient, inference, network
from tests.primitives.runtime_sizes import trials
from tests.primitives.test_open_rnn import executed, open_rows
from tests.primitives.test_rnn import check

ALGS = (*GATES, "vanilla_gru", "lbr_gru", "vanilla_augru", "lbr_augru")


def hard(x: Scalar) -> Any:
    return m.minimum(m.maximum(0.3 * x + 0.5, 0.0), 1.0)


def softsign(x: Scalar) -> Any:
    return x / (1 + m.abs(x))


def elu(x: Scalar) -> Any:
    return m.where(x > 0, x, 0.5 * m.expm1(m.minimum(x, 0)))


FIRST, SECOND = (hard, softsign, elu), (m.sigmoid, elu, softsign)


def described(alg: str, *records: CellFunctions, **options: Any) -> RnnDesc:
    """A network in inference; a record that is left out has functions unlike the usual ones."""
    made = network(alg, **options)
    count = places_of(made.alg_kind)
    both = "bidirectional" in options.get("direction", ONE)
    own = records or (
        CellFunctions.of(*FIRST[:count], clip=0.75),
        CellFunctions.of(*SECOND[:count], coupled=alg == "vanilla_lstm"),
    )
    return replace(
        made, prop_kind=PropKind.forward_inference, activation=None, functions=own[: 1 + both]
    )


@every_isa
@pytest.mark.parametrize("alg", ALGS)
def test_instruction_sets(alg: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        check(described(alg, direction=BOTH))


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("alg", ALGS)
def test_types_layers_and_lengths(alg: str, kind: str) -> None:
    """Tails of units, rows that fill no tile, sums of both directions."""
    for rows, channels in ((1, 16), (7, 33), (50, 5)):
        check(
            described(
                alg, rows=rows, channels=channels, layers=2, direction=ADDED, kind=kind,
                lengths=True,
            )
        )  # fmt: skip


@pytest.mark.parametrize("clip", [0.0, 0.5, None])
@pytest.mark.parametrize("coupled", [False, True])
def test_peepholes_projections_and_absent_tensors(coupled: bool, clip: float | None) -> None:
    own = CellFunctions.of(*SECOND, clip=clip, coupled=coupled)
    check(described("vanilla_lstm", own, peephole=True, projection=9, tag="abcde"))
    check(described("vanilla_lstm", own, states=False, bias=False, steps=0))


@pytest.mark.parametrize("alg", ["vanilla_lstm", "vanilla_gru"])
def test_integers(alg: str) -> None:
    name = alg.upper()
    line = f"--rnn --cfg=u8u8u8f32 --alg={name} --direction=concat t3mb5sic21"
    (made,) = trials(line)
    assert isinstance(made.desc, RnnDesc)
    functions = described(alg, direction=BOTH).functions
    desc = replace(made.desc, functions=functions)
    values = SPECIFICATION.under(made.attr).fill(desc)
    pd = PrimitiveDesc(desc, ENGINE, made.attr)
    args = {
        tensor.argument: memory_of(values[tensor.argument], tensor.desc, ENGINE)
        for tensor in pd.desc.tensors
        if not tensor.output
    }
    got = execute_all(pd, args)
    want = SPECIFICATION.under(made.attr).compute(pd.desc, values)
    for tensor in pd.desc.outputs:
        apart = 0.05 if tensor.desc.data_type.is_float else 5
        found = got[tensor.argument].numpy().astype(np.float64)
        np.testing.assert_allclose(found, want[tensor.argument], atol=apart)


@pytest.mark.parametrize("alg", ALGS)
def test_steps_and_rows_of_each_execution(alg: str) -> None:
    known = described(alg, direction=BOTH, tag="abcde")
    primitive = Primitive(PrimitiveDesc(open_rows(known), ENGINE))
    for steps, rows in ((3, 5), (1, 1), (2, 17)):
        executed(primitive, described(alg, direction=BOTH, tag="abcde", steps=steps, rows=rows))


@pytest.mark.parametrize("alg", ALGS)
def test_usual_functions_have_the_same_bits(alg: str) -> None:
    usual = (m.tanh,) if alg == "vanilla_rnn" else (m.sigmoid, m.tanh, m.tanh)
    desc = described(alg, CellFunctions.of(*usual[: places_of(network(alg).alg_kind)]))
    activation = Alg.eltwise_tanh if alg == "vanilla_rnn" else None
    plain = replace(desc, functions=None, activation=activation)
    values = SPECIFICATION.fill(desc)
    got, want = (
        execute_all(
            PrimitiveDesc(own, ENGINE),
            {
                tensor.argument: memory_of(values[tensor.argument], tensor.desc, ENGINE)
                for tensor in PrimitiveDesc(own, ENGINE).desc.tensors
                if not tensor.output
            },
        )
        for own in (desc, plain)
    )
    for argument, memory in want.items():
        assert same_bits(got[argument], memory)


def test_functions_are_part_of_a_description() -> None:
    """Equal ones are one primitive, whatever their names; verbose lines have those."""
    first = described("vanilla_lstm", CellFunctions.of(*FIRST, clip=0.75, coupled=True))

    def other(x: Scalar) -> Any:
        return hard(x)

    again = CellFunctions.of(other, softsign, elu, clip=0.75, coupled=True)
    assert first == replace(first, functions=(again,))
    assert hash(first) == hash(replace(first, functions=(again,)))
    assert first != replace(first, functions=(CellFunctions.of(*FIRST, clip=0.75),))
    assert "functions:hard/softsign/elu/clip=0.75/coupled" in first.auxiliary
    assert "functions" not in replace(first, functions=None).auxiliary


def test_no_case_has_them() -> None:
    desc = described("vanilla_gru")
    line = OperationLine(
        "dnnl", "exec", "cpu", "rnn", "steps", "forward_inference", (), (),
        dict(part.split(":", 1) for part in desc.auxiliary.split()), desc.problem, None,
    )  # fmt: skip
    with pytest.raises(BadValue, match=r"no case can be made of the functions hard/softsign"):
        operation_tokens(line)


def test_classes_of_cells_take_them() -> None:
    desc = described("vanilla_lstm")
    own = {name: getattr(desc, name) for name in desc.fields() if name in LSTM}
    assert LstmDesc.forward("forward_inference", **own) == desc
    data, weights = MemoryDesc((2, 3, 4), "f32"), MemoryDesc((1, 1, 4, 1, 4), "f32")
    made = VanillaRnnDesc.forward(
        "forward_inference", None, ONE, data, None, weights, weights, None, data, None,
        functions=[CellFunctions.of(elu)],
    )  # fmt: skip
    check(made)


LSTM = (
    "direction", "src_layer_desc", "src_iter_desc", "src_iter_c_desc", "weights_layer_desc",
    "weights_iter_desc", "bias_desc", "dst_layer_desc", "dst_iter_desc", "dst_iter_c_desc",
    "functions",
)  # fmt: skip


def test_what_is_wrong_is_named() -> None:
    one, lstm = CellFunctions.of(m.tanh), described("vanilla_lstm")

    def wrong(rule: str, functions: object, desc: RnnDesc = lstm, **others: Any) -> None:
        with pytest.raises(InvalidArguments, match=rule):
            replace(desc, functions=functions, **others)  # type: ignore[arg-type]

    wrong("tanh.*vanilla_lstm has 3: f, g, h", [one])
    wrong("expected 1, one for each direction of unidirectional", lstm.functions * 2)  # type: ignore[operator]
    wrong("expected a dnnl.CellFunctions for each direction", one)
    wrong("expected a dnnl.CellFunctions for each direction", [m.tanh])
    wrong("expected 1, one for each direction", [])
    coupled = [CellFunctions.of(m.sigmoid, m.tanh, coupled=True)]
    wrong("only gates of an LSTM are coupled", coupled, described("lbr_gru"))
    wrong("vanilla cells have an activation or functions", [one], described("vanilla_rnn"),
          activation="eltwise_relu")  # fmt: skip
    for clip, rule in ((-1.0, "not negative"), (float("inf"), "finite"), ("1", "a number")):
        with pytest.raises(InvalidArguments, match=f"clip.*{rule}"):
            CellFunctions.of(m.tanh, clip=clip)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match=r"coupled.*True or False"):
        CellFunctions.of(m.tanh, coupled=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="cannot be traced"):
        CellFunctions.of(lambda x: x if x > 0 else 0)
    with pytest.raises(InvalidArguments, match=r"functions.*CellFunctions.of traces them"):
        CellFunctions((m.tanh,))  # type: ignore[arg-type]


@pytest.mark.parametrize("alg", ALGS)
def test_training_has_the_usual_ones(alg: str) -> None:
    functions = described(alg).functions
    trained = network(alg)
    for desc in (trained, gradient(trained)):
        with pytest.raises(Unimplemented, match=f"functions in {desc.prop_kind}: only forward_inf"):
            replace(desc, functions=functions, activation=None)


@every_isa
@pytest.mark.parametrize("channels", [5, 21])
@pytest.mark.parametrize("alg", ["rnn", "lstm", "gru"])
def test_functions_that_have_no_value_at_zero(isa: str, channels: int, alg: str) -> None:
    """What a function gives behind the last channel is not multiplied, in any K group."""
    of_sums: list[Any] = [lambda x: m.log(m.abs(x)) * 0.0 + 0.5] * (2 - (alg == "rnn"))
    functions = CellFunctions.of(*of_sums, *[m.tanh] * (alg == "lstm"))
    options: dict[str, Any] = {"projection": 7} if alg == "lstm" else {}
    with config.override("max_cpu_isa", isa):
        desc = inference(alg, 3, 4, channels, src="bf16", weights="bf16", **options)
        desc = replace(desc, activation=None, functions=(functions,))
        pd = PrimitiveDesc(desc, ENGINE)
        values = SPECIFICATION.fill(desc)
        values[Arg.BIAS] = np.full_like(values[Arg.BIAS], 3.0)
        args = {t.argument: memory_of(values[t.argument], t.desc, ENGINE)
                for t in pd.desc.tensors if not t.output}  # fmt: skip
        got = execute_all(pd, args)
    assert np.isfinite(logical(got[Arg.DST_LAYER])).all()
