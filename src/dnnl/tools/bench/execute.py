"""Running cases: creation, contents, execution, comparison, time."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

import numpy as np

from dnnl.errors import InvalidArguments, OutOfMemory, Unimplemented
from dnnl.language.errors import BadValue
from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.runtime.engine import Engine
from dnnl.runtime.storage import physical_memory
from dnnl.runtime.stream import Stream
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.comparison import check_peers, measure_peers
from dnnl.tools.bench.creation import Created, at_execution, create, skipped
from dnnl.tools.bench.drivers import description
from dnnl.tools.bench.other_sizes import other_cases
from dnnl.tools.bench.peers.base import Peer
from dnnl.tools.bench.peers.onednn import OneDnn
from dnnl.tools.bench.peers.onednn_builds import OpenMp
from dnnl.tools.bench.peers.pytorch import PyTorch
from dnnl.tools.bench.result import Result, State
from dnnl.tools.bench.template import Measured
from dnnl.tools.bench.trial import Trial

_PEERS: dict[str, Callable[[int], Peer]] = {
    "onednn": OneDnn,
    "onednn-openmp": lambda num_threads: OneDnn(num_threads, (OpenMp,)),
    "torch": lambda _: PyTorch(),
}
_SHARE = 0.75
"""The part of the machine's memory that a case may take."""


