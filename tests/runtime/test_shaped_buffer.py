"""Buffers of a framework: any order of axes on any layout, moved by reorders alone."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dnnl
from dnnl import Arg, InvalidArguments, Memory, MemoryDesc, ShapedBuffer
from dnnl.runtime import elements
from dnnl.runtime.engine import Engine
from tests.device import FAR
from tests.pairs import every_pair

ENGINES = pytest.mark.parametrize("engine", [Engine("cpu"), FAR], ids=["cpu", "far"])
NHWC = (0, 3, 1, 2)
HWIO = (3, 2, 0, 1)
RNG = np.random.default_rng(3)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def test_activations_become_weights_without_moving() -> None:
    # The seed document: a result (2, 3, 4, 5) of one convolution is read as (height, width, in,
    # out) weights by the next; the descriptor's axes are renamed by (0123) -> (2031).
    array = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    buffer = ShapedBuffer.from_numpy(array, NHWC)
    assert buffer.shape == (2, 3, 4, 5)
    assert buffer.memory.desc.dims == (2, 5, 3, 4)
    assert buffer.memory.desc.matches_tag("nhwc")
    weights = buffer.view(HWIO)
    assert weights.desc == buffer.memory.desc.permute_axes((2, 0, 3, 1))
    assert weights.pointer == buffer.memory.pointer
    np.testing.assert_array_equal(weights.numpy(), array.transpose(3, 2, 0, 1))


def test_transposition_changes_the_permutation_only() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = ShapedBuffer.from_numpy(array)
    turned = buffer.transpose((1, 0))
    assert turned.memory is buffer.memory
    assert turned.permutation == (1, 0)
    np.testing.assert_array_equal(turned.numpy(), array.T)


@given(
    st.permutations(range(4)),
    st.permutations(range(4)),
    st.permutations(range(4)),
    st.sampled_from([Engine("cpu"), FAR]),
)
def test_view_has_the_required_axes(
    order: list[int], turned: list[int], required: list[int], engine: Engine
) -> None:
    array = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    buffer = ShapedBuffer.from_numpy(array, order, engine).transpose(turned)
    expected = array.transpose(turned)
    assert buffer.shape == expected.shape
    np.testing.assert_array_equal(buffer.view(required).numpy(), expected.transpose(required))


@pytest.mark.parametrize(
    ("dims", "tag", "shape"),
    [
        ((2, 6, 4, 5), "nhwc", (2, 120)),
        ((2, 32, 4, 5), "nChw16c", (2, 640)),
        ((2, 24, 1, 1), "nChw16c", (2, 24)),
        ((2, 3, 4, 5), "acbd", (6, 20)),
        ((2, 3, 1, 5), "dcba", (30,)),
    ],
)
@ENGINES
def test_reshape_that_moves_keeps_every_element(
    dims: tuple[int, ...], tag: str, shape: tuple[int, ...], engine: Engine
) -> None:
    array = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    desc = MemoryDesc(dims, "f32", tag)
    buffer = ShapedBuffer(ShapedBuffer.from_numpy(array, None, engine).memory.reorder_to(desc))
    if tag != "nChw16c" or dims[1] % 16 == 0:
        assert buffer.layout.reshape(shape) is None
    moved = buffer.reshape(shape)
    assert moved.memory.engine is engine
    np.testing.assert_array_equal(moved.numpy(), array.reshape(shape))


@settings(deadline=None, max_examples=30)  # most build a kernel
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).flatmap(
        lambda dims: st.tuples(st.just(dims), st.permutations(range(len(dims))))
    ),
    st.integers(1, 6),
    st.sampled_from([Engine("cpu"), FAR]),
)
def test_any_reshape_of_any_order(
    case: tuple[list[int], list[int]], first: int, engine: Engine
) -> None:
    dims, order = case
    array = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    shape = (first, array.size // first) if array.size % first == 0 else (1, array.size, 1)
    whole = ShapedBuffer.from_numpy(array, None, engine)
    buffer = ShapedBuffer(whole.memory.reorder_to(_tag(order)))
    np.testing.assert_array_equal(buffer.reshape(shape).numpy(), array.reshape(shape))


def _tag(order: list[int]) -> str:
    return "".join("abcd"[d] for d in order)


LAYOUTS = ["any", "nchw", "nhwc", "nChw16c"]


def convolved(
    x: ShapedBuffer, weights: ShapedBuffer, wanted: str = "any", dst_tag: str = "any"
) -> ShapedBuffer:
    """What a framework of (batch, height, width, channels) makes of its convolution: the primitive
    has src in ``wanted`` and dst in ``dst_tag``."""
    src, filters = x.view(NHWC).desc, weights.view(HWIO).desc
    out = [n - k + 1 for n, k in zip(src.dims[2:], filters.dims[2:], strict=True)]
    desc = dnnl.ConvolutionDesc.forward(
        "forward_inference",
        "convolution_direct",
        src.with_tag(wanted),
        filters.with_tag("any"),
        MemoryDesc((src.dims[0], filters.dims[0], *out), "f32", dst_tag),
        (1, 1),
        (0, 0),
        (0, 0),
    )
    pd = dnnl.PrimitiveDesc(desc, x.engine)
    dst = Memory(pd.dst_desc, x.engine)
    stream = dnnl.Stream(x.engine)
    args = {
        Arg.SRC: x.memory_for(pd.src_desc, NHWC),
        Arg.WEIGHTS: weights.memory_for(pd.weights_desc, HWIO),
        Arg.DST: dst,
    }
    dnnl.Primitive(pd).execute(stream, args)  # who reads the buffer waits
    return ShapedBuffer(dst, NHWC)


def expected_convolution(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The same in float64, of arrays in the framework's order."""
    windows = np.lib.stride_tricks.sliding_window_view(
        x.astype(np.float64), weights.shape[:2], (1, 2)
    )
    return np.asarray(np.einsum("nhwcij,ijco->nhwo", windows, weights.astype(np.float64)))


