"""The folder of results: a Parquet file for each part, and a manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import Array
from dnnl.tools.score.arrow import Column
from dnnl.tools.score.rows import BadRow, Part, Rows

MANIFEST = "manifest.json"
MOST_LOST = 4
"""Lost workers after which a part is given up."""
PATH, ROW = "source_path", "source_row"
"""The columns with the file and the row number of a result's input."""
_VERSION = 1
_BAD = b"dnnl.bad"
"""The metadata key of a part's bad rows: in the footer they become visible with its rows."""


@dataclass(frozen=True, slots=True)
class Done:
    """A complete part, or the ``failure`` that prevented it."""

    rows: int
    bad: tuple[BadRow, ...]
    failure: str = ""


def opened(out: Path, facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the manifest into a new or empty folder, or check that it has the same ``facts``.

    Raises InvalidArguments if the folder cannot be written, has other files, or has a manifest with
    other facts, the first of which is named.
    """
    try:
        out.mkdir(exist_ok=True)
        there = sorted(path.name for path in out.iterdir())
        if MANIFEST in there:
            _compare(out, json.loads((out / MANIFEST).read_text(encoding="utf-8")), facts)
            _check_writable(out)
            return
        if there:
            rule = f"is not empty and has no {MANIFEST}: its files are not results of dnnl score"
            raise InvalidArguments("--output", str(out), rule, "give a new folder")
        text = json.dumps({"version": _VERSION, **facts}, indent=2, allow_nan=False) + "\n"
        _replace(out / MANIFEST, text.encode())
    except OSError as error:
        rule = f"cannot be written: {error.strerror}"
        raise InvalidArguments("--output", str(out), rule) from error


def _check_writable(out: Path) -> None:
    if not os.access(out, os.W_OK):
        raise InvalidArguments("--output", str(out), "cannot be written")


def _compare(out: Path, found: object, facts: Mapping[str, Mapping[str, Any]]) -> None:
    where = str(out / MANIFEST)
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        raise InvalidArguments("--output", where, f"is no manifest of version {_VERSION}")
    hint = "use a new folder, or the same model, data set and options"
    for group, values in json.loads(json.dumps(facts)).items():
        before = found.get(group, {})
        for name, value in values.items():
            if name != "path" and before.get(name) != value:
                rule = f"the folder was begun with {before.get(name)!r}"
                raise InvalidArguments(f"{group} {name}", value, f"{rule}: {where}", hint)


def complete(out: Path, parts: Sequence[Part]) -> dict[str, Done]:
    """The complete parts, by name.

    Raises InvalidArguments for a part that is damaged or has a wrong number of rows.
    """
    there = {path.name for path in out.iterdir()}
    found = {}
    for part in parts:
        if part.name not in there:
            continue
        path = out / part.name
        try:
            footer = pq.read_metadata(path)
            bad = [BadRow(*row) for row in json.loads((footer.metadata or {}).get(_BAD, b"[]"))]
        except (OSError, pa.ArrowException, ValueError, TypeError) as error:
            rule = f"is damaged: {error}"
            raise InvalidArguments("--output", str(path), rule, "delete it") from error
        if footer.num_rows + len(bad) != part.rows:
            rule = f"has {footer.num_rows} rows and {len(bad)} bad ones of {part.rows}"
            raise InvalidArguments("--output", str(path), rule, "delete it")
        found[part.name] = Done(footer.num_rows, tuple(bad))
    return found


def write_part(
    out: Path, rows: Rows, columns: Sequence[Column], results: Mapping[str, Array | Sequence[Array]]
) -> None:
    """Write a part: source path, row number, copied columns and results of its rows.

    The file is renamed when it is complete, so that a part is there as a whole or not at all.
    """
    arrays: dict[str, Any] = {
        PATH: pa.array(rows.paths, pa.string()),
        ROW: pa.array(rows.numbers, pa.int64()),
    }
    if rows.columns is not None:
        arrays.update(zip(rows.columns.column_names, rows.columns.columns, strict=True))
    arrays.update((column.name, column.array(results[column.name])) for column in columns)
    table = pa.table(arrays)
    bad = json.dumps([[row.path, row.row, row.reason] for row in rows.bad])
    sink = pa.BufferOutputStream()
    others = [name for name in arrays if name not in results]  # dictionaries do not shrink results
    pq.write_table(table.replace_schema_metadata({_BAD: bad.encode()}), sink, use_dictionary=others)
    _replace(out / rows.part.name, sink.getvalue())


def _replace(path: Path, content: bytes | pa.Buffer) -> None:
    temporary = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def attempt(out: Path, part: Part) -> Iterator[int]:
    """A context for computing a part; its value is the number of workers lost on it before.

    Ray itself retries without limit. A file gets a byte for each worker that begins the part,
    and is removed when one ends.
    """
    count = out / f".{part.name}.begun.tmp"
    with count.open("ab") as file:
        lost = file.tell()
        file.write(b".")
    try:
        yield lost
    finally:
        count.unlink(missing_ok=True)


def remove_temporary(out: Path) -> None:
    """Delete the temporary files of killed workers."""
    for path in out.glob(".*.tmp"):
        with suppress(OSError):
            path.unlink()
