"""The command line of the search."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import monotonic

import click

from tests.fuzz.campaign import Campaign, Finding
from tests.fuzz.kind import State
from tests.fuzz.kinds import KINDS, run_line
from tests.fuzz.report import Report, keep


@click.command()
@click.option("--minutes", type=float, default=10.0, show_default=True, help="How long to search.")
@click.option("--seed", type=int, default=1, show_default=True, help="Other cases for each.")
@click.option("--kinds", default=",".join(KINDS), show_default=True, help="Which kinds of cases.")
@click.option("--case", "line", help="Run this case alone.")
@click.option("--keep/--no-keep", "kept", default=True, help="Add failures to regressions.txt.")
def main(minutes: float, seed: int, kinds: str, line: str | None, kept: bool) -> None:
    """Search for wrong results, raw exceptions, crashes and hangs; exit status 1 if there are any.

    A failure is shrunk, printed as the command that repeats it, and kept as a regression case.
    """
    sys.exit(_one(line) if line is not None else _search(minutes * 60, seed, kinds, kept))


def _one(line: str) -> int:
    _check_kinds([line.partition(" ")[0]])
    outcome = run_line(line)
    print(outcome.state.value, outcome.reason)
    print(outcome.detail)
    return int(outcome.state is State.FAILED)


def _search(seconds: float, seed: int, kinds: str, kept: bool) -> int:
    names = kinds.split(",")
    _check_kinds(names)
    report, started = Report(), monotonic()

    def found(finding: Finding) -> None:
        report.show(finding)
        if kept and finding.repeatable:
            keep(finding.line)

    campaign = Campaign([KINDS[name] for name in names], seed, found)
    with report.progress(campaign.tallies, seconds) as move:
        campaign.moved = move
        campaign.search(seconds)
    report.table(campaign.tallies, monotonic() - started)
    return int(campaign.failed)


def _check_kinds(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise click.BadParameter(f"no kinds {', '.join(unknown)}; there are {', '.join(KINDS)}")


if __name__ == "__main__":
    main()
