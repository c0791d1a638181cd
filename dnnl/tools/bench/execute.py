"""Running cases: creation, contents, execution, comparison, time."""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter

import numpy as np

from dnnl.errors import InvalidArguments, OutOfMemory, Unimplemented
from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.reference.arrays import Array, f64
from dnnl.reference.conversions import core_type
from dnnl.runtime.engine import Engine
from dnnl.runtime.gather import scatter
from dnnl.runtime.memory import Memory
from dnnl.runtime.stream import Stream
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.compare import Verdict, compare
from dnnl.tools.bench.errors import BadValue
from dnnl.tools.bench.fill import generator, integers, stored, uniform
from dnnl.tools.bench.operations import OPERATIONS
from dnnl.tools.bench.operations.base import Operation
from dnnl.tools.bench.quantization import (
    Parameters,
    dequantized,
    fill_parameters,
    finished,
    loosened,
    make_attr,
    reads_dst,
)
from dnnl.tools.bench.result import Result, State
from dnnl.tools.bench.template import Measured
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import ScratchpadMode
from dnnl.types.memory_desc import MemoryDesc

POISON = 0xFF
_PATTERN = 0x3F
"""A byte that makes ordinary numbers in every type."""
_MIN_RUNS = 5
_SHARE = 0.75
"""The part of the machine's memory that a case may take."""


class Trial:
    """One case on its way: what was created, what its tensors hold."""

    def __init__(self, case: Case, operation: Operation, pd: PrimitiveDesc) -> None:
        self.case, self.operation, self.pd = case, operation, pd
        self.desc: Desc = pd.desc
        self.parameters = Parameters()
        self.inputs: dict[int, Array] = {}
        self.previous: Array | None = None
        self.memories: dict[int, Memory] = {}

    def fill(self, *, bitwise: bool) -> None:
        """Decide on the contents of every input and attribute tensor."""
        self.parameters = fill_parameters(self.case, self.pd)
        for argument, array in self.operation.fill(self.case, self.desc).items():
            desc = self.pd.arg_desc(argument)
            anything = bitwise and desc.data_type.is_float
            values = uniform(generator("bitwise", argument), desc.dims) if anything else array
            self.inputs[argument] = stored(values, desc.data_type)
        if reads_dst(self.pd.attr):
            dst = self.pd.dst_desc
            low = 0 if dst.data_type.min >= 0 else -4
            self.previous = integers(generator("dst", dst.dims), dst.dims, low, 4)

    def place(self) -> None:
        """Make all memories; a destination is poisoned, or what a sum adds to."""
        engine = self.pd.engine
        for tensor in self.desc.tensors:
            memory = Memory(tensor.desc, engine)
            memory.data[:] = POISON
            self.memories[tensor.argument] = memory
        for argument, array in self.inputs.items():
            _store(self.memories[argument], array)
        if bool(self.case.values.get("inplace", False)):
            self.memories[Arg.DST] = self.memories[self.operation.in_place]
        if self.previous is not None:
            _store(self.memories[Arg.DST], self.previous)
        for argument, array in self.parameters.values.items():
            self.memories[argument] = Memory(self.parameters.descs[argument], engine)
            _store(self.memories[argument], array)
        self._scratchpad()

    def place_pattern(self) -> None:
        """Make all memories without thinking of their contents."""
        for tensor in self.desc.tensors:
            self.memories[tensor.argument] = Memory(tensor.desc, self.pd.engine)
        self.parameters = fill_parameters(self.case, self.pd)
        for argument, desc in self.parameters.descs.items():
            self.memories[argument] = Memory(desc, self.pd.engine)
        for memory in self.memories.values():
            memory.data[:] = _PATTERN
        if bool(self.case.values.get("inplace", False)):
            self.memories[Arg.DST] = self.memories[self.operation.in_place]
        self._scratchpad()

    def _scratchpad(self) -> None:
        desc = self.pd.scratchpad_desc
        if self.pd.attr.scratchpad_mode is ScratchpadMode.user and not desc.is_zero:
            self.memories[Arg.SCRATCHPAD] = Memory(desc, self.pd.engine)

    def expect(self) -> tuple[Array, dict[int, Array]]:
        """The reference before it is rounded, and the inputs as they are meant."""
        meant = {
            argument: dequantized(array, argument, self.pd, self.parameters)
            for argument, array in self.inputs.items()
        }
        result = self.operation.compute(self.case, self.desc, meant)
        return finished(result, self.pd, self.parameters, self.previous), meant

    def judge(self, want: Array, meant: Mapping[int, Array]) -> Verdict:
        """Compare the destination, its padding included."""
        memory = self.memories[Arg.DST]
        kind = memory.desc.data_type
        source = self.pd.src_desc.data_type
        plain = not self.pd.attr.non_default() and self.desc.kind == "reorder"
        core = core_type(source, kind) if plain else DataType.f32
        core = DataType.f64 if kind is DataType.f64 else core
        rule = loosened(self.operation.rule(self.case, self.desc, meant), self.pd.attr, kind)
        verdict = compare("DST", f64(memory.numpy()), want, kind, core, rule)
        stray = _stray_padding(memory)
        if not stray:
            return verdict
        line = f"[DST]: {stray} elements of the padding are not zero"
        return replace(verdict, errors=verdict.errors + stray, lines=(*verdict.lines, line))


