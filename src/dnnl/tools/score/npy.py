"""NumPy files, each with one row or a batch of rows, for models with one input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import Array, Shape
from dnnl.tools.score.dataset import Dataset
from dnnl.tools.score.rows import (
    Part,
    Rows,
    Source,
    Task,
    parts_of,
    rows_of_a_part,
    taken,
    tasks_of_files,
)
from dnnl.tools.score.signature import RowType, converted


def npy_source(
    data: Dataset,
    row: RowType,
    stacked: bool,
    batch: int,
    part_rows: int | None,
    skip_bad: bool,
) -> Source:
    """The rows of .npy files: one for each file, or all along the first axis if ``stacked``.

    Raises InvalidArguments for a file whose type or shape the model does not take, unless the file
    is one row and ``skip_bad`` is set.
    """
    counts, shapes = [], list[Shape]()
    for name in data.files:
        shape = _header(data.root / name, row, stacked)
        if isinstance(shape, str):
            if stacked or not skip_bad:
                raise InvalidArguments("DATASET", str(data.root / name), shape, _hint(stacked))
            continue
        counts.append(shape[0] if stacked else 1)
        shapes.append(shape[1:] if stacked else shape)
    nbytes = row.dtype.itemsize * max(map(prod, shapes), default=1)
    size = part_rows or rows_of_a_part(nbytes, batch)
    fixed = {row.name: row.sizes if row.is_known else shapes[0]} if _is_one(row, shapes) else {}
    reader = NpyReader(str(data.root), row, stacked)
    if not stacked:
        return Source(reader, tasks_of_files(data.files, size), fixed)
    tasks = [
        Task((name,), (part,))
        for number, (name, count) in enumerate(zip(data.files, counts, strict=True))
        for part in parts_of(number, 0, count, size)
    ]
    return Source(reader, tasks, fixed)


def _is_one(row: RowType, shapes: Sequence[Shape]) -> bool:
    """Whether all rows have the same shape."""
    return row.is_known or len(set(shapes)) == 1


def _hint(stacked: bool) -> str:
    return "" if stacked else "--stacked takes files that hold a batch of rows each"


def _header(path: Path, row: RowType, stacked: bool) -> Shape | str:
    """The shape of the array in a file, or why it is refused."""
    found = _mapped(path)
    if isinstance(found, str):
        return found
    if stacked and not found.ndim:
        return "has no first axis for the rows of a batch"
    shape = found.shape[1:] if stacked else found.shape
    return row.why_no_type(found.dtype) or row.why_no_shape(shape) or found.shape


def _mapped(path: Path) -> Array | str:
    """The array in a file, memory-mapped, or why the file is bad."""
    try:
        found: object = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        return f"is no .npy file, or is truncated: {error}"
    return found if isinstance(found, np.ndarray) else "is an archive of arrays"


@dataclass(frozen=True, slots=True)
class NpyReader:
    """Reads the files of a task."""

    root: str
    row: RowType
    stacked: bool

    def read(self, task: Task) -> Iterator[Rows]:
        """The rows of each part; see `Reader`."""
        for part in task.parts:
            yield self._stack(task.files[0], part) if self.stacked else self._files(task, part)

    def _stack(self, name: str, part: Part) -> Rows:
        found = _mapped(Path(self.root, name))
        if isinstance(found, str):
            return Rows(part, failure=f"{name} {found}")
        array = np.array(found[part.first : part.first + part.rows])
        inputs, bad = converted(array, self.row.dtype)
        numbers = list(range(part.first, part.first + part.rows))
        rows = Rows(part, [name] * part.rows, numbers, {self.row.name: self.row.shaped(inputs)})
        return rows.without(bad)

    def _files(self, task: Task, part: Part) -> Rows:
        inputs, bad = taken(self.row, [_mapped(Path(self.root, name)) for name in task.files])
        rows = Rows(part, list(task.files), [0] * part.rows, {self.row.name: inputs})
        return rows.without(bad)
