"""Recurrent networks whose weights have gates in the order of a framework."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dnnl import (
    Arg,
    InvalidArguments,
    LstmDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    RnnDesc,
    config,
)
from dnnl.reference.arrays import Array, f64
from dnnl.reference.rnn_check import SPECIFICATION
from dnnl.reference.rule import compare
from dnnl.types.cell_functions import GATE_LETTERS
from dnnl.types.dtype import DataType
from tests import processor
from tests.check import logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, execute_all
from tests.primitives.rnn_networks import BOTH, ONE, SHORT, gradient, inference, network

_GATES = {
    int(Arg.WEIGHTS_LAYER): 3, int(Arg.WEIGHTS_ITER): 3, int(Arg.BIAS): 2,
    int(Arg.DIFF_WEIGHTS_LAYER): 3, int(Arg.DIFF_WEIGHTS_ITER): 3, int(Arg.DIFF_BIAS): 2,
}  # fmt: skip
"""The dimension of gates."""
CELLS = [("lstm", 0), ("lstm", 9), ("gru", 0)]
"""Cells, and the channels of a projection."""


def _ordered(argument: int, values: Array, own: str, order: str) -> Array:
    """Values with gates in an order, of those that have them in the cell's."""
    axis = _GATES.get(argument & ~(Arg.SCALES | Arg.ZERO_POINTS))
    if axis is None or values.shape[axis] == 1:
        return values
    places = [own.index(gate) for gate in order]
    return values.take([*places, *range(len(order), values.shape[axis])], axis)


def _drawn(argument: int, dims: tuple[int, ...]) -> Array:
    """Scales or zero points."""
    drawn = np.random.default_rng(argument).uniform(1, 9, dims)
    return np.rint(drawn) if argument & Arg.ZERO_POINTS else f64((drawn / 500).astype(np.float32))


def _check(
    desc: RnnDesc,
    order: str,
    attr: PrimitiveAttr | None = None,
    other: PrimitiveAttr | None = None,
) -> None:
    """Results are those by weights in the cell's order; ``other`` is the attribute of the others,
    if they differ. Where weights have no scales they are the reference's besides."""
    own, attr = GATE_LETTERS[desc.alg_kind], attr or PrimitiveAttr()
    values, found = SPECIFICATION.under(attr).fill(desc), list[dict[int, Array]]()
    for given, given_attr, letters in ((desc, attr, own), (desc, other or attr, order)):
        ordered = replace(given, gate_order=letters)
        pd = PrimitiveDesc(ordered, ENGINE, given_attr)
        descs = {t.argument: t.desc for t in pd.desc.tensors}
        for flag, specs in (
            (Arg.SCALES, given_attr.scales), (Arg.ZERO_POINTS, given_attr.zero_points)
        ):  # fmt: skip
            for argument in specs:
                descs[flag | argument] = pd.arg_desc(flag | argument)
                values[flag | argument] = _drawn(flag | argument, descs[flag | argument].dims)
        now = {key: _ordered(key, one, own, letters) for key, one in values.items()}
        outputs = {t.argument for t in pd.desc.outputs}
        memories = {key: memory_of(one, descs[key], ENGINE) for key, one in now.items()}
        got = execute_all(
            pd,
            {key: one for key, one in memories.items() if key not in outputs},
            {key: one for key, one in memories.items() if key in outputs},
        )
        found.append({key: logical(one) for key, one in got.items()})
        if attr.scales:
            continue
        spec = SPECIFICATION.under(given_attr)
        want = spec.compute(ordered, now)
        for key, one in found[-1].items():
            rule, kind = spec.rule(ordered, key, now), descs[key].data_type
            verdict = compare(str(key), one, want[key], kind, DataType.f32, rule)
            assert not verdict.errors, verdict.lines
    first, second = found
    for key, one in first.items():
        np.testing.assert_array_equal(_ordered(key, one, own, order), second[key], str(key))


@every_pair(
    isa=processor.ISAS,
    alg=["lstm", "gru", "augru", "vanilla_gru"],
    kind=["f32", "bf16"],
    tag=["any", "abcde", "abdec"],
    rows=[3, 13],
    passes=["forward", "gradient"],
)
def test_floats(isa: str, alg: str, kind: str, tag: str, rows: int, passes: str) -> None:
    order = "iofc" if alg == "lstm" else "ruo"
    with config.override("max_cpu_isa", isa):
        desc = network(
            SHORT.get(alg, alg), 2, rows, 21, kind=kind, tag=tag, direction=BOTH, layers=2
        )
        if passes == "gradient":
            others: dict[str, Any] = {}
            if tag != "any":
                others["diff_weights_layer_desc"] = desc.weights_layer_desc.with_tag(tag)
            desc = gradient(desc, **others)
        _check(desc, order)


@every_pair(isa=processor.ISAS, cells=CELLS, rows=[3, 13])
def test_bytes(isa: str, cells: tuple[str, int], rows: int) -> None:
    """Scales and zero points of weights are in their order, and a projection has none."""
    alg, projection = cells
    order = "ocfi" if alg == "lstm" else "our"
    attr = PrimitiveAttr()
    for argument in (Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER):
        attr.set_scales(argument, 27)
        attr.set_zero_points(argument, 24)
    with config.override("max_cpu_isa", isa):
        desc = inference(alg, 2, rows, 21, src="f32", weights="s8", projection=projection)
        _check(desc, order, attr)


@every_pair(isa=processor.ISAS, cells=CELLS, tag=["any", "abcde"])
def test_integers(isa: str, cells: tuple[str, int], tag: str) -> None:
    alg, projection = cells
    own = "ifco" if alg == "lstm" else "uro"
    order = "fico" if alg == "lstm" else "oru"
    desc = inference(alg, 2, 5, 21, src="u8", weights="s8", tag=tag, projection=projection)
    scales = np.random.default_rng(2).uniform(2000, 4000, (len(own), 21))
    attr, other = PrimitiveAttr(), PrimitiveAttr()
    for each, given in ((attr, scales), (other, scales[[own.index(gate) for gate in order]])):
        each.set_rnn_data_qparams(100.0, 100.5)
        each.set_rnn_weights_qparams(24, given.ravel().tolist())
        if projection:
            each.set_rnn_weights_projection_qparams(8, np.linspace(500, 900, projection).tolist())
    with config.override("max_cpu_isa", isa):
        _check(desc, order, attr, other)


def test_descriptions() -> None:
    own = network("vanilla_lstm")
    names = (
        "src_layer_desc", "src_iter_desc", "src_iter_c_desc", "weights_layer_desc",
        "weights_iter_desc", "bias_desc", "dst_layer_desc", "dst_iter_desc", "dst_iter_c_desc",
    )  # fmt: skip
    given: dict[str, Any] = {name: getattr(own, name) for name in names}
    made = LstmDesc.forward(own.prop_kind, ONE, gate_order="iofc", **given)
    assert made == replace(own, gate_order="iofc")
    with pytest.raises(InvalidArguments, match="gate_order") as raised:
        replace(own, gate_order="ruo")
    assert "i, f, c, o" in str(raised.value)
    wrongs: list[Any] = ["iiff", 3]
    for wrong in wrongs:
        with pytest.raises(InvalidArguments, match="gate_order"):
            replace(own, gate_order=wrong)
