"""A worker: it loads the model once, then computes and writes parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dnnl.errors import Error, InvalidArguments
from dnnl.framework import Model, load
from dnnl.graph.graph import Array, ModelError, Shape
from dnnl.tools.score.arrow import Column
from dnnl.tools.score.digest import model_digest
from dnnl.tools.score.folder import MOST_LOST, Done, attempt, write_part
from dnnl.tools.score.images import Pixels
from dnnl.tools.score.rows import Rows
from dnnl.types.runtime_dim import RuntimeDim


@dataclass(frozen=True, slots=True)
class Job:
    """What all workers share; ``model`` and ``out`` are paths that are valid on every machine.

    ``precision`` is None for calls of the model as it is. ``fixed_batch`` is the batch size that
    the model fixes, or None.
    """

    model: str
    digest: str
    out: str
    precision: str | None
    threads: int
    batch: int
    fixed_batch: int | None
    columns: tuple[Column, ...]
    pixels: Pixels | None
    skip_bad: bool


class Worker:
    """Computes parts with a loaded model."""

    def __init__(self, job: Job) -> None:
        """Load the model.

        Raises Error if it cannot be loaded, or has another digest than the job's.
        """
        self._job = job
        found = model_digest(Path(job.model))
        if found != job.digest:
            rule = f"is another file on this machine: SHA-256 {found} instead of {job.digest}"
            raise InvalidArguments("MODEL", job.model, rule)
        self._run = runner(load(job.model), job.precision, job.threads)

    def compute(self, rows: Rows) -> Done:
        """Compute and write a part.

        A part with bad rows is not written, unless the job skips these.
        """
        if rows.failure:
            return Done(0, (), rows.failure)
        try:
            with attempt(Path(self._job.out), rows.part) as lost:
                if lost >= MOST_LOST:
                    what = f"{lost} workers were lost with it, perhaps for want of memory"
                    return Done(
                        0,
                        (),
                        f"{rows.part.name}: {what}; a smaller --batch, in a new folder, needs less",
                    )
                return self._compute(rows)
        except (Error, OSError) as error:
            return Done(0, (), f"{rows.part.name}: {error}")

    def _compute(self, rows: Rows) -> Done:
        if rows.bad and not self._job.skip_bad:
            return Done(0, tuple(rows.bad))
        found, bad = list[_Batch](), dict[int, str]()
        for indices in batches(rows, self._job.batch):
            for batch in self._batches(rows, indices):
                if batch.reason:
                    bad[batch.indices[0]] = batch.reason
                else:
                    found.append(batch)
        rows = rows.without(bad)
        if rows.bad and not self._job.skip_bad:
            return Done(0, tuple(rows.bad))
        results = {column.name: _joined(column, found) for column in self._job.columns}
        write_part(Path(self._job.out), rows, self._job.columns, results)
        return Done(len(rows), tuple(rows.bad))

    def _batches(self, rows: Rows, indices: Sequence[int]) -> Iterator[_Batch]:
        """The results of these rows. A refused batch is computed again row by row, to find the bad
        rows."""
        try:
            yield self._batch(rows, indices)
        except InvalidArguments as error:
            if len(indices) == 1:
                yield _Batch(indices, {}, f"the model refuses it: {error}")
                return
            for index in indices:
                yield from self._batches(rows, [index])

    def _batch(self, rows: Rows, indices: Sequence[int]) -> _Batch:
        missing = max(0, (self._job.fixed_batch or 0) - len(indices))
        padded = [*indices, *[indices[-1]] * missing] if missing else indices
        found = self._run({name: self._feed(each, padded) for name, each in rows.inputs.items()})
        for column in self._job.columns:
            array, shape = found[column.name], column.shape
            if array.ndim == 0 or len(array) != len(padded) or shape not in (None, array.shape[1:]):
                wanted = [len(padded), *(["..."] if shape is None else shape)]
                what = f"output {column.name!r} has the shape {list(array.shape)}"
                raise ModelError(f"{what}, where a result for each row is {wanted}")
        return _Batch(indices, {name: array[: len(indices)] for name, array in found.items()})

    def _feed(self, values: Array | list[Array], indices: Sequence[int]) -> Array:
        """Rows at ``indices`` as an input of the model, padded to a fixed batch."""
        if isinstance(values, list):
            chosen = np.stack([values[index] for index in indices])
        elif isinstance(indices, range):
            chosen = values[indices.start : indices.stop]
        else:
            chosen = values[list(indices)]
        return chosen if self._job.pixels is None else self._job.pixels.as_input(chosen)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The outputs for rows at ``indices``, or the reason why a single row is bad."""

    indices: Sequence[int]
    outputs: Mapping[str, Array]
    reason: str = ""


def _joined(column: Column, found: Sequence[_Batch]) -> Array | list[Array]:
    """The results of one output in row order; a list if shapes may differ."""
    rows = np.array([index for batch in found for index in batch.indices], np.int64)
    order = np.argsort(rows)
    if column.shape is not None and found:
        joined: Array = np.concatenate([batch.outputs[column.name] for batch in found])[order]
        return joined
    single = [row for batch in found for row in batch.outputs[column.name]]
    return [single[place] for place in order]


def batches(rows: Rows, size: int) -> Iterator[Sequence[int]]:
    """Groups of at most ``size`` indices of rows with equal shapes."""
    if not any(isinstance(values, list) for values in rows.inputs.values()):
        for first in range(0, len(rows), size):
            yield range(first, min(first + size, len(rows)))
        return
    alike: dict[tuple[Shape, ...], list[int]] = {}
    for index in range(len(rows)):
        shapes = tuple(values[index].shape for values in rows.inputs.values())
        alike.setdefault(shapes, []).append(index)
    for indices in alike.values():
        for first in range(0, len(indices), size):
            yield indices[first : first + size]


def runner(
    model: Model, precision: str | None, threads: int
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """A function from inputs to outputs by name, in ``precision``, for all open sizes."""
    if precision is None:
        call: Callable[[Mapping[str, Array]], Array | dict[str, Array]] = partial(
            model, num_threads=threads
        )
    else:
        names = {n for kind in model.inputs.values() for n in kind.shape if isinstance(n, str)}
        sizes = {name: RuntimeDim(1) for name in names}
        call = model.compile(precision=precision, num_threads=threads, sizes=sizes)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        found = call(feeds)
        return found if isinstance(found, dict) else {model.outputs[0]: found}

    return run
