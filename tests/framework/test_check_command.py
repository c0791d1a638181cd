"""``dnnl check``: what runs and what is refused, without a kernel being built."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dnnl.errors import Unimplemented
from dnnl.operators import table
from dnnl.primitives.primitive import Primitive
from dnnl.tools.cli import main
from tests.framework.models import make_model, node


@pytest.fixture(autouse=True)
def _builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a kernel is built")

    monkeypatch.setattr(Primitive, "__init__", refuse)


def written(proto: Any, folder: Path) -> str:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return str(path)


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape, dtype=np.float32)


def network() -> Any:
    nodes = [
        node("Conv", ["x", "w"], "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], "r"),
        node("GlobalAveragePool", ["r"], "y"),
    ]
    return make_model(nodes, {"x": ("n", 3, "h", "w")}, ["y"], {"w": weights(8, 3, 3, 3)})


def test_a_model_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", written(network(), tmp_path), "--shape", "h=33"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["Conv", "1"],
        ["Relu", "1"],
        ["GlobalAveragePool", "1"],
    ]
    assert lines[-2].strip() == "looked at with x [1, 3, 33, 224]"
    assert lines[-1].strip() == "the model runs, in 2 steps"


def test_all_that_is_refused_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        node("StringNormalizer", ["x"], "a"),
        node("Relu", ["x"], "b"),
        node("Frobnicate", ["b"], "c", domain="acme"),
        node("Frobnicate", ["c"], "d", domain="acme"),
        node("Add", ["b", "d"], "y"),
    ]
    proto = make_model(nodes, {"x": (2, 3)}, ["y", "a"])
    proto.opset_import.append(helper.make_opsetid("acme", 1))
    report = tmp_path / "report.json"
    assert main(["check", written(proto, tmp_path), "--json", str(report)]) == 1
    out = capsys.readouterr().out
    assert "refused: acme.Frobnicate (node_c, node_d): the operator is not known" in out
    assert "refused: StringNormalizer (node_a): the operator is not known" in out
    assert "not all was looked at" in out
    found = json.loads(report.read_text())
    assert not found["runs"]
    assert {own["operator"] for own in found["refusals"]} == {"acme.Frobnicate", "StringNormalizer"}
    assert found["operators"] == {"acme.Frobnicate": 2, "StringNormalizer": 1, "Relu": 1, "Add": 1}


def test_nodes_behind_a_refused_one_are_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes of different kinds are refused when they are lowered; both are named."""

    def refuse(*_: Any) -> None:
        raise Unimplemented("there is no kernel for it")

    rows = dict(table.OPERATORS)
    for name in ("Softmax", "MaxPool"):
        rows[name] = replace(rows[name], lower=refuse, expand=None)
    monkeypatch.setattr(table, "OPERATORS", rows)
    nodes = [
        node("MaxPool", ["x"], "a", kernel_shape=[3, 3]),
        node("Conv", ["a", "w"], "c", kernel_shape=[3, 3]),
        node("Softmax", ["c"], "y", axis=1),
    ]
    proto = make_model(nodes, {"x": (1, 3, 8, 8)}, ["y"], {"w": weights(4, 3, 3, 3)})
    assert main(["check", written(proto, tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "refused: MaxPool (node_a): there is no kernel for it" in out
    assert "refused: Softmax (node_y): there is no kernel for it" in out


def test_sizes_that_disagree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node("MatMul", ["x", "w"], "m"), node("Relu", ["m"], "y")]
    proto = make_model(nodes, {"x": (2, "k")}, ["y"], {"w": weights(5, 4)})
    assert main(["check", written(proto, tmp_path), "--shape", "k=6"]) == 1
    assert "refused: MatMul (node_m): " in capsys.readouterr().out
    assert main(["check", written(proto, tmp_path), "--shape", "k=5"]) == 0


def test_models_in_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        node("Relu", ["x"], "r"),
        node("NonZero", ["r"], "i"),
        node("Cast", ["i"], "y", to=TensorProto.FLOAT),
    ]
    assert main(["check", written(make_model(nodes, {"x": (3, 4)}, ["y"]), tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "runs in 2 parts" in out
    assert "the model runs" in out


def test_branches_that_a_run_may_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def branch(op: str) -> Any:
        graph = make_model([node(op, ["x"], f"{op}_out")], {"x": (4,)}, [f"{op}_out"]).graph
        del graph.input[:]
        return graph

    branches = {"then_branch": branch("Relu"), "else_branch": branch("RandomNormalLike")}
    nodes = [node("If", ["flag"], "y", **branches)]
    known = make_model(nodes, {"x": (4,)}, ["y"], {"flag": np.array(True)})
    assert main(["check", written(known, tmp_path)]) == 0
    kinds = {"flag": np.bool_}
    open_ = make_model(nodes, {"x": (4,), "flag": ()}, ["y"], kinds=kinds)
    capsys.readouterr()
    assert main(["check", written(open_, tmp_path)]) == 1
    assert "refused: RandomNormalLike (node_RandomNormalLike_out)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--shape", "q=3"], "--shape"),
        (["--shape", "h"], "--shape"),
        (["--shape", "h=3", "--shape", "h=4"], "--shape"),
        (["--engine", "abacus"], "abacus"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", written(network(), tmp_path), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert named in line
