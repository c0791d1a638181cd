"""Models in each policy of layouts, in turn.

    python -m bench.policies build/mobilenet.onnx build/bert.onnx

measures ResNet-50 of the ONNX package, with random weights, and each FILE, such as ``python -m
bench.export`` writes. Times are those of the processor, of one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import process_time

import click
import numpy as np

from bench.context import SEED
from bench.models import light_model
from dnnl import load
from dnnl.framework.model import Model
from dnnl.framework.session import Session
from dnnl.graph.graph import Array
from dnnl.lowering.graphs import LAYOUTS
from dnnl.tools.difference import compare
from dnnl.tools.measure import Contender, Effort, Measurement, measure

TOKENS = 30000
RESNET = "resnet50"


def feeds_for(model: Model) -> dict[str, Array]:
    """Normal floats, and tokens."""
    rng = np.random.default_rng(SEED)
    return {
        name: rng.standard_normal(kind.sizes).astype(kind.dtype)
        if kind.dtype.kind == "f"
        else rng.integers(0, TOKENS, kind.sizes, kind.dtype)
        for name, kind in model.inputs.items()
    }


def timed(run: Callable[[], object]) -> float:
    """Seconds of the processor for one run."""
    start = process_time()
    run()
    return process_time() - start


def sessions_of(model: Model, feeds: Mapping[str, Array]) -> dict[str, Session]:
    """A session for each policy, all of which give the same results."""
    made = {name: model.compile(layout=name, num_threads=1) for name in LAYOUTS}
    expected = made[LAYOUTS[0]].run(feeds)
    for name, session in made.items():
        for output, array in session.run(feeds).items():
            difference = compare(output, array, expected[output])
            if not difference.is_equal:
                raise click.ClickException(f"{name} differs: {difference}")
    return made


def contest(sessions: Mapping[str, Session], feeds: Mapping[str, Array], runs: int) -> Measurement:
    """So many rounds, with one run of each policy that counts."""
    contenders = []
    for name, session in sessions.items():
        run = partial(session.run, feeds)
        contenders.append(Contender(name, run, timed=partial(timed, run)))
    return measure(contenders, Effort(runs, 0.0, calls=runs))


@click.command(help=__doc__)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--runs", type=int, default=25, show_default=True, help="Runs of each policy.")
def main(files: Sequence[Path], runs: int) -> None:
    """Print a row of a table for each model."""
    models = {RESNET: light_model(RESNET).with_random_weights(SEED)}
    models |= {path.stem: load(path) for path in files}
    click.echo(f"| model | {' | '.join(f'{name} | steps, reorders' for name in LAYOUTS)} |")
    for title, model in models.items():
        feeds = feeds_for(model)
        sessions = sessions_of(model, feeds)
        result = contest(sessions, feeds, runs)
        cells = []
        for name, session in sessions.items():
            kinds = [layer.primitive for layer in session.layers]
            cells.append(f"{result.median(name) * 1e3:.2f} ({result.best(name) * 1e3:.2f})")
            cells.append(f"{len(kinds)}, {kinds.count('reorder')}")
        click.echo(f"| {title} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
