"""The operations of a whole log, each once, and what part of the time they took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from dnnl.language.verbose import OperationLine, OtherLine
from dnnl.tools.explain.story import Times


class Totals:
    """Collects lines; iterates over each different operation with all of its times."""

    def __init__(self) -> None:
        self._times: dict[str, tuple[OperationLine, Times]] = {}

    def add(self, line: OperationLine | OtherLine) -> bool:
        """Count a line; False if it tells of no operation."""
        if isinstance(line, OtherLine):
            return False
        key = repr(replace(line, event="", ms=None))
        self._times.setdefault(key, (line, Times()))[1].add(line)
        return True

    def __iter__(self) -> Iterator[tuple[OperationLine, Times]]:
        return iter(self._times.values())

    def shares(self) -> Iterator[str]:
        """The time of the executions by kind and implementation, the greatest first."""
        spent: Counter[tuple[str, str]] = Counter()
        count: Counter[tuple[str, str]] = Counter()
        for line, times in self:
            if known := times.known("exec"):
                spent[line.kind, line.impl] += sum(known)  # type: ignore[assignment]
                count[line.kind, line.impl] += len(known)
        total = sum(spent.values())
        if not count:
            return
        yield f"\nexecutions: {sum(count.values())}, {total:g} ms in all"
        for (kind, impl), ms in spent.most_common():
            share = 100 * ms / total if total else 0
            yield f"{share:5.1f}%  {ms:10.4g} ms  {count[kind, impl]:6d} x  {kind} {impl}"
