"""The process that runs cases: one line in, one outcome out.

It is a process of its own so that whatever ends it, or never comes back, is blamed on the case that
was running. ``Worker`` is the end of it that the search holds.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from time import monotonic

from tests.fuzz.kind import Kind, Outcome, State, failed, raised

_TAIL = 3000  # characters of the last words of a process
_START = 120.0  # seconds in which a process must have imported what it needs
_LAST_WORDS = 3.0  # seconds in which a process that hangs may print where


class Worker:
    """A process that runs cases of one kind, within a ``with`` block; started when needed, and anew
    after its end."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._process: subprocess.Popen[bytes] | None = None
        self._cases = 0

    def __enter__(self) -> Worker:
        with ExitStack() as files:
            kernels = tempfile.TemporaryDirectory(prefix="dnnl-fuzz-")
            self._kernels = files.enter_context(kernels)
            self._errors = files.enter_context(tempfile.TemporaryFile())
            files.callback(self._stop)
            self._files = files.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def run(self, text: str, until: float = float("inf")) -> Outcome | None:
        """What becomes of a case; None if it was still running at the time ``until``."""
        if self._cases >= self.kind.lives:
            self._stop()
        process = self._process or self._start()
        if process is None:
            return failed("start", f"no process within {_START:g} s\n{self._words()}")
        assert process.stdin is not None
        self._cases += 1
        limit = monotonic() + self.kind.timeout
        try:
            process.stdin.write(json.dumps(text).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._crash()
        line = self._line(process, min(limit, until))
        if line is None and limit > until:
            self._stop()
            return None
        if line is None:
            return self._hang(process)
        if not line:
            return self._crash()
        state, reason, detail = json.loads(line)
        return Outcome(State(state), reason, detail)

    def _stop(self) -> None:
        """End the process, and what it has started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
        self._process, self._cases = None, 0

    def _start(self) -> subprocess.Popen[bytes] | None:
        """A new process that is ready; None if it does not become so."""
        self._errors.seek(0)
        self._errors.truncate()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", self.kind.home],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "DNNL_CACHE_DIR": self._kernels},
            start_new_session=True,
        )
        if self._line(self._process, monotonic() + _START):
            return self._process
        self._stop()
        return None

    def _line(self, process: subprocess.Popen[bytes], until: float) -> bytes | None:
        """What the process answers: nothing if it is gone, None if that takes too long."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - monotonic()))
        return process.stdout.readline() if ready else None

    def _hang(self, process: subprocess.Popen[bytes]) -> Outcome:
        process.send_signal(signal.SIGABRT)  # faulthandler prints where it is
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WORDS)
        self._stop()
        return failed("hang", f"no answer within {self.kind.timeout:g} s\n{self._words()}")

    def _crash(self) -> Outcome:
        assert self._process is not None
        code = self._process.wait()
        self._stop()
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return failed(f"crash: {name}", self._words())

    def _words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-_TAIL:]


def serve(home: str) -> None:
    """Run the cases that come in, until none does. Nothing else can write to the way back."""
    faulthandler.enable()
    _die_with_the_driver()
    kind: Kind = importlib.import_module(home).KIND
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        answers.write("ready\n")
        answers.flush()
        for line in sys.stdin:
            outcome = attempt(kind, json.loads(line))
            answers.write(json.dumps([outcome.state.value, outcome.reason, outcome.detail]) + "\n")
            answers.flush()


def _die_with_the_driver() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 = PR_SET_PDEATHSIG


def attempt(kind: Kind, text: str) -> Outcome:
    """What becomes of a case in this process."""
    try:
        return kind.run(text)
    except Exception as error:
        return raised(error)


if __name__ == "__main__":
    serve(sys.argv[1])
