"""A few cases of every kind, always the same, and all that failed once.

`make fuzz` tries others, for as long as one likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.fuzz.campaign import Campaign, Finding
from tests.fuzz.kind import State
from tests.fuzz.kinds import KINDS
from tests.fuzz.report import regressions, repro
from tests.fuzz.worker import Worker

ROUNDS = {
    "primitive": 12, "open": 9, "large": 3, "call": 40, "graph": 6, "special": 15, "model": 40,
    "cache": 3, "threads": 4, "fork": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def workers() -> Iterator[dict[str, Worker]]:
    with ExitStack() as running:
        yield {name: running.enter_context(Worker(kind)) for name, kind in KINDS.items()}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.every
def test_a_few_cases(name: str, workers: dict[str, Worker]) -> None:
    found: list[Finding] = []
    campaign = Campaign([KINDS[name]], seed=0, found=found.append)
    for _ in range(ROUNDS[name]):
        campaign.round(KINDS[name], workers[name].run, float("inf"))
    assert not [f"{repro(finding.line)}\n{finding.outcome.detail}" for finding in found]
    assert campaign.tallies[name].states[State.PASSED]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=pytest.mark.xfail(reason="not mended yet") if known else ())
        for line, known in regressions()
    ],
)
def test_what_failed_once(line: str, workers: dict[str, Worker]) -> None:
    name, _, text = line.partition(" ")
    outcome = workers[name].run(text)
    assert outcome is not None
    assert outcome.state is not State.FAILED, outcome.detail
