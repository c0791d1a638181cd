"""What models take: named sizes, open ranks, inputs with a default, old operator sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dnnl
from dnnl.errors import InvalidArguments
from dnnl.framework.model import Model
from dnnl.graph.graph import ModelError
from dnnl.tools.cli import main
from tests.framework.models import (
    Array,
    assert_same,
    feeds_for,
    graph_of,
    make_model,
    model_of,
    node,
    run_peer,
)

RNG = np.random.default_rng(3)
Sizes = Sequence[int | str]


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def saved(proto: Any, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def written_and_read(model: Model) -> Model:
    proto = onnx.ModelProto()
    proto.ParseFromString(model.to_onnx())
    return model_of(proto)


def added(inputs: Mapping[str, Sizes], **more: Any) -> Any:
    """The sum of all inputs."""
    return make_model([node("Sum", list(inputs), "y")], inputs, ["y"], **more)


@pytest.mark.parametrize(
    ("inputs", "shapes", "argument", "rule"),
    [
        ({"x": ["n", "n"]}, [(2, 3)], "input 'x'", "it is 2 in input 'x' and 3 here"),
        (
            {"x": ["n", 3], "z": ["n", 1]},
            [(2, 3), (1, 1)],
            "input 'z'",
            "n of float32 [n, 1] must be one size: it is 2 in input 'x' and 1 here",
        ),
    ],
)
def test_a_name_stands_for_one_size(
    inputs: dict[str, Sizes], shapes: list[tuple[int, ...]], argument: str, rule: str
) -> None:
    model = model_of(added(inputs))
    given = dict(zip(inputs, shapes, strict=True))
    for call in (
        lambda: model.with_shapes(given),
        lambda: model(*(normal(*shape) for shape in shapes)),
    ):
        with pytest.raises(InvalidArguments) as caught:
            call()
        assert caught.value.argument == argument
        assert rule in str(caught.value)


def test_a_named_size_is_known_wherever_it_stands() -> None:
    model = model_of(added({"x": ["n", "m"], "z": ["m"], "w": [1, 4]}))
    shapes = {name: kind.shape for name, kind in model.with_shapes({"x": (2, 4)}).inputs.items()}
    assert shapes == {"x": (2, 4), "z": (4,), "w": (1, 4)}
    square = model_of(added({"x": ["n", "n"]})).with_batch(3)
    assert square.inputs["x"].shape == (3, 3)


@pytest.mark.parametrize("mark", ["?", "", "-1", "*"])
def test_a_mark_names_no_size(mark: str) -> None:
    model = model_of(added({"x": [mark, mark]}))
    if mark == "-1":
        assert model.inputs["x"].shape == (mark, mark)  # a name, if a strange one
        return
    assert model(normal(2, 3)).shape == (2, 3)


def test_a_negative_size_is_open(tmp_path: Path) -> None:
    proto = added({"x": [-1, 3], "z": [-1, 1]})
    feeds = {"x": normal(2, 3), "z": normal(1, 1)}
    got = dnnl.load(saved(proto, tmp_path))(feeds)
    np.testing.assert_array_equal(got, run_peer(proto, feeds)["y"])


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 1, 2, 1, 2)])
@pytest.mark.parametrize("opset", [6, 17])
def test_an_input_of_any_rank(shape: tuple[int, ...], opset: int, tmp_path: Path) -> None:
    open_rank: Any = {"x": None}
    nodes = [node("Relu", ["x"], "r"), node("Sigmoid", ["r"], "y")]
    proto = make_model(nodes, open_rank, ["y"], opset=opset)
    path = saved(proto, tmp_path)
    model, x = dnnl.load(path), normal(*shape)
    assert str(model.inputs["x"]) == "float32 [...]"
    want = run_peer(proto, {"x": x})
    assert_same({"y": np.asarray(model(x))}, want, 1e-5)
    again = written_and_read(model)
    assert_same(again.with_shapes({"x": shape}).compile().run({"x": x}), want, 1e-5)
    for batch in (None, 2):
        with pytest.raises(InvalidArguments, match=r"leaves \.\.\. of float32 \[\.\.\.\] open"):
            model.compile(batch=batch)
    np.save(tmp_path / "x.npy", x)
    given = ["--input", f"x={tmp_path / 'x.npy'}"]
    assert main(["run", str(path), "--repeat", "1", *given, "--compare", "onnxruntime"]) == 0
    assert main(["run", str(path), "--repeat", "1"]) == 2


def with_default(ir_version: int, kind: Sizes = (3,)) -> Any:
    """x + w, where w is an input with a default."""
    proto = added({"x": ["n", 3], "w": kind}, constants=None)
    proto.graph.initializer.append(numpy_helper.from_array(np.arange(3, dtype=np.float32), "w"))
    proto.ir_version = ir_version
    return proto


@pytest.mark.parametrize("ir_version", [3, 4, 8])
def test_an_initializer_that_is_an_input_may_be_given(ir_version: int, tmp_path: Path) -> None:
    proto, x, w = with_default(ir_version), normal(2, 3), normal(3)
    model = dnnl.load(saved(proto, tmp_path))
    np.testing.assert_array_equal(model(x), run_peer(proto, {"x": x})["y"])
    if ir_version < 4:  # every initializer was an input: neither takes another value
        with pytest.raises(Exception, match="Invalid input name"):
            run_peer(proto, {"x": x, "w": w})
        with pytest.raises(InvalidArguments, match="no such input"):
            model({"x": x, "w": w})
        return
    assert str(model.defaults["w"]) == "float32 [3]"
    want = run_peer(proto, {"x": x, "w": w})["y"]
    assert not np.array_equal(want, np.asarray(model(x)))
    for taker in (model, model.with_batch(2).with_inputs("w").compile()):
        np.testing.assert_array_equal(np.asarray(taker({"x": x, "w": w})), want)
    np.testing.assert_array_equal(model(x), run_peer(proto, {"x": x})["y"])
    again = written_and_read(model)
    np.testing.assert_array_equal(again({"x": x, "w": w}), want)
    with pytest.raises(InvalidArguments, match=r"names = 'x': is no input with a default.*are w"):
        model.with_inputs("x")
    with pytest.raises(InvalidArguments, match="is no input with a default"):
        model.with_inputs(["w"])  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="missing: the model expects"):
        model.with_inputs("w")({"x": x})


def test_a_default_may_have_another_size() -> None:
    proto, x, w = with_default(8, ["k"]), normal(2, 3), normal(1)
    model = model_of(proto)
    feeds = {"x": x, "w": w}
    np.testing.assert_array_equal(np.asarray(model(feeds)), run_peer(proto, feeds)["y"])
    assert not model.with_shapes({"x": (2, 3)}).defaults


def test_the_command_takes_a_default(tmp_path: Path) -> None:
    path = saved(with_default(8), tmp_path)
    np.save(tmp_path / "w.npy", normal(3))
    given = ["--input", f"w={tmp_path / 'w.npy'}", "--compare", "onnxruntime"]
    assert main(["run", str(path), "--repeat", "1", *given]) == 0


@pytest.mark.parametrize("dims", [("a", "b"), (1, 0)])
def test_a_size_that_could_be_any_is_no_size(dims: Sizes) -> None:
    """As ONNX Runtime refuses: -1 beside 0 elements."""
    empty = np.zeros((1, 0), np.float32)
    for target, shape in (([-1, 0], None), ([0, -1], (1, 0)), ([-1, 3], (0, 3)), ([5, 0], (5, 0))):
        nodes = [node("Reshape", ["x", "s"], "y")]
        proto = make_model(nodes, {"x": dims}, ["y"], {"s": np.array(target)})
        if shape is None:
            with pytest.raises(Exception, match=r"(?i)cannot be reshaped|Target shape product"):
                run_peer(proto, {"x": empty})
            with pytest.raises(ModelError, match=r"\(-1, 0\) of \(1, 0\): -1 may be any size"):
                model_of(proto)(empty)
        else:
            assert np.asarray(model_of(proto)(empty)).shape == shape
            assert run_peer(proto, {"x": empty})["y"].shape == shape


def test_declared_shapes_of_outputs_are_no_rule(tmp_path: Path) -> None:
    """As in ONNX Runtime, which warns: what the operators give is what comes out."""
    for declared in ([7, 3], [7], ["n"], None):
        proto = added({"x": ["n", 3]})
        proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, declared))
        x = normal(2, 3)
        got = dnnl.load(saved(proto, tmp_path))(x)
        np.testing.assert_array_equal(got, run_peer(proto, {"x": x})["y"])


@pytest.mark.parametrize("opset", [1, 5, 6])
@pytest.mark.parametrize("ir_version", [3, 8])
def test_old_operator_sets(opset: int, ir_version: int, tmp_path: Path) -> None:
    """Operators that have not changed since; initializers need not be inputs."""
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("MaxPool", ["c"], "p", kernel_shape=[2, 2]),
        node("Softplus", ["p"], "s"),
        node("ReduceL2", ["s"], "y", axes=[1]),
    ]
    inputs: dict[str, Sizes] = {"x": ["n", 3, 5, 5]}
    proto = make_model(nodes, inputs, ["y"], {"w": normal(4, 3, 2, 2)}, opset=opset)
    proto.ir_version = ir_version
    feeds = {"x": normal(2, 3, 5, 5)}
    session = dnnl.load(saved(proto, tmp_path)).compile(batch=2)
    assert_same(session.run(feeds), run_peer(proto, feeds), 1e-5)


@pytest.mark.parametrize(
    "domain", [("ai.onnx.ml", 5), ("com.microsoft", 1), ("ai.onnx", 17), ("my.own", 1)]
)
def test_operator_sets_that_nothing_uses(domain: tuple[str, int], tmp_path: Path) -> None:
    proto = added({"x": ["n", 3]})
    proto.opset_import.append(helper.make_opsetid(*domain))
    model: Model = dnnl.load(saved(proto, tmp_path))
    feeds = feeds_for(graph_of(proto))
    assert_same(model.compile(batch=1).run(feeds), run_peer(proto, feeds), 1e-6)