@every_pair(
    ENGINES, pytest.mark.parametrize("dst_tag", LAYOUTS), pytest.mark.parametrize("wanted", LAYOUTS)
)
def test_a_result_is_the_weights_of_the_next_convolution(
    wanted: str, dst_tag: str, engine: Engine
) -> None:
    """The trap of the founding document: (2, 3, 4, 20) is first (batch, height, width, channels),
    then (height, width, in, out)."""
    image, first, other = random(2, 4, 6, 19), random(2, 3, 19, 20), random(1, 5, 5, 4)
    x, w, y = (ShapedBuffer.from_numpy(array, None, engine) for array in (image, first, other))
    result = convolved(x, w, wanted, dst_tag)
    assert result.shape == (2, 3, 4, 20)
    as_weights = expected_convolution(image, first)
    np.testing.assert_allclose(result.numpy(), as_weights, rtol=1e-4, atol=1e-4)
    final = convolved(y, result, wanted, dst_tag)
    want = expected_convolution(other, as_weights)
    np.testing.assert_allclose(final.numpy(), want, rtol=1e-4, atol=1e-3)
    flat = result.flatten()
    np.testing.assert_allclose(flat.numpy(), as_weights.reshape(2, -1), rtol=1e-4, atol=1e-4)
    shape = (2, 20, 3, 4)
    for move in (False, True):
        turned = result.transpose(0, 3, 1, 2, move=move)
        assert (turned.numpy() == result.numpy().transpose(0, 3, 1, 2)).all()
        assert turned.reshape(shape).shape == shape


