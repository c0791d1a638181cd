"""What became of a case."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from dnnl.tools.bench.template import Measured


class State(enum.Enum):
    """The states of a case, each with the name under which the summary counts it."""

    PASSED = ("PASSED", "passed")
    EXECUTED = ("EXECUTED", "passed")
    INITIALIZED = ("INITIALIZED", "passed")
    SKIPPED = ("SKIPPED", "skipped")
    MISTRUSTED = ("MISTRUSTED", "mistrusted")
    UNIMPLEMENTED = ("UNIMPLEMENTED", "unimplemented")
    INVALID_ARGUMENTS = ("INVALID_ARGUMENTS", "invalid_arguments")
    FAILED = ("FAILED", "failed")
    UNTESTED_FAILED = ("UNTESTED_FAILED", "failed")
    LISTED = ("LISTED", "listed")

    @property
    def tally(self) -> str:
        """The summary's name of it."""
        return self.value[1]

    @property
    def bad(self) -> bool:
        """Whether it makes the exit status 1."""
        return self.tally in ("unimplemented", "invalid_arguments", "failed")


SUMMARY = (
    "passed", "skipped", "mistrusted", "unimplemented", "invalid_arguments", "failed", "listed",
)  # fmt: skip


@dataclass(frozen=True)
class PeerResult:
    """What another library did with a case: its implementation and its times, or why nothing.

    ``differs`` tells of elements that it is known to have otherwise than the specification.
    """

    name: str
    impl: str = ""
    refusal: str = ""
    differs: str = ""
    measured: Measured = field(default_factory=Measured)

    def ratio(self, ours: Measured) -> float:
        """The peer's least time by ours."""
        return self.measured.time("-") / max(ours.time("-"), 1e-9)


@dataclass
class Result:
    """The outcome of one case. ``lines`` explain it, ``took_ms`` is the time of all of it.

    ``worst`` is the largest error of an element; None where nothing was compared.
    """

    state: State
    reason: str = ""
    errors: int = 0
    total: int = 0
    worst: float | None = None
    took_ms: float = 0.0
    impl: str = ""
    lines: tuple[str, ...] = ()
    measured: Measured = field(default_factory=Measured)
    peers: list[PeerResult] = field(default_factory=list)

    def line(self, number: int, repro: str) -> str:
        """The result line of case ``number``."""
        parts = [f"{number}:{self.state.name}"]
        if self.reason:
            parts.append(f"({self.reason})")
        if self.errors:
            parts.append(f"(errors:{self.errors} total:{self.total})")
        return " ".join([*parts, f"({self.took_ms:.0f} ms)", f"__REPRO: {repro}"])


PHASES = ("create_pd", "create_prim", "fill", "execute", "compute_ref", "compare")
"""What the time of a run is split into."""