class Executor:
    """Runs cases one after another; ``phases`` collects where the time went, in seconds."""

    def __init__(self) -> None:
        self.phases: Counter[str] = Counter()
        self._streams: dict[tuple[Engine, int, bool], Stream] = {}
        self._known: dict[str, Peer] = {}

    def run(self, case: Case) -> Result:
        """Take a case as far as its mode says."""
        started = perf_counter()
        result = self._run(case)
        result.took_ms = (perf_counter() - started) * 1e3
        return result

    def _run(self, case: Case) -> Result:
        if case.settings.mode == "L":
            return Result(State.LISTED)
        kind = description(case.driver)
        if kind is None:
            return Result(State.UNIMPLEMENTED, f"no primitive for --{case.driver.name}")
        try:
            reason = skipped(case, kind.operation)
            return Result(State.SKIPPED, reason) if reason else self._create(case, kind)
        except Unimplemented as error:
            return Result(State.UNIMPLEMENTED, "; ".join(map(str, error.reasons)) or str(error))
        except InvalidArguments as error:
            return Result(State.INVALID_ARGUMENTS, lines=(str(error),))
        except OutOfMemory:
            return Result(State.SKIPPED, "Not enough RAM")
        except BadValue:
            raise
        except Exception:
            # One case that breaks must not hide what became of the thousands after it.
            return Result(State.UNTESTED_FAILED, lines=(traceback.format_exc().rstrip(),))

    def _create(self, case: Case, kind: type[Desc]) -> Result:
        with self._phase("create_pd"):
            started = perf_counter()
            created = create(case, kind)
            pd = created.pd
            fits = _choose(pd, case)
            pd_ms = (perf_counter() - started) * 1e3
        if not fits:
            return Result(State.SKIPPED, "Skip-impl option hit")
        sized = at_execution(case, kind, created)
        if _bytes(sized) > _SHARE * physical_memory():
            return Result(State.SKIPPED, "Not enough RAM")
        with self._phase("create_prim"):
            started = perf_counter()
            primitive = Primitive(pd)
            prepared = pd_ms, (perf_counter() - started) * 1e3
        if case.settings.check_ref_impl and "ref" in pd.impl_info:
            return Result(State.FAILED, impl=pd.impl_info)
        trial = Trial(case, created, sized)
        result = self._use(case, trial, primitive)
        if case.settings.mode == "C" and not result.state.bad:
            self._use_again(case, kind, created, primitive, result)
        result.impl = pd.impl_info
        outputs = sum(tensor.desc.size for tensor in trial.pd.written)
        inputs = sum(t.desc.size for t in trial.desc.tensors if not t.output)
        ops = kind.operation.flops(trial.desc)
        result.measured = Measured(result.measured.runs, prepared, ops, inputs, outputs)
        return result

    def _use(self, case: Case, trial: Trial, primitive: Primitive) -> Result:
        mode = case.settings.mode
        if mode == "I":
            return Result(State.INITIALIZED)
        engine = primitive.pd.engine
        if engine.features.universal:
            raise Unimplemented(f"engine {engine.kind} executes nothing: --mode=I creates only")
        stream = self._stream_of(case, engine)
        with self._phase("fill"):
            if mode == "S" or "M" in case.settings.modifiers:
                trial.place_pattern()
            else:
                trial.fill(bitwise=mode == "B")
                trial.place()
        if mode == "B":
            return self._bitwise(trial, primitive, stream)
        if mode == "P":
            with self._phase("execute"):
                return measure_peers(self._peers(case, stream), trial, primitive, stream)
        with self._phase("execute"):
            primitive.execute(stream, trial.memories)
            stream.wait()
        return self._check(trial, stream) if mode == "C" else Result(State.EXECUTED)

    def _use_again(
        self, case: Case, kind: type[Desc], created: Created, primitive: Primitive, result: Result
    ) -> None:
        """Execute the same primitive on other sizes, and note in ``result`` what came of it."""
        count = 1
        for other, sized in other_cases(case, kind, created):
            found = self._use(
                other, Trial(other, sized, at_execution(other, kind, sized)), primitive
            )
            count += 1
            result.total += found.total
            # A row of one element has one result, whatever it is.
            if found.state.bad and found.state is not State.MISTRUSTED:
                result.state, result.errors = found.state, found.errors
                line = f"size {count} of {case['sizes']}, {other.problem.text}:"
                result.lines = (line, *found.lines)
                return
        if count > 1:
            kernels = len(primitive.pd.variants.every) if primitive.pd.variants else 1
            result.lines = (*result.lines, f"{count} sizes, {kernels} kernels")

    def _check(self, trial: Trial, stream: Stream) -> Result:
        with self._phase("compute_ref"):
            expected = trial.expect()
        with self._phase("compare"):
            verdict = trial.judge(expected)
        state = State.MISTRUSTED if verdict.mistrusted else State.PASSED
        if verdict.errors:
            state = State.FAILED
        result = Result(
            state,
            errors=verdict.errors,
            total=verdict.total,
            worst=verdict.worst,
            lines=verdict.lines,
        )
        if trial.case.settings.peer and not verdict.errors:
            with self._phase("compare"):
                check_peers(self._peers(trial.case, stream), trial, stream, expected, result)
        return result

    def _bitwise(self, trial: Trial, primitive: Primitive, stream: Stream) -> Result:
        """Two runs on the same inputs must give the same bits."""
        seen = []
        for _ in range(2):
            trial.place()
            with self._phase("execute"):
                primitive.execute(stream, trial.memories)
                stream.wait()
            written = [trial.memories[t.argument].parts[0].read() for t in trial.pd.written]
            seen.append(np.concatenate(written))
        errors = int(np.count_nonzero(seen[0] != seen[1]))
        if errors:
            return Result(State.FAILED, errors=errors, total=seen[0].size)
        return Result(State.PASSED)

    def _peers(self, case: Case, stream: Stream) -> list[Peer]:
        """The peers that a case asks for, each made once, by the first that does."""
        names = case.settings.peer.split(",") if case.settings.peer else []
        for name in names:
            if name not in self._known:
                self._known[name] = _PEERS[name](stream.num_threads)
        return [self._known[name] for name in names]

    def _stream_of(self, case: Case, engine: Engine) -> Stream:
        """A stream of as many threads as the case asks for; where it is to be timed, by the clock
        of a device that has one."""
        threads = max(0, int(str(case["ctx-exe"]).partition(":")[0] or 0))
        key = engine, threads, case.settings.mode == "P"
        if key not in self._streams:
            self._streams[key] = Stream(engine, threads or None, profiling=key[-1])
        return self._streams[key]

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        started = perf_counter()
        try:
            yield
        finally:
            self.phases[name] += perf_counter() - started  # type: ignore[assignment]


def _choose(pd: PrimitiveDesc, case: Case) -> bool:
    """Move on to the first implementation that the filters of the case let pass."""
    wanted = [name for name in case.impl.split(",") if name]
    unwanted = [name for name in case.skip_impl.split(",") if name]
    while True:
        info = pd.impl_info
        chosen = not wanted or any(name in info for name in wanted)
        if chosen and not any(name in info for name in unwanted):
            return True
        if not pd.next_impl():
            return False


def _bytes(pd: PrimitiveDesc) -> int:
    """The memory of a case with its reference in float64."""
    tensors = sum(tensor.desc.size + 8 * tensor.desc.nelems() for tensor in pd.desc.tensors)
    return tensors + pd.scratchpad_desc.size