def test_both_kinds_of_transposition() -> None:
    """The document's example: a matrix in ``ab`` whose permutation is (10)."""
    array = random(3, 2)
    buffer = ShapedBuffer.from_numpy(array, (1, 0), layout="ab")
    assert buffer.memory.desc.dims == (2, 3)
    renamed = buffer.transpose()
    assert renamed.permutation == (0, 1)
    assert renamed.memory is buffer.memory
    moved = buffer.transpose(1, 0, move=True)
    assert moved.permutation == (1, 0)
    assert moved.memory.desc == MemoryDesc((3, 2), "f32", "ab")
    for turned in (renamed, moved):
        assert turned.shape == (2, 3)
        assert (turned.numpy() == array.T).all()


@settings(deadline=None, max_examples=20)
@given(
    st.permutations(range(4)),
    st.permutations(range(4)),
    st.sampled_from(["abcd", "acdb", "aBcd8b", "aBCd4b4c", None]),
    st.sampled_from([Engine("cpu"), FAR]),
)
def test_a_transposition_that_moves_keeps_permutation_and_format(
    order: list[int], axes: list[int], tag: str | None, engine: Engine
) -> None:
    array = random(2, 5, 3, 4)
    buffer = ShapedBuffer.from_numpy(array, order, engine, tag)
    moved = buffer.transpose([axis - 4 for axis in axes], move=True)
    assert moved.permutation == tuple(order)
    assert tag is None or moved.memory.desc.matches_tag(tag)
    assert (moved.numpy() == array.transpose(axes)).all()


@every_pair(
    ENGINES,
    pytest.mark.parametrize("tag", [None, "abcd", "nhwc", "nChw8c", "OIhw4i16o4i"]),
    pytest.mark.parametrize(
        ("kind", "dtype"),
        [("bf16", ml_dtypes.bfloat16), ("f16", np.float16), ("s8", np.int8), ("u8", np.uint8)],
    ),
)
def test_a_reorder_changes_type_and_layout(
    kind: str, dtype: type, tag: str | None, engine: Engine
) -> None:
    array = random(3, 5, 4, 20) * 90
    buffer = ShapedBuffer.from_numpy(array, NHWC, engine)
    made = buffer.reorder_to(tag, kind)
    assert made.data_type is dnnl.DataType[kind]
    assert (made.shape, made.permutation, made.engine) == (array.shape, NHWC, engine)
    limits = None if kind in ("bf16", "f16") else np.iinfo(dtype)
    want = array if limits is None else np.rint(array).clip(limits.min, limits.max)
    assert (made.numpy() == want.astype(dtype)).all()


def test_a_buffer_goes_from_one_engine_to_another() -> None:
    array = random(2, 7, 5, 3)
    near = ShapedBuffer.from_numpy(array, NHWC, layout="nChw16c")
    far = near.reorder_to("nhwc", engine=FAR)
    assert far.engine is FAR
    back = far.reorder_to("nChw8c", "f64", HWIO, Engine("cpu"))
    assert (back.permutation, back.data_type) == (HWIO, dnnl.DataType.f64)
    for buffer in (far, back):
        assert (buffer.numpy() == array).all()


@ENGINES
@pytest.mark.parametrize("layout", [None, "nchw", "nChw16c"])
def test_memory_of_a_shape_is_filled(layout: str | None, engine: Engine) -> None:
    array = random(2, 3, 4, 5)
    buffer = ShapedBuffer.empty(array.shape, "bf16", NHWC, engine, layout)
    assert (buffer.shape, buffer.ndim, buffer.engine) == ((2, 3, 4, 5), 4, engine)
    assert buffer.memory.desc.dims == (2, 5, 3, 4)
    assert buffer.memory.desc.matches_tag(layout or "nhwc")
    for source in (array, ShapedBuffer.from_numpy(array, HWIO, layout="aBcd8b")):
        buffer.copy_from(source)
        assert (buffer.numpy() == array.astype(ml_dtypes.bfloat16)).all()
    with pytest.raises(InvalidArguments, match=r"source = 'shape \(5,\)': .*\(2, 3, 4, 5\)"):
        buffer.copy_from(array[0, 0, 0])


