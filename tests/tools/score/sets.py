"""Models and data sets for the tests of ``dnnl score``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pyarrow as pa
import pyarrow.parquet as pq

from tests.framework.models import make_model, node

Array = npt.NDArray[Any]


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def tensors(array: Array) -> pa.Array:
    """Rows as tensors of a fixed shape."""
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(array))


def write_parquet(path: Path, columns: Mapping[str, Any], group: int = 1000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path, row_group_size=group)


def dense_model(path: Path, batch: int | str = "n") -> Path:
    """x [batch, 8] -> relu(x w) [batch, 4]."""
    nodes = [node("MatMul", ["x", "w"], "m"), node("Relu", ["m"], "y")]
    weights = {"w": rng().standard_normal((8, 4))}
    onnx.save(make_model(nodes, {"x": [batch, 8]}, ["y"], weights), path)
    return path


def two_input_model(path: Path) -> Path:
    """a [batch, 2, 3] and an index b [batch] -> their scaled sum, and rows of a table."""
    nodes = [
        node("Gather", ["table", "b"], "rows"),
        node("Unsqueeze", ["rows", "axis"], "u"),
        node("Mul", ["a", "u"], "scaled"),
        node("ReduceSum", ["scaled", "axes"], "total", keepdims=0),
    ]
    constants = {
        "table": rng().standard_normal((5, 3)),
        "axis": np.array([1]),
        "axes": np.array([1, 2]),
    }
    inputs: dict[str, list[int | str]] = {"a": ["n", 2, 3], "b": ["n"]}
    proto = make_model(nodes, inputs, ["total", "scaled"], constants, kinds={"b": np.int64})
    onnx.save(proto, path)
    return path


def ragged_model(path: Path) -> Path:
    """x [batch, length] -> x + x, as long as the row, and its maximum."""
    nodes = [node("Add", ["x", "x"], "y"), node("ReduceMax", ["x"], "top", axes=[1], keepdims=0)]
    onnx.save(make_model(nodes, {"x": ["n", "length"]}, ["y", "top"]), path)
    return path


def image_model(path: Path, shape: list[int | str], dtype: npt.DTypeLike = np.float32) -> Path:
    """x [batch, *shape] -> x + x, in f32 where x is bytes."""
    kinds = {"x": dtype, "y": dtype}
    if np.dtype(dtype) == np.uint8:
        kinds = {"x": dtype}
        nodes = [node("Cast", ["x"], "f", to=1), node("Add", ["f", "f"], "y")]
    else:
        nodes = [node("Add", ["x", "x"], "y")]
    onnx.save(make_model(nodes, {"x": ["n", *shape]}, ["y"], kinds=kinds), path)
    return path
