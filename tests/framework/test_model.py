"""Models and sessions from Python: called, copied, and given what they do not take."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dnnl
from dnnl.framework.model import Model
from tests.framework.models import make_model, model_of, node, plans_of

A = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
B = np.random.default_rng(2).standard_normal((2, 4)).astype(np.float32)


def doubled() -> Model:
    """x + x, with an open batch."""
    return model_of(make_model([node("Add", ["x", "x"], "y")], {"x": ["n", 4]}, ["y"]))


def both() -> Model:
    """The sum and the difference of two inputs, and a constant attribute."""
    nodes = [
        node("Add", ["a", "b"], "s"),
        node("Sub", ["a", "b"], "d"),
        node("LeakyRelu", ["d"], "r", alpha=0.5),
    ]
    return model_of(make_model(nodes, {"a": (2, 4), "b": (2, 4)}, ["s", "r"]))


def test_the_public_way(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(make_model([node("Relu", ["x"], "y")], {"x": (2, 4)}, ["y"]), path)
    model = dnnl.load(path)
    assert list(model.inputs) == ["x"]
    assert tuple(model.outputs) == ("y",)
    run = model.compile(num_threads=1)
    np.testing.assert_array_equal(run(A), np.maximum(A, 0))
    np.testing.assert_array_equal(dnnl.load(str(path))(A), np.maximum(A, 0))


def test_calls_take_arrays_or_a_mapping() -> None:
    model = both()
    for run in (model, model.compile()):
        for results in (run(A, B), run({"b": B, "a": A})):
            assert isinstance(results, dict)
            np.testing.assert_array_equal(results["s"], A + B)
            np.testing.assert_allclose(results["r"], np.where(A > B, A - B, (A - B) / 2), 1e-6)
    result = doubled()({"x": A})
    assert isinstance(result, np.ndarray)


def test_two_outputs_of_one_value_have_memory_of_their_own() -> None:
    nodes = [node("Relu", ["x"], "y"), node("Identity", ["y"], "z")]
    model = model_of(make_model(nodes, {"x": ("n",)}, ["y", "z"]))
    for count in (3, 5, 8):
        results = model(np.ones(count, np.float32))
        assert isinstance(results, dict)
        assert not np.shares_memory(results["y"], results["z"])
        assert (results["y"] == results["z"]).all()


def test_a_called_model_has_one_plan_for_all_sizes_but_the_first() -> None:
    model = doubled()
    for rows in (*range(2, 12), 3):
        x = np.full((rows, 4), rows, np.float32)
        np.testing.assert_array_equal(model(x), x + x)
    sessions = plans_of(model)
    assert (len(sessions._special.sessions), len(sessions._open)) == (1, 1)


@pytest.mark.parametrize("called", [False, True])
def test_models_can_be_pickled_and_copied(called: bool) -> None:
    model = both()
    if called:
        model(A, B)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        np.testing.assert_array_equal(other(A, B)["s"], A + B)
    specialized = pickle.loads(pickle.dumps(doubled().with_batch(3).with_shapes({})))
    assert specialized.inputs["x"].shape == (3, 4)


def test_sessions_say_that_they_cannot_be_copied() -> None:
    session = both().compile()
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"Session holds machine code.*copy the Model"):
            copied(session)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "number of arrays = 0: expected 2 arrays for a, b"),
        ((A,), "number of arrays = 1: expected 2 arrays"),
        (({"a": A},), "input 'b'.*missing"),
        (({"a": A, "b": B, "c": B},), "'c'.*no such input"),
        (([[1.0], [1.0, 2.0]], B), "input 'a' = 'list': the model expects .*NumPy cannot read it"),
        ((A, B.astype(np.float64)), r"input 'b' = 'float64 \[2, 4\]'.*astype\('float32'\)"),
        ((A, None), r"input 'b' = 'NoneType': the model expects float32 \[2, 4\]: .* no numbers"),
    ],
)
def test_arguments_that_are_not_taken(arguments: tuple[Any, ...], message: str) -> None:
    for run in (both(), both().compile()):
        with pytest.raises(dnnl.InvalidArguments, match=message):
            run(*arguments)


def test_names_come_before_open_sizes() -> None:
    with pytest.raises(dnnl.InvalidArguments, match=r"input 'x'.*missing"):
        doubled()({})
    with pytest.raises(dnnl.InvalidArguments, match=r"'y'.*no such input; there are x"):
        doubled()({"y": A})


def test_a_model_is_equal_to_itself_alone() -> None:
    model = both()
    assert model == model  # noqa: PLR0124
    assert len({model, both(), model}) == 2


def test_sessions_end_with_their_model() -> None:
    model = doubled()
    model(A)
    session = weakref.ref(plans_of(model).sessions[0])
    gc.disable()
    try:
        del model
        assert session() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("feeds", [[A, B], A, None])
def test_run_takes_a_mapping(feeds: Any) -> None:
    with pytest.raises(dnnl.InvalidArguments, match=r"expected a mapping.*session\(x\)"):
        both().compile().run(feeds)


@pytest.mark.parametrize("path", [None, 3, b"model.onnx", np.zeros(1)])
def test_paths_that_are_none(path: Any) -> None:
    with pytest.raises(dnnl.InvalidArguments, match=r"path = .*expected the path of a file"):
        dnnl.load(path)


def test_path_that_no_system_has() -> None:
    with pytest.raises(dnnl.Error, match="cannot be read"):
        dnnl.load("model\0.onnx")


@pytest.mark.parametrize("engine", ["cpu", 0, dnnl.Engine])
def test_engines_that_are_none(engine: Any) -> None:
    with pytest.raises(dnnl.InvalidArguments, match=r"engine = .*expected an Engine"):
        both().compile(engine)


def test_precisions_that_are_not_there() -> None:
    rule = "precision = 'f8': must be one of f32, bf16, f16"
    with pytest.raises(dnnl.InvalidArguments, match=rule):
        both().compile(precision="f8")


@pytest.mark.parametrize("size", [2**20, 2**40])
def test_inputs_that_no_memory_holds(size: int) -> None:
    model = model_of(make_model([node("Relu", ["x"], "y")], {"x": (size, size)}, ["y"]))
    with pytest.raises((dnnl.OutOfMemory, dnnl.InvalidArguments)):
        model.compile()
