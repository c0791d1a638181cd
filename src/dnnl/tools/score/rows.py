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
"""Limits of the input of a part: an interruption loses so much, and a worker holds it several
times."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file of results for ``rows`` rows, from row ``first`` of its first input file on."""

    name: str
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class Task:
    """A unit of reading: the rows of ``parts``, in one file or one file each.

    In a Parquet file it is row group ``group``, which begins with row ``start`` of the file.
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

    ``inputs`` has for each input an array of all rows, or a list of arrays if their shapes differ.
    ``failure`` says why the part could not be read; it is empty if it was.
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
        """The rows without those in ``bad``, which has reasons by index."""
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
    """Reads tasks. It is pickled to other processes."""

    def read(self, task: Task) -> Iterator[Rows]:
        """The rows of each part of a task, in their order.

        Rows that the model cannot take are bad rows of the result. For a file that cannot be read,
        the remaining rows are a ``failure``.
        """
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """A checked data set: its reader and its read tasks.

    ``shapes`` has the row shape of each input whose rows all have the same.
    """

    reader: Reader
    tasks: Sequence[Task]
    shapes: dict[str, tuple[int, ...]]

    @property
    def parts(self) -> Iterator[Part]:
        """All parts of the output."""
        return (part for task in self.tasks for part in task.parts)


def rows_of_a_part(row_nbytes: int, batch: int) -> int:
    """The default number of rows of a part, a multiple of ``batch``."""
    most = min(MOST_ROWS, MOST_BYTES // max(1, row_nbytes))
    return max(1, most // batch) * batch


def parts_of(file: int, first: int, rows: int, size: int) -> tuple[Part, ...]:
    """Parts of ``size`` rows that cover ``rows`` rows of file number ``file`` from ``first`` on."""
    return tuple(
        Part(part_name(file, start), start, min(size, first + rows - start))
        for start in range(first, first + rows, size)
    )


def part_name(file: int, first: int) -> str:
    """The file name of a part; names sort in the order of the data set."""
    return f"part-{file:08d}-{first:012d}.parquet"


def taken(row: RowType, rows: Sequence[Array | str]) -> tuple[Array | list[Array], dict[int, str]]:
    """Arrays of single rows as an input of the model, and the reasons of bad ones by index.

    A text in ``rows`` is the reason of a bad row. The result has arbitrary values for bad rows.
    """
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
    """Tasks for files with one row each, with ``size`` files in a part."""
    return [
        Task(tuple(files[first : first + size]), (Part(part_name(first, 0), 0, count),))
        for first in range(0, len(files), size)
        for count in [min(size, len(files) - first)]
    ]
