"""Recurrent networks whose products are those of narrow types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dnnl import (
    Arg,
    Memory,
    Primitive,
    PrimitiveDesc,
    RnnDesc,
    config,
)
from dnnl.reference.arrays import Array
from dnnl.reference.conversions import convert
from dnnl.reference.rnn_check import SPECIFICATION
from dnnl.types.dtype import DataType
from tests import processor
from tests.check import logical, memory_of
from tests.primitives.harness import ENGINE, every_rounding_isa, execute_all
from tests.primitives.rnn_networks import BOTH, ONE, inference
from tests.work_items import assert_apart

BF16 = DataType.bf16


def described(alg: str = "lstm", *sizes: int, **options: Any) -> RnnDesc:
    """A network whose inputs and weights are bf16; results show the bits that its states lack."""
    kinds = {"src": "bf16", "weights": "bf16"}
    return inference(alg, *sizes, **kinds, activation="eltwise_logistic", **options)


def values_of(desc: RnnDesc) -> dict[int, Array]:
    """Contents without the few digits that hide what is rounded."""
    rng = np.random.default_rng(5)
    made = SPECIFICATION.fill(desc)
    for argument, own in made.items():
        if argument != Arg.SEQUENCE_LENGTHS:
            kind = desc.desc_of(argument).data_type
            scale = 1.0 if argument == Arg.BIAS else np.abs(own).max(initial=0)
            made[argument] = convert(rng.uniform(-scale, scale, own.shape), kind)
    return made


def check(desc: RnnDesc, *, narrow: bool) -> None:
    """Results are those of the reference whose states are bf16, or not, whatever the threads."""
    pd, values = PrimitiveDesc(desc, ENGINE), values_of(desc)
    args = {
        tensor.argument: memory_of(values[tensor.argument], tensor.desc, ENGINE)
        for tensor in pd.desc.tensors
        if not tensor.output
    }
    got = execute_all(pd, args)
    operand = BF16 if narrow else DataType.f32
    want = SPECIFICATION.compute(desc, values, lambda x: convert(x, operand))
    for tensor in pd.desc.outputs:
        found, expected = logical(got[tensor.argument]), want[tensor.argument]
        # A sum in another order may round a state to the next number.
        atol = BF16.eps / 2 if narrow or tensor.desc.data_type is BF16 else 1e-5
        np.testing.assert_allclose(found, expected, atol=atol, rtol=0, err_msg=tensor.name)
        if tensor.desc.data_type is DataType.f32 and found.size:
            assert np.median(np.abs(found - expected)) < 1e-5, tensor.name


def is_narrow(isa: str) -> bool:
    """Whether an instruction set multiplies pairs of bf16."""
    return isa in ("avx512_core_bf16", "avx512_core_amx")


@every_rounding_isa
@pytest.mark.parametrize("alg", ["lstm", "rnn", "gru", "augru"])
def test_instruction_sets(isa: str, alg: str) -> None:
    with config.override("max_cpu_isa", isa):
        for direction in (ONE, "bidirectional_sum"):
            check(described(alg, 3, 5, 21, direction=direction), narrow=is_narrow(isa))


NARROW = [name for name in ("avx512_core_bf16", "avx512_core_amx") if name in processor.ISAS]


@pytest.fixture(params=NARROW)
def narrow_isa(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each instruction set that multiplies pairs of bf16."""
    with config.override("max_cpu_isa", request.param):
        yield


@pytest.mark.usefixtures("narrow_isa")
@pytest.mark.parametrize("alg", ["lstm", "rnn", "gru", "augru"])
@pytest.mark.parametrize("rows", [1, 17, 70])
def test_batches(alg: str, rows: int) -> None:
    check(described(alg, 3, rows, 18, layers=2), narrow=True)


@pytest.mark.usefixtures("narrow_isa")
@pytest.mark.parametrize("channels", [1, 16, 33])
@pytest.mark.parametrize("inputs", [1, 31, 96])
def test_channels(channels: int, inputs: int) -> None:
    check(described("gru", 2, 9, channels, inputs=inputs, dst="bf16"), narrow=True)
    check(described("lstm", 2, 9, channels, inputs=inputs, states="bf16"), narrow=True)


@pytest.mark.usefixtures("narrow_isa")
@pytest.mark.parametrize("alg", ["lstm", "rnn"])
@pytest.mark.parametrize("before", [1, 33, 200])
def test_one_step_from_states_of_other_channels(before: int, alg: str) -> None:
    """Rows of states are as wide as those before a step or behind it."""
    for rows in (3, 70):
        check(described(alg, 1, rows, 34, before=before, layers=3), narrow=True)
    check(described(alg, 1, 19, 34, before=before, tag="abcde", direction=BOTH), narrow=True)


@pytest.mark.usefixtures("narrow_isa")
@pytest.mark.parametrize("tag", ["abcde", "badce"])
@pytest.mark.parametrize("direction", [BOTH, "unidirectional_right2left"])
def test_row_major_weights(tag: str, direction: str) -> None:
    """They are copied into blocks where there are many rows, and are else multiplied in f32."""
    check(described("lstm", 4, 5, 37, tag=tag, direction=direction, layers=2), narrow=True)
    check(described("gru", 1, 15, 37, tag=tag, direction=direction), narrow=False)


@pytest.mark.usefixtures("narrow_isa")
@pytest.mark.parametrize("tag", ["any", "abcde"])
@pytest.mark.parametrize("projection", [5, 20, 40])
def test_projections(projection: int, tag: str) -> None:
    check(described("lstm", 4, 19, 35, projection=projection, tag=tag), narrow=True)


@pytest.mark.usefixtures("narrow_isa")
@pytest.mark.parametrize("direction", [ONE, "bidirectional_sum"])
def test_lengths_of_sequences(direction: str) -> None:
    check(described("gru", 5, 9, 24, direction=direction, lengths=True), narrow=True)
    check(described("lstm", 5, 9, 24, direction=direction, lengths=True), narrow=True)


@pytest.mark.usefixtures("narrow_isa")
def test_nothing_to_do() -> None:
    check(described("lstm", 0, 4, 20), narrow=True)
    check(described("gru", 3, 0, 20), narrow=True)


@pytest.mark.usefixtures("narrow_isa")
def test_work_items_write_apart() -> None:
    desc = described("gru", 2, 70, 20, direction="bidirectional_sum")
    pd, values = PrimitiveDesc(desc, ENGINE), values_of(desc)
    args = {
        tensor.argument: Memory(tensor.desc, ENGINE)
        if tensor.output
        else memory_of(values[tensor.argument], tensor.desc, ENGINE)
        for tensor in pd.desc.tensors
    }
    assert_apart(Primitive(pd), args)
