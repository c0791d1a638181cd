"""Models that are called with inputs of changing sizes: few plans, and the results of ONNX
Runtime."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

import dnnl
from dnnl import config
from dnnl.framework.model import Model
from dnnl.framework.planning import PrimitiveKernels
from dnnl.framework.plans import Plans
from tests.framework.models import graph_of, make_model, node, plans_of, run_peer

Array = np.ndarray
RNG = np.random.default_rng(36)


def result(model: Model, feeds: Mapping[str, Array]) -> Array:
    """The only output of a call."""
    got = model(feeds)
    assert isinstance(got, np.ndarray)
    return got


def weights(*shape: int) -> Array:
    return (RNG.standard_normal(shape) * 0.2).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def convolutions() -> Any:
    """Convolutions, transposed too, a pooling, a residual, an upsampling, weights of channels."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], "r1"),
        node("MaxPool", ["r1"], "p1", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2"], "c2", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["c2"], "g"),
        node("Sigmoid", ["g"], "s"),
        node("Mul", ["c2", "s"], "m"),
        node("Add", ["m", "p1"], "a"),
        node("Resize", ["a", "", "scales"], "u", mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
        node("Concat", ["u", "u"], "cc", axis=1),
        node("ConvTranspose", ["cc", "w3", "b3"], "d", kernel_shape=[2, 2], strides=[2, 2]),
        node("HardSigmoid", ["d"], "y"),
    ]  # fmt: skip
    constants = {
        "w1": weights(24, 3, 3, 3), "b1": weights(24), "w2": weights(24, 24, 3, 3),
        "scales": np.array([1, 1, 2, 2], np.float32), "w3": weights(48, 6, 2, 2), "b3": weights(6),
    }  # fmt: skip
    return make_model(nodes, {"x": ("n", 3, "h", "w")}, ["y"], constants)


def attention() -> Any:
    """Two heads, with shapes that the model computes, and places that it slices."""
    nodes, constants = [], {
        "table": weights(50, 32), "places": weights(64, 32), "one": np.array(1, np.int64),
        "zero": np.array(0, np.int64), "axis": ints(0), "first": ints(0), "heads": ints(2, 16),
        "whole": ints(0, 0, 32), "scale": np.array(4.0, np.float32), "g": weights(32),
    }  # fmt: skip
    nodes += [
        node("Gather", ["table", "ids"], "e"),
        node("Shape", ["ids"], "shape"),
        node("Gather", ["shape", "one"], "length"),
        node("Unsqueeze", ["length", "axis"], "lengths"),
        node("Slice", ["places", "first", "lengths", "axis"], "p"),
        node("Add", ["e", "p"], "x"),
    ]
    for name in "qkv":
        constants |= {f"{name}w": weights(32, 32), f"{name}b": weights(32)}
        order = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            node("MatMul", ["x", f"{name}w"], f"{name}1"),
            node("Add", [f"{name}1", f"{name}b"], f"{name}2"),
            node("Shape", [f"{name}2"], f"{name}s"),
            node("Gather", [f"{name}s", "zero"], f"{name}n"),
            node("Gather", [f"{name}s", "one"], f"{name}l"),
            node("Unsqueeze", [f"{name}n", "axis"], f"{name}n1"),
            node("Unsqueeze", [f"{name}l", "axis"], f"{name}l1"),
            node("Concat", [f"{name}n1", f"{name}l1", "heads"], f"{name}t", axis=0),
            node("Reshape", [f"{name}2", f"{name}t"], f"{name}3"),
            node("Transpose", [f"{name}3"], f"{name}4", perm=order),
        ]
    nodes += [
        node("MatMul", ["q4", "k4"], "scores"),
        node("Div", ["scores", "scale"], "scaled"),
        node("Softmax", ["scaled"], "parts", axis=-1),
        node("MatMul", ["parts", "v4"], "mixed"),
        node("Transpose", ["mixed"], "back", perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "whole"], "joined"),
        node("Add", ["joined", "x"], "sum"),
        node("LayerNormalization", ["sum", "g"], "y", axis=-1),
    ]
    kinds = {"ids": np.int64}
    return make_model(nodes, {"ids": ("n", "l")}, ["y"], constants, kinds=kinds)


