"""What calls take, by place, by name and as tensors of PyTorch, and how models are printed."""

from __future__ import annotations

import asyncio
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch

import dnnl
from dnnl.framework.model import Model
from tests.framework.models import graph_of, make_model, node

RNG = np.random.default_rng(371)


def network(kind: Any = np.float32) -> Model:
    """The sum of three inputs."""
    nodes = [node("Add", ["x", "mask"], "s"), node("Add", ["s", "bias"], "y")]
    inputs = {"x": ("n", 4), "mask": ("n", 4), "bias": (4,)}
    return Model(graph_of(make_model(nodes, inputs, ["y"], kinds=dict.fromkeys(inputs, kind))))


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, mask, bias = (RNG.standard_normal(own, dtype=np.float32) for own in ((3, 4), (3, 4), (4,)))
    return x, mask, bias


def test_by_place_by_name_and_both() -> None:
    model, (x, mask, bias) = network(), arrays()
    want = x + mask + bias
    session = model.compile(sizes={"n": (2, 9)})
    for run in (model, session):
        for got in (
            run(x, mask, bias),
            run(x=x, bias=bias, mask=mask),
            run(x, bias=bias, mask=mask),
            run({"x": x, "mask": mask, "bias": bias}),
            run(x, mask=mask, bias=bias, num_threads=1),
            asyncio.run(run.run_async(x, mask=mask, bias=bias)),
        ):
            np.testing.assert_array_equal(got, want)


def test_wrong_names_are_refused() -> None:
    model, (x, mask, bias) = network(), arrays()
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((x, mask), {"x": x}, "input = 'x': is given twice"),
        ((x, mask), {"bais": bias}, "no such input; there are x, mask, bias"),
        ((x,), {"mask": mask}, "input 'bias' = None: missing"),
        (({"x": x},), {"mask": mask}, "expected one mapping"),
        ((x, mask), {}, "expected 3 arrays for x, mask, bias"),
        ((x, mask, bias, bias), {}, "expected 3 arrays for x, mask, bias"),
    ]
    for places, names, said in wrong:
        with pytest.raises(dnnl.InvalidArguments, match=said):
            model(*places, **names)


def test_an_initializer_that_is_an_input_is_a_keyword() -> None:
    proto = make_model(
        [node("Mul", ["x", "w"], "y")], {"x": (3,), "w": (3,)}, ["y"], {"w": [2.0] * 3}
    )
    model = Model(graph_of(proto))
    x = RNG.standard_normal(3, dtype=np.float32)
    np.testing.assert_array_equal(model(x), 2 * x)
    np.testing.assert_array_equal(model(x, w=x), x * x)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_tensors_give_tensors(kind: torch.dtype) -> None:
    element = np.dtype(ml_dtypes.bfloat16 if kind is torch.bfloat16 else str(kind)[6:])
    model, given = network(element), [torch.from_numpy(own).to(kind) for own in arrays()]
    got = model(*given)
    assert isinstance(got, torch.Tensor)
    assert got.dtype is kind
    want = sum(own.double() for own in given)
    error = 4 * torch.finfo(kind).eps  # of two additions of numbers of some units
    torch.testing.assert_close(got.double(), want, rtol=error, atol=error)
    session = model.compile(sizes={"n": 3})
    torch.testing.assert_close(session(given[0], given[1], bias=given[2]), got)
    before = got.clone()
    got += 1  # which is the caller's
    torch.testing.assert_close(model(*given), before, rtol=0, atol=0)
    assert isinstance(session.run(dict(zip(model.inputs, given, strict=True)))["y"], np.ndarray)


def test_elements_that_pytorch_lacks_stay_arrays() -> None:
    for kind, wanted in ((onnx.TensorProto.INT4, "int4"), (onnx.TensorProto.UINT2, "uint2")):
        nodes = [node("Cast", ["x"], "y", to=kind), node("Relu", ["x"], "z")]
        model = Model(graph_of(make_model(nodes, {"x": ("n",)}, ["y", "z"], opset=25)))
        got = model(torch.tensor([1.0, 2.0, 3.0]))
        assert (got["y"].dtype.name, got["y"].tolist()) == (wanted, [1, 2, 3])
        assert isinstance(got["z"], torch.Tensor)


def test_one_tensor_among_arrays_gives_tensors() -> None:
    model, (x, mask, bias) = network(), arrays()
    got = model(x, torch.from_numpy(mask), bias)
    assert isinstance(got, torch.Tensor)
    np.testing.assert_array_equal(got.numpy(), x + mask + bias)
    assert isinstance(model(x, mask, bias), np.ndarray)


def test_several_results_of_other_types() -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("IsNaN", ["x"], "nan"),
    ]
    model = Model(graph_of(make_model(nodes, {"x": ("n", 2)}, ["shape", "nan"])))
    x = torch.tensor([[1.0, float("nan")]])
    got = model(x)
    assert got["shape"].tolist() == [1, 2]
    assert got["shape"].dtype is torch.int64
    assert got["nan"].tolist() == [[False, True]]


def test_a_tensor_with_a_gradient_is_refused_with_a_hint() -> None:
    x, mask, bias = arrays()
    given = torch.from_numpy(x).requires_grad_()
    with pytest.raises(dnnl.InvalidArguments, match=r"input 'x'.*detach"):
        network()(given, mask, bias)


def test_a_model_prints_a_page_and_is_a_line() -> None:
    branch = make_model([node("Neg", ["x"], "inner")], {"x": (4,)}, ["inner"]).graph
    del branch.input[:]
    nodes = [
        node("Relu", ["x"], "r"),
        node("Relu", ["r"], "s"),
        node("MatMul", ["s", "w"], "m"),
        node("If", ["flag"], "y", then_branch=branch, else_branch=branch),
    ]
    inputs = {"x": ("n", 4), "flag": ()}
    constants = {"w": np.zeros((4, 300), np.float32)}
    proto = make_model(nodes, inputs, ["m", "y"], constants, kinds={"flag": np.bool_})
    model = Model(graph_of(proto))
    assert repr(model) == "<dnnl.Model (x: float32 [n, 4], flag: bool []) -> m, y, 4 nodes>"
    assert str(model).splitlines() == [
        "inputs      x: float32 [n, 4]",
        "            flag: bool []",
        "outputs     m",
        "            y",
        "operators   Relu 2, Neg 2, MatMul 1, If 1",
        "nodes       6",
        "parameters  1,200 in 1 tensors, 4.8 KB (float32 4.8 KB)",
        "opset       17",
    ]
