"""``python -m tests.soak``: a long run, its plot, and exit 1 where a line rises or an activity
raises."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from tests.soak.activities import ACTIVITIES
from tests.soak.plot import draw
from tests.soak.rule import LEAST, judged
from tests.soak.run import soak

FAILED = 1


@click.command(help=__doc__)
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=10.0)
@click.option("--seed", type=int, default=1)
@click.option("--only", type=click.Choice([*ACTIVITIES]), multiple=True, help="These activities.")
@click.option("--plot", type=click.Path(path_type=Path), default=Path("build/soak.png"))
def main(minutes: float, seed: int, only: tuple[str, ...], plot: Path) -> None:
    chosen = {name: run for name, run in ACTIVITIES.items() if not only or name in only}
    made = soak(chosen, 60 * minutes, seed, partial(print, flush=True))
    print(made.state)
    for name, count in made.done.items():
        print(f"{count:8d} {name}")
    draw(made, plot)
    print(f"{plot} has the lines")
    if not judged(made.times):
        print(f"too short to judge: {len(made.times)} samples, and a rise shows in {2 * LEAST}")
    for failure in made.failures:
        print(f"FAILED: {failure}")
    sys.exit(FAILED if made.failures else 0)


if __name__ == "__main__":
    main()