def cached() -> Any:
    """One head of a decoder, whose places and masks follow from the length of its cache."""
    nodes = [
        node("Shape", ["ids"], "shape"),
        node("Gather", ["shape", "one"], "new"),
        node("Shape", ["past"], "past_shape"),
        node("Gather", ["past_shape", "one"], "old"),
        node("Add", ["old", "new"], "all"),
        node("Range", ["old", "all", "one"], "numbers"),
        node("Gather", ["places", "numbers"], "p"),
        node("Gather", ["table", "ids"], "e"),
        node("Add", ["e", "p"], "x"),
        node("Concat", ["past", "x"], "keys", axis=1),
        node("Transpose", ["keys"], "transposed", perm=[0, 2, 1]),
        node("MatMul", ["x", "transposed"], "scores"),
        node("Unsqueeze", ["old", "axis"], "from"),
        node("Unsqueeze", ["all", "axis"], "to"),
        node("Slice", ["triangle", "from", "to", "axis"], "rows"),
        node("Slice", ["rows", "first", "to", "second"], "mask"),
        node("Where", ["mask", "scores", "less"], "masked"),
        node("Softmax", ["masked"], "parts", axis=-1),
        node("MatMul", ["parts", "keys"], "y"),
    ]
    constants = {
        "table": weights(50, 16), "places": weights(64, 16), "one": np.array(1, np.int64),
        "axis": ints(0), "first": ints(0), "second": ints(1), "less": np.array(-1e4, np.float32),
        "triangle": np.tril(np.ones((64, 64), np.bool_)),
    }  # fmt: skip
    inputs = {"ids": ("n", "l"), "past": ("n", "p", 16)}
    return make_model(nodes, inputs, ["y", "keys"], constants, kinds={"ids": np.int64})


IMAGES = [(2, 3, 20, 24), (3, 3, 33, 46), (2, 3, 30, 64), (5, 3, 8, 9), (4, 3, 64, 30),
          (1, 3, 20, 24), (1, 3, 40, 18), (2, 3, 2, 2)]  # fmt: skip
TEXTS = [(2, 9), (3, 17), (2, 16), (5, 32), (1, 40), (1, 7), (4, 33), (6, 2), (2, 1), (0, 5)]
MODELS: Mapping[str, tuple[Any, str, Sequence[tuple[int, ...]], int]] = {
    "convolutions": (convolutions(), "x", IMAGES, 2),
    "attention": (attention(), "ids", TEXTS, 3),
}


def feed(name: str, shape: Sequence[int]) -> dict[str, Array]:
    if name == "ids":
        return {name: RNG.integers(0, 50, shape)}
    return {name: RNG.standard_normal(shape).astype(np.float32)}


@pytest.mark.parametrize("kind", MODELS)
def test_calls_of_many_sizes(kind: str) -> None:
    """Sizes that follow the first share plans, 1 among them; 0 has plans of its own."""
    proto, name, shapes, most = MODELS[kind]
    model = Model(graph_of(proto))
    for _ in range(2):
        for shape in shapes:
            feeds = feed(name, shape)
            got, want = result(model, feeds), run_peer(proto, feeds)["y"]
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, 1e-4, 1e-4)
    sessions = plans_of(model)
    assert len(sessions._special.sessions) + len(sessions._open) <= most


def test_a_cache_that_grows() -> None:
    """One plan for the first tokens, and one for all that follow one by one."""
    proto = cached()
    model = Model(graph_of(proto))
    past = np.zeros((2, 0, 16), np.float32)
    for length in (5, *[1] * 12):
        feeds: dict[str, Array] = {"ids": RNG.integers(0, 50, (2, length)), "past": past}
        got, want = model(feeds), run_peer(proto, feeds)
        assert isinstance(got, dict)
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, 1e-4, 1e-4)
        past = got["keys"]
    assert (len(plans_of(model)._special.sessions), len(plans_of(model)._open)) == (1, 1)


