"""A model whose sizes change with every call, beside ONNX Runtime.

    python -m bench.changing MODEL.onnx --size n=1:6 --size w=80:800:32 --plot build/changing.png

calls the model with sizes drawn from the ranges (``NAME=LEAST:LARGEST:STEP``). Each call is timed
the first time that its sizes come, and then as the least of ``--repeats`` calls in turn with ONNX
Runtime, both on as many threads. The plot has a point for each set of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from time import perf_counter
from typing import Any

import click
import numpy as np

from bench.context import SEED
from dnnl import load
from dnnl.framework.indices import index_extents
from dnnl.framework.model import Model
from dnnl.graph.graph import Array
from dnnl.runtime.threads import set_num_threads

_ALLOWED = 5e-3
"""Seconds that a first call may take more than 1.5 steady ones."""
_TOLERANCE = 0.02
"""Outputs of deep networks that are nearly zero differ by 0.006, those of ONNX Runtime with and
without its own rewrites by 0.005."""
Sizes = dict[str, int]


def _ranges(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, range]:
    found = {}
    for text in values:
        name, _equals, numbers = text.partition("=")
        try:
            least, largest, *step = map(int, numbers.split(":"))
            found[name] = range(least, largest + 1, *step)
        except (ValueError, TypeError) as error:
            raise click.BadParameter(f"{text!r} is no NAME=LEAST:LARGEST:STEP") from error
    return found


def feeds_of(model: Model, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
    """Normal floats; integers are indices where they are gathered, else 0 and 1."""
    extents = index_extents(model.graph)
    feeds = {}
    for name, kind in model.inputs.items():
        shape = tuple(sizes[n] if isinstance(n, str) else n for n in kind.shape)
        if kind.dtype.kind == "f":
            feeds[name] = rng.standard_normal(shape).astype(kind.dtype)
        else:
            feeds[name] = rng.integers(0, extents.get(name, 2), shape).astype(kind.dtype)
    return feeds


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = perf_counter()
    result = run()
    return perf_counter() - start, result


def _steady(runs: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """The least times of some functions, which take turns."""
    times = [[_timed(run)[0] for run in runs] for _ in range(repeats)]
    return [min(column) for column in zip(*times, strict=True)]


def _difference(got: Any, expected: Sequence[Array], names: Sequence[str]) -> float:
    """The largest error, in units of the largest element."""
    results = got if isinstance(got, dict) else {names[0]: got}
    largest = 0.0
    for name, want in zip(names, expected, strict=True):
        scale = max(float(np.abs(want).max(initial=0)), 1e-20)
        error = np.abs(results[name].astype(np.float64) - want).max(initial=0)
        largest = max(largest, float(error) / scale)
    return largest


def _plot(path: Path, rows: np.ndarray, title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure((9, 5), layout="constrained")
    axes = figure.add_subplot()
    theirs, ours, first = rows.T * 1e3
    axes.loglog(theirs, first, "x", color="tab:orange", label="dnnl, sizes never met")
    axes.loglog(theirs, ours, "o", color="tab:blue", markersize=4, label="dnnl, steady")
    ends = np.array([theirs.min(), theirs.max()])
    axes.loglog(ends, ends, color="gray", linewidth=1, label="as ONNX Runtime, steady")
    axes.set(xlabel="ONNX Runtime, ms", ylabel="dnnl, ms", title=title)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


@click.command(help=__doc__)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--size", "ranges", multiple=True, callback=_ranges, help="NAME=LEAST:LARGEST:STEP")
@click.option("--calls", type=int, default=200, show_default=True, help="Sets of sizes.")
@click.option("--warm", type=int, default=12, show_default=True, help="Calls before, of others.")
@click.option("--repeats", type=int, default=4, show_default=True)
@click.option("--threads", type=int, default=1, show_default=True)
@click.option("--plot", type=click.Path(path_type=Path), help="Where a picture goes.")
def main(
    file: Path,
    ranges: Mapping[str, range],
    calls: int,
    warm: int,
    repeats: int,
    threads: int,
    plot: Path | None,
) -> None:
    """Print a row of a table."""
    import onnxruntime

    set_num_threads(threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(str(file), options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    model, rng = load(file), np.random.default_rng(SEED)
    rows, worst, late = [], 0.0, 0
    with click.progressbar(range(warm + calls), label=file.stem, file=None) as bar:
        for number in bar:
            sizes = {name: int(rng.choice(list(own))) for name, own in ranges.items()}
            feeds = feeds_of(model, sizes, rng)
            first, got = _timed(partial(model, feeds))
            worst = max(worst, _difference(got, session.run(None, feeds), names))
            if number < warm:
                continue
            runs = [partial(session.run, None, feeds), partial(model, feeds)]
            theirs, ours = _steady(runs, repeats)
            late += first > 1.5 * ours + _ALLOWED
            rows.append((theirs, ours, first))
    if worst > _TOLERANCE:
        raise click.ClickException(f"results differ by {worst:.1e} of the largest element")
    table = np.array(rows)
    theirs, ours = (geometric_mean(column) * 1e3 for column in table[:, :2].T)
    click.echo("| model | sizes | error | ours | ONNX Runtime | ratio | first, median | late |")
    click.echo(
        f"| {file.stem} | {calls} | {worst:.1e} | {ours:.3g} | {theirs:.3g} | {theirs / ours:.2f} "
        f"| {median(table[:, 2]) * 1e3:.3g} | {late} |"
    )
    if plot is not None:
        _plot(plot, table, f"{file.stem}, {calls} sets of sizes, threads: {threads}")
        click.echo(plot)


if __name__ == "__main__":
    main()