def test_a_primitive_gets_what_it_wants_without_a_copy_where_it_is_that() -> None:
    buffer = ShapedBuffer.from_numpy(random(2, 1, 1, 32), NHWC)
    for tag in ("nhwc", "nchw", "nChw16c"):  # the same places, as there is one pixel
        wanted = MemoryDesc((2, 32, 1, 1), "f32", tag)
        memory = buffer.memory_for(wanted, NHWC)
        assert memory.desc == wanted
        assert memory.pointer == buffer.memory.pointer
    other = buffer.memory_for(MemoryDesc((2, 32, 1, 1), "f32", "bacd"), NHWC)
    assert other.pointer != buffer.memory.pointer
    with pytest.raises(InvalidArguments, match=r"must have the dims of the tensor, \(2, 32, 1, 1"):
        buffer.memory_for(MemoryDesc((2, 16, 1, 2), "f32"), NHWC)


def test_a_layout_takes_an_array_of_any_strides() -> None:
    backward = np.arange(24, dtype=np.float32).reshape(2, 3, 4)[:, ::-1]
    packed = np.zeros(3, np.dtype([("a", "u1"), ("b", "<f4")]))["b"]
    for array, layout in ((backward, "acb"), (packed, "a")):
        buffer = ShapedBuffer.from_numpy(array, layout=layout)
        np.testing.assert_array_equal(buffer.numpy(), array)
        with pytest.raises(InvalidArguments, match="or a tag"):
            ShapedBuffer.from_numpy(array)


def test_numpy_shares_what_strides_can_say() -> None:
    array = random(2, 3, 4, 5)
    buffer = ShapedBuffer.from_numpy(array, NHWC)
    assert np.shares_memory(buffer.numpy(), array)
    assert np.shares_memory(np.asarray(buffer), array)
    blocked = buffer.reorder_to("nChw16c")
    copied = blocked.numpy()
    assert not copied.flags.writeable
    assert (copied == array).all()
    assert np.asarray(blocked, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="cannot view"):
        np.array(blocked, copy=False)