def test_memory_is_that_of_the_largest_sizes() -> None:
    proto, name, _, _ = MODELS["convolutions"]
    model = Model(graph_of(proto))
    for shape in ((2, 3, 8, 8), (2, 3, 60, 62), (3, 3, 20, 30)):
        model(feed(name, shape))
    ((_, _, session),) = plans_of(model)._open
    largest = session.activation_nbytes
    for height in range(6, 60, 7):
        model(feed(name, (2, 3, height, 31)))
    assert session.activation_nbytes == largest


def test_what_one_size_does_not_allow_is_said_of_it() -> None:
    """Conditions of a plan are no promises of others."""
    nodes = [
        node("MaxPool", ["x"], "p", kernel_shape=[2], strides=[2]),
        node("Resize", ["p", "", "scales"], "u", mode="nearest"),
        node("Add", ["u", "x"], "y"),
    ]
    constants = {"scales": np.array([1, 1, 2], np.float32)}
    proto = make_model(nodes, {"x": (1, 2, "w")}, ["y"], constants)
    model = Model(graph_of(proto))
    for width in (8, 10, 12):
        feeds = feed("x", (1, 2, width))
        np.testing.assert_allclose(result(model, feeds), run_peer(proto, feeds)["y"], 1e-5)
    with pytest.raises(dnnl.Error, match=r"\(1, 2, 10\), \(1, 2, 11\) do not broadcast"):
        model(feed("x", (1, 2, 11)))
    feeds = feed("x", (1, 2, 14))
    np.testing.assert_allclose(result(model, feeds), run_peer(proto, feeds)["y"], 1e-5)


def test_indices_are_checked_in_every_size() -> None:
    nodes = [node("Gather", ["x", "i"], "y", axis=0)]
    proto = make_model(nodes, {"x": ("n", 4), "i": ("m",)}, ["y"], kinds={"i": np.int64})
    model = Model(graph_of(proto))
    for rows, count in ((3, 2), (5, 4), (7, 3)):
        x = RNG.standard_normal((rows, 4)).astype(np.float32)
        indices = RNG.integers(0, rows, count)
        np.testing.assert_array_equal(model(x, indices), x[indices])
        indices[0] = rows
        with pytest.raises(dnnl.InvalidArguments, match=rf"{rows}: must be in -{rows}..{rows - 1}"):
            model(x, indices)


def test_sizes_are_results() -> None:
    """They are numbers of the type that the model computes."""
    nodes = [
        node("Relu", ["x"], "y"),
        node("Shape", ["x"], "shape"),
        node("Cast", ["shape"], "narrow", to=TensorProto.INT32),
        node("Gather", ["shape", "last"], "columns"),
        node("Mul", ["columns", "columns"], "square"),
    ]
    names = ["y", "shape", "narrow", "square"]
    kinds = {"shape": np.int64, "narrow": np.int32, "square": np.int64}
    constants = {"last": np.array(1, np.int64)}
    proto = make_model(nodes, {"x": ("n", "h")}, names, constants, kinds=kinds)
    model = Model(graph_of(proto))
    for shape in ((2, 5), (3, 7), (4, 9), (5, 6), (3, 7)):
        feeds = feed("x", shape)
        got, want = model(feeds), run_peer(proto, feeds)
        assert isinstance(got, dict)
        for name in names:
            assert got[name].dtype == want[name].dtype
            np.testing.assert_array_equal(got[name], want[name])
    assert (len(plans_of(model)._special.sessions), len(plans_of(model)._open)) == (1, 1)


