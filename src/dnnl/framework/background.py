"""Compiles plans in other processes, one at a time, while calls continue.

Planning and writing kernels are Python: in a thread of this process they would hold the
interpreter lock against calls. The other process is `background_process`, at the lowest priority.
Both exchange files of the format of `saved_file`, in a folder that only this user can read.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from tempfile import mkdtemp
from time import perf_counter

from dnnl import config, forks, log
from dnnl.errors import Error
from dnnl.framework.plan import Compiled
from dnnl.framework.saved_file import SavedFile, Writer, digest_of
from dnnl.framework.saved_graph import GraphWriter
from dnnl.framework.saved_plan import read_plans, type_to_json
from dnnl.graph.graph import Array, Graph, TensorType
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory

_PROGRAM = "dnnl.framework.background_process"
_SECONDS = 1800.0
"""Seconds after which a compiling process is killed."""


class Unbuilt(Exception):
    """A plan could not be compiled; the message says why."""


@dataclass(frozen=True, eq=False)
class Source:
    """A graph to compile for known sizes, with the settings. The graph is written to a file once.

    ``prepared`` are constants in kernel layouts that plans of the graph may share.
    """

    graph: Graph
    engine: Engine
    layout: str
    precision: str
    prepared: Sequence[Memory] = ()

    @cached_property
    def folder(self) -> Path:
        """The folder in which files are exchanged, readable by this user only; removed with this
        object."""
        made = mkdtemp(prefix="dnnl-")
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
        return Path(made)

    @cached_property
    def _held(self) -> dict[str, Array]:
        """The bytes of ``prepared`` by their digests."""
        return {digest_of(own.data): own.data for own in self.prepared}

    def compiled(self, inputs: Mapping[str, TensorType], contents: Mapping[str, Array]) -> Compiled:
        """A plan for ``inputs`` of known sizes, in which ``contents`` are constants.

        Raises Unbuilt where the other process fails, and Unimplemented where the graph has what no
        file can hold.
        """
        folder = self.folder
        os.makedirs(folder, 0o700, exist_ok=True)  # a fork that ended may have removed it
        graph, pid = folder / "graph", os.getpid()  # forks share the folder
        request, result = folder / f"request-{pid}", folder / f"result-{pid}"
        if not graph.exists():
            writer = Writer()
            writer.write(graph, {"graph": GraphWriter(writer.add).written(self.graph)})
        writer = Writer()
        known = [(own, a.dtype.name, list(a.shape), writer.add("contents", a))
                 for own, a in contents.items()]  # fmt: skip
        index = {
            "graph": str(graph),
            "inputs": {name: type_to_json(kind) for name, kind in inputs.items()},
            "contents": known,
            "layout": self.layout,
            "precision": self.precision,
            "held": list(self._held),
        }
        writer.write(request, index)
        try:
            _run(request, result)
            file = SavedFile(result)
            made = read_plans(file, self.engine, list(self._held.values()))
            file.stop()
        finally:
            for path in (request, result):
                with suppress(OSError):
                    path.unlink()  # mappings keep the data
        return made[0]


def _run(request: Path, result: Path) -> None:
    """Compile what a request asks for.

    Raises Unbuilt where that fails.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        raise Unbuilt("there is no Python interpreter to run")
    environment = config.environment()
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    # -P: no module of the current folder is taken for one of the library's.
    command = [sys.executable, "-P", "-m", _PROGRAM, str(request), str(result)]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # so that Ctrl-C does not reach it
    ) as process:
        _builder.process = process
        try:
            _, said = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Unbuilt(f"it took more than {_SECONDS:.0f} s") from None
        finally:
            _builder.process = None
    if process.returncode:
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        raise Unbuilt(last or f"the process ended with {process.returncode}")


class _Builder:
    """A thread that runs jobs in order."""

    def __init__(self) -> None:
        self._lock = forks.Lock()
        self._jobs: SimpleQueue[Callable[[], None]] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        forks.renew(self)
        atexit.register(self.stop)

    def add(self, job: Callable[[], None]) -> None:
        """Queue a job."""
        with self._lock.own:
            if self._jobs is None:
                self._jobs = SimpleQueue()
                threading.Thread(
                    target=_work, args=(self._jobs,), name="dnnl-background", daemon=True
                ).start()
            self._jobs.put(job)

    def stop(self) -> None:
        """Kill the compiling process: its result is of no use when this process exits."""
        process = self.process
        if process is not None:
            with suppress(OSError):
                process.kill()

    def after_fork(self) -> None:
        """A child has neither the thread nor the process."""
        self._jobs, self.process = None, None


def _work(jobs: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        job = jobs.get()
        try:
            job()
        except Exception as error:  # a job that fails must not end the thread
            log.warn(f"special kernels: {type(error).__name__}: {error}")


_builder = _Builder()


def build(
    source: Callable[[], Source | None],
    inputs: Mapping[str, TensorType],
    contents: Mapping[str, Array],
    take: Callable[[Compiled], None],
) -> None:
    """Compile a plan in the background, and call ``take`` with it in another thread.

    ``source`` returns None if the plan is no longer needed. Failures are logged.
    """

    def job() -> None:
        start, own = perf_counter(), source()
        if own is None:
            return
        shapes = " ".join(
            f"{name}:{'x'.join(map(str, kind.shape))}" for name, kind in inputs.items()
        )
        try:
            take(own.compiled(inputs, contents))
        except (Error, Unbuilt, OSError) as error:
            log.warn(f"special kernels for {shapes}: {error}")
            return
        if log.enabled("profile_create"):
            took = (perf_counter() - start) * 1e3
            log.line("model", "create:special_kernels", shapes, ms=took)

    _builder.add(job)
