"""Parquet files whose columns are the inputs of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dnnl.errors import InvalidArguments
from dnnl.tools.score.arrow import element_type, row_shape, tensor_rows
from dnnl.tools.score.dataset import Dataset
from dnnl.tools.score.rows import Part, Rows, Source, Task, parts_of, rows_of_a_part
from dnnl.tools.score.signature import RowType


def parquet_source(
    data: Dataset,
    inputs: Sequence[RowType],
    columns: Sequence[str],
    batch: int,
    part_rows: int | None,
) -> Source:
    """The rows of Parquet files, with a read task for each row group.

    Raises InvalidArguments for damaged files, for missing columns, and for types or shapes that the
    model does not take.
    """
    footers = [_footer(data.root / name) for name in data.files]
    shapes: dict[str, set[tuple[int, ...] | None]] = {row.name: set() for row in inputs}
    for name, (_, schema) in zip(data.files, footers, strict=True):
        for row in inputs:
            shapes[row.name].add(_checked(name, schema, row))
        for column in columns:
            _present(name, schema, column, "--columns")
    known = {name: found.pop() for name, found in shapes.items() if len(found) == 1}
    fixed = {name: shape for name, shape in known.items() if shape is not None}
    total = sum(metadata.num_rows for metadata, _ in footers)
    size = part_rows or rows_of_a_part(_row_nbytes(footers, inputs, fixed, total), batch)
    tasks = []
    for number, (name, (metadata, _)) in enumerate(zip(data.files, footers, strict=True)):
        start = 0
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            parts = parts_of(number, start, rows, size)
            tasks.append(Task((name,), parts, group, start))
            start += rows
    return Source(ParquetReader(str(data.root), tuple(inputs), tuple(columns)), tasks, fixed)


def _footer(path: Path) -> tuple[pq.FileMetaData, pa.Schema]:
    try:
        with pq.ParquetFile(path) as file:
            return file.metadata, file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise InvalidArguments("DATASET", str(path), f"is no Parquet file: {error}") from error


def _checked(name: str, schema: pa.Schema, row: RowType) -> tuple[int, ...] | None:
    """The shape of all rows of an input in a file, with the model's rank; None if rows may
    differ."""
    kind = _present(name, schema, row.name, "DATASET").type
    element = element_type(kind)
    where = f"column {row.name!r} of {name}"
    if element is None:
        rule = f"the model's input is {row}, whose columns have numbers, lists or tensors of them"
        raise InvalidArguments(where, str(kind), rule)
    reason = row.why_no_type(element)
    shape = row_shape(kind)
    if not reason and shape is not None:
        reason = row.why_no_shape(shape)
    if reason:
        raise InvalidArguments(where, str(kind), reason)
    return row.sizes if row.is_known else shape


def _present(name: str, schema: pa.Schema, column: str, argument: str) -> pa.Field:
    count = len(schema.get_all_field_indices(column))
    if count != 1:
        rule = f"{name} has {'no such column' if not count else f'{count} columns of this name'}"
        there = f"there are {', '.join(schema.names)}"
        raise InvalidArguments(argument, column, rule, there)
    return schema.field(column)


def _row_nbytes(
    footers: Sequence[tuple[pq.FileMetaData, pa.Schema]],
    inputs: Sequence[RowType],
    shapes: dict[str, tuple[int, ...]],
    total: int,
) -> int:
    """The approximate memory of a row in bytes: that of its inputs, or of all columns if these have
    open sizes."""
    if all(row.name in shapes for row in inputs):
        return sum(row.dtype.itemsize * prod(shapes[row.name]) for row in inputs)
    groups = (m.row_group(g) for m, _ in footers for g in range(m.num_row_groups))
    nbytes: int = sum(group.total_byte_size for group in groups)
    return nbytes // max(1, total)


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """Reads parts of row groups."""

    root: str
    inputs: tuple[RowType, ...]
    columns: tuple[str, ...]

    def read(self, task: Task) -> Iterator[Rows]:
        """The rows of each part; see `Reader`."""
        name = task.files[0]
        done = 0
        try:
            with pq.ParquetFile(Path(self.root) / name) as file:
                for part, table in _tables(file, task, self._columns):
                    yield self._rows(name, part, table)
                    done += 1
        except (OSError, pa.ArrowException) as error:
            yield Rows(task.parts[done], failure=f"{name} cannot be read: {error}")

    @property
    def _columns(self) -> list[str]:
        return list(dict.fromkeys([*(row.name for row in self.inputs), *self.columns]))

    def _rows(self, name: str, part: Part, table: pa.Table) -> Rows:
        numbers = list(range(part.first, part.first + part.rows))
        rows = Rows(part, [name] * part.rows, numbers)
        bad: dict[int, str] = {}
        for row in self.inputs:
            rows.inputs[row.name], wrong = tensor_rows(table.column(row.name), row)
            bad = {**{i: f"column {row.name!r} {text}" for i, text in wrong.items()}, **bad}
        if self.columns:
            rows.columns = table.select(list(self.columns))
        return rows.without(bad)


def _tables(
    file: pq.ParquetFile, task: Task, columns: list[str]
) -> Iterator[tuple[Part, pa.Table]]:
    """The parts of a row group; each is yielded as soon as its rows are read."""
    size = max(part.rows for part in task.parts)
    batches = file.iter_batches(size, row_groups=[task.group], columns=columns)
    # ``position`` is the row number of the first row of ``held``.
    held, position = pa.Table.from_batches([], pa.schema([])), task.start
    for part in task.parts:
        while True:
            skipped = min(part.first - position, held.num_rows)
            held, position = held.slice(skipped), position + skipped
            if position == part.first and held.num_rows >= part.rows:
                break
            batch = next(batches, None)
            if batch is None:
                raise OSError(f"row group {task.group} ends before row {part.first + part.rows}")
            more = pa.Table.from_batches([batch])
            held = pa.concat_tables([held, more]) if held.num_rows else more
        yield part, held.slice(0, part.rows)
        held, position = held.slice(part.rows), position + part.rows
