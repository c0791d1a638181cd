"""Files of NumPy and images as inputs, and what is no data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("ray", reason="needs dnnl[score]")

from PIL import Image

import dnnl
from dnnl.tools.score.folder import PATH, ROW
from tests.pairs import every_pair
from tests.tools.score.scoring import assert_close, column, computed, refused, results
from tests.tools.score.sets import (
    Array,
    dense_model,
    image_model,
    ragged_model,
    rng,
    two_input_model,
)


def written(folder: Path, arrays: dict[str, Array]) -> Path:
    folder.mkdir()
    for name, array in arrays.items():
        np.save(folder / name, array)
    return folder


def test_files_of_one_row(tmp_path: Path) -> None:
    model, out = dense_model(tmp_path / "m.onnx"), tmp_path / "out"
    x = rng().standard_normal((11, 8))
    data = written(tmp_path / "data", {f"{i:02d}.npy": row for i, row in enumerate(x)})
    done = computed(model, data, out, "--batch", "2", "--part-rows", "4")
    assert [part.rows for part in done] == [4, 4, 3]
    table = results(out)
    assert table.column(PATH).to_pylist() == [f"{i:02d}.npy" for i in range(11)]
    assert set(table.column(ROW).to_pylist()) == {0}
    expected = dnnl.load(model)(x.astype(np.float32))
    assert_close(column(table, "y"), expected)


def test_files_of_several_rows(tmp_path: Path) -> None:
    model, out = dense_model(tmp_path / "m.onnx"), tmp_path / "out"
    x = rng().integers(-9, 9, (25, 8)).astype(np.int8)
    data = written(tmp_path / "data", {"a.npy": x[:10], "b.npy": x[10:10], "c.npy": x[10:]})
    done = computed(model, data, out, "--stacked", "--part-rows", "6")
    assert [part.rows for part in done] == [6, 4, 6, 6, 3]
    table = results(out)
    assert table.column(PATH).to_pylist() == ["a.npy"] * 10 + ["c.npy"] * 15
    assert table.column(ROW).to_pylist() == [*range(10), *range(15)]
    expected = dnnl.load(model)(x.astype(np.float32))
    assert_close(column(table, "y"), expected)


def test_rows_of_several_lengths(tmp_path: Path) -> None:
    model, out = ragged_model(tmp_path / "m.onnx"), tmp_path / "out"
    rows = {f"{n}.npy": rng().standard_normal(n).astype(np.float32) for n in (1, 2, 3)}
    computed(model, written(tmp_path / "data", rows), out)
    assert results(out)["y"].to_pylist() == [(2 * row).tolist() for row in rows.values()]


def test_bad_files_of_numpy(tmp_path: Path) -> None:
    """Each is refused by its name, or left out if it is a single row."""
    model, out = dense_model(tmp_path / "m.onnx"), tmp_path / "out"
    good = np.ones(8, np.float32)
    rows: dict[str, Array] = {
        "a.npy": good,
        "b.npy": np.ones(7),
        "c.npy": np.array(["a"] * 8),
        "d.npy": good,
    }
    data = written(tmp_path / "data", rows)
    (data / "e.npy").write_bytes((data / "a.npy").read_bytes()[:-3])
    (data / "f.npy").write_bytes(b"")
    assert "b.npy': has rows of shape [7]" in refused(model, data, out)
    (done,) = computed(model, data, out, "--skip-bad")
    assert done.rows == 2
    assert [row.path for row in done.bad] == ["b.npy", "c.npy", "e.npy", "f.npy"]
    assert [
        next(text for text in ("shape", "<U1", "truncated") if text in row.reason)
        for row in done.bad
    ] == ["shape", "<U1", "truncated", "truncated"]
    stacked = written(tmp_path / "stacked", {"a.npy": np.ones((2, 8)), "b.npy": good})
    assert "b.npy" in refused(model, stacked, tmp_path / "p", "--stacked", "--skip-bad")
    assert "--stacked takes files" in refused(model, stacked, tmp_path / "p")


def saved(folder: Path, images: dict[str, Array]) -> Path:
    """Images in folders below."""
    for name, array in images.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(folder / name)
    return folder


def pixels(*shape: int) -> Array:
    return rng().integers(0, 256, shape).astype(np.uint8)


@every_pair(
    pytest.mark.parametrize("channels", [1, 3]),
    pytest.mark.parametrize("first", [True, False], ids=["nchw", "nhwc"]),
    pytest.mark.parametrize("dtype", ["f4", "f2"]),
)
def test_images(tmp_path: Path, channels: int, first: bool, dtype: npt.DTypeLike) -> None:
    shape: list[int | str] = [channels, "h", "w"] if first else ["h", "w", channels]
    model, out = image_model(tmp_path / "m.onnx", shape, dtype), tmp_path / "out"
    images = pixels(5, 6, 9, channels)
    shown = images if channels == 3 else images[..., 0]
    data = saved(tmp_path / "data", {f"{i % 2}/{i}.png": shown[i] for i in range(5)})
    mean, std = [0.5, 0.25, 0.125][:channels], [0.5, 0.4, 0.3][:channels]
    texts = [",".join(map(str, numbers)) for numbers in (mean, std)]
    computed(model, data, out, "--mean", texts[0], "--std", texts[1], "--batch", "2")
    table = results(out)
    assert table.column(PATH).to_pylist() == ["0/0.png", "0/2.png", "0/4.png", "1/1.png", "1/3.png"]
    expected = 2 * (images[[0, 2, 4, 1, 3]] / 255 - mean) / std
    found = column(table, "y")
    assert found.dtype == np.dtype(dtype)
    tolerance = 4 * float(np.finfo(found.dtype).eps)
    expected = expected.transpose(0, 3, 1, 2) if first else expected
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=4 * tolerance)


def test_images_as_bytes_and_scaled(tmp_path: Path) -> None:
    model, out = image_model(tmp_path / "m.onnx", [3, 4, 5], np.uint8), tmp_path / "out"
    images = {"a.png": pixels(4, 5, 3), "b.jpg": np.full((9, 7, 3), 80, np.uint8)}
    data = saved(tmp_path / "data", images)
    assert "b.jpg': is an image of 9x7" in refused(model, data, out)
    assert "the model takes images of 4x5" in refused(model, data, out, "--size", "3x3")
    assert "bytes of an image" in refused(model, data, out, "--mean", "0.5")
    computed(model, data, out, "--size", "4x5")
    found = column(results(out), "y")
    np.testing.assert_array_equal(found[0], 2.0 * images["a.png"].transpose(2, 0, 1))
    np.testing.assert_allclose(found[1], 160, atol=4)


def test_images_of_several_sizes_are_refused(tmp_path: Path) -> None:
    model, out = image_model(tmp_path / "m.onnx", [3, "h", "w"]), tmp_path / "out"
    data = saved(tmp_path / "data", {"a.png": pixels(4, 5, 3), "b.png": pixels(5, 4, 3)})
    assert "b.png': is an image of 5x4, where 4x5 is needed; --size 4x5" in refused(
        model, data, out
    )


def test_bad_images(tmp_path: Path) -> None:
    model, out = image_model(tmp_path / "m.onnx", [3, 4, 5]), tmp_path / "out"
    data = saved(tmp_path / "data", {f"{name}.png": pixels(4, 5, 3) for name in "abc"})
    Image.fromarray(np.full((4, 5), 40000, np.uint16)).save(data / "d.png")
    (data / "b.png").write_bytes((data / "a.png").read_bytes()[:60])
    (done,) = computed(model, data, out)
    assert [row.path for row in done.bad] == ["b.png", "d.png"]
    assert "is no image that can be read" in done.bad[0].reason
    assert "more than 8 bits" in done.bad[1].reason
    (done,) = computed(model, data, out, "--skip-bad")
    assert results(out).column(PATH).to_pylist() == ["a.png", "c.png"]


@pytest.mark.parametrize("shape", [[3, "h", 3], [4, "h", "w"], [3, 8]], ids=str)
def test_layouts_that_are_not_clear(tmp_path: Path, shape: list[int | str]) -> None:
    model = image_model(tmp_path / "m.onnx", shape)
    data = saved(tmp_path / "data", {"a.png": pixels(4, 5, 3)})
    assert "either NCHW or NHWC" in refused(model, data, tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--size", "4"), "a height and a width"),
        (("--size", "0x4"), "a height and a width"),
        (("--mean", "a"), "numbers with commas"),
        (("--mean", "1,2"), "one for each of 3 channels"),
        (("--std", "1,0,1"), "no 0"),
        (("--stacked",), "is for npy"),
        (("--columns", "a"), "is for parquet"),
    ],
    ids=str,
)
def test_options_of_images(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    model = image_model(tmp_path / "m.onnx", [3, "h", "w"])
    data = saved(tmp_path / "data", {"a.png": pixels(4, 5, 3)})
    assert reason in refused(model, data, tmp_path / "out", *arguments)


def test_what_is_no_data_set(tmp_path: Path) -> None:
    model, out, data = dense_model(tmp_path / "m.onnx"), tmp_path / "out", tmp_path / "data"
    assert "no such file or folder" in refused(model, data, out)
    data.mkdir()
    (data / "notes.txt").write_text("")
    (data / ".hidden.npy").write_text("")
    assert "has no files that end in" in refused(model, data, out)
    assert "none of the endings" in refused(model, data / "notes.txt", out)
    np.save(data / "a.npy", np.ones(8))
    saved(data, {"b.png": pixels(2, 2, 3)})
    assert "a.npy and b.png" in refused(model, data, out)
    (data / "b.png").unlink()
    assert "Parquet gives several" in refused(two_input_model(tmp_path / "t.onnx"), data, out)
