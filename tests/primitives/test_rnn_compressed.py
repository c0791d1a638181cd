"""Recurrent networks of floats whose weights are bytes: scales and zero points of all masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Alg,
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
from dnnl.primitives.primitive_desc import select_isa
from dnnl.primitives.rnn_plans import multiplies_byte_pairs
from dnnl.reference.arrays import Array
from dnnl.reference.conversions import convert
from dnnl.reference.quantization import dequantize, expand
from dnnl.reference.rnn_check import SPECIFICATION
from dnnl.reference.rule import compare
from dnnl.types.dtype import DataType
from tests import processor
from tests.check import logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, execute_all
from tests.primitives.rnn_networks import ADDED, BOTH, ONE, inference, network
from tests.work_items import assert_apart

EVERY, COLUMNS, DIRECTIONS, ONE_FOR_ALL = 27, 24, 3, 0
"""Masks: one parameter for each column of each direction, column or direction, or one."""
_OF_WEIGHTS = {
    int(Arg.WEIGHTS_LAYER): "weights_layer_desc",
    int(Arg.WEIGHTS_ITER): "weights_iter_desc",
    int(Arg.WEIGHTS_PROJECTION): "weights_projection_desc",
}


def described(alg: str = "lstm", *sizes: int, weights: str = "s8", **options: Any) -> RnnDesc:
    return inference(alg, *sizes, src=options.pop("src", "f32"), weights=weights, **options)


def in_pairs(desc: RnnDesc) -> bool:
    """Whether inputs and states may be pairs of bytes."""
    floats = [desc.weights_projection_desc, desc.attention_desc]
    given = {desc.weights_layer_desc.data_type, desc.weights_iter_desc.data_type}
    known = multiplies_byte_pairs(select_isa(ENGINE)) and len(given) == 1
    return known and all(own.is_zero for own in floats) and desc.activation is not Alg.eltwise_relu


def quantization(
    desc: RnnDesc, mask: int = EVERY, zeros: str = "", scales: str = "f32"
) -> tuple[PrimitiveAttr, dict[int, Array]]:
    """Scales by which weights have the size of one number, and zero points of a type, if any."""
    attr, rng, made = PrimitiveAttr(), np.random.default_rng(7), dict[int, Array]()
    for argument, name in _OF_WEIGHTS.items():
        own = getattr(desc, name)
        if own.is_zero:
            continue
        bits = mask & (11 if own.ndims == 4 else 27)
        attr.set_scales(argument, bits, data_type=scales)
        shape = attr.scales[argument].shape(own.dims)
        largest = 1 / (127 * own.dims[2] ** 0.5)
        drawn = rng.uniform(largest / 2, largest, shape)
        made[Arg.SCALES | argument] = convert(drawn, DataType[scales])
        if zeros:
            attr.set_zero_points(argument, bits, data_type=zeros)
            middle = 128 * (own.data_type is DataType.u8)
            drawn = rng.integers(middle - 9, middle + 9, shape).astype(np.float64)
            made[Arg.ZERO_POINTS | argument] = convert(drawn, DataType[zeros])
    return attr, made


def values_of(desc: RnnDesc) -> dict[int, Array]:
    """Weights in the whole range of their type."""
    made = SPECIFICATION.fill(desc)
    rng = np.random.default_rng(5)
    for argument, name in _OF_WEIGHTS.items():
        if argument in made and getattr(desc, name).data_type.is_integer:
            kind = getattr(desc, name).data_type
            drawn = rng.integers(int(kind.min), int(kind.max) + 1, made[argument].shape)
            made[argument] = drawn.astype(np.float64)
    return made


def meant(
    values: dict[int, Array], attr: PrimitiveAttr, parameters: dict[int, Array]
) -> dict[int, Array]:
    """What the weights stand for."""
    made = dict(values)
    for argument in _OF_WEIGHTS:
        if argument in values:
            own, dims = values[argument], values[argument].shape
            scale = expand(parameters[Arg.SCALES | argument], dims, attr.scales[argument])
            zero: Array | float = 0.0
            if argument in attr.zero_points:
                spec = attr.zero_points[argument]
                zero = expand(parameters[Arg.ZERO_POINTS | argument], dims, spec)
            made[argument] = dequantize(own, scale, zero)
    return made


def memories(
    pd: PrimitiveDesc, values: dict[int, Array], parameters: dict[int, Array]
) -> dict[int, Memory]:
    every = {t.argument: t.desc for t in pd.desc.tensors if not t.output}
    every |= {argument: pd.arg_desc(argument) for argument in parameters}
    held = values | parameters
    return {argument: memory_of(held[argument], desc, ENGINE) for argument, desc in every.items()}


def check(desc: RnnDesc, mask: int = EVERY, zeros: str = "", scales: str = "f32") -> None:
    """Results are those of the network whose weights are dequantized."""
    attr, parameters = quantization(desc, mask, zeros, scales)
    pd, values = PrimitiveDesc(desc, ENGINE, attr), values_of(desc)
    got = execute_all(pd, memories(pd, values, parameters))
    compared(desc, got, meant(values, attr, parameters))


def compared(desc: RnnDesc, got: dict[int, Memory], values: dict[int, Array]) -> None:
    """Results are those of the reference, as near as those of f32 where weights become that."""
    want, rounds = SPECIFICATION.compute(desc, values), in_pairs(desc)
    floats = {name: own.with_data_type("f32") for name, own in desc.present() if "weights" in name}
    for tensor in desc.outputs:
        kind, argument = tensor.desc.data_type, tensor.argument
        own = desc if rounds else desc.laid_out(**floats)
        rule = SPECIFICATION.rule(own, argument, values)
        found = logical(got[argument])
        verdict = compare(tensor.name, found, want[argument], kind, DataType.f32, rule)
        assert not verdict.errors, verdict.lines


@every_pair(
    isa=processor.ISAS,
    alg=["lstm", "gru", "rnn", "augru"],
    weights=["s8", "u8"],
    zeros=["", "s32", "s8", "u8"],
)
def test_instruction_sets(isa: str, alg: str, weights: str, zeros: str) -> None:
    if zeros and zeros != "s32":
        zeros = weights
    with config.override("max_cpu_isa", isa):
        check(described(alg, weights=weights), zeros=zeros)


@every_pair(
    mask=[EVERY, COLUMNS, DIRECTIONS, ONE_FOR_ALL, 16, 8],
    direction=[ONE, BOTH, ADDED, "unidirectional_right2left"],
    layers=[1, 2],
    zeros=["", "s8"],
    tag=["any", "abcde"],
)
def test_masks(mask: int, direction: str, layers: int, zeros: str, tag: str) -> None:
    joined = 2 if direction == BOTH else 1
    options: dict[str, Any] = {"direction": direction, "layers": layers, "tag": tag}
    check(described("gru", 3, 5, 20, **options), mask, zeros)
    check(described("lstm", 1, 3, 16 * joined, **options), mask, zeros)


@every_pair(isa=[processor.ISAS[-1], "avx2"], rows=[1, 17, 70], channels=[1, 17, 64])
def test_sizes(rows: int, channels: int, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        check(described("lstm", 2, rows, channels, inputs=31), zeros="s8")
        check(described("gru", 2, rows, channels, inputs=65, tag="badce"))


@pytest.mark.parametrize("scales", ["f32", "bf16", "f16", "e8m0"])
@pytest.mark.parametrize("src", ["f32", "bf16", "f16"])
def test_types(src: str, scales: str) -> None:
    check(described("lstm", src=src, dst=src, states=src), scales=scales)


@every_pair(isa=[processor.ISAS[-1], "avx2"], mask=[EVERY, ONE_FOR_ALL], projection=[5, 20])
def test_projections_and_peepholes(projection: int, mask: int, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        check(described("lstm", 3, 19, 35, projection=projection, peephole=True), mask, "s8")


def test_lengths_of_sequences() -> None:
    check(described("gru", 5, 9, 24, direction=ADDED, lengths=True), zeros="s8")
    check(described("lstm", 5, 9, 24, direction=BOTH, lengths=True))


def test_states_of_other_channels_before_a_single_step() -> None:
    check(described("lstm", 1, 9, 66, before=1), zeros="s8")


def test_nothing_to_do() -> None:
    check(described("lstm", 0, 4, 20))
    check(described("gru", 3, 0, 20))


def test_weights_without_scales_are_numbers() -> None:
    desc = described("lstm", 2, 3, 9)
    pd, values = PrimitiveDesc(desc, ENGINE), SPECIFICATION.fill(desc)
    got = execute_all(pd, memories(pd, values, {}))
    compared(desc, got, values)


def test_some_weights_are_floats() -> None:
    desc = described("lstm", 2, 3, 9)
    mixed = desc.laid_out(weights_iter_desc=desc.weights_iter_desc.with_data_type("f32"))
    attr = PrimitiveAttr()
    attr.set_scales(Arg.WEIGHTS_LAYER, EVERY)
    _, parameters = quantization(desc)
    own = {arg: values for arg, values in parameters.items() if arg & ~Arg.SCALES == 33}
    pd, values = PrimitiveDesc(mixed, ENGINE, attr), values_of(mixed)
    values[Arg.WEIGHTS_ITER] = SPECIFICATION.fill(mixed)[Arg.WEIGHTS_ITER]
    got = execute_all(pd, memories(pd, values, own))
    scale = expand(own[Arg.SCALES | 33], values[33].shape, attr.scales[33])
    compared(mixed, got, {**values, 33: values[33] * scale})


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("tag", ["any", "abcde"])
def test_open_steps_and_rows(tag: str, threads: int) -> None:
    """One primitive serves all of them."""
    open_desc = described("lstm", RUNTIME_DIM, RUNTIME_DIM, 20, tag=tag, direction=BOTH)
    attr, parameters = quantization(open_desc, zeros="s8")
    pd = PrimitiveDesc(open_desc, ENGINE, attr)
    primitive = Primitive(pd)
    for steps, rows in ((1, 1), (4, 9), (7, 3)):
        desc = described("lstm", steps, rows, 20, tag=tag, direction=BOTH)
        known, values = PrimitiveDesc(desc, ENGINE, attr), values_of(desc)
        args = memories(known, values, parameters)
        for argument in (Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER):
            args[argument] = memory_of(values[argument], pd.arg_desc(argument), ENGINE)
        got = {tensor.argument: Memory(tensor.desc, ENGINE) for tensor in known.desc.outputs}
        primitive.execute(Stream(ENGINE, threads), {**args, **got})
        compared(desc, got, meant(values, attr, parameters))


def test_work_items_write_apart() -> None:
    desc = described("lstm", 2, 70, 20, direction=ADDED, tag="abcde")
    attr, parameters = quantization(desc, zeros="s8")
    pd = PrimitiveDesc(desc, ENGINE, attr)
    args = memories(pd, values_of(desc), parameters)
    args |= {tensor.argument: Memory(tensor.desc, ENGINE) for tensor in pd.desc.outputs}
    assert_apart(Primitive(pd), args)


def test_what_is_refused_says_why() -> None:
    def refused(rule: str, mask: int, desc: RnnDesc | None = None, *more: Any) -> None:
        attr = PrimitiveAttr()
        attr.set_scales(Arg.WEIGHTS_LAYER, mask, *more)
        with pytest.raises(Unimplemented, match=rule):
            PrimitiveDesc(desc or described(), ENGINE, attr)

    refused(r"scales of WEIGHTS along inputs or in groups; mask = 27 has one of each column", 31)
    refused("in groups", 24, None, (1, 3))
    refused("scales", EVERY, described(weights="f32"))
    attr = PrimitiveAttr()
    attr.set_zero_points(Arg.WEIGHTS_ITER, data_type="u4")
    with pytest.raises(Unimplemented, match="of type u4; s32, s8 and u8 are read"):
        PrimitiveDesc(described(), ENGINE, attr)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC_LAYER)
    with pytest.raises(Unimplemented, match="scales of SRC"):
        PrimitiveDesc(described(), ENGINE, attr)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.WEIGHTS_LAYER, 64)
    with pytest.raises(InvalidArguments, match="above the 5 dimensions"):
        PrimitiveDesc(described(), ENGINE, attr)
    training = network("vanilla_lstm").laid_out(
        weights_layer_desc=network("vanilla_lstm").weights_layer_desc.with_data_type("s8")
    )
    with pytest.raises(Unimplemented, match="s8 of weights_layer_desc"):
        PrimitiveDesc(training, ENGINE)
