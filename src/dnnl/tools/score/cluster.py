"""The parts of a data set on workers of Ray Data.

Ray splits and joins blocks by their bytes, but never a row. So a row of the Ray data set is all
that one part of the output is computed from, and tasks and retries of Ray concern whole parts.
"""

from __future__ import annotations

import logging
import os
import pickle
import secrets
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from ray.exceptions import RayError, RayTaskError

from dnnl.errors import Error, InvalidArguments
from dnnl.tools.score.folder import Done
from dnnl.tools.score.rows import Reader, Task
from dnnl.tools.score.worker import Job, Worker

READING = 1
"""The cpus that tasks which read take beside workers, at least."""
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing about a run leaves the machine
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # it writes every log to the terminal as well
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what later versions do; without it a warning
}
_ROWS = "rows"


class WorkerError(Error):
    """Ray could not go on, for a reason that is none of the model or the data."""


@contextmanager
def connected(address: str | None, workers: int, threads: int) -> Iterator[None]:
    """A cluster of Ray's: that at an address, or one in processes of its own that end with it.

    Raises InvalidArguments where it cannot be reached, or has too few cpus.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    cpus = workers * threads + READING
    where: dict[str, Any] = {"address": address}
    if address is None:
        # Ray asks for a token, and would write one that stays into the home folder.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        where = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
    try:
        with _silent_stderr():
            ray.init(**where, log_to_driver=False, logging_level=logging.CRITICAL)
    except (ConnectionError, ValueError, RuntimeError) as error:
        rule = f"Ray cannot be reached: {str(error).partition(chr(10))[0]}"
        hint = "RAY_AUTH_MODE=token, if the cluster asks for a token" if address else ""
        raise InvalidArguments("--address", address or "local", rule, hint) from error
    try:
        there = int(ray.cluster_resources().get("CPU", 0))
        if there < cpus:
            rule = f"with --threads {threads} and {READING} cpu to read, {cpus} cpus are needed"
            raise InvalidArguments("--workers", workers, f"{rule}; the cluster has {there}")
        yield
    finally:
        ray.shutdown()


def computed(reader: Reader, tasks: Sequence[Task], job: Job, workers: int) -> Generator[Done]:
    """Each part of the tasks, as soon as it is written, or has failed.

    Workers that are lost are replaced, and their parts computed again. Raises WorkerError where
    Ray cannot go on.
    """
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.target_max_block_size = 1  # hand a part on as soon as it is read
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are raised as well
    data = ray.data.read_datasource(_Parts(reader, tasks), override_num_blocks=len(tasks))
    done = data.map_batches(
        _Actor,
        fn_constructor_args=(job,),
        batch_size=1,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=job.threads,
    )
    try:
        for row in done.iter_rows():
            yield pickle.loads(row[_ROWS])
    except RayError as error:
        raise WorkerError(f"a worker failed: {_cause(error)}") from error


class _Parts(Datasource):  # type: ignore[misc]
    """The tasks of a reader as read tasks of Ray's."""

    def __init__(self, reader: Reader, tasks: Sequence[Task]) -> None:
        super().__init__()
        self._reader, self._tasks = reader, tasks

    def estimate_inmemory_data_size(self) -> int | None:
        """Not known, as the number of tasks is given."""
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """One for each of our tasks, whose rows are parts."""
        return [
            ReadTask(
                partial(_read, self._reader, task),
                BlockMetadata(len(task.parts), None, None, None),
            )
            for task in self._tasks
        ]


def _read(reader: Reader, task: Task) -> Iterator[pa.Table]:
    return map(_table, reader.read(task))


def _table(value: object) -> pa.Table:
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return pa.table({_ROWS: pa.array([content], pa.large_binary())})


class _Actor:
    """A worker, as Ray Data calls it."""

    def __init__(self, job: Job) -> None:
        try:
            self._worker, self._failure = Worker(job), ""
        except (Error, OSError) as error:  # as a result: Ray would start it again, with traces
            self._failure = str(error)

    def __call__(self, table: pa.Table) -> pa.Table:
        if self._failure:
            return _table(Done(0, (), self._failure))
        rows = pickle.loads(table.column(_ROWS)[0].as_buffer())
        return _table(self._worker.compute(rows))


def _cause(error: BaseException) -> str:
    """What went wrong in a worker, without the traces of Ray's own code."""
    if isinstance(error, RayTaskError):
        cause = error.cause
        return str(cause) if isinstance(cause, Error) else f"{type(cause).__name__}: {cause}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Drop what native code writes to the terminal, such as the level of its log."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
