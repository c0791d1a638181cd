"""How far the building of a session's kernels is, reported to callbacks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

Report = Callable[[int, int, str], object]
"""Called with how many kernels are there, how many there will be, and what the last one is for."""

PLANNING = "planning"
"""The text while the number of kernels is unknown, which is reported as 0."""


class Keyed(Protocol):
    """The description of a kernel: equal ones have one key."""

    @property
    def key(self) -> Hashable:
        """What makes two kernels the same."""


class Progress:
    """Tells a callback, in the thread that compiles, of each kernel once. What it raises ends the
    compilation."""

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self._unbuilt: dict[Hashable, str] = {}
        self._total = 0
        self._tell(PLANNING)

    def expect(self, kernels: Iterable[tuple[str, Keyed]]) -> None:
        """Say which kernels will be there, and what they are for; equal ones are one."""
        for name, pd in kernels:
            self._unbuilt.setdefault(pd.key, name)
        self._total = len(self._unbuilt)

    def ready(self, pd: Keyed) -> None:
        """Say that the kernel of a description is there."""
        name = self._unbuilt.pop(pd.key, None)
        if name is not None:
            self._tell(name)

    def _tell(self, what: str) -> None:
        if self._report is not None:
            self._report(self._total - len(self._unbuilt), self._total, what)
