"""Activities in turns, with a sample of every line behind each turn."""

from __future__ import annotations

import random
import tempfile
import time
import traceback
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from dnnl import config
from tests.soak.lines import LINES, Line
from tests.soak.rule import rise

TURN = 0.2
"""Seconds of an activity until it is the next one's turn."""
PROGRESS = 10.0
"""Seconds between two lines of progress."""

# Small, so that they are full soon: what is then new takes the place of something older.
_PRIMITIVES, _CACHE_MIB = 32, 4

Activity = Callable[[random.Random], None]


@dataclass
class Soak:
    """The samples of a run: when, behind whose turn, and the values of each line.

    ``done`` counts the calls of each activity, ``raised`` has the tracebacks of those that failed.
    """

    times: array[float] = field(default_factory=lambda: array("d"))
    turns: list[str] = field(default_factory=list)
    values: dict[Line, array[float]] = field(
        default_factory=lambda: {line: array("d") for line in LINES}
    )
    done: Counter[str] = field(default_factory=Counter)
    raised: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        """What was raised, and what is said of the lines that rise."""
        verdicts = [self.verdict(line) for line in self.values]
        return [*self.raised, *filter(None, verdicts)]

    @property
    def state(self) -> str:
        """The last sample."""
        now = [line.text(values[-1]) for line, values in self.values.items()]
        return "  ".join([f"{self.times[-1]:6.0f} s  {self.done.total():8d} done", *now])

    def verdict(self, line: Line) -> str:
        """By how much a line rises, and during which activity most of it; "" if it does not."""
        values = self.values[line]
        hourly = rise(self.times, values, line.absolute, line.relative)
        if hourly is None:
            return ""
        half = len(values) // 2
        grown = dict.fromkeys(self.turns, 0.0)
        for name, (before, after) in zip(
            self.turns[half:], pairwise(values[half - 1 :]), strict=True
        ):
            grown[name] += after - before
        most = max(grown, key=grown.__getitem__)
        rising, own = line.text(hourly, "+,.0f"), line.text(grown[most], "+.4g")
        return f"{line.name} {rising} an hour; in the second half {own} by {most}"

    def turn(self, name: str, activity: Activity, chance: random.Random, start: float) -> None:
        """An activity for a while, or until it raises, and a sample."""
        end = time.perf_counter() + TURN
        try:
            while time.perf_counter() < end:
                activity(chance)
                self.done[name] += 1
        except Exception:
            self.raised.append(f"{name} raised\n{traceback.format_exc()}")
        self.times.append(time.perf_counter() - start)
        self.turns.append(name)
        for line, values in self.values.items():
            values.append(line.read())


def soak(
    activities: Mapping[str, Activity],
    seconds: float,
    seed: int = 1,
    say: Callable[[str], object] = print,
) -> Soak:
    """Run for so long, and until each activity had its turn; the first that raises ends the run."""
    made, chance = Soak(), random.Random(seed)
    start = said = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        config.override("cache_dir", Path(folder)),
        config.override("cache_limit", _CACHE_MIB),
        config.override("primitive_cache_capacity", _PRIMITIVES),
    ):
        while time.perf_counter() < start + seconds:
            for name, activity in activities.items():
                made.turn(name, activity, chance, start)
                if made.raised:
                    return made
            if time.perf_counter() > said + PROGRESS:
                said = time.perf_counter()
                say(made.state)
    return made
