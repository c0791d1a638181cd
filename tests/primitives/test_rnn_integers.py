"""Recurrent networks of integers: exact products on every instruction set, and their attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dnnl import (
    Arg,
    InvalidArguments,
    Memory,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    RnnDesc,
    Stream,
    Unimplemented,
    config,
)
from dnnl.reference.arrays import Array
from dnnl.reference.conversions import convert
from dnnl.reference.rnn_check import SPECIFICATION
from dnnl.types.dtype import DataType
from tests import processor
from tests.check import logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, execute_all
from tests.primitives.rnn_networks import ADDED, BOTH, ONE, inference, md
from tests.work_items import assert_apart

SCALE = 127.0
every_isa = pytest.mark.parametrize("isa", processor.ISAS)


def described(alg: str = "lstm", *sizes: int, src: str = "u8", **options: Any) -> RnnDesc:
    """A network of integers."""
    return inference(alg, *sizes, src=src, weights="s8", **options)


def quantization(desc: RnnDesc, shift: float, *, per_column: bool) -> PrimitiveAttr:
    """States from -1 to 1 or so, and weights whose products have the size of one number."""
    *_, inputs, gates, channels = desc.weights_layer_desc.dims
    rng = np.random.default_rng(3)
    attr = PrimitiveAttr()
    attr.set_rnn_data_qparams(SCALE, shift)

    def scales(size: int, columns: int) -> tuple[int, list[float]]:
        if not per_column:
            return 0, [127 * size**0.5]
        return 1, list(127 * size**0.5 * rng.uniform(0.5, 2, columns))

    mask, values = scales(inputs, gates * channels)
    attr.set_rnn_weights_qparams(24 * mask, values)
    if not desc.weights_projection_desc.is_zero:
        mask, values = scales(channels, desc.outputs_of_cells)
        attr.set_rnn_weights_projection_qparams(8 * mask, values)
    return attr


def values_of(desc: RnnDesc) -> dict[int, Array]:
    """Numbers with all digits where they are no integers."""
    rng, made = np.random.default_rng(5), SPECIFICATION.fill(desc)
    for argument, own in made.items():
        if desc.desc_of(argument).data_type is DataType.f32:
            low = 0 if argument == Arg.AUGRU_ATTENTION else -1
            made[argument] = convert(rng.uniform(low, 1, own.shape), DataType.f32)
    return made


def check(desc: RnnDesc, shift: float = 128.0, *, per_column: bool = True) -> None:
    """Results are those of the reference, whatever the threads, but for states that are rounded to
    a neighbour where they are nearly between both."""
    attr = quantization(desc, shift, per_column=per_column)
    pd, values = PrimitiveDesc(desc, ENGINE, attr), values_of(desc)
    args = {
        tensor.argument: memory_of(values[tensor.argument], tensor.desc, ENGINE)
        for tensor in pd.desc.tensors
        if not tensor.output
    }
    got = execute_all(pd, args)
    want = SPECIFICATION.under(attr).compute(desc, values)
    for tensor in pd.desc.outputs:
        kind, found = tensor.desc.data_type, logical(got[tensor.argument])
        expected = convert(want[tensor.argument], kind)
        error = np.abs(found - expected) * (1 if kind.is_integer else SCALE)
        assert error.max(initial=0) <= 1.001, tensor.name
        exact = error <= (0 if kind.is_integer else 1e-3)
        assert exact.mean() > 0.98 if exact.size else True, tensor.name


@every_pair(
    isa=processor.ISAS,
    alg=["lstm", "gru"],
    data=[("u8", 128.0), ("s8", 0.0), ("u8", 0.0), ("u8", 99.25)],
)
def test_instruction_sets(isa: str, alg: str, data: tuple[str, float]) -> None:
    src, shift = data
    with config.override("max_cpu_isa", isa):
        check(described(alg, src=src, dst=src), shift)


@every_pair(isa=processor.ISAS, alg=["lstm", "gru"], rows=[1, 2, 3, 5, 6, 7], shift=[128.0, 99.25])
def test_a_single_step_of_few_rows(isa: str, alg: str, rows: int, shift: float) -> None:
    """A tile that has all rows makes the sums of the columns as well."""
    with config.override("max_cpu_isa", isa):
        check(described(alg, 1, rows, 37, inputs=29, layers=1), shift)


@every_isa
def test_largest_numbers_do_not_saturate(isa: str) -> None:
    """Pairs of 255 * 127 exceed 16 bits."""
    with config.override("max_cpu_isa", isa):
        desc = described("rnn", 1, 2, 64, direction=ONE)
        attr = PrimitiveAttr()
        attr.set_rnn_data_qparams(1, 0)
        attr.set_rnn_weights_qparams(0, 255 * 127 * 64)
        pd = PrimitiveDesc(desc, ENGINE, attr)
        full = {Arg.SRC_LAYER: 255, Arg.SRC_ITER: 0, Arg.WEIGHTS_LAYER: 127,
                Arg.WEIGHTS_ITER: -127, Arg.BIAS: 0}  # fmt: skip
        args: dict[int, Memory] = {
            argument: memory_of(
                np.full(desc.desc_of(argument).dims, value), pd.arg_desc(argument), ENGINE
            )
            for argument, value in full.items()
        }
        got = execute_all(pd, args)
        np.testing.assert_allclose(logical(got[Arg.DST_LAYER]), np.tanh(1.0), atol=1e-6)


@pytest.mark.parametrize("alg", ["lstm", "rnn", "gru", "augru"])
@pytest.mark.parametrize("rows", [1, 17, 70])
def test_batches(alg: str, rows: int) -> None:
    check(described(alg, 3, rows, 18, layers=2, states="u8"), per_column=rows % 2 == 0)


@pytest.mark.parametrize("isa", [processor.ISAS[-1], "avx2"])
@pytest.mark.parametrize("channels", [1, 17, 64])
def test_channels(channels: int, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        check(described("gru", 2, 9, channels, inputs=31, dst="u8", states="u8"))
        check(described("lstm", 2, 9, channels, inputs=65, src="s8", states="s8"), 3.0)


@every_pair(isa=processor.ISAS, before=[1, 65], alg=["lstm", "rnn"], layers=[1, 3])
def test_one_step_from_states_of_other_channels(
    alg: str, before: int, isa: str, layers: int
) -> None:
    with config.override("max_cpu_isa", isa):
        if layers > 1:
            check(described(alg, 1, 9, 66, before=before, layers=layers, states="u8"))
            return
        options: dict[str, Any] = {"before": before, "tag": "abcde", "src": "s8", "direction": BOTH}
        check(described(alg, 1, 19, 66, **options), 3.0)


@pytest.mark.parametrize("direction", [ONE, BOTH, ADDED, "unidirectional_right2left"])
@pytest.mark.parametrize("states", ["u8", "f32", "bf16"])
def test_directions(direction: str, states: str) -> None:
    check(described("lstm", 4, 7, 20, direction=direction, layers=2, states=states))


@pytest.mark.parametrize("isa", [processor.ISAS[-1], "avx512_core", "sse41"])
@pytest.mark.parametrize("tag", ["abcde", "badce"])
def test_row_major_weights(tag: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        check(described("lstm", 1, 1, 37, tag=tag))
        check(described("gru", 2, 5, 37, tag=tag, direction=BOTH))


@every_pair(isa=[processor.ISAS[-1], "avx2"], tag=["any", "abcde"], projection=[5, 20, 70])
def test_projections(projection: int, tag: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        check(described("lstm", 3, 19, 35, projection=projection, tag=tag))


@pytest.mark.parametrize("direction", [ONE, ADDED])
def test_lengths_of_sequences(direction: str) -> None:
    check(described("gru", 5, 9, 24, direction=direction, lengths=True))


def test_nothing_to_do() -> None:
    check(described("lstm", 0, 4, 20))
    check(described("gru", 3, 0, 20))


def test_states_of_a_call_are_those_of_the_next() -> None:
    """Results in the type of the states hold them without loss."""
    desc = described("gru", 4, 3, 20, states="u8", dst="u8")
    attr = quantization(desc, 128.0, per_column=True)
    values = values_of(desc)
    whole = executed(desc, attr, values)
    half = described("gru", 2, 3, 20, states="u8", dst="u8")
    first = executed(half, attr, {**values, Arg.SRC_LAYER: values[Arg.SRC_LAYER][:2]})
    rest: dict[int, Array] = {
        Arg.SRC_LAYER: values[Arg.SRC_LAYER][2:],
        Arg.SRC_ITER: first[Arg.DST_ITER],
    }
    second = executed(half, attr, {**values, **rest})
    np.testing.assert_array_equal(second[Arg.DST_ITER], whole[Arg.DST_ITER])
    np.testing.assert_array_equal(second[Arg.DST_LAYER], whole[Arg.DST_LAYER][2:])


def executed(desc: RnnDesc, attr: PrimitiveAttr, values: dict[int, Array]) -> dict[int, Array]:
    pd = PrimitiveDesc(desc, ENGINE, attr)
    args = {
        tensor.argument: Memory(tensor.desc, ENGINE)
        if tensor.output
        else memory_of(values[tensor.argument], tensor.desc, ENGINE)
        for tensor in pd.desc.tensors
    }
    Primitive(pd).execute(Stream(ENGINE), args)
    return {tensor.argument: logical(args[tensor.argument]) for tensor in pd.desc.outputs}


def test_work_items_write_apart() -> None:
    desc = described("lstm", 2, 70, 20, direction=ADDED, tag="abcde")
    pd = PrimitiveDesc(desc, ENGINE, quantization(desc, 128.0, per_column=True))
    values = values_of(desc)
    args = {
        tensor.argument: Memory(tensor.desc, ENGINE)
        if tensor.output
        else memory_of(values[tensor.argument], tensor.desc, ENGINE)
        for tensor in pd.desc.tensors
    }
    assert_apart(Primitive(pd), args)


def test_what_is_wrong_is_named() -> None:
    attr = PrimitiveAttr()
    calls: dict[str, Callable[[], None]] = {
        "scale = 0.*positive": lambda: attr.set_rnn_data_qparams(0, 1),
        "scale = 1e\\+30.*2\\^60": lambda: attr.set_rnn_data_qparams(1e30, 0),
        "shift = inf.*from -1024 to 1024": lambda: attr.set_rnn_data_qparams(1, float("inf")),
        "mask = 3.*0, for one scale, or 24": lambda: attr.set_rnn_weights_qparams(3, [1]),
        "scales = -1.*positive": lambda: attr.set_rnn_weights_qparams(24, [1, -1]),
        "scales = 2.*one scale": lambda: attr.set_rnn_weights_qparams(0, [1, 2]),
        "mask = 24.*or 8": lambda: attr.set_rnn_weights_projection_qparams(24, [1]),
        "expected positive numbers": lambda: attr.set_rnn_weights_qparams(0, "1"),  # type: ignore[arg-type]
    }
    for rule, call in calls.items():
        with pytest.raises(InvalidArguments, match=rule):
            call()
    half: Any = np.float32(0.5)
    attr.set_rnn_weights_qparams(0, half)  # a number of NumPy is one
    assert attr.rnn_qparams.weights.values == (0.5,)
    attr.set_rnn_weights_qparams(24, [1.0] * 83)
    with pytest.raises(InvalidArguments, match=r"83 scales.*expected 84 scales"):
        PrimitiveDesc(described("lstm", 1, 1, 21), ENGINE, attr)


def test_what_is_refused_says_why() -> None:
    attr = PrimitiveAttr()
    attr.set_rnn_data_qparams(127, 128)
    floats = described("lstm", src="f32").laid_out(
        weights_layer_desc=md(1, 1, 21, 4, 21), weights_iter_desc=md(1, 1, 21, 4, 21)
    )
    with pytest.raises(Unimplemented, match="rnn_qparams"):
        PrimitiveDesc(floats, ENGINE, attr)
    mixed = described("lstm", src="u8", dst="s8")
    with pytest.raises(Unimplemented, match="s8 of dst_layer_desc"):
        PrimitiveDesc(mixed, ENGINE, attr)
    with pytest.raises(Unimplemented, match="u8 of weights_layer_desc"):
        PrimitiveDesc(inference("lstm", src="u8", weights="u8"), ENGINE)
