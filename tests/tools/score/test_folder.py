"""The folder of results: what continues, what is refused, what is complete."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("ray", reason="needs dnnl[score]")

import pyarrow.parquet as pq
from click.testing import CliRunner, Result

import dnnl
from dnnl.errors import InvalidArguments
from dnnl.tools.score.command import begun, score
from dnnl.tools.score.digest import model_digest
from dnnl.tools.score.folder import MANIFEST, attempt
from dnnl.tools.score.worker import Job, Worker
from tests.tools.score.scoring import computed, options, results
from tests.tools.score.sets import dense_model, rng, tensors, write_parquet

SIZES = ("--part-rows", "8", "--batch", "8")


@pytest.fixture
def scored(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A model, a data set, and a folder with all results."""
    model, data, out = dense_model(tmp_path / "m.onnx"), tmp_path / "d.parquet", tmp_path / "out"
    x = rng().standard_normal((20, 8)).astype(np.float32)
    write_parquet(data, {"x": tensors(x), "id": list(range(20))})
    computed(model, data, out, *SIZES)
    return model, data, out


def again(model: Path, data: Path, out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(score, [str(model), str(data), "-o", str(out), *arguments])


def test_nothing_is_left(scored: tuple[Path, Path, Path]) -> None:
    """Without any worker: the figures are those of the parts."""
    document = scored[2].with_name("figures.json")
    done = again(*scored, *SIZES, "--json", str(document))
    assert done.exit_code == 0
    assert "0 rows, 20 before; 3 parts" in done.output
    figures = json.loads(document.read_text())
    assert (figures["rows"], figures["rows_before"], figures["total_rows"]) == (0, 20, 20)
    manifest = json.loads((scored[2] / MANIFEST).read_text())
    assert manifest["model"]["sha256"] == model_digest(scored[0])
    assert manifest["data set"]["rows"] == 20


def test_what_is_missing_is_computed(scored: tuple[Path, Path, Path]) -> None:
    model, data, out = scored
    before, parts = results(out), sorted(out.glob("*.parquet"))
    states = {path: path.stat().st_mtime_ns for path in parts}
    parts[1].unlink()
    (done,) = computed(model, data, out, *SIZES)
    assert done.rows == 8
    assert results(out).equals(before)
    assert [p for p in parts if p.stat().st_mtime_ns != states[p]] == parts[1:2]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--part-rows", "16", "--batch", "8"), "option --part-rows = 16: the folder was begun"),
        (("--part-rows", "8", "--batch", "4"), "option --batch = 4"),
        ((*SIZES, "--precision", "bf16"), "option --precision = 'bf16'"),
        ((*SIZES, "--columns", "id"), "option --columns = ['id']"),
    ],
    ids=str,
)
def test_other_options_are_refused(
    scored: tuple[Path, Path, Path], arguments: tuple[str, ...], name: str
) -> None:
    assert name in str(again(*scored, *arguments).exception)


def test_another_model_or_data_set_is_refused(scored: tuple[Path, Path, Path]) -> None:
    model, data, out = scored
    proto = onnx.load(model)
    proto.producer_name = "another"
    onnx.save(proto, model)
    assert "model sha256" in str(again(*scored, *SIZES).exception)
    x = rng().standard_normal((21, 8)).astype(np.float32)
    write_parquet(data, {"x": tensors(x), "id": list(range(21))})
    assert "data set rows = 21" in str(again(dense_model(model), data, out, *SIZES).exception)


def test_damaged_parts_are_refused(scored: tuple[Path, Path, Path]) -> None:
    first, second, _ = sorted(scored[2].glob("*.parquet"))
    pq.write_table(pq.read_table(second).slice(1), second)
    assert f"{second}': has 7 rows and 0 bad ones of 8" in str(again(*scored, *SIZES).exception)
    first.write_bytes(b"PAR1")
    assert f"{first}': is damaged" in str(again(*scored, *SIZES).exception)


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    model, data = dense_model(tmp_path / "m.onnx"), tmp_path / "data"
    write_parquet(data / "d.parquet", {"x": tensors(np.ones((2, 8), np.float32))})
    for out, reason in (
        (tmp_path, "is not empty and has no manifest.json"),
        (tmp_path / "none" / "out", "cannot be written: No such file"),
        (model, "cannot be written: File exists"),
        (data / "out", "is in the folder of the data set"),
    ):
        assert reason in str(again(model, data, out).exception)
    where = ("--json", str(tmp_path / "none" / "figures.json"))
    assert "there is no folder" in str(again(model, data, tmp_path / "out", *where).exception)
    assert not (tmp_path / "out").exists()


def test_bad_rows_of_an_earlier_run_count(tmp_path: Path) -> None:
    model, data, out = dense_model(tmp_path / "m.onnx"), tmp_path / "d.parquet", tmp_path / "out"
    write_parquet(data, {"x": [[1.0] * 8, None, [2.0] * 8]})
    computed(model, data, out, "--skip-bad")
    done = again(model, data, out, "--skip-bad")
    assert "0 rows, 2 before, 1 bad; 1 parts" in done.output
    assert "bad: d.parquet, row 1: column 'x' a value is null" in done.output
    assert "d.parquet, row 1" in str(again(model, data, out).exception)


def test_parts_are_whole_or_not_there(
    scored: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full leaves no file under the name of a part."""
    model, data, out = scored
    first = min(out.glob("*.parquet"))
    first.unlink()
    before = sorted(path.name for path in out.iterdir())

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    (done,) = computed(model, data, out, *SIZES)
    assert "No space left on device" in done.failure
    assert sorted(path.name for path in out.iterdir()) == before


def test_a_part_that_ends_its_workers(scored: tuple[Path, Path, Path]) -> None:
    """Four may be lost; then the part is what ends the run, until it is started again."""
    model, data, out = scored
    first = min(out.glob("*.parquet"))
    first.unlink()
    job, source, (task,), _ = begun(options(model, data, out, *SIZES))
    worker = Worker(job)
    (rows,) = source.reader.read(task)
    lost = [attempt(out, rows.part) for _ in range(7)]  # without an end
    assert [one.__enter__() for one in lost[:4]] == [0, 1, 2, 3]
    assert "4 workers were lost with it" in worker.compute(rows).failure
    assert not first.exists()
    assert [one.__enter__() for one in lost[4:]] == [0, 1, 2]
    assert computed(model, data, out, *SIZES)[0].rows == 8
    assert not list(out.glob(".*"))


def test_workers_have_the_same_model(tmp_path: Path) -> None:
    model = dense_model(tmp_path / "m.onnx")
    job = Job(str(model), "0" * 64, str(tmp_path), None, 1, 8, None, (), None, False)
    with pytest.raises(InvalidArguments, match="is another file on this machine"):
        Worker(job)


def test_digest_has_the_external_data(tmp_path: Path) -> None:
    model = dense_model(tmp_path / "m.onnx")
    proto = onnx.load(model)
    inside = model_digest(model)
    outside = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(proto, model, **outside)
    assert dnnl.load(model).inputs.keys() == {"x"}
    first = model_digest(model)
    content = bytearray((tmp_path / "w.bin").read_bytes())
    content[0] ^= 1
    (tmp_path / "w.bin").write_bytes(content)
    assert len({inside, first, model_digest(model)}) == 3
