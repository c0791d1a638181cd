"""Operators that choose, repeat or surround elements, beside ONNX Runtime, in both layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import ModelError
from dnnl.lowering.graphs import LAYOUTS
from dnnl.runtime.engine import Engine
from tests.framework.models import Array, assert_same, make_model, model_of, node, run_peer
from tests.pairs import every_pair

SHAPE = (2, 20, 5, 6)
LARGE = 2**31 - 1


def run(proto: Any, layout: str, feeds: dict[str, Array] | None = None) -> list[str]:
    """The kinds of the steps of a model, whose outputs are those of ONNX Runtime."""
    model = model_of(proto)
    if feeds is None:
        rng = np.random.default_rng(3)
        feeds = {
            name: (rng.standard_normal(kind.sizes) * 9).astype(kind.dtype)
            for name, kind in model.inputs.items()
        }
    session = model.compile(Engine("cpu"), layout=layout, num_threads=2)
    got, want = session.run(feeds), run_peer(proto, feeds)
    assert_same(got, want, 1e-9)
    return [layer.primitive for layer in session.layers]


SLICES: dict[str, tuple[list[int], list[int], list[int], list[int]]] = {
    "one axis": ([3], [11], [1], [1]),
    "from the end": ([-7], [-2], [1], [1]),
    "steps": ([1, 0], [LARGE, 5], [1, 2], [3, 2]),
    "backwards": ([LARGE], [-LARGE], [3], [-1]),
    "backwards by two": ([15, 4], [2, 0], [1, 2], [-2, -1]),
    "every axis": ([0, 2, 1, 1], [1, 9, 4, 5], [0, 1, 2, 3], [1, 1, 1, 1]),
    "clamped": ([5], [1000], [1], [1]),
    "backwards from before the first": ([-99], [-LARGE], [1], [-1]),
}


@every_pair(layout=LAYOUTS, kind=[np.float32, np.int64, np.int8, np.bool_], case=SLICES)
def test_slice(case: str, kind: type, layout: str) -> None:
    names = ("starts", "ends", "axes", "steps")
    constants = dict(zip(names, map(np.array, SLICES[case]), strict=True))
    nodes = [node("Slice", ["x", *names], "y")]
    run(make_model(nodes, {"x": SHAPE}, ["y"], constants, kinds={"x": kind, "y": kind}), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_slice_up_to_half_of_another_value(layout: str) -> None:
    """Ends that the model computes from shapes are known where these are."""
    constants = {"axis": [1], "two": [2], "first": [0], "channels": 1}
    nodes = [
        node("Shape", ["z"], "shape"),
        node("Gather", ["shape", "channels"], "count"),
        node("Unsqueeze", ["count", "first"], "list"),
        node("Div", ["list", "two"], "half"),
        node("Slice", ["x", "first", "half", "axis"], "s"),
        node("Neg", ["s"], "y"),
    ]
    arrays = {name: np.array(value) for name, value in constants.items()}
    proto = make_model(nodes, {"x": SHAPE, "z": (3, 9)}, ["y"], arrays)
    assert run(proto, layout) == ["eltwise"]


@pytest.mark.parametrize("known", [True, False])
def test_backward_from_before_the_first_of_a_shape(known: bool) -> None:
    """The first element, of a constant and of sizes, although Python takes nothing."""
    constants = {"start": np.array([-9]), "end": np.array([-LARGE]), "axis": np.array([0]),
                 "back": np.array([-1]), "numbers": np.array([4, 5, 6])}  # fmt: skip
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Slice", ["numbers" if known else "shape", "start", "end", "axis", "back"], "y"),
    ]
    model = model_of(make_model(nodes, {"x": ("n", 2)}, ["y"], constants, kinds={"y": np.int64}))
    for rows in (3, 8, 5):
        got = model(np.zeros((rows, 2), np.float32))
        np.testing.assert_array_equal(got, [4 if known else rows])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_flatten_of_nothing_that_is_constant(axis: int) -> None:
    """The shape of a scalar, as an example."""
    nodes = [node("Shape", ["x"], "shape"), node("Flatten", ["shape"], "y", axis=axis)]
    proto = make_model(nodes, {"x": ()}, ["y"], kinds={"y": np.int64})
    feeds = {"x": np.array(1, np.float32)}
    assert_same(model_of(proto).compile().run(feeds), run_peer(proto, feeds), 1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_slices_are_views(layout: str) -> None:
    """What reads them reads the whole where it lies."""
    constants = {"a": [2], "b": [10], "axes": [1], "half": [10, 10]}
    nodes = [
        node("Slice", ["x", "a", "b", "axes"], "s"),
        node("Relu", ["s"], "y"),
        node("Split", ["x", "half"], "first", "second", axis=1),
        node("Mul", ["first", "second"], "z"),
    ]
    kinds = run(make_model(nodes, {"x": SHAPE}, ["y", "z"], constants), layout)
    assert kinds == ["eltwise", "binary"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", range(4))
def test_split(axis: int, layout: str) -> None:
    sizes = [1, SHAPE[axis] - 1]
    nodes = [node("Split", ["x", "sizes"], "p", "q", axis=axis), node("Abs", ["q"], "y")]
    run(make_model(nodes, {"x": SHAPE}, ["p", "y"], {"sizes": sizes}), layout)
    nodes = [node("Split", ["x"], "p", "q", axis=1 + axis % 2, num_outputs=2)]
    run(make_model(nodes, {"x": SHAPE}, ["p", "q"], opset=18), layout)


@every_pair(
    layout=LAYOUTS,
    indices=[3, [2], [1, 2, 3], [0, 2, 4], [4, 0, -1], [[0, 1], [-1, -5]]],
    axis=[1, 2, -1],
)
def test_gather_of_constant_indices(axis: int, indices: Any, layout: str) -> None:
    nodes = [node("Gather", ["x", "i"], "g", axis=axis), node("Neg", ["g"], "y")]
    kinds = run(make_model(nodes, {"x": SHAPE}, ["y"], {"i": np.array(indices)}), layout)
    even = len(set(np.diff(np.ravel(indices)))) < 2 and np.all(np.ravel(indices) >= 0)
    assert kinds.count("gather") == (0 if even else 1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_gather_of_computed_indices(kind: type, layout: str) -> None:
    table = np.random.default_rng(1).standard_normal((30, 17))
    nodes = [node("Gather", ["table", "i"], "y"), node("Gather", ["x", "i"], "z", axis=1)]
    inputs = {"x": (3, 30, 2), "i": (2, 5)}
    proto = make_model(nodes, inputs, ["y", "z"], {"table": table}, kinds={"i": kind})
    rng = np.random.default_rng(2)
    feeds: dict[str, Array] = {
        "x": rng.standard_normal(inputs["x"]).astype(np.float32),
        "i": rng.integers(-30, 30, inputs["i"]).astype(kind),
    }
    run(proto, layout, feeds)
    session = model_of(proto).compile(Engine("cpu"), layout=layout)
    for outside in (30, -31, 2**31 - 1):
        feeds["i"][1, 2] = outside
        with pytest.raises(InvalidArguments, match=rf"node_y.* = {outside}: must be in -30..29"):
            session.run(feeds)


def refused(proto: Any, feeds: dict[str, Array], name: str, number: int, layout: str) -> None:
    """One index of an input that is outside is refused when it runs."""
    session = model_of(proto).compile(Engine("cpu"), layout=layout)
    outside = feeds[name].copy()
    outside.flat[-1] = number
    with pytest.raises(InvalidArguments, match=r"indices of node 'node_[gy].*must be in"):
        session.run({**feeds, name: outside})


@every_pair(layout=LAYOUTS, known=[False, True], axis=[0, 1, -1])
def test_gather_elements(axis: int, known: bool, layout: str) -> None:
    """Of a result and by a result that lie in blocks where they may."""
    sizes = [2, 17, 4, 6]
    sizes[axis] += 3 if axis < 0 else -1
    rng = np.random.default_rng(4)
    indices = rng.integers(-SHAPE[axis], SHAPE[axis], sizes)
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("Max", ["i", "i"], "m") if known else node("Cast", ["i"], "m", to=TensorProto.INT64),
        node("GatherElements", ["c", "m"], "g", axis=axis),
        node("Relu", ["g"], "y"),
    ]
    constants: dict[str, Array] = {"w": rng.standard_normal((20, 20, 1, 1))}
    feeds: dict[str, Array] = {"x": rng.standard_normal(SHAPE).astype(np.float32)}
    if known:
        constants["i"] = indices
    else:
        feeds["i"] = indices.astype(np.float32)
    inputs = {name: array.shape for name, array in feeds.items()}
    proto = make_model(nodes, inputs, ["y"], constants)
    assert run(proto, layout, feeds).count("gather") == 1
    if not known:
        refused(proto, feeds, "i", SHAPE[axis], layout)


@every_pair(
    pytest.mark.parametrize("layout", LAYOUTS),
    pytest.mark.parametrize("known", [False, True]),
    pytest.mark.parametrize(
        ("rows", "batch"),
        [((3, 1), 0), ((2, 3, 2), 0), ((4,), 0), ((2, 7, 1), 1), ((2, 20, 3, 2), 2)],
    ),
)
def test_gather_nd(rows: tuple[int, ...], batch: int, known: bool, layout: str) -> None:
    rng = np.random.default_rng(5)
    extents = np.array(SHAPE[batch : batch + rows[-1]])
    indices = rng.integers(-extents, extents, rows)
    nodes = [node("Relu", ["x"], "r"), node("GatherND", ["r", "i"], "g", batch_dims=batch)]
    nodes.append(node("Neg", ["g"], "y"))
    feeds: dict[str, Array] = {"x": rng.standard_normal(SHAPE).astype(np.float32)}
    constants = {"i": indices} if known else {}
    feeds |= {} if known else {"i": indices}
    inputs = {name: array.shape for name, array in feeds.items()}
    proto = make_model(nodes, inputs, ["y"], constants, kinds={"i": np.int64})
    run(proto, layout, feeds)
    if not known:
        refused(proto, feeds, "i", int(extents[-1]), layout)
        refused(proto, feeds, "i", -int(extents[-1]) - 1, layout)


@every_pair(
    layout=LAYOUTS,
    kind=[np.float32, np.int32],
    mode=["constant", "edge", "reflect", "wrap"],
    pads=[(0, 1, 2, 0, 0, 0, 1, 3), (0, 0, -1, 0, 0, 2, 1, -2), (0,) * 8, (0, 0, 4, 5) * 2],
)
def test_pad(pads: tuple[int, ...], mode: str, kind: type, layout: str) -> None:
    constants = {"pads": np.array(pads), "value": np.array(3, kind)}
    nodes = [node("Pad", ["x", "pads", "value"], "p", mode=mode), node("Neg", ["p"], "y")]
    proto = make_model(
        nodes, {"x": SHAPE}, ["y"], constants, opset=19, kinds={"x": kind, "y": kind}
    )
    run(proto, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [np.float32, np.int64, np.bool_])
def test_expand_and_tile(kind: type, layout: str) -> None:
    constants = {"shape": np.array([4, 1, 5, 6]), "repeats": np.array([1, 2, 1, 3])}
    kinds = dict.fromkeys("xy", kind)
    larger = [node("Expand", ["x", "shape"], "y")]
    run(make_model(larger, {"x": (3, 1, 6)}, ["y"], constants, kinds=kinds), layout)
    again = [node("Tile", ["x", "repeats"], "y")]
    run(make_model(again, {"x": (4, 3, 1, 6)}, ["y"], constants, kinds=kinds), layout)


@every_pair(
    pytest.mark.parametrize("layout", LAYOUTS),
    pytest.mark.parametrize(("upper", "k"), [(0, 0), (1, 0), (0, -2), (1, 3), (1, -9)]),
    pytest.mark.parametrize("kind", [np.float32, np.int64]),
)
def test_trilu(kind: type, upper: int, k: int, layout: str) -> None:
    nodes = [node("Trilu", ["x", "k"], "y", upper=upper)]
    kinds = {"x": kind, "y": kind}
    run(make_model(nodes, {"x": (3, 5, 7)}, ["y"], {"k": np.array(k)}, kinds=kinds), layout)


@every_pair(
    layout=LAYOUTS,
    op=["IsNaN", "IsInf"],
    attrs=[
        {},
        {"detect_negative": 0},
        {"detect_positive": 0},
        {"detect_negative": 0, "detect_positive": 0},
    ],
)
def test_what_is_no_number(attrs: dict[str, int], op: str, layout: str) -> None:
    attrs = attrs if op == "IsInf" else {}
    x = np.random.default_rng(1).standard_normal((3, 40)).astype(np.float32)
    x.flat[::7], x.flat[1::5], x.flat[2::9] = np.nan, np.inf, -np.inf
    proto = make_model(
        [node(op, ["x"], "y", **attrs)], {"x": (3, 40)}, ["y"], kinds={"y": np.bool_}, opset=20
    )
    run(proto, layout, {"x": x})


@pytest.mark.parametrize(
    ("proto_node", "constants", "message"),
    [
        (node("Slice", ["x", "a", "b"], "y"), {"a": [0, 0], "b": [1]}, "disagree"),
        (
            node("Slice", ["x", "a", "b", "c"], "y"),
            {"a": [0, 0], "b": [1, 1], "c": [1, 1]},
            "twice",
        ),
        (node("Split", ["x", "a"], "y", "z", axis=1), {"a": [3, 3]}, "does not make 2 parts"),
        (node("Gather", ["x", "a"], "y", axis=1), {"a": [0, 20]}, "index 20 is outside of axis 1"),
        (node("GatherElements", ["x", "a"], "y"), {"a": [0, 1]}, "not as many dimensions"),
        (node("GatherElements", ["x", "a"], "y"), {"a": [[[[0] * 7]]]}, "exceed the source"),
        (node("GatherElements", ["x", "a"], "y"), {"a": [[[[2]]]]}, "index 2 is outside of axis 0"),
        (node("GatherND", ["x", "a"], "y"), {"a": [[0] * 5]}, "disagree"),
        (node("GatherND", ["x", "a"], "y", batch_dims=1), {"a": [[0]]}, "disagree"),
        (node("GatherND", ["x", "a"], "y"), {"a": [[1, -21]]}, r"index \[1, -21\] is outside"),
        (node("Pad", ["x", "a"], "y"), {"a": [0, 0, 0]}, "has not two numbers"),
        (node("Pad", ["x", "a"], "y"), {"a": [0, 0, -6, 0, 0, 0, 0, 0]}, "takes more away"),
        (node("Tile", ["x", "a"], "y"), {"a": [1, 2]}, "has not one number for each axis"),
        (node("Expand", ["x", "a"], "y"), {"a": [3, 1]}, "do not broadcast"),
    ],
)
def test_what_cannot_be(proto_node: Any, constants: dict[str, Any], message: str) -> None:
    arrays = {name: np.array(value) for name, value in constants.items()}
    proto = make_model([proto_node], {"x": SHAPE}, list(proto_node.output), arrays)
    with pytest.raises(ModelError, match=message):
        model_of(proto).compile(Engine("cpu"))
