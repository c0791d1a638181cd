"""Optional values in models: tensors and lists that have to be given."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dnnl.errors import InvalidArguments
from tests.framework.models import make_model, model_of, node

TENSOR = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 2])
LIST = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
TRUTH = helper.make_tensor_type_proto(TensorProto.BOOL, [])


def taking(kind: Any) -> Any:
    """A model that has a value of a type and says so."""
    nodes = [
        node("OptionalHasElement", ["x"], "given"),
        node("OptionalGetElement", ["x"], "own"),
        node("Optional", ["own"], "again"),
        node("OptionalGetElement", ["again"], "y"),
    ]
    inner = kind.optional_type.elem_type if kind.HasField("optional_type") else kind
    shown = [helper.make_value_info("given", TRUTH), helper.make_value_info("y", inner)]
    graph = helper.make_graph(nodes, "optional", [helper.make_value_info("x", kind)], shown)
    return helper.make_model_gen_version(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize("optional", [False, True])
def test_tensors(optional: bool) -> None:
    model = model_of(taking(helper.make_optional_type_proto(TENSOR) if optional else TENSOR))
    for rows in (3, 1, 0, 5):
        x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        got = model(x)
        assert isinstance(got, dict)
        assert got["given"].dtype == np.bool_
        assert got["given"]
        np.testing.assert_array_equal(got["y"], x)


@pytest.mark.parametrize("optional", [False, True])
def test_lists(optional: bool) -> None:
    model = model_of(taking(helper.make_optional_type_proto(LIST) if optional else LIST))
    given = [np.ones((n, 2), np.float32) for n in (2, 0, 3)]
    got: Any = model({"x": given})
    assert got["given"]
    assert [own.shape for own in got["y"]] == [(2, 2), (0, 2), (3, 2)]


def test_a_value_decides_on_a_branch() -> None:
    """Of which no plan knows more than that it is there."""

    def branch(name: str, value: str, sign: float) -> Any:
        made = helper.make_node("Mul", ["own", f"{name}_sign"], [value])
        constant = onnx.numpy_helper.from_array(np.float32(sign), f"{name}_sign")
        result = helper.make_tensor_value_info(value, TensorProto.FLOAT, None)
        return helper.make_graph([made], name, [], [result], [constant])

    nodes = [
        node("OptionalHasElement", ["x"], "given"),
        node("OptionalGetElement", ["x"], "own"),
        node(
            "If", ["given"], "y", then_branch=branch("t", "a", 2), else_branch=branch("e", "b", 3)
        ),
    ]
    model = model_of(make_model(nodes, {"x": ["n"]}, ["y"], None, 18))
    for count in (4, 2, 0):
        x = np.arange(count, dtype=np.float32)
        np.testing.assert_array_equal(np.asarray(model(x)), 2 * x)
    assert [layer.primitive for layer in model.compile(batch=3).layers] == ["eltwise"]


def test_nothing_is_no_value() -> None:
    nothing: Any = {"x": None}
    model = model_of(taking(helper.make_optional_type_proto(TENSOR)))
    with pytest.raises(InvalidArguments, match=r"input 'x'.*the model expects float32"):
        model(nothing)
    with pytest.raises(InvalidArguments, match=r"input 'x'.*the model expects a list"):
        model_of(taking(helper.make_optional_type_proto(LIST)))(nothing)
