"""Parquet files as inputs: every form of a column, types, shapes, and rows that are bad."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("ray", reason="needs dnnl[score]")

import pyarrow as pa
from ray.data.extensions import ArrowTensorArray

import dnnl
from dnnl import config
from dnnl.tools.score.folder import PATH, ROW
from tests.framework.models import make_model, node
from tests.tools.score.scoring import assert_close, column, computed, refused, results
from tests.tools.score.sets import (
    Array,
    dense_model,
    ragged_model,
    rng,
    tensors,
    two_input_model,
    write_parquet,
)


def of_ray(x: Array) -> Any:
    """Rows as what Ray Data writes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what Ray itself uses
        return ArrowTensorArray.from_numpy(x.reshape(-1, 2, 4))


FORMS: dict[str, Callable[[Array], Any]] = {
    "tensor": tensors,
    "fixed list": lambda x: pa.array(list(x), pa.list_(pa.float32(), 8)),
    "list": lambda x: pa.array(list(x), pa.list_(pa.float32())),
    "tensor of Ray's": of_ray,
    "large list of doubles": lambda x: pa.array(x.tolist(), pa.large_list(pa.float64())),
    "nested list": lambda x: pa.array(
        x.reshape(-1, 2, 4).tolist(), pa.list_(pa.list_(pa.float32()))
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_results_are_those_of_the_model(tmp_path: Path, form: str) -> None:
    """In two files, with parts that end within and with row groups."""
    model, data, out = dense_model(tmp_path / "m.onnx"), tmp_path / "data", tmp_path / "out"
    x = rng().standard_normal((150, 8)).astype(np.float32)
    for file, (first, last) in enumerate([(0, 90), (90, 150)]):
        columns = {"x": FORMS[form](x[first:last]), "id": pa.array(range(first, last))}
        write_parquet(data / "below" / f"{file}.parquet", columns, group=40)
    done = computed(model, data, out, "--batch", "8", "--part-rows", "24", "--columns", "id")
    assert [part.rows for part in done] == [24, 16, 24, 16, 10, 24, 16, 20]
    table = results(out)
    assert table.column("id").to_pylist() == list(range(150))
    names = ["below/0.parquet"] * 90 + ["below/1.parquet"] * 60
    assert table.column(PATH).to_pylist() == names
    assert table.column(ROW).to_pylist() == [*range(90), *range(60)]
    found, expected = column(table, "y"), dnnl.load(model)(x)
    assert found.dtype == np.float32
    assert_close(found, expected)


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    model, data, out = two_input_model(tmp_path / "m.onnx"), tmp_path / "d.parquet", tmp_path / "o"
    a, b = rng().standard_normal((21, 2, 3)).astype(np.float32), rng().integers(0, 5, 21)
    write_parquet(data, {"b": pa.array(b.astype(np.int16)), "more": pa.array(b), "a": tensors(a)})
    computed(model, data, out, "--batch", "4", "--threads", "1")
    expected = dnnl.load(model)({"a": a, "b": b})
    assert isinstance(expected, dict)
    table = results(out)
    assert table.column_names == [PATH, ROW, "total", "scaled"]
    for name, array in expected.items():
        assert_close(column(table, name), array)


def test_rows_of_several_lengths(tmp_path: Path) -> None:
    """Rows of one length are computed together, and results are as long as their rows."""
    model, data, out = ragged_model(tmp_path / "m.onnx"), tmp_path / "d.parquet", tmp_path / "o"
    rows = [rng().standard_normal(n).astype(np.float32) for n in (3, 1, 3, 7, 1, 3, 3, 2)]
    write_parquet(data, {"x": pa.array([row.tolist() for row in rows], pa.list_(pa.float32()))})
    computed(model, data, out, "--batch", "2")
    table = results(out)
    for row, y, top in zip(rows, table["y"].to_pylist(), table["top"].to_pylist(), strict=True):
        assert y == (row + row).tolist()
        assert top == row.max()


def test_a_fixed_batch_is_filled_up(tmp_path: Path) -> None:
    model, data, out = dense_model(tmp_path / "m.onnx", 4), tmp_path / "d.parquet", tmp_path / "o"
    x = rng().standard_normal((10, 8)).astype(np.float32)
    write_parquet(data, {"x": tensors(x)})
    computed(model, data, out)
    expected = dnnl.load(dense_model(tmp_path / "open.onnx"))(x)
    assert_close(column(results(out), "y"), expected)
    assert "--batch 4" in refused(model, data, tmp_path / "p", "--batch", "3")


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_precision(tmp_path: Path, precision: str) -> None:
    model, data, out = dense_model(tmp_path / "m.onnx"), tmp_path / "d.parquet", tmp_path / "o"
    x = rng().standard_normal((21, 8)).astype(np.float32)
    write_parquet(data, {"x": tensors(x)})
    computed(model, data, out, "--precision", precision, "--batch", "16")
    session = dnnl.load(model).compile(precision=precision, batch=21)
    assert_close(column(results(out), "y"), session(x))


def test_a_saved_model(tmp_path: Path) -> None:
    model, data, out = dense_model(tmp_path / "m.onnx"), tmp_path / "d.parquet", tmp_path / "o"
    x = rng().standard_normal((21, 8)).astype(np.float32)
    write_parquet(data, {"x": tensors(x)})
    saved = tmp_path / "m.dnnl"
    dnnl.load(model).save(saved, shapes=[{"x": (16, 8)}, {"x": (5, 8)}])
    computed(saved, data, out)
    assert_close(column(results(out), "y"), dnnl.load(model)(x))
    assert "a saved model has the precision" in refused(
        saved, data, tmp_path / "p", "--precision", "bf16"
    )


LISTS = pa.list_(pa.float32())
BAD: dict[str, tuple[Any, str]] = {
    "null": (pa.array([[1.0] * 8, None, [2.0] * 8], LISTS), "a value is null"),
    "null within": (pa.array([[1.0] * 8, [None] * 8, [2.0] * 8], LISTS), "a value is null"),
    "length": (pa.array([[1.0] * 8, [1.0] * 7, [2.0] * 8], LISTS), "shape [7]"),
    "uneven": (
        pa.array([[[1.0] * 4] * 2, [[1.0] * 5, [1.0] * 3], [[2.0] * 4] * 2], pa.list_(LISTS)),
        "differ in length",
    ),
    "range": (
        pa.array([[1.0] * 8, [1e300] * 8, [2.0] * 8], pa.list_(pa.float64(), 8)),
        "1e+300 is out of the range of float32",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_are_named_or_left_out(tmp_path: Path, case: str) -> None:
    model, data, out = dense_model(tmp_path / "m.onnx"), tmp_path / "d.parquet", tmp_path / "o"
    values, reason = BAD[case]
    write_parquet(data, {"x": values, "id": pa.array([5, 6, 7])})
    (done,) = computed(model, data, out, "--columns", "id")
    (bad,) = done.bad
    assert (bad.path, bad.row) == ("d.parquet", 1)
    assert reason in bad.reason
    assert not list(out.glob("*.parquet"))
    (done,) = computed(model, data, out, "--skip-bad", "--columns", "id")
    assert (done.rows, done.bad) == (2, (bad,))
    table = results(out)
    assert table.column("id").to_pylist() == [5, 7]
    assert table.column(ROW).to_pylist() == [0, 2]
    x = np.array([[1.0] * 8, [2.0] * 8], np.float32)
    assert_close(column(table, "y"), dnnl.load(model)(x))


def test_all_rows_of_a_part_may_be_bad(tmp_path: Path) -> None:
    model, data, out = dense_model(tmp_path / "m.onnx"), tmp_path / "d.parquet", tmp_path / "o"
    write_parquet(data, {"x": pa.array([None, None, [1.0] * 8], LISTS)})
    done = computed(model, data, out, "--skip-bad", "--part-rows", "2", "--batch", "2")
    assert [(part.rows, len(part.bad)) for part in done] == [(0, 2), (1, 0)]
    assert len(list(out.glob("*.parquet"))) == 2


def test_a_row_that_the_model_refuses(tmp_path: Path) -> None:
    """An index beyond the table, which only a run finds, among rows that are computed."""
    model, data, out = two_input_model(tmp_path / "m.onnx"), tmp_path / "d.parquet", tmp_path / "o"
    a, b = rng().standard_normal((6, 2, 3)).astype(np.float32), np.array([0, 1, 9, 3, 4, 0])
    write_parquet(data, {"a": tensors(a), "b": pa.array(b)})
    (done,) = computed(model, data, out, "--skip-bad")
    (bad,) = done.bad
    assert bad.row == 2
    assert "the model refuses it" in bad.reason
    good = [0, 1, 3, 4, 5]
    expected = dnnl.load(model)({"a": a[good], "b": b[good]})
    assert isinstance(expected, dict)
    np.testing.assert_allclose(column(results(out), "total"), expected["total"], rtol=1e-5)


def numbers(x: Array) -> dict[str, Any]:
    return {"x": tensors(x.astype(np.float32))}


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "missing": ({"z": pa.array([1.0])}, (), "no such column; there are z"),
    "text": ({"x": pa.array(["a"])}, (), "numbers, lists or tensors"),
    "shape": (numbers(np.ones((2, 7))), (), "rows of shape [7]"),
    "columns": (numbers(np.ones((2, 8))), ("--columns", "id"), "no such column"),
    "columns twice": (numbers(np.ones((2, 8))), ("--columns", "x", "--columns", "x"), "already"),
    "images": (numbers(np.ones((2, 8))), ("--size", "3x3"), "is for images"),
    "no rows": ({"x": pa.array([], LISTS)}, (), "has no rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(tmp_path: Path, case: str) -> None:
    columns, arguments, reason = REFUSED[case]
    model, data = dense_model(tmp_path / "m.onnx"), tmp_path / "d.parquet"
    write_parquet(data, columns)
    assert reason in refused(model, data, tmp_path / "out", *arguments)


def test_types_of_another_kind_are_refused(tmp_path: Path) -> None:
    model, data = two_input_model(tmp_path / "m.onnx"), tmp_path / "d.parquet"
    write_parquet(data, {"a": tensors(np.ones((2, 2, 3))), "b": pa.array([1.0, 2.0])})
    text = refused(model, data, tmp_path / "out")
    assert "column 'b' of d.parquet = 'double': is float64" in text
    assert "b: int64 [batch]" in text


def test_files_of_other_types_are_refused(tmp_path: Path) -> None:
    """One of several files, by its name."""
    model, data = dense_model(tmp_path / "m.onnx"), tmp_path / "data"
    write_parquet(data / "a.parquet", numbers(np.ones((2, 8))))
    write_parquet(data / "b.parquet", {"x": pa.array(["a"])})
    assert "b.parquet" in refused(model, data, tmp_path / "out")
    (data / "b.parquet").write_bytes(b"PAR1 and no more")
    assert "is no Parquet file" in refused(model, data, tmp_path / "out")


def test_a_file_that_is_damaged_later_ends_the_run(tmp_path: Path) -> None:
    model, data, out = dense_model(tmp_path / "m.onnx"), tmp_path / "d.parquet", tmp_path / "o"
    write_parquet(data, numbers(rng().standard_normal((64, 8))))
    content = bytearray(data.read_bytes())
    content[8:200] = bytes(192)
    data.write_bytes(content)
    (done,) = computed(model, data, out, "--skip-bad")
    assert "d.parquet cannot be read" in done.failure
    assert not list(out.glob("*.parquet"))


def test_a_model_without_a_batch_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "d.parquet"
    write_parquet(data, numbers(np.ones((2, 8))))
    nodes = [node("ReduceSum", ["x"], "y", keepdims=0)]
    model = tmp_path / "m.onnx"
    onnx.save(make_model(nodes, {"x": ["n", 8]}, ["y"]), model)
    assert "output y" in refused(model, data, tmp_path / "out")


@pytest.mark.parametrize("arguments", [("--workers", "900"), ("--threads", "900")], ids=str)
def test_more_threads_than_cpus_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    model, data = dense_model(tmp_path / "m.onnx"), tmp_path / "d.parquet"
    write_parquet(data, numbers(np.ones((2, 8))))
    with config.override("oversubscribe", False):
        assert f"{arguments[0]} = 900" in refused(model, data, tmp_path / "out", *arguments)