class Executor:
    """Runs cases one after another; ``phases`` collects where the time went, in seconds."""

    def __init__(self) -> None:
        self.phases: Counter[str] = Counter()
        self._stream: Stream | None = None

    def run(self, case: Case) -> Result:
        """Take a case as far as its mode says."""
        started = perf_counter()
        result = self._run(case)
        result.took_ms = (perf_counter() - started) * 1e3
        return result

    def _run(self, case: Case) -> Result:
        if case.settings.mode == "L":
            return Result(State.LISTED)
        operation = OPERATIONS.get(case.driver)
        if operation is None:
            return Result(State.UNIMPLEMENTED, lines=(f"no primitive for --{case.driver}",))
        reason = operation.skip(case)
        if reason is not None:
            return Result(State.SKIPPED, reason)
        try:
            return self._create(case, operation)
        except Unimplemented as error:
            return Result(State.UNIMPLEMENTED, lines=(str(error), *map(str, error.reasons)))
        except InvalidArguments as error:
            return Result(State.INVALID_ARGUMENTS, lines=(str(error),))
        except OutOfMemory:
            return Result(State.SKIPPED, "Not enough RAM")
        except BadValue:
            raise
        except Exception:
            # One case that breaks must not hide what became of the thousands after it.
            return Result(State.UNTESTED_FAILED, lines=(traceback.format_exc().rstrip(),))

    def _create(self, case: Case, operation: Operation) -> Result:
        with self._phase("create_pd"):
            started = perf_counter()
            desc = operation.describe(case)
            attr = make_attr(case, {t.argument: t.desc.ndims for t in desc.tensors}, desc.dst)
            pd = PrimitiveDesc(desc, self._engine(case), attr)
            fits = _choose(pd, case)
            pd_ms = (perf_counter() - started) * 1e3
        if not fits:
            return Result(State.SKIPPED, "Skip-impl option hit")
        if _bytes(pd) > _SHARE * _memory():
            return Result(State.SKIPPED, "Not enough RAM")
        with self._phase("create_prim"):
            started = perf_counter()
            primitive = Primitive(pd)
            created = pd_ms, (perf_counter() - started) * 1e3
        if case.settings.check_ref_impl and "ref" in pd.impl_info:
            return Result(State.FAILED, impl=pd.impl_info)
        trial = Trial(case, operation, pd)
        result = self._use(case, trial, primitive)
        result.impl = pd.impl_info
        outputs = sum(t.desc.size for t in pd.desc.tensors if t.output)
        inputs = sum(t.desc.size for t in pd.desc.tensors if not t.output)
        ops = int(getattr(pd.desc, "flops", 0))
        result.measured = Measured(result.measured.runs, created, ops, inputs, outputs)
        return result

    def _use(self, case: Case, trial: Trial, primitive: Primitive) -> Result:
        mode = case.settings.mode
        if mode == "I":
            return Result(State.INITIALIZED)
        stream = self._stream_of(case)
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
                runs = _measure(primitive, stream, trial.memories, case)
            return Result(State.EXECUTED, measured=Measured(runs))
        with self._phase("execute"):
            primitive.execute(stream, trial.memories)
        return self._check(trial) if mode == "C" else Result(State.EXECUTED)

    def _check(self, trial: Trial) -> Result:
        with self._phase("compute_ref"):
            want, meant = trial.expect()
        with self._phase("compare"):
            verdict = trial.judge(want, meant)
        if verdict.errors:
            return Result(
                State.FAILED, errors=verdict.errors, total=verdict.total, lines=verdict.lines
            )
        return Result(State.MISTRUSTED if verdict.mistrusted else State.PASSED)

    def _bitwise(self, trial: Trial, primitive: Primitive, stream: Stream) -> Result:
        """Two runs on the same inputs must give the same bits."""
        seen = []
        for _ in range(2):
            trial.place()
            with self._phase("execute"):
                primitive.execute(stream, trial.memories)
            seen.append(trial.memories[Arg.DST].data)
        errors = int(np.count_nonzero(seen[0] != seen[1]))
        if errors:
            return Result(State.FAILED, errors=errors, total=seen[0].size)
        return Result(State.PASSED)

    def _engine(self, case: Case) -> Engine:
        kind, _, index = case.settings.engine.partition(":")
        return Engine(kind, int(index or 0))

    def _stream_of(self, case: Case) -> Stream:
        """A stream of as many threads as the case asks for."""
        threads = str(case["ctx-exe"]).partition(":")[0]
        if threads and int(threads) > 0:
            return Stream(self._engine(case), int(threads))
        engine = self._engine(case)
        if self._stream is None or self._stream.engine != engine:
            self._stream = Stream(engine)
        return self._stream

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


