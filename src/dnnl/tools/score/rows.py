"""Parts of the output, and the rows of input that become one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from dnnl.graph.graph import Array
from dnnl.tools.score.signature import RowType, converted

MOST_ROWS, MOST_BYTES = 4096, 2**24
"""Of the input of a part: what an interruption loses, and what a worker holds several times."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the output: ``rows`` rows from the row ``first`` of its first input file on."""

    name: str
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class Task:
    """What is read at a time: the rows of ``parts``, in one file, or each in a file of its own.

    In a Parquet file it is the row group ``group``, whose first row is the row ``start``.
    """

    files: tuple[str, ...]
    parts: tuple[Part, ...]
    group: int = 0
    start: int = 0


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that the model cannot take, and why."""

    path: str
    row: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, row {self.row}: {self.reason}"


@dataclass(slots=True)
class Rows:
    """The input of a part, without its bad rows.

    ``inputs`` has an array of all rows for each input, or a list of arrays where their shapes
    differ. ``failure`` says why the whole part could not be read.
    """

    part: Part
    paths: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    inputs: dict[str, Array | list[Array]] = field(default_factory=dict)
    columns: pa.Table | None = None
    bad: list[BadRow] = field(default_factory=list)
    failure: str = ""

    def __len__(self) -> int:
        return len(self.paths)

    def without(self, bad: dict[int, str]) -> Rows:
        """The rows but those at these indices, which are bad for a reason."""
        if not bad:
            return self
        good = [index for index in range(len(self)) if index not in bad]
        listed = [BadRow(self.paths[i], self.numbers[i], bad[i]) for i in sorted(bad)]
        inputs: dict[str, Array | list[Array]] = {
            name: [rows[i] for i in good] if isinstance(rows, list) else rows[good]
            for name, rows in self.inputs.items()
        }
        return Rows(
            self.part,
            [self.paths[i] for i in good],
            [self.numbers[i] for i in good],
            inputs,
            None if self.columns is None else self.columns.take(good),
            [*self.bad, *listed],
            self.failure,
        )


class Reader(Protocol):
    """Reads tasks, in any process."""

    def read(self, task: Task) -> Iterator[Rows]:
        """The rows of each part of a task, in their order.

        Rows that the model cannot take are bad rows of the result. A file that cannot be read is a
        ``failure`` in place of the rest.
        """
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """A data set that has been checked: who reads it, and in which tasks.

    ``shapes`` has the shape of every row of an input, for the inputs of which all rows have one.
    """

    reader: Reader
    tasks: Sequence[Task]
    shapes: dict[str, tuple[int, ...]]

    @property
    def parts(self) -> Iterator[Part]:
        """All parts of the output."""
        return (part for task in self.tasks for part in task.parts)


def rows_of_a_part(row_nbytes: int, batch: int) -> int:
    """How many rows a part has by default: whole batches."""
    most = min(MOST_ROWS, MOST_BYTES // max(1, row_nbytes))
    return max(1, most // batch) * batch


def parts_of(file: int, first: int, rows: int, size: int) -> tuple[Part, ...]:
    """``rows`` rows of a file by its number, from ``first`` on, in parts of ``size`` rows."""
    return tuple(
        Part(part_name(file, start), start, min(size, first + rows - start))
        for start in range(first, first + rows, size)
    )


def part_name(file: int, first: int) -> str:
    """The file of a part: in the order of names rows are in the order of the data set."""
    return f"part-{file:08d}-{first:012d}.parquet"


def taken(row: RowType, rows: Sequence[Array | str]) -> tuple[Array | list[Array], dict[int, str]]:
    """Arrays of single rows as an input of the model, and why some are bad; a text is such a
    reason already. What stands for a bad row has no meaning."""
    bad = {i: value for i, value in enumerate(rows) if isinstance(value, str)}
    results: list[Array] = []
    for index, value in enumerate(rows):
        if isinstance(value, str):
            results.append(np.empty(0, row.dtype))
            continue
        reason = row.why_no_type(value.dtype) or row.why_no_shape(value.shape)
        if reason:
            bad[index] = reason
            results.append(np.empty(0, row.dtype))
            continue
        one, wrong = converted(value[None], row.dtype)
        if wrong:
            bad[index] = wrong[0]
        results.append(row.shaped(one)[0])
    return results, bad


def tasks_of_files(files: Sequence[str], size: int) -> list[Task]:
    """Files with one row each, ``size`` of them in each part."""
    return [
        Task(tuple(files[first : first + size]), (Part(part_name(first, 0), 0, count),))
        for first in range(0, len(files), size)
        for count in [min(size, len(files) - first)]
    ]
