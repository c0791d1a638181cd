"""Valid problems of every operation: right results, and nothing touched that is not theirs.

A case is ``ISA CACHES THREADS``, layouts that no tag spells (`tests.fuzz.layouts`) and the
arguments of ``dnnl bench``. It runs on one thread and on several, beside pages that nobody may
touch, scratch included, and must give the same bits each time; its destinations and all gaps are
poisoned, its sources must stay as they are. ``small`` caches make kernels share out and store small
tensors as if they were large. No two work items may write the same byte. A case that leaves sizes
open is executed on ten of them, one after the other, by the same primitive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from dnnl import config
from dnnl.errors import InvalidArguments, OutOfMemory, Unimplemented
from dnnl.language.errors import BadValue
from dnnl.primitives import primitive
from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.registry import OPERATIONS
from dnnl.runtime.memory import Memory
from dnnl.runtime.stream import Stream
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.tools.bench.creation import Created, at_execution, create, skipped, with_open_sizes
from dnnl.tools.bench.drivers import description
from dnnl.tools.bench.execute import Executor
from dnnl.tools.bench.open_sizes import check_open
from dnnl.tools.bench.other_sizes import other_cases
from dnnl.tools.bench.trial import Trial
from dnnl.types.arg import Arg
from tests.check import assert_gaps_untouched, assert_padding_zero, poison_gaps
from tests.fuzz import layouts
from tests.fuzz.kind import PASSED, Kind, Outcome, State, failed
from tests.fuzz.open_cases import with_known_sizes, with_open_sizes_of
from tests.fuzz.problems import cases as problems
from tests.fuzz.taken import taken
from tests.guard import End, guarded_scratch, near
from tests.processor import ISAS
from tests.small_caches import small_is_large
from tests.work_items import assert_apart

_RANGE = 2.0**120
_REASON = 60  # characters of a reason by which refusals are counted
_TOLD = 3  # threads of cases that are explained
_MOST_BYTES = 2**28  # of the tensors of a case: several copies of each are made


@st.composite
def lines(
    draw: st.DrawFn,
    kinds: Sequence[str] = tuple(OPERATIONS),
    *,
    laid_out: bool = False,
    large: bool = False,
    opened: bool = False,
) -> str:
    """Cases of operations of these kinds; with tensors ``laid_out`` in ways that no tag spells, or
    sizes ``opened``, as some are in any case. ``large`` ones have sizes as in networks, and the
    caches of the machine.
    """
    best = ["default", *reversed(ISAS)]
    level = draw(st.sampled_from([*best[:1] * 3, *best]))
    caches = "real" if large else draw(st.sampled_from(("real", "small", "small")))
    threads = draw(st.sampled_from((2, 2, 3, 5, 7)))
    case = draw(problems(kinds, large=large))
    if opened or draw(st.integers(0, 3)) == 3:
        case = draw(with_open_sizes_of(case))
    if laid_out or draw(st.booleans()):
        case = taken(case)
    own = draw(layouts.drawn(case)) if laid_out or draw(st.integers(0, 3)) == 3 else ""
    return " ".join(word for word in (level, caches, str(threads), own, case.repro) if word)


def run(text: str) -> Outcome:
    level, caches, threads, *tokens = text.split(" ")
    own = tokens.pop(0) if tokens[0].startswith(layouts.MARK) else ""
    (case,) = Interpreter().cases(tokens)
    with config.override("max_cpu_isa", level), _caches(caches == "small"), guarded_scratch():
        try:
            return _checked(case, int(threads), own)
        except Unimplemented as error:
            reason = str(error.reasons[-1]) if error.reasons else str(error)
            return Outcome(State.UNIMPLEMENTED, f"{case.driver.name}: {reason[:_REASON]}")
        except (InvalidArguments, BadValue) as error:
            return Outcome(State.REFUSED, f"{case.driver.name}: {str(error)[:_REASON]}")
        except OutOfMemory as error:
            return Outcome(State.REFUSED, str(error))


@contextmanager
def _caches(small: bool) -> Iterator[None]:
    """Kernels for small caches are kept apart from others."""
    if not small:
        yield
        return
    with small_is_large(), config.override("cache_limit", 0):
        primitive._cache.clear()
        yield
        primitive._cache.clear()


def _checked(case: Case, threads: int, own: str) -> Outcome:
    kind = description(case.driver)
    assert kind is not None
    reason = skipped(case, kind.operation)
    if reason is not None:
        return Outcome(State.REFUSED, f"{case.driver.name}: {reason}")
    created = layouts.applied(create(with_known_sizes(case), kind), own)
    is_open = check_open(case)
    if is_open:
        created = with_open_sizes(case, created)
    trial = Trial(case, created, at_execution(case, kind, created))
    if sum(tensor.desc.size for tensor in trial.desc.tensors) > _MOST_BYTES:
        return Outcome(State.REFUSED, f"{case.driver.name}: tensors too large, for their padding")
    made = Primitive(created.pd)
    if threads == _TOLD and not created.desc.has_runtime_values:
        str(created.pd.info(1))
    if is_open:
        return _executed_on_sizes(case, kind, created, trial, made, threads)
    outcome = _filled_and_executed(case, trial, made, threads)
    if outcome is not PASSED or created.pd is not trial.pd:
        return outcome
    try:
        assert_apart(made, _beside_pages(trial.memories, "end"))
    except AssertionError as error:
        return failed(f"work items share bytes: {_name(case, trial)}", str(error))
    return outcome


def _executed_on_sizes(
    case: Case,
    kind: type[Desc],
    created: Created,
    trial: Trial,
    made: Primitive,
    threads: int,
) -> Outcome:
    """The primitive on the sizes of the case and on others; passed cases are counted by how many
    kernels that took."""
    outcome = _filled_and_executed(case, trial, made, threads, " open")
    for other, sized in other_cases(case, kind, created):
        if outcome.state is State.FAILED:
            break
        trial = Trial(other, sized, at_execution(other, kind, sized))
        outcome = _filled_and_executed(other, trial, made, threads, " open")
    if outcome.state is not State.PASSED:
        return replace(outcome, detail=f"{trial.case.problem.text}: {outcome.detail}")
    kernels = len(made.pd.variants.every) if made.pd.variants is not None else 1
    return Outcome(State.PASSED, f"{case.driver.name}: {kernels} kernels for open sizes")


def _filled_and_executed(
    case: Case, trial: Trial, made: Primitive, threads: int, how: str = ""
) -> Outcome:
    trial.fill(bitwise=False)
    trial.place()
    given = dict(trial.memories)
    for memory in given.values():
        for part in memory.parts:
            poison_gaps(part)
    outcome = _executed(case, trial, made, given, threads, how)
    trial.memories = given
    return outcome


def _executed(
    case: Case,
    trial: Trial,
    made: Primitive,
    given: dict[int, Memory],
    threads: int,
    how: str = "",
) -> Outcome:
    written = {tensor.argument for tensor in trial.pd.written}
    what = _name(case, trial) + how
    first: dict[int, Memory] = {}
    runs: tuple[tuple[int, End], ...] = ((1, "end"), (threads, "end"), (threads, "start"))
    for count, at in runs:
        placed = _beside_pages(given, at)
        made.execute(Stream(trial.pd.engine, count), placed)
        changed = _changed(given, placed, written)
        if changed:
            return failed(f"sources written: {what}", f"arguments {changed}")
        first = first or placed
        other = [name for name in written if not _same(first[name], placed[name])]
        if other:
            return failed(f"bits differ: {what}", f"arguments {other}, {count} threads, {at}")
    return _judged(case, trial, first, what)


def _name(case: Case, trial: Trial) -> str:
    """What failures of one cause are likely to share."""
    return f"{case.driver.name} {trial.desc.spelled_propagation} {trial.result.desc.data_type}"


def _beside_pages(given: dict[int, Memory], at: End) -> dict[int, Memory]:
    """Copies of the memories, shared where they are shared."""
    placed = {id(memory): near(memory, at) for memory in given.values()}
    return {argument: placed[id(memory)] for argument, memory in given.items()}


def _changed(before: dict[int, Memory], after: dict[int, Memory], written: set[int]) -> list[int]:
    """The arguments that are no outputs, nor scratch, and changed."""
    outputs = {id(before[argument]) for argument in written}
    kept = [a for a in before if id(before[a]) not in outputs and a != Arg.SCRATCHPAD]
    return [a for a in kept if not _same(before[a], after[a])]


def _same(one: Memory, other: Memory) -> bool:
    """Whether two memories have the same bytes."""
    pairs = zip(one.parts, other.parts, strict=True)
    return all(np.array_equal(a.data, b.data) for a, b in pairs)


def _judged(case: Case, trial: Trial, results: dict[int, Memory], what: str) -> Outcome:
    trial.memories = results
    expected = trial.expect()
    if any(np.any(np.isfinite(v) & (np.abs(v) > _RANGE)) for v in expected.outputs.values()):
        return Outcome(State.PASSED, "results that may leave the range of f32 on their way")
    verdict = trial.judge(expected)
    if verdict.errors:
        text = "\n".join((f"{verdict.errors} of {verdict.total} are wrong:", *verdict.lines))
        return failed(f"wrong: {what}", text + _as_bench(case))
    for tensor in trial.pd.written:
        try:
            for part in results[tensor.argument].parts:
                assert_padding_zero(part)
                assert_gaps_untouched(part)
        except AssertionError as error:
            return failed(f"padding or gaps: {what}", str(error))
    return PASSED


def _as_bench(case: Case) -> str:
    """The command of the library itself that fails as well, if it does."""
    limit = config.get("max_cpu_isa")
    knob = "" if limit == "default" else f"DNNL_MAX_CPU_ISA={limit} "
    return f"\n{knob}dnnl bench {case.repro}" if Executor().run(case).state.bad else ""


KIND = Kind(
    "primitive", "valid problems of every operation", lines, run, __name__, weight=8, timeout=120
)