def test_several_threads_at_once() -> None:
    """Each run has its own memory, of a session for one size and of one for many."""
    proto, name, _, _ = MODELS["attention"]
    model = Model(graph_of(proto))
    feeds = [feed(name, shape) for shape in ((2, 9), (3, 17), (4, 33), (5, 32), (2, 16))]
    want = [result(model, each) for each in feeds]
    ((_, _, shared),) = plans_of(model)._open
    shared(feeds[1])
    wrong: list[int] = []

    def run(first: int) -> None:
        for number in range(first, first + 20):
            place = number % len(feeds)
            if not np.array_equal(result(model, feeds[place]), want[place]):
                wrong.append(place)

    threads = [threading.Thread(target=run, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(shared._binders.idle) <= 4


def test_numbers_of_a_run_live_as_long_as_it() -> None:
    """Primitives forget launches of other sizes, and calls know their numbers by address."""
    proto, name, shapes, _ = MODELS["attention"]
    model = Model(graph_of(proto))
    known = [feed(name, shape) for shape in shapes[:4]]
    want = [result(model, feeds) for feeds in known]
    ((_, _, session),) = plans_of(model)._open
    with session._binders.taken(()) as binder:
        every = [own for bound in binder._bound_before.values() for own in bound._launches]
        lent = [weakref.ref(own.sizes) for own in every if own.sizes is not None]
        del every
        for placed in binder._latest.values():
            placed.launch = None
        for kernels in binder._kernels:
            assert isinstance(kernels, PrimitiveKernels)
            slots: Any = getattr(kernels._primitive._launch, "__self__", None)
            if slots is not None:
                slots._launches.clear()
    gc.collect()
    assert lent
    assert all(reference() is not None for reference in lent)
    for feeds, expected in zip(known, want, strict=True):
        np.testing.assert_array_equal(result(model, feeds), expected)


@pytest.mark.parametrize("shape", [("n", 2, "h", "w"), (1, 2, "h", "w")])
def test_means_of_images_of_any_size(shape: tuple[int | str, ...]) -> None:
    """One plan serves them, also images smaller than the one that it was made for."""
    nodes = [node("ReduceMean", ["x"], "y", axes=[2, 3], keepdims=1)]
    model = Model(graph_of(make_model(nodes, {"x": shape}, ["y"])))
    for batch, *image in ((1, 5, 6), (1, 8, 7), (1, 2, 2), (1, 9, 33)):
        x = RNG.standard_normal((batch, 2, *image)).astype(np.float32)
        np.testing.assert_allclose(result(model, {"x": x}), x.mean((2, 3), keepdims=True), 0, 1e-5)
    assert (len(plans_of(model)._special.sessions), len(plans_of(model)._open)) == (1, 1)


def test_open_sizes_are_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no plan for open sizes can be made, new sizes do not pay for another attempt."""
    tried: list[None] = []

    def refuse(*_: Any) -> Any:
        tried.append(None)
        raise dnnl.Unimplemented("not for open sizes")

    monkeypatch.setattr(Plans, "_with_symbols", refuse)
    model = Model(graph_of(make_model([node("Relu", ["x"], "y")], {"x": ("n", 3)}, ["y"])))
    for count in range(1, 9):
        x = weights(count, 3)
        np.testing.assert_array_equal(result(model, {"x": x}), np.maximum(x, 0))
    assert len(tried) == 3


def test_wrong_sizes_do_not_count_as_attempts() -> None:
    """Calls that are refused leave later sizes their plan for open ones."""
    nodes = [node("Add", ["x", "z"], "y")]
    model = Model(graph_of(make_model(nodes, {"x": ("n", 3), "z": ("m", 3)}, ["y"])))
    model(weights(2, 3), weights(2, 3))
    for count in range(3, 9):
        with pytest.raises(dnnl.Error):
            model(weights(count, 3), weights(count + 1, 3))
    for count in range(3, 9):
        model(weights(count, 3), weights(count, 3))
    plans = plans_of(model)
    assert (len(plans._special.sessions), len(plans._open)) == (1, 1)


def test_a_size_that_is_an_expression_of_another() -> None:
    """As PyTorch names what a stride leaves; it is none where an input has another size."""
    nodes = [
        node("Slice", ["x", "begin", "end", "axis", "step"], "every_other"),
        node("Add", ["every_other", "y"], "z"),
    ]
    constants = {"begin": ints(0), "end": ints(2**40), "axis": ints(0), "step": ints(2)}
    inputs = {"x": ("s1", 4), "y": ("((s1 - 1)//2) + 1", 4)}
    model = Model(graph_of(make_model(nodes, inputs, ["z"], constants)))
    for rows, others in ((5, 3), (8, 4), (11, 6), (12, 6), (9, 1), (2, 1), (31, 16), (30, 15)):
        x, y = weights(rows, 4), weights(others, 4)
        np.testing.assert_array_equal(result(model, {"x": x, "y": y}), x[::2] + y)
    shapes = [session.inputs["y"].shape[0] for _, _, session in plans_of(model)._open]
    assert "((s0+1)//(2))" in shapes


@pytest.mark.parametrize("size", ["n1[0]", "min(s1)", "(s1,1)<s1", "s1//s2"])
def test_names_that_are_no_expression_of_sizes(size: str) -> None:
    """They are names and nothing else; a size of 0 divides nothing."""
    inputs = {"x": ("s1", 4), "y": ("s2", 4), "z": (size, 4)}
    nodes = [node("Concat", ["x", "y", "z"], "whole", axis=0)]
    model = Model(graph_of(make_model(nodes, inputs, ["whole"], {})))
    for rows, others, more in ((6, 3, 2), (8, 2, 4), (9, 4, 2), (5, 0, 3), (7, 2, 9)):
        feeds = {"x": weights(rows, 4), "y": weights(others, 4), "z": weights(more, 4)}
        np.testing.assert_array_equal(result(model, feeds), np.concatenate([*feeds.values()]))


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("divisor", [3, -3])
def test_remainders_of_sizes(fmod: int, divisor: int) -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Mod", ["shape", "divisor"], "rest", fmod=fmod),
    ]
    constants = {"divisor": ints(divisor)}
    model = Model(graph_of(make_model(nodes, {"x": ("n", "m")}, ["rest"], constants)))
    function = np.fmod if fmod else np.mod
    for shape in ((7, 5), (8, 3), (9, 10), (2, 4)):
        np.testing.assert_array_equal(
            result(model, {"x": weights(*shape)}), function(shape, divisor)
        )


def test_slices_backwards() -> None:
    """As Python has them, from any place to any other one."""
    for begin, end, step in product((-1, -9, 0, 3, 40), (-(2**40), -3, 0, 2, 40), (-1, -2, -3)):
        nodes = [node("Slice", ["x", "begin", "end", "axis", "step"], "y")]
        constants = {"begin": ints(begin), "end": ints(end), "axis": ints(0), "step": ints(step)}
        model = Model(graph_of(make_model(nodes, {"x": ("n", 4)}, ["y"], constants)))
        for rows in (7, 5, 9, 1, 12, 0):
            x = weights(rows, 4)
            want = x[max(begin, -rows) if rows else 0 : end : step]
            np.testing.assert_array_equal(result(model, {"x": x}), want)


def test_the_log_says_why_there_is_no_plan_for_open_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise dnnl.Unimplemented("no kernel for symbols", [])

    monkeypatch.setattr(Plans, "_with_symbols", fails)
    model = Model(graph_of(make_model([node("Relu", ["x"], "y")], {"x": ("n", 3)}, ["y"])))
    lines: list[str] = []
    with config.override("verbose", "warn"), config.override("verbose_sink", lines.append):
        for rows in (2, 3):
            assert result(model, {"x": weights(rows, 3)}).shape == (rows, 3)
    assert any("no plan for open sizes: no kernel for symbols" in line for line in lines)


def test_shapes_as_pytorch_expands_them() -> None:
    """Sizes of -1 stand for those there are: compared with as many as the shape has sizes."""
    nodes = [
        node("Shape", ["ids"], "shape"),
        node("Shape", ["shape"], "rank"),
        node("ConstantOfShape", ["rank"], "ones", value=numpy_helper.from_array(ints(1))),
        node("Mul", ["ones", "minus"], "rest"),
        node("Equal", ["shape", "rest"], "same"),
        node("Where", ["same", "ones", "shape"], "wide"),
        node("Expand", ["type", "wide"], "types"),
        node("Add", ["ids", "types"], "y"),
    ]
    constants = {"minus": ints(-1), "type": ints(3).reshape(1, 1)}
    kinds = {"ids": np.int64, "y": np.int64}
    proto = make_model(nodes, {"ids": ("n", "l")}, ["y"], constants, kinds=kinds)
    model, lines = Model(graph_of(proto)), list[str]()
    with config.override("verbose", "warn"), config.override("verbose_sink", lines.append):
        for shape in ((2, 5), (3, 4), (4, 9)):
            ids = RNG.integers(0, 9, shape)
            np.testing.assert_array_equal(result(model, {"ids": ids}), ids + 3)
    plans = plans_of(model)
    assert (len(plans._special.sessions), len(plans._open)) == (1, 1)
    assert not any("one size" in line for line in lines)


@pytest.mark.parametrize("rounding", ["Ceil", "Floor"])
def test_quotients_that_are_rounded(rounding: str) -> None:
    """As `math.ceil(n / 2) * 2` in PyTorch is written: rows without those at the end, or twice."""
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "zero"], "rows"),
        node("Cast", ["rows"], "real", to=TensorProto.FLOAT),
        node("Div", ["real", "three"], "parts"),
        node(rounding, ["parts"], "whole"),
        node("Mul", ["whole", "three"], "even"),
        node("Cast", ["even"], "count", to=TensorProto.INT64),
        node("Concat", ["x", "x"], "twice", axis=0),
        node("Slice", ["twice", "zero", "count", "zero"], "y"),
    ]
    constants = {"zero": ints(0), "three": np.array([3.0], np.float32)}
    proto = make_model(nodes, {"x": ("n", 5)}, ["y"], constants)
    model, lines = Model(graph_of(proto)), list[str]()
    with config.override("verbose", "warn"), config.override("verbose_sink", lines.append):
        for rows in (5, 7, 9, 11, 4):
            x = weights(rows, 5)
            count = (-(-rows // 3) if rounding == "Ceil" else rows // 3) * 3
            np.testing.assert_array_equal(result(model, {"x": x}), np.concatenate([x, x])[:count])
    plans = plans_of(model)
    assert (len(plans._special.sessions), len(plans._open)) == (1, 1)
    assert not any("one size" in line for line in lines)


def test_quotients_by_fractions_fix_their_sizes_alone() -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "one"], "columns"),
        node("Cast", ["columns"], "real", to=TensorProto.FLOAT),
        node("Div", ["real", "by"], "parts"),
        node("Floor", ["parts"], "whole"),
        node("Cast", ["whole"], "count", to=TensorProto.INT64),
        node("Slice", ["x", "zero", "count", "one"], "y"),
    ]
    constants = {"zero": ints(0), "one": ints(1), "by": np.array([2.5], np.float32)}
    model = Model(graph_of(make_model(nodes, {"x": ("n", 10)}, ["y"], constants)))
    open_model = Model(graph_of(make_model(nodes, {"x": ("n", "l")}, ["y"], constants)))
    for rows in (2, 3, 5):
        x = weights(rows, 10)
        for own in (model, open_model):
            np.testing.assert_array_equal(result(own, {"x": x}), x[:, :4])
    for own in (model, open_model):
        assert (len(plans_of(own)._special.sessions), len(plans_of(own)._open)) == (1, 1)


def test_the_log_says_which_sizes_are_fixed() -> None:
    """Those of tables that need numbers."""
    nodes = [node("Resize", ["x", "", "scales"], "y", mode="linear", antialias=1)]
    scales = np.array([1, 1, 0.5, 0.5], np.float32)
    proto = make_model(nodes, {"x": ("n", 2, "h", "w")}, ["y"], {"scales": scales}, opset=18)
    model, lines = Model(graph_of(proto)), list[str]()
    with config.override("verbose", "warn"), config.override("verbose_sink", lines.append):
        for height in (8, 12):
            assert result(model, {"x": weights(2, 2, height, 10)}).shape == (2, 2, height // 2, 5)
    assert any("a plan for one size of h, n, w" in line for line in lines)
