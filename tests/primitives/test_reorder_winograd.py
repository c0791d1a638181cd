"""Reorders of a convolution's weights to and from those that Winograd's algorithm multiplies."""

from __future__ import annotations

import copy
import pickle
from math import prod

import numpy as np
import pytest

from dnnl import (
    Arg,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveDesc,
    ReorderDesc,
    Unimplemented,
    config,
)
from dnnl.reference.arrays import Array
from dnnl.types.cook_toom import POINTS
from dnnl.types.dtype import DataType
from dnnl.types.encoding import Winograd
from tests.check import logical, random_values
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS, execute_all
from tests.primitives.products import Dims, lay_out

EPS = DataType.f32.eps
SIZES: list[Dims] = [(20, 18, 3, 3), (3, 10, 7, 3, 3), (1, 1, 3, 3), (5, 1, 1, 3, 3)]
FORMS = [(2, 16, False, False), (4, 32, True, False), (4, 40, False, True), (2, 1, True, True)]


def memory(values: Array, layout: str, kind: str = "f32") -> Memory:
    """Taps in a layout."""
    desc = lay_out(values.shape, layout).with_data_type(kind)
    return Memory.from_numpy(values.astype(np.float32)).reorder_to(desc)


def reordered(src: Memory, dst: MemoryDesc) -> Memory:
    """What the kernel makes of it, between guard pages."""
    pd = PrimitiveDesc(ReorderDesc(src.desc, dst), ENGINE)
    return execute_all(pd, {Arg.FROM: src})[Arg.TO]


def evaluated(taps: Array, tile: int) -> Array:
    """The values of the polynomials of rows and columns at each pair of points, in float64."""
    points = [float(p) for p in POINTS[tile]]
    rows = [[p**k / prod(p - q for q in points if q != p) for k in range(3)] for p in points]
    matrix = np.array([*rows, [0.0, 0.0, 1.0]])
    places: Array = np.einsum("ik,jl,...kl->ij...", matrix, matrix, taps)
    return places


@every_pair(
    isa=ISAS,
    dims=SIZES,
    form=FORMS,
    layout=["plain", "reversed", "block16", "last"],
    kind=["f32", "bf16", "f16"],
)
def test_there_and_back(
    isa: str, dims: Dims, form: tuple[int, int, bool, bool], layout: str, kind: str
) -> None:
    tile, _, rotated, exchanged = form
    values = random_values(dims, kind, 1)
    given, desc = memory(values, layout, kind), MemoryDesc.winograd(dims, "f32", *form)
    with config.override("max_cpu_isa", isa):
        made = reordered(given, desc)
        taps = values.reshape(-1, *dims[-4:])
        taps = taps[..., ::-1, ::-1] if rotated else taps
        want = evaluated(taps if exchanged else taps.swapaxes(1, 2), tile)
        got = logical(made.parts[0])
        assert got.shape[1] == (tile + 2) ** 2
        want = np.moveaxis(want, 2, 0).reshape(got.shape)
        assert np.abs(got - want).max() <= 4 * EPS * np.abs(values).max()
        for back in ("plain", layout):
            again = reordered(made, lay_out(dims, back))
            assert np.abs(logical(again) - values).max() <= 4 * EPS * np.abs(values).max()


@pytest.mark.parametrize("after", FORMS)
@pytest.mark.parametrize("before", FORMS)
def test_from_one_to_another(
    before: tuple[int, int, bool, bool], after: tuple[int, int, bool, bool]
) -> None:
    dims = (20, 18, 3, 3)
    values = random_values(dims, "f32", 1)
    first = memory(values, "plain").reorder_to(MemoryDesc.winograd(dims, "f32", *before))
    made = reordered(first, MemoryDesc.winograd(dims, "f32", *after))
    assert np.abs(made.numpy() - values).max() <= 8 * EPS * np.abs(values).max()
    if before[::2] == after[::2]:
        np.testing.assert_array_equal(made.parts[0].numpy(), first.parts[0].numpy())


def test_numpy() -> None:
    """Memories are made of arrays, and give them back, as kernels do."""
    for dims in SIZES:
        for form in FORMS:
            values = random_values(dims, "f32", 1)
            desc = MemoryDesc.winograd(dims, "f32", *form)
            made = memory(values, "plain").reorder_to(desc)
            kernel = reordered(memory(values, "plain"), desc)
            difference = made.parts[0].numpy() - kernel.parts[0].numpy()
            assert np.abs(difference).max() <= 4 * EPS * np.abs(values).max()
            assert np.abs(made.numpy() - values).max() <= 4 * EPS * np.abs(values).max()


def test_descriptors_are_values() -> None:
    for form in FORMS:
        desc = MemoryDesc.winograd((20, 18, 3, 3), "f32", *form)
        assert eval(repr(desc), {"MemoryDesc": MemoryDesc}) == desc
        assert pickle.loads(pickle.dumps(desc)) == copy.deepcopy(desc) == desc
        assert desc.encoding == Winograd(*form)
        other = desc.permute_axes((1, 0, 2, 3))
        assert other.dims == (18, 20, 3, 3)
        assert other.buffers == desc.buffers
        assert other.permute_axes((1, 0, 2, 3)) == desc
    assert str(desc) == "f32::opaque:winograd:2x1x1x1:f0"


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_narrow_taps(kind: str) -> None:
    """They are transformed to f32, and come back as they were; nothing rounds others to them."""
    dims = (20, 18, 3, 3)
    values = random_values(dims, kind, 1)
    desc = MemoryDesc.winograd(dims, kind, 4, 32)
    assert [own.data_type for own in desc.buffers] == [DataType.f32]
    made = reordered(memory(values, "plain", kind), desc)
    wide = reordered(memory(values, "plain"), MemoryDesc.winograd(dims, "f32", 4, 32))
    np.testing.assert_array_equal(made.parts[0].numpy(), wide.parts[0].numpy())
    for again in (made, reordered(memory(values, "block16", kind), desc)):
        back = reordered(again, lay_out(dims, "reversed").with_data_type(kind))
        np.testing.assert_array_equal(logical(back), values)
        np.testing.assert_array_equal(again.numpy().astype(np.float64), values)
    with pytest.raises(Unimplemented, match="it takes f32"):
        PrimitiveDesc(ReorderDesc(MemoryDesc(dims, "f32"), desc), ENGINE)


def test_wrong_descriptors() -> None:
    taps = (20, 18, 3, 3)
    for dims, kind, form, message in (
        (taps, "f32", (3, 16), r"tile = 3: expected 2 for F\(2x2, 3x3\) or 4"),
        (taps, "f32", (4, 0), r"columns = 0: the columns of a panel must be at least 1"),
        (taps, "s8", (4, 16), r"data_type = .*s8.*: Winograd's .* in f32, bf16 and f16"),
        ((20, 18, 5, 5), "f32", (4, 16), r"dims = .*: the encoding winograd is for weights"),
        ((20, 3, 3), "f32", (4, 16), r"dims = .*: the encoding winograd is for weights"),
    ):
        with pytest.raises(InvalidArguments, match=message):
            MemoryDesc.winograd(dims, kind, *form)
    desc = MemoryDesc.winograd(taps, "f32", 4, 16)
    with pytest.raises(InvalidArguments, match="permute_axes needs a layout"):
        desc.permute_axes((0, 1, 3, 2))
    with pytest.raises(Unimplemented, match="s8; it takes"):
        PrimitiveDesc(ReorderDesc(MemoryDesc(taps, "s8"), desc), ENGINE)
