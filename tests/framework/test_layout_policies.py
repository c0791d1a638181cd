"""The policies of layouts: where layouts that primitives choose go, and results in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dnnl.framework.compiler import lower, optimize
from dnnl.lowering.facts import Step
from dnnl.lowering.graphs import LAYOUTS, Lowering
from dnnl.lowering.policy import MIDDLE, PLAIN, PROPAGATE, STRICT
from dnnl.operators.table import MADE, OPERATORS
from dnnl.passes.specialize import specialize
from dnnl.runtime.engine import Engine
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.shaped_layout import same_places
from tests.device import FAR
from tests.framework.models import assert_same, feeds_for, make_model, model_of, node, run_peer

EVERY = pytest.mark.parametrize("layout", LAYOUTS)
RNG = np.random.default_rng(7)


def weights(*shape: int) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:])))


def shape(*sizes: int) -> np.ndarray:
    return np.array(sizes, np.int64)


# What stands between the result of a convolution, (16, 32, 3, 3), and the weights it becomes: the
# nodes, and the channels that the image then has.
BETWEEN: dict[str, tuple[Sequence[Any], int, dict[str, Any]]] = {
    "nothing": ([node("Identity", ["a"], "w")], 32, {}),
    "elementwise": ([node("Relu", ["a"], "r"), node("Add", ["r", "a"], "w")], 32, {}),
    "pooling": ([node("MaxPool", ["a"], "w", kernel_shape=[2, 2])], 32, {}),
    "transpose": ([node("Transpose", ["a"], "w", perm=[1, 0, 3, 2])], 16, {}),
    "two transposes": (
        [
            node("Transpose", ["a"], "t", perm=[2, 3, 0, 1]),
            node("Transpose", ["t"], "w", perm=[2, 3, 1, 0]),
        ],
        32,
        {},
    ),
    "transpose between elementwise": (
        [
            node("Sigmoid", ["a"], "s"),
            node("Transpose", ["s"], "t", perm=[1, 0, 2, 3]),
            node("Mul", ["t", "t"], "w"),
        ],
        16,
        {},
    ),
    "reshape": ([node("Reshape", ["a", "n"], "w")], 16, {"n": shape(32, 16, 3, 3)}),
    "reshape of the space": (
        [node("Reshape", ["a", "n"], "f"), node("Reshape", ["f", "m"], "w")],
        48,
        {"n": shape(16, -1), "m": shape(0, 48, 3, 2)},
    ),
    "transpose and reshape": (
        [
            node("Transpose", ["a"], "t", perm=[0, 2, 3, 1]),
            node("Reshape", ["t", "n"], "r"),
            node("Transpose", ["r"], "w", perm=[0, 2, 1, 3]),
        ],
        32,
        {"n": shape(16, 3, 32, 3)},
    ),
}


def trap(name: str, readers: Sequence[Any] = ()) -> Any:
    """A convolution whose weights are the result of another one."""
    nodes, channels, constants = BETWEEN[name]
    before = [node("Conv", ["x", "first"], "a", pads=[1, 1, 1, 1])]
    after = node("Conv", ["z", "w"], "y")
    return make_model(
        [*before, *nodes, after, *readers],
        {"x": (16, 17, 3, 3), "z": (2, channels, 8, 9)},
        ["y", *(each.output[0] for each in readers)],
        {"first": weights(32, 17, 3, 3), **constants},
    )


@EVERY
@pytest.mark.parametrize("name", BETWEEN)
def test_weights_are_the_result_of_another_convolution(name: str, layout: str) -> None:
    proto = trap(name)
    model = model_of(proto)
    for seed in range(2):
        feeds = feeds_for(model.graph, seed)
        session = model.compile(Engine("cpu"), layout=layout, num_threads=1 + seed)
        assert_same(session.run(feeds), run_peer(proto, feeds), 1e-4)


@EVERY
def test_the_same_result_is_weights_image_and_matrix(layout: str) -> None:
    """One value, whose readers give its axes three meanings."""
    readers = [
        node("Conv", ["a", "second"], "image"),
        node("Flatten", ["a"], "flat"),
        node("Transpose", ["a"], "turned", perm=[3, 1, 0, 2]),
        node("Softmax", ["a"], "soft", axis=1),
    ]
    proto = trap("nothing", readers)
    second = make_model([], {}, [], {"second": weights(24, 32, 2, 2)}).graph.initializer
    proto.graph.initializer.extend(second)
    model = model_of(proto)
    feeds = feeds_for(model.graph)
    expected = run_peer(proto, feeds)
    for engine in (Engine("cpu"), FAR):
        session = model.compile(engine, layout=layout, num_threads=1)
        assert_same(session.run(feeds), expected, 1e-4)
        assert_same(session.run(feeds), expected, 1e-4)


@EVERY
@pytest.mark.parametrize("group", [2, 4, 16])
def test_weights_in_groups(group: int, layout: str) -> None:
    """Weights gain an axis, which their layout must allow for; those of the transpose are read with
    two axes exchanged."""
    nodes = [
        node("Conv", ["x", "first"], "a", pads=[1, 1, 1, 1]),
        node("Conv", ["z", "a"], "y", group=group),
        node("ConvTranspose", ["v", "a"], "u", group=group),
    ]
    inputs = {"x": (16, 17, 3, 3), "z": (2, 32 * group, 8, 9), "v": (2, 16, 8, 9)}
    proto = make_model(nodes, inputs, ["y", "u"], {"first": weights(32, 17, 3, 3)})
    model = model_of(proto)
    feeds = feeds_for(model.graph)
    session = model.compile(Engine("cpu"), layout=layout)
    assert_same(session.run(feeds), run_peer(proto, feeds), 1e-4)


CHAIN = [
    node("Conv", ["x", "first"], "a"),
    node("MaxPool", ["a"], "b", kernel_shape=[2, 2]),
    node("BatchNormalization", ["b", "s", "h", "h", "s"], "c"),
    node("Sigmoid", ["c"], "d"),
    node("Conv", ["d", "second"], "e"),
    node("Concat", ["e", "e"], "f", axis=1),
    node("Conv", ["f", "third"], "g"),
    node("Reshape", ["g", "n"], "y"),
]


def lowered(layout: str) -> Lowering:
    scale = RNG.uniform(0.5, 1.5, 32)
    constants = {
        "first": weights(32, 16, 3, 3),
        "second": weights(32, 32, 3, 3),
        "third": weights(32, 64, 3, 3),
        "s": scale,
        "h": scale,
        "n": shape(2, -1),
    }
    proto = make_model(CHAIN, {"x": (2, 16, 20, 20)}, ["y"], constants)
    return lower(optimize(specialize(model_of(proto).graph)), Engine("cpu"), layout)


def layouts_of(step: Step) -> list[bool]:
    """Whether sources and results of a step are row-major; weights do not count."""
    descs = [
        ref.desc for arg, ref in step.args.items() if ref.desc.ndims == 4 and arg != Arg.WEIGHTS
    ]
    return [same_places(desc, MemoryDesc(desc.dims, desc.data_type)) for desc in descs]


def test_layouts_stop_where_axes_have_a_meaning() -> None:
    steps = {name: lowered(name).steps for name in LAYOUTS}
    assert all(all(layouts_of(step)) for step in steps["plain"])
    for name in ("propagate", "middle"):
        by_kind = {step.kind: step for step in steps[name] if step.kind != "reorder"}
        assert not any(layouts_of(by_kind["pooling"])), name
        assert not all(layouts_of(by_kind["convolution"])), name
    concats = {name: next(s for s in steps[name] if s.kind == "concat") for name in LAYOUTS}
    assert not any(layouts_of(concats["propagate"]))
    assert all(layouts_of(concats["middle"]))
    # In one copy for both sources, which are the same value.
    before = steps["middle"][: steps["middle"].index(concats["middle"])]
    assert [step.kind for step in before].count("reorder") == 2  # the other one is of the input


def test_policies_are_asked_by_operator() -> None:
    assert [p.name for p in (PROPAGATE, PLAIN, MIDDLE)] == list(LAYOUTS)
    for op in ("Conv", "MaxPool", "Add", "Relu", "LayerNormalization", "dnnl.Function", "Resize"):
        assert [p.propagates(op) for p in (PROPAGATE, PLAIN, MIDDLE)] == [True, False, True]
    for op in ("Reshape", "Flatten", "Transpose", "MatMul"):
        assert [p.propagates(op) for p in (PROPAGATE, PLAIN, MIDDLE)] == [True, False, False]
    assert OPERATORS.keys() | MADE.keys() >= STRICT
