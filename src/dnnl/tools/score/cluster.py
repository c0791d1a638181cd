"""Runs the parts of a data set on workers of Ray Data.

Ray splits and merges blocks by bytes, but never splits a row. So a row of the Ray data set is the
whole input of one part of the output, and tasks and retries of Ray concern whole parts.
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
"""The cpus that read tasks need, beside those of the workers."""
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # send no statistics
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # else all logs appear on the terminal
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the future default; unset it warns
}
_ROWS = "rows"


class WorkerError(Error):
    """Ray failed for a reason unrelated to the model and the data."""


@contextmanager
def connected(address: str | None, workers: int, threads: int) -> Iterator[None]:
    """Connect to the Ray cluster at ``address``, or start a local one that ends with the context.

    Raises InvalidArguments if it cannot be reached or has too few cpus.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    cpus = workers * threads + READING
    where: dict[str, Any] = {"address": address}
    if address is None:
        # If Ray uses tokens, it would write one into the home folder.
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
    """Compute the parts of all tasks; yields each when it is written or has failed.

    Lost workers are replaced, and their parts computed again. Raises WorkerError if Ray fails.
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
    """The tasks of a reader as a Ray data source."""

    def __init__(self, reader: Reader, tasks: Sequence[Task]) -> None:
        super().__init__()
        self._reader, self._tasks = reader, tasks

    def estimate_inmemory_data_size(self) -> int | None:
        """None: the number of tasks is fixed, so that Ray needs no estimate."""
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """One Ray task for each of ours; its rows are parts."""
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
    """A worker in the form that Ray Data calls."""

    def __init__(self, job: Job) -> None:
        try:
            self._worker, self._failure = Worker(job), ""
        except (Error, OSError) as error:  # returned, since Ray would retry and print traces
            self._failure = str(error)

    def __call__(self, table: pa.Table) -> pa.Table:
        if self._failure:
            return _table(Done(0, (), self._failure))
        rows = pickle.loads(table.column(_ROWS)[0].as_buffer())
        return _table(self._worker.compute(rows))


def _cause(error: BaseException) -> str:
    """The error of a worker without the traceback of Ray's code."""
    if isinstance(error, RayTaskError):
        cause = error.cause
        return str(cause) if isinstance(cause, Error) else f"{type(cause).__name__}: {cause}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Discard what native code writes to standard error."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
