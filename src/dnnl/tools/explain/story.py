"""The explanation of one operation, as rows of a label and a text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from dnnl.errors import Error, Unimplemented
from dnnl.language.errors import BadValue
from dnnl.language.verbose import OperationLine
from dnnl.primitives.amounts import scaled, size
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.tools.bench.creation import create, skipped
from dnnl.tools.bench.drivers import SUMMARIES, description, kind_of
from dnnl.tools.bench.verbose_line import operation_tokens, read
from dnnl.tools.explain import phrases
from dnnl.tools.explain.attributes import attributes
from dnnl.tools.explain.inside import Looks
from dnnl.tools.explain.problems import parameters, sizes
from dnnl.tools.explain.tensors import Placed, flops, layout, offset, placed, problem

Rows = Iterator[tuple[str, str]]


@dataclass
class Times:
    """How often each event of one operation was seen, with its times in ms."""

    seen: dict[str, list[float | None]] = field(default_factory=dict)

    def add(self, line: OperationLine) -> None:
        """Note one line."""
        self.seen.setdefault(line.event, []).append(line.ms)

    def known(self, event: str) -> list[float]:
        """The times of an event."""
        return [ms for ms in self.seen.get(event, ()) if ms is not None]

    @property
    def least(self) -> float:
        """The least time of an execution; 0 if there is none."""
        return min(self.known("exec"), default=0.0)

    def texts(self) -> Iterator[str]:
        """A phrase for each event."""
        for event, all_times in self.seen.items():
            times = self.known(event)
            count = f" {len(all_times)} times" if len(all_times) > 1 else ""
            took = f", {times[0]:g} ms" if len(times) == 1 else ""
            if len(times) > 1:
                took = f", {min(times):g} ms at least, {sum(times):g} ms in all"
            yield f"{phrases.event(event)}{count}{took}"


def of_line(line: OperationLine, times: Times, looks: Looks) -> Rows:
    """The rows of an operation that a verbose line tells of; raises BadValue."""
    yield "line", f"{line.library} on {line.engine}: {'; '.join(times.texts())}"
    yield from _statement(line, times)
    try:
        (case,) = Interpreter().cases(operation_tokens(line))
    except BadValue as error:
        yield "bench", f"none: {error}"
        return
    yield from _ours(case, looks)
    yield "bench", repro(case)


def of_case(case: Case, looks: Looks) -> Rows:
    """The rows of a case of ``dnnl bench``."""
    kind = description(case.driver)
    try:
        if kind is None or skipped(case, kind.operation) is not None:
            raise Unimplemented(f"no primitive is made for --{case.driver.name}")
        pd = create(case, kind).pd
    except Error:
        yield from _head(_bare(case, kind_of(case.driver)))
        yield "options", case.line.removesuffix(case.problem.text).strip() or "none"
    else:
        line = read(f"dnnl_verbose,v1,primitive,exec,{pd.verbose_fields()}")
        assert isinstance(line, OperationLine)
        yield from _statement(replace(line, impl=""), Times())
    yield from _ours(case, looks)
    yield "bench", repro(case)


def _bare(case: Case, kind: str) -> OperationLine:
    """A line with nothing but the sizes of a case."""
    text = case.problem.text
    return OperationLine("dnnl", "exec", "cpu", kind, "", "undef", (), (), {}, text, None)


def repro(case: Case) -> str:
    """The command that runs a case."""
    return f"dnnl bench {shlex.join(case.repro.split())}"


def _statement(line: OperationLine, times: Times) -> Rows:
    """What is computed, on which tensors, and how much work that is."""
    tensors = placed(line)
    yield from _head(line)
    for text in parameters(line):
        yield "", text
    if line.impl:
        meaning = phrases.implementation(line.impl)
        yield "done by", f"{line.impl}: {meaning}" if meaning else line.impl
    for item in tensors:
        yield from _tensor(item)
    letters = {item.tensor.name: item.letters for item in tensors}
    known = OPERATIONS.get(line.kind)
    late = known is not None and known.operation.scales_result
    for number, text in enumerate(attributes(line.attributes, letters, scales_result=late)):
        yield "" if number else "attributes", text
    yield "work", _work(line, tensors, times.least)


def _head(line: OperationLine) -> Rows:
    """The operation and its sizes."""
    what = SUMMARIES.get(line.kind, f"{line.kind}, an operation that is not known here")
    direction = phrases.PROPAGATIONS.get(line.prop, line.prop)
    if line.prop == "backward_weights" and line.named("bia", "diff_bia"):
        direction += ", and of the bias"
    yield "operation", f"{what}; {direction}" if direction else what
    yield "problem", sizes(line, problem(line))


def _tensor(item: Placed) -> Rows:
    tensor, desc = item.tensor, item.desc
    dims = "" if desc is None else f" {'x'.join(map(str, desc.dims))}"
    nbytes = "" if desc is None else f", {size(desc.size)}"
    yield tensor.name, f"{tensor.data_type}{dims}, {layout(item)}{nbytes}"
    if place := offset(item):
        yield "", place


def _work(line: OperationLine, tensors: Sequence[Placed], ms: float) -> str:
    """Operations and bytes, and what they are in a second."""
    unknown = [item.tensor.name for item in tensors if item.desc is None]
    # What version 2 calls data is read and written.
    shared = not any(item.tensor.name.endswith("dst") for item in tensors)
    nbytes = sum(
        item.desc.size * (2 if shared and item.tensor.name == "data" else 1)
        for item in tensors
        if item.desc is not None
    )
    count = flops(line)
    amounts = [scaled(count, "FLOP")] if count else []
    rates = [scaled(count / ms * 1e3, "FLOP/s")] if count and ms else []
    if unknown:
        amounts.append(f"the line does not tell the bytes of {', '.join(unknown)}")
    else:
        amounts.append(f"{size(nbytes)}, each tensor read or written once")
        rates += [scaled(nbytes / ms * 1e3, "B/s")] if ms else []
    text = ", ".join(amounts)
    return f"{text}; {', '.join(rates)}" if rates else text


def _ours(case: Case, looks: Looks) -> Rows:
    """Which implementation of ours takes a case, and why the others do not."""
    kind = description(case.driver)
    if kind is None:
        yield "here", f"dnnl has no primitive for --{case.driver.name} yet"
        return
    try:
        reason = skipped(case, kind.operation)
        if reason is not None:
            yield "here", f"dnnl bench skips this: {reason}"
            return
        pd = create(case, kind).pd
    except Unimplemented as error:
        reasons = [str(reason) for reason in error.reasons]
        yield "here", f"nothing takes it: {'; '.join(reasons) or error}"
        return
    except Error as error:
        yield "here", f"refused: {error}"
        return
    yield from _candidates(copy(pd))
    yield from looks.rows(case, pd)


def _candidates(pd: PrimitiveDesc) -> Rows:
    chosen = pd.impl_info
    yield "here", f"{chosen}: {phrases.implementation(chosen)}"
    while pd.next_impl():
        pass
    first = True
    for candidate in pd.candidates:
        if candidate.refusal is not None:
            yield "", f"{candidate.name} refuses: {candidate.refusal}"
        elif not first:
            yield "", f"{candidate.name} would take it as well"
        first = first and candidate.refusal is not None
