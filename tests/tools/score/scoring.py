"""``dnnl score`` within a test: all but Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from dnnl.tools.score.command import Options, begun, score
from dnnl.tools.score.folder import MANIFEST, Done
from dnnl.tools.score.worker import Worker
from tests.tools.score.sets import Array


def options(model: Path, dataset: Path, out: Path, *arguments: str) -> Options:
    """The options of a command line."""
    context = score.make_context("score", [str(model), str(dataset), "-o", str(out), *arguments])
    return Options(**context.params)


def computed(model: Path, dataset: Path, out: Path, *arguments: str) -> list[Done]:
    """The parts that are left, each computed by one worker in this process."""
    job, source, tasks, _ = begun(options(model, dataset, out, *arguments))
    worker = Worker(job)
    return [worker.compute(rows) for task in tasks for rows in source.reader.read(task)]


def refused(model: Path, dataset: Path, out: Path, *arguments: str) -> str:
    """Why a command line is refused, which must happen before OUT has a manifest."""
    done = CliRunner().invoke(score, [str(model), str(dataset), "-o", str(out), *arguments])
    assert done.exception is not None
    assert not (out / MANIFEST).exists()
    return str(done.exception) if not isinstance(done.exception, SystemExit) else done.output


def assert_close(found: Array, expected: object) -> None:
    """Whether results are those of a model of one output, up to the order of sums."""
    assert isinstance(expected, np.ndarray)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def results(out: Path) -> pa.Table:
    """All rows of all parts, in their order."""
    return pa.concat_tables([pq.read_table(path) for path in sorted(out.glob("*.parquet"))])


def column(table: pa.Table, name: str) -> Array:
    """A column as an array of rows."""
    array = table.column(name).combine_chunks()
    found: Any = array
    if isinstance(array.type, pa.FixedShapeTensorType):
        found = array.to_numpy_ndarray()
        return np.asarray(found)
    return np.asarray(found.to_numpy(zero_copy_only=False))
