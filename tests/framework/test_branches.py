"""Branches that sizes or constants decide on."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dnnl
from dnnl.framework.model import Model
from dnnl.graph.graph import ModelError
from tests.framework.models import graph_of, make_model, node, plans_of, run_peer

RNG = np.random.default_rng(37)


def branch(name: str, nodes: list[Any], result: str, constants: dict[str, Any]) -> onnx.GraphProto:
    kind = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
    arrays = [numpy_helper.from_array(array, key) for key, array in constants.items()]
    return helper.make_graph(nodes, name, [], [kind], arrays)


def branching(condition: list[Any], kinds: dict[str, Any] | None = None) -> Any:
    """x * 2 + w with a value ``c`` from outside, or -x: what ``condition`` computes decides."""
    two = np.array(2, np.float32)
    nested = node(
        "If", ["always"], "r",
        then_branch=branch("n", [node("Add", ["m", "c"], "z")], "z", {}),
        else_branch=branch("o", [node("Neg", ["m"], "z")], "z", {}),
    )  # fmt: skip
    then = [node("Mul", ["x", "two"], "m"), nested]
    nodes = [
        node("Relu", ["w"], "c"),
        *condition,
        node("If", ["yes"], "b",
             then_branch=branch("t", then, "r", {"two": two}),
             else_branch=branch("e", [node("Neg", ["x"], "m")], "m", {})),
        node("Sigmoid", ["b"], "y"),
    ]  # fmt: skip
    constants = {"two64": np.array(2, np.int64), "zero": np.array(0, np.int64),
                 "always": np.array(True)}  # fmt: skip
    inputs = {"x": ("n", 4), "w": (4,), **dict.fromkeys(kinds or {}, ())}
    return make_model(nodes, inputs, ["y"], constants, kinds=kinds)


SIZES = [
    node("Shape", ["x"], "s"),
    node("Gather", ["s", "zero"], "rows"),
    node("Greater", ["rows", "two64"], "yes"),
]


def test_sizes_decide() -> None:
    proto = branching(SIZES)
    model = Model(graph_of(proto))
    for rows in (5, 2, 3, 1, 7, 2):
        feeds = {"x": RNG.standard_normal((rows, 4)), "w": RNG.standard_normal(4)}
        feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
        got = model(feeds)
        assert isinstance(got, np.ndarray)
        np.testing.assert_allclose(got, run_peer(proto, feeds)["y"], 1e-5, 1e-6)
    # The first size, one row, two rows, and any more.
    assert len(plans_of(model)._special.sessions) + len(plans_of(model)._open) <= 4


def test_branches_are_written_back() -> None:
    """What they read of the graph around them is no input of the node."""
    proto = branching(SIZES)
    written = onnx.load_from_string(Model(graph_of(proto)).to_onnx())
    (decision,) = [each for each in written.graph.node if each.op_type == "If"]
    assert list(decision.input) == ["yes"]
    for rows in (5, 2):
        feeds = {"x": RNG.standard_normal((rows, 4)), "w": RNG.standard_normal(4)}
        feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
        np.testing.assert_array_equal(run_peer(written, feeds)["y"], run_peer(proto, feeds)["y"])


def test_a_branch_may_be_a_value_from_outside() -> None:
    kind = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    outer = helper.make_graph([], "t", [], [kind])
    nodes = [
        node("Relu", ["x"], "r"),
        node("If", ["yes"], "b", then_branch=outer, else_branch=outer),
        node("Add", ["b", "r"], "y"),
    ]
    proto = make_model(nodes, {"x": (3,)}, ["y"], {"yes": np.array(False)})
    x = RNG.standard_normal(3).astype(np.float32)
    got = Model(graph_of(proto)).compile()(x)
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, x + np.maximum(x, 0))


def test_inputs_decide() -> None:
    proto = branching([], {"yes": np.bool_})
    model = Model(graph_of(proto))
    for rows, yes in ((5, True), (3, False), (4, True), (2, False)):
        floats = {"x": RNG.standard_normal((rows, 4)), "w": RNG.standard_normal(4)}
        feeds = {name: array.astype(np.float32) for name, array in floats.items()}
        feeds["yes"] = np.array(yes)
        got = model(feeds)
        assert isinstance(got, np.ndarray)
        np.testing.assert_allclose(got, run_peer(proto, feeds)["y"], 1e-5, 1e-6)
    proto.graph.input[2].type.tensor_type.shape.dim.add().dim_value = 2
    model, two = Model(graph_of(proto)), {**feeds, "yes": np.array([True, False])}
    with pytest.raises(ModelError, match=r"node_b.*condition 'yes' has 2 elements, not one"):
        model(two)


def test_numbers_of_inputs_decide() -> None:
    """Each outcome has its plans, not each number: one for a size, and one for any other."""
    proto = branching([node("Equal", ["rate", "two64"], "yes")], {"rate": np.int64})
    model = Model(graph_of(proto))
    for rows, rate in ((5, 2), (5, 16000), (5, 8000), (5, -1), (4, 2), (3, 2), (2, 3), (3, 7)):
        floats = {"x": RNG.standard_normal((rows, 4)), "w": RNG.standard_normal(4)}
        feeds = {name: array.astype(np.float32) for name, array in floats.items()}
        feeds["rate"] = np.array(rate)
        got = model(feeds)
        assert isinstance(got, np.ndarray)
        np.testing.assert_allclose(got, run_peer(proto, feeds)["y"], 1e-5, 1e-6)
    (called,) = model._calls.values()
    condition, rest = called.runner.plans
    assert "yes" in condition.part.outputs
    assert not condition.part.small  # it computes c too
    assert len(rest.sessions) <= 4


def test_an_unknown_operator_in_the_branch_taken() -> None:
    """`load` does not look into branches; the message is about the operator all the same."""
    kind = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    known = helper.make_graph([node("Relu", ["x"], "inner")], "t", [], [kind])
    unknown = helper.make_graph([node("RandomNormalLike", ["x"], "inner")], "e", [], [kind])
    nodes = [node("If", ["yes"], "y", then_branch=known, else_branch=unknown)]
    proto = make_model(nodes, {"x": (3,), "yes": ()}, ["y"], kinds={"yes": np.bool_})
    model, x = Model(graph_of(proto)), RNG.standard_normal(3).astype(np.float32)
    np.testing.assert_array_equal(model({"x": x, "yes": np.array(True)}), np.maximum(x, 0))
    with pytest.raises(dnnl.Unimplemented, match="does not know the operator RandomNormalLike"):
        model({"x": x, "yes": np.array(False)})


def test_few_numbers_are_computed_once() -> None:
    """And results belong to the caller, who may write to them."""
    nodes = [
        node("Equal", ["rate", "two"], "yes"),
        node("Cast", ["yes"], "flag", to=TensorProto.FLOAT),
        node("If", ["yes"], "y",
             then_branch=branch("t", [node("Neg", ["x"], "n")], "n", {}),
             else_branch=branch("e", [node("Abs", ["x"], "a")], "a", {})),
    ]  # fmt: skip
    constants, inputs = {"two": np.array(2)}, {"x": (3,), "rate": ()}
    proto = make_model(nodes, inputs, ["y", "flag"], constants, kinds={"rate": np.int64})
    model = Model(graph_of(proto))
    for rate in (2, 2, 3, 2):
        feeds = {"x": RNG.standard_normal(3).astype(np.float32), "rate": np.array(rate)}
        got, want = model(feeds), run_peer(proto, feeds)
        for name, own in want.items():
            np.testing.assert_array_equal(got[name], own)
        got["flag"][...] = 7
    parts = [plans.part for called in model._calls.values() for plans in called.runner.plans]
    assert [part.small for part in parts] == [True, False]


def test_plans_have_weights_once() -> None:
    """Those of both outcomes and of open sizes, but not one for another of the same layout."""
    weights = RNG.standard_normal((2, 48, 48)).astype(np.float32)
    weights[1, :6] = weights[0, :6]  # which begin alike
    nodes = [
        node("If", ["yes"], "b",
             then_branch=branch("t", [node("Neg", ["x"], "n")], "n", {}),
             else_branch=branch("e", [node("Abs", ["x"], "a")], "a", {})),
        node("MatMul", ["b", "w0"], "m"),
        node("MatMul", ["m", "w1"], "y"),
    ]  # fmt: skip
    constants = {"w0": weights[0], "w1": weights[1]}
    proto = make_model(
        nodes, {"x": ("n", 48), "yes": ()}, ["y"], constants, kinds={"yes": np.bool_}
    )
    model = Model(graph_of(proto))
    for rows, yes in ((5, True), (5, False), (7, True), (9, False), (11, True)):
        feeds = {"x": RNG.standard_normal((rows, 48)).astype(np.float32), "yes": np.array(yes)}
        np.testing.assert_allclose(model(feeds), run_peer(proto, feeds)["y"], 1e-4, 1e-4)
    (called,) = model._calls.values()
    every = [list(own.compiled.constants.values()) for own in called.runner.sessions]
    assert len(every) > 2
    assert len({memory.pointer for own in every for memory in own}) == 2
