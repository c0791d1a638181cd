"""What a run prints: a line for each case, performance lines, the summary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any, TypeAlias

from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.result import PHASES, SUMMARY, PeerResult, Result, State
from dnnl.tools.bench.settings import Settings
from dnnl.tools.bench.template import Measured, fill, header

Record: TypeAlias = Mapping[str, Any]
"""A case and its results, as `Report.write` puts them into JSON."""

_SHOWN_FAILURES = 10
_EXPLAINED = (State.FAILED, State.UNTESTED_FAILED, State.INVALID_ARGUMENTS)
"""The states whose details are printed without being asked for."""


@dataclass(frozen=True)
class PeerSummary:
    """The geometric mean of the ratios of the cases that a peer has, how many it has not, and in
    how many it differs from the specification."""

    name: str
    cases: int
    mean: float
    alone: int
    differing: int


class Report:
    """Collects the results of a run; ``keep`` them all for `records` and `write`."""

    def __init__(self, *, keep: bool = False) -> None:
        self._counts: Counter[str] = Counter()
        self._impls: Counter[str] = Counter()
        self._failures: list[str] = []
        self._times: list[Measured] = []
        self._ratios: dict[str, list[float]] = {}
        self._alone: Counter[str] = Counter()
        self._differing: Counter[str] = Counter()
        self._templates: set[str] = set()
        self._keep = keep
        self._records: list[dict[str, object]] = []
        self._settings = Settings()
        self.tests = 0

    def add(self, case: Case, result: Result) -> list[str]:
        """Count one case; the lines that tell of it."""
        number, self.tests = self.tests, self.tests + 1
        self._settings = case.settings
        self._counts[result.state.tally] += 1
        if result.impl:
            self._impls[result.impl] += 1
        line = result.line(number, case.repro)
        shown: list[str] = []
        if result.lines and (case.settings.verbose or result.state in _EXPLAINED):
            shown += result.lines
        for peer in result.peers:
            self._alone[peer.name] += bool(peer.refusal)
            self._differing[peer.name] += bool(peer.differs)
            if peer.differs:
                shown.append(f"{peer.name} differs: {peer.differs}")
            if case.settings.verbose:
                shown.append(f"{peer.name}: {peer.refusal or peer.impl}")
        if result.state.bad:
            self._failures.append(line)
        measuring = case.settings.mode == "P"
        if measuring:
            shown += self._measured(number, case, result)
        if not measuring or result.state.bad:
            shown.append(line)
        if self._keep:
            self._records.append(_record(number, case, result))
        return shown

    def _measured(self, number: int, case: Case, result: Result) -> Iterator[str]:
        """The performance line of a case, and before the first the names of the columns."""
        if case.template not in self._templates:
            self._templates.add(case.template)
            yield f"Template entries: {case.template}"
            yield header(case.template)
        if result.measured.runs:
            self._times.append(result.measured)
        plain = _plain(number, case, result)
        yield fill(case.template, plain, result.measured)
        for peer in result.peers:
            if peer.refusal:
                yield f"peer,{peer.name},{peer.refusal}"
                continue
            least, mean = peer.measured.time("-"), peer.measured.time("0")
            ratio = peer.ratio(result.measured)
            self._ratios.setdefault(peer.name, []).append(ratio)
            times = f"min_time:{least:g},avg_time:{mean:g},ratio:{ratio:.3g}"
            yield f"peer,{peer.name},{peer.impl},{times}"

    @property
    def failed(self) -> bool:
        """Whether anything was worse than skipped or mistrusted."""
        return any(self._counts[state.tally] for state in State if state.bad)

    @property
    def counts(self) -> dict[str, int]:
        """How many cases ended how."""
        return {name: self._counts[name] for name in SUMMARY}

    @property
    def records(self) -> Sequence[Record]:
        """Every case, if ``keep`` was set; times are in ms."""
        return self._records

    @property
    def peers(self) -> list[PeerSummary]:
        """How we compare with each peer."""
        return [
            PeerSummary(
                name,
                len(ratios),
                exp(sum(map(log, ratios)) / max(len(ratios), 1)),
                alone,
                self._differing[name],
            )
            for name, alone in self._alone.items()
            for ratios in [self._ratios.get(name, [])]
        ]

    def summary(self, seconds: float, phases: Counter[str]) -> Iterator[str]:
        """The lines at the end."""
        shown = self._settings.summary
        if "impl" in shown and self._impls:
            yield "= Implementation statistics ="
            width = max(map(len, self._impls))
            total = sum(self._impls.values())
            for name, count in self._impls.most_common():
                yield f"| {name:<{width}} : {count} ({100 * count / total:.0f}%) |"
        if "impl-csv" in shown:
            for name, count in self._impls.most_common():
                yield f"impl,{name},{count}"
        if "failures" in shown and self._failures:
            how = "(--summary=no-failures to disable)"
            yield f"= Failed cases summary {how} = {len(self._failures)} ="
            yield from self._failures[:_SHOWN_FAILURES]
        counts = " ".join(f"{name}:{count}" for name, count in self.counts.items())
        yield f"tests:{self.tests} {counts}"
        if self._settings.mode == "P":
            least = sum(measured.time("-") for measured in self._times)
            mean = sum(measured.time("0") for measured in self._times)
            yield f"total perf: min(ms):{least:g} avg(ms):{mean:g}"
        for peer in self.peers:
            if peer.cases:
                times = f"mean:{peer.mean:.3g} cases:{peer.cases}"
                yield f"{peer.name}: peer ratio (above 1: ours is faster): {times}"
            if peer.alone:
                yield f"{peer.name}: cases without peer:{peer.alone}"
            if peer.differing:
                yield f"{peer.name}: cases in which the peer differs:{peer.differing}"
        parts = [f"total: {seconds:.2f}s;"]
        for name in PHASES:
            share = 100 * phases[name] / seconds if seconds else 0
            parts.append(f"{name}: {phases[name]:.2f}s ({share:.0f}%);")
        yield " ".join(parts)

    def write(self, path: Path, seconds: float) -> None:
        """Write all results as JSON; times are in ms."""
        data = {"tests": self.tests, **self.counts, "seconds": seconds, "cases": self._records}
        path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _plain(number: int, case: Case, result: Result) -> dict[str, str]:
    """The texts of the tokens that are no measurement."""
    values = {name.replace("-", "_"): str(value) for name, value in case.values.items()}
    for name in ("ctx-init", "ctx-exe"):
        values[name] = str(case.values.get(name, ""))
    attributes = [part for part in case.line.split(" ") if part.startswith("--attr-")]
    text, name = case.problem.text, case.problem.name
    desc = text[: len(text) - len(name)].removesuffix("n").removesuffix("_") if name else text
    values |= {
        "engine": case.settings.engine,
        "impl": result.impl,
        "name": name,
        "prb": case.repro,
        "driver": case.driver.name,
        "desc": desc,
        "attr": " ".join(attributes),
        "idx": str(number),
    }
    return values


def _record(number: int, case: Case, result: Result) -> dict[str, object]:
    measured = result.measured
    record: dict[str, object] = {
        "index": number,
        "driver": case.driver.name,
        "engine": case.settings.engine,
        "state": result.state.name,
        "reason": result.reason,
        "case": f"--{case.driver.name} {case.line}",
        "repro": case.repro,
        "impl": result.impl,
        "ms": result.took_ms,
        "errors": result.errors,
        "total": result.total,
        "create_ms": sum(measured.creation),
    }
    if result.worst is not None:
        record["worst_error"] = result.worst
    if result.lines:
        record["details"] = list(result.lines)
    if measured.runs:
        record["min_ms"], record["avg_ms"] = measured.time("-"), measured.time("0")
        record["ops"] = measured.ops
        record["bytes"] = measured.input_bytes + measured.output_bytes
    if result.peers:
        record["peers"] = [_peer_record(peer, measured) for peer in result.peers]
    return record


def _peer_record(peer: PeerResult, ours: Measured) -> dict[str, object]:
    record: dict[str, object] = {"name": peer.name, "impl": peer.impl}
    if peer.refusal:
        record["refusal"] = peer.refusal
    if peer.differs:
        record["differs"] = peer.differs
    if peer.measured.runs:
        times = peer.measured
        record |= {"min_ms": times.time("-"), "avg_ms": times.time("0"), "ratio": peer.ratio(ours)}
    return record
