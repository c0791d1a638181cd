"""Sizes that only an execution knows, of which something is promised."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    Engine,
    InvalidArguments,
    LrnDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    RuntimeDim,
    SoftmaxDesc,
    Stream,
)

WIDTH = RuntimeDim(min=30, max=100, multiple=8)
ENGINE = Engine("cpu")


def test_it_stands_for_a_runtime_dimension() -> None:
    desc = MemoryDesc((RUNTIME_DIM, 3, WIDTH), "f32", "abc")
    assert desc.has_runtime_values
    assert desc.dims == (RUNTIME_DIM, 3, RUNTIME_DIM)
    assert desc != MemoryDesc((RUNTIME_DIM, 3, RUNTIME_DIM), "f32", "abc")
    assert desc == pickle.loads(pickle.dumps(desc)) == eval(repr(desc))


def test_what_is_promised_is_tight() -> None:
    assert WIDTH.promise == (32, 96, 8)
    assert repr(WIDTH) == "RuntimeDim(min=32, multiple=8, max=96)"
    assert [size for size in range(200) if WIDTH.allows(size)] == list(range(32, 97, 8))
    assert (WIDTH.near(0), WIDTH.near(61), WIDTH.near(999)) == (32, 64, 96)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min": -1}, "min = -1: expected an integer of at least 0"),
        ({"multiple": 0}, "multiple = 0"),
        ({"min": 1.5}, "min = 1.5"),
        ({"min": 5, "max": 7, "multiple": 4}, "max = 7: there is no multiple of 4"),
    ],
)
def test_what_is_no_promise_is_named(given: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidArguments, match=message):
        RuntimeDim(**given)


def test_sizes_outside_are_refused_by_name() -> None:
    desc = MemoryDesc((RUNTIME_DIM, WIDTH), "f32", "ab")
    numbers = 5, 1e-4, 0.75, 1.0
    lrn = LrnDesc.forward("forward_inference", "lrn_across_channels", desc, desc, *numbers)
    primitive = Primitive(PrimitiveDesc(lrn, ENGINE))

    def execute(width: int) -> np.ndarray:
        src = Memory.from_numpy(np.ones((3, width), np.float32))
        dst = Memory(src.desc, ENGINE)
        primitive.execute(Stream(ENGINE), {Arg.SRC: src, Arg.DST: dst})
        return dst.numpy()

    for width in (32, 40, 96):
        assert execute(width).shape == (3, width)
    rule = "dimension 1 must be at least 32 and at most 96 and a multiple of 8"
    for width, near in ((33, 32), (16, 32), (104, 96)):
        with pytest.raises(InvalidArguments, match=f"{rule}.*nearest size is {near}"):
            execute(width)
    assert primitive.pd.variants is not None
    assert len(primitive.pd.variants.every) == 1


def test_kernels_use_what_is_promised() -> None:
    """Rows of whole vectors need no masks."""

    def masks(width: int) -> int:
        desc = MemoryDesc((RUNTIME_DIM, width), "f32")
        softmax = SoftmaxDesc.forward("forward_inference", "softmax_accurate", desc, desc, 1)
        return Primitive(PrimitiveDesc(softmax, ENGINE)).llvm_ir().count("masked")

    assert masks(RuntimeDim(min=64, multiple=64)) == 0 < masks(RUNTIME_DIM)
