"""Tables of what kernels use, as Markdown and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.ptx.assembler import ARCHITECTURES, Usage
from tests.ptx.kernels import Kernel

_HEAD = ("operation", "kernels", "entries", *ARCHITECTURES, "spilling", "spills", "stack", "shared")
_WORST = ("target", "registers", "spills", "stack", "case")


class Entry(NamedTuple):
    """An entry point of a kernel, assembled for one architecture."""

    kernel: Kernel
    usage: Usage

    @property
    def local(self) -> tuple[int, int]:
        """The bytes of its spills, then of its stack."""
        return self.usage.spills, self.usage.stack


def entries(kernels: Sequence[Kernel]) -> list[Entry]:
    """The entry points of all kernels for each architecture."""
    return [Entry(kernel, usage) for kernel in kernels for usage in kernel.usages]


def by_operation(found: Sequence[Entry]) -> str:
    """A row for each operation: how many kernels and entry points; on each architecture, the median
    and the largest number of registers; how many entry points spill; the largest number of bytes of
    spills, stack and shared memory."""
    ordered = sorted(found, key=lambda entry: entry.kernel.operation)
    groups = groupby(ordered, key=lambda entry: entry.kernel.operation)
    return _markdown(_HEAD, [(name, *_summary(list(group))) for name, group in groups])


def _summary(group: Sequence[Entry]) -> Sequence[object]:
    usages = [entry.usage for entry in group]
    return (
        len({entry.kernel.file for entry in group}),
        len(usages) // len(ARCHITECTURES),
        *(_registers(usages, architecture) for architecture in ARCHITECTURES),
        sum(usage.spills > 0 for usage in usages),
        max(usage.spills for usage in usages),
        max(usage.stack for usage in usages),
        max(usage.shared for usage in usages),
    )


def _registers(usages: Sequence[Usage], architecture: str) -> str:
    numbers = [one.registers for one in usages if one.architecture == architecture]
    return f"{round(median(numbers))}, {max(numbers)}"


def worst(found: Sequence[Entry], most: int) -> str:
    """The entry points with the most spills, then with the largest stacks."""
    local = sorted((one for one in found if any(one.local)), key=lambda one: one.local)
    rows = [
        (one.usage.architecture, one.usage.registers, *one.local, f"`{one.kernel.line}`")
        for one in reversed(local[-most:])
    ]
    return _markdown(_WORST, rows)


def write(file: Path, found: Sequence[Entry]) -> None:
    """Write a line for each entry point on each architecture."""
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(("operation", *Usage.__dataclass_fields__, "file", "case"))
        for kernel, usage in found:
            values = vars(usage).values()
            writer.writerow((kernel.operation, *values, kernel.file.name, kernel.line))


def _markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return "\n".join(_lines([head, ["---"] * len(head), *rows]))


def _lines(rows: Sequence[Sequence[object]]) -> Iterator[str]:
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