def _store(memory: Memory, values: Array) -> None:
    """Write the elements, and zero to all that is none."""
    with np.errstate(all="ignore"):
        scatter(memory.desc, memory.data, values.astype(memory.desc.data_type.numpy))


def _stray_padding(memory: Memory) -> int:
    """How many elements between the dims and the padded dims are not zero."""
    desc = memory.desc
    if desc.padded_dims == desc.dims or desc.has_zero_dim:
        return 0
    whole = MemoryDesc(
        desc.padded_dims, desc.data_type, desc.strides,
        inner_blocks=desc.inner_blocks, offset0=desc.offset0,
    )  # fmt: skip
    values = f64(Memory(whole, memory.engine, memory.data).numpy()).copy()
    values[tuple(slice(size) for size in desc.dims)] = 0
    return int(np.count_nonzero(values))


def _measure(
    primitive: Primitive, stream: Stream, memories: Mapping[int, Memory], case: Case
) -> tuple[float, ...]:
    """The times of single runs in ms, after one to warm up."""
    run = primitive.bind(stream, memories)
    run()
    settings = case.settings
    times: list[float] = []
    begun = perf_counter()
    while True:
        started = perf_counter()
        run()
        stopped = perf_counter()
        times.append((stopped - started) * 1e3)
        if settings.fix_times:
            if len(times) >= settings.fix_times:
                return tuple(times)
        elif len(times) >= _MIN_RUNS and (stopped - begun) * 1e3 >= settings.max_ms:
            return tuple(times)


def _bytes(pd: PrimitiveDesc) -> int:
    """The memory of a case with its reference in float64."""
    tensors = sum(tensor.desc.size + 8 * tensor.desc.nelems() for tensor in pd.desc.tensors)
    return tensors + pd.scratchpad_desc.size


def _memory() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