def test_no_element_is_moved_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocked tensors are read, reshaped, transposed and converted by primitives."""
    array = random(2, 3, 4, 20)
    buffer = ShapedBuffer.from_numpy(array, NHWC)

    def refused(*_: object) -> None:
        raise AssertionError("NumPy moves elements")

    monkeypatch.setattr(elements, "elements_of", refused)
    monkeypatch.setattr("dnnl.runtime.memory.elements_of", refused)
    monkeypatch.setattr("dnnl.runtime.memory.put_elements", refused)
    blocked = buffer.reorder_to("nChw16c")
    for made in (blocked, blocked.transpose(2, 1, 0, 3, move=True).transpose(2, 1, 0, 3)):
        assert (made.numpy() == array).all()
        assert (made.reshape(-1).numpy() == array.ravel()).all()
        assert (made.reorder_to("nchw", "f64").numpy() == array).all()


def test_shapes_with_a_size_left_open() -> None:
    array = random(2, 3, 4)
    buffer = ShapedBuffer.from_numpy(array)
    for shape, want in (((-1,), (24,)), ((4, -1), (4, 6)), (([2, -1, 2],), (2, 6, 2))):
        assert buffer.reshape(*shape).shape == want
    assert buffer.reshape(np.int64(6), 4).shape == (6, 4)  # type: ignore[arg-type]
    assert buffer.flatten(0).shape == (1, 24)
    assert buffer.flatten(-1).shape == (6, 4)
    assert buffer.flatten(3).shape == (24, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b.reshape(5, -1), r"shape = \(5, -1\): 24 elements.*\(24,\) is one"),
        (lambda b: b.reshape(-1, -1), r"only one size may be -1; such as \(-1, 1\)"),
        (lambda b: b.reshape(-2, 12), r"not negative, -1 aside; such as \(-1, 12\)"),
        (lambda b: b.reshape(3, 4), r"shape = \(3, 4\): a shape of 24.*\(6, 4\) is one"),
        (lambda b: b.reshape(0, -1), r"must be a multiple of the other sizes' 0"),
        (lambda b: b.reshape(2.0, 12), r"shape = \(2\.0, 12\): expected integers"),
        (lambda b: b.reshape("24"), r"shape = '24': expected integers, or one sequence"),
        (lambda b: b.transpose(0, 1), r"axes = \(0, 1\): expected each of 0\.\.2.*\(0, 1, 2\)"),
        (lambda b: b.transpose(0, 0, 2), r"such as \(0, 1, 2\)"),
        (lambda b: b.transpose(0, 1, 3), r"axes = \(0, 1, 3\).*such as \(0, 1, 2\)"),
        (lambda b: b.transpose(move=1), "move = 1: expected True or False"),
        (lambda b: b.view((1, 0)), r"permutation = \(1, 0\).*such as \(1, 0, 2\)"),
        (lambda b: b.flatten(4), r"axis = 4: expected -3\.\.3 for 3 axes; such as 3"),
        (lambda b: b.memory_for("any"), "desc = 'any': expected a MemoryDesc"),
        (lambda b: b.reorder_to(engine="cpu"), "engine = 'cpu': expected an Engine"),
        (lambda b: b.reorder_to("nChw16c"), "nChw16c"),
        (lambda b: ShapedBuffer(b.numpy()), "memory = 'ndarray': expected a dnnl.Memory"),
        (lambda b: ShapedBuffer(b.memory, 3), "permutation = 3"),  # type: ignore[arg-type]
        (
            lambda _: ShapedBuffer.empty(3, "f32"),  # type: ignore[arg-type]
            "shape = 3: expected a sequence of sizes",
        ),
        (lambda _: ShapedBuffer.empty((3,), "f33"), "data_type = 'f33'"),
        (lambda _: ShapedBuffer.empty((3, 2), "f32", (0, 2)), r"permutation = \(0, 2\)"),
        (lambda _: ShapedBuffer.from_numpy(np.ones((2, 2)), (0, 0)), "permutation"),
    ],
)
def test_what_is_refused(call: object, message: str) -> None:
    buffer = ShapedBuffer.from_numpy(random(2, 3, 4))
    with pytest.raises(InvalidArguments, match=message):
        call(buffer)  # type: ignore[operator]


def test_a_buffer_does_not_change_and_can_be_copied() -> None:
    buffer = ShapedBuffer.from_numpy(random(2, 3, 4, 5), NHWC)
    with pytest.raises(AttributeError, match="'memory' too; make another"):
        buffer.memory = buffer.memory
    for made in (copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))):
        assert made.permutation == NHWC
        assert (made.numpy() == buffer.numpy()).all()
        assert not np.shares_memory(made.numpy(), buffer.numpy())
    assert repr(buffer).startswith("ShapedBuffer(Memory(")
    assert "(0, 3, 1, 2)" in repr(buffer)


def test_what_has_one_view_only() -> None:
    """Sparse matrices, and weights with sums behind them."""
    sparse = ShapedBuffer(Memory.from_numpy(np.eye(3, dtype=np.float32), "csr"))
    assert (sparse.numpy() == np.eye(3)).all()
    with pytest.raises(InvalidArguments, match="no encoding"):
        sparse.view((1, 0))
    desc = MemoryDesc((16, 16, 3, 3), "s8", "OIhw4i16o4i", compensation=dnnl.Compensation(s8s8=1))
    array = RNG.integers(-128, 128, (3, 3, 16, 16), np.int8)
    memory = ShapedBuffer.from_numpy(array, HWIO).memory_for(desc, HWIO)
    sums = memory.compensation("s8s8")
    assert (sums.ravel() == -128 * array.sum((0, 1, 2), np.int32)).all()
    buffer = ShapedBuffer(memory, HWIO)
    assert buffer.memory_for(desc, HWIO) is memory
    with pytest.raises(InvalidArguments, match="would leave the compensation behind"):
        buffer.view(NHWC)
