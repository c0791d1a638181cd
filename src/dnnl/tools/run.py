"""``dnnl run``: a model from its file to its outputs, with what each layer took."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import IO, Any
from zipfile import ZipFile

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from dnnl.errors import InvalidArguments
from dnnl.framework import Model, Session, load
from dnnl.framework.indices import index_extents
from dnnl.framework.model import PRECISIONS
from dnnl.framework.session import Span
from dnnl.graph.graph import Array, Graph, ModelError
from dnnl.lowering.graphs import LAYOUTS
from dnnl.onnx.read import read_tensor
from dnnl.runtime.threads import limit_text, limited_num_threads
from dnnl.tools import peer_onnxruntime
from dnnl.tools.difference import Difference, Tolerance, compare, is_constant
from dnnl.tools.engines import named
from dnnl.tools.files import check_place, writing
from dnnl.tools.measure import Contender, Effort, measure
from dnnl.tools.page import check_packages
from dnnl.tools.peer_onnxruntime import OnnxRuntime
from dnnl.tools.quantized_difference import compare_layers, quantized_values
from dnnl.tools.run_graph import graph_of
from dnnl.tools.run_inputs import INPUT_SEED, filled, read_inputs, read_sizes, shapes_of
from dnnl.tools.run_page import write_page
from dnnl.tools.run_report import Comparison, Report, console_for_output, print_report
from dnnl.tools.trace import write_trace

_SCALES = (1.0, 1.0, 10.0, 1000.0)
"""Deviations of the inputs that are tried until an output is not constant."""
DIFFERENT = 1
OURS = "dnnl"
ROUNDS, REST, WARM_UP = 5, 0.1, 0.02
"""Turns of ours and of a peer, if there are as many runs, and the seconds before each: until the
threads of the other, which spin for a while when their work is done, sleep; and until caches and
own threads are warm. Without them two threads took twice their time, and small models ten times."""


@dataclass(frozen=True)
class Options:
    """The command line of ``dnnl run``."""

    model: Path
    engine: str
    inputs: Sequence[str]
    shapes: Sequence[str]
    batch: int | None
    random_weights: int | None
    expect: Path | None
    output: Path | None
    repeat: int
    threads: int | None
    layout: str
    precision: str
    profile: Path | None
    compare: str | None
    json: Path | None
    html: Path | None


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--engine",
    default="cpu",
    show_default=True,
    metavar="KIND[:INDEX]",
    help="The engine: cpu, sycl, or gpu for the first GPU of any kind; dnnl info lists them.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE",
    help="An input from a .npy file or a serialized ONNX tensor (.pb). Other inputs get seeded "
    "random values, those for indices of Gather from the whole range.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=N",
    help="Value of an open size, by its name; it holds for all inputs that have this name.",
)
@click.option("--batch", type=int, metavar="N", help="The first size of every input.")
@click.option(
    "--random-weights", type=int, metavar="SEED", help="Fill all parameters with seeded values."
)
@click.option(
    "--expect",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Expected outputs (.npz, .npy, .pb); the exit status is 1 if they differ.",
)
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the outputs as .npz."
)
@click.option("--repeat", type=int, default=10, show_default=True, help="Number of timed runs.")
@click.option("--threads", type=int, metavar="N", help="Threads of a run.")
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default=LAYOUTS[0],
    show_default=True,
    help="propagate: layouts of primitives propagate; plain: all activations are row-major; "
    "middle: only those around operators that number axes, such as Reshape, Transpose and MatMul.",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default=PRECISIONS[0],
    show_default=True,
    help="The type of activations and of factors of products, as far as they may be rounded; "
    "--expect and --compare allow for it.",
)
@click.option(
    "--profile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a trace that chrome://tracing and Perfetto open.",
)
@click.option(
    "--compare",
    type=click.Choice([peer_onnxruntime.NAME]),
    help="Alternate runs with a peer on the same model; the exit status is 1 if outputs differ.",
)
@click.option(
    "--json", type=click.Path(path_type=Path), metavar="FILE", help="Write all figures as JSON."
)
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write an HTML page with the executed graph, the time of each step and a roofline.",
)
def run(**options: Any) -> int:
    """Run an ONNX MODEL on generated kernels."""
    return execute(Options(**options))


def execute(options: Options) -> int:
    """Run a model and report; the exit status is 1 where outputs differ from what they should be.

    Raises Error or OSError for bad input.
    """
    _check(options)
    engine = named(options.engine)
    threads = None if options.threads is None else limited_num_threads(options.threads)
    console = console_for_output()
    started = perf_counter_ns()
    model, opened, given, notes = _prepared_model(options)
    loaded = perf_counter_ns()
    with _progress(Console(stderr=True)) as progress:
        session = model.compile(
            engine,
            precision=options.precision,
            num_threads=threads,
            layout=options.layout,
            progress=progress,
        )
    prepared = perf_counter_ns()
    if threads is not None and threads != options.threads:
        notes.append(f"--threads {options.threads}: {limit_text(threads)}")
    expected = _read_expected(options.expect, session) if options.expect else {}
    peer = _peer(options, model, session)
    feeds, constant = _telling(session, peer, given, index_extents(model.graph))
    outputs = session.run(feeds)
    tolerance = Tolerance.of(session.rounding)
    differences = tuple(
        compare(name, outputs[name], array, tolerance) for name, array in expected.items()
    )
    timed = [session.run_timed(feeds)[1] for _ in range(options.repeat)]
    times, comparison = _measure(session, peer, feeds, outputs, options.repeat)
    if comparison is not None and constant:
        comparison = replace(comparison, constant=constant)
    if comparison is not None and quantized_values(model.graph):
        steps, found = compare_layers(model, feeds, session.num_threads, options.layout, engine)
        comparison = replace(comparison, steps=steps, differences=found)
    report = Report(
        str(options.model),
        _settings(options, session),
        session.layers,
        _layer_times(timed),
        (loaded - started) / 1e6,
        (prepared - loaded) / 1e6,
        times,
        comparison,
        differences,
        notes,
        session.activation_nbytes,
        session.nbytes,
        tolerance,
    )
    _write(options, session, report, outputs, timed)
    if options.html:
        graph = graph_of(session, timed[-1], opened, feeds, outputs)
        with writing("--html", options.html):
            write_page(options.html, report, session, graph)
    print_report(console, report)
    return 0 if report.agrees else DIFFERENT


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[int, int, str], None] | None]:
    """A progress bar of built kernels while the context is open; none without a terminal."""
    if not console.is_terminal:
        yield None
        return
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("building kernels", total=None)

        def report(done: int, total: int, what: str) -> None:
            shown.update(task, completed=done, total=total or None, description=what)

        yield report


def _check(options: Options) -> None:
    for name, value, lowest in (
        ("--threads", options.threads, 1),
        ("--repeat", options.repeat, 1),
        ("--batch", options.batch, 1),
        ("--random-weights", options.random_weights, 0),
    ):
        if value is not None and value < lowest:
            raise InvalidArguments(name, value, f"must be at least {lowest}")
    for name, path in (
        ("--output", options.output),
        ("--profile", options.profile),
        ("--json", options.json),
        ("--html", options.html),
    ):
        if path is not None:
            check_place(name, path)
    if options.html is not None:
        check_packages("--html")


def _prepared_model(
    options: Options,
) -> tuple[Model, Graph, dict[str, Array], list[str]]:
    """The model with the requested sizes and parameters, the graph of its file, the given inputs,
    and notes on sizes that got a default."""
    model = load(options.model)
    opened = model.graph
    if options.batch is not None:
        model = model.with_batch(options.batch)
    given = read_inputs(options.inputs, {**model.inputs, **model.defaults})
    model = model.with_inputs(*(name for name in given if name in model.defaults))
    shapes, notes = shapes_of(model.inputs, given, read_sizes(options.shapes))
    model = model.with_shapes(shapes)
    if options.random_weights is not None:
        model = model.with_random_weights(options.random_weights)
    return model, opened, given, notes


def _telling(
    session: Session,
    peer: OnnxRuntime | None,
    given: Mapping[str, Array],
    extents: Mapping[str, int],
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Inputs on which the outputs depend, and the names of all outputs if none were found: where
    each of them has one value on both sides, that they are equal proves nothing."""
    feeds = filled(session, given, extents)
    if peer is None:
        return feeds, ()
    first = feeds
    for number, scale in enumerate(_SCALES):
        if number:
            feeds = filled(session, given, extents, INPUT_SEED + number, scale)
        ours, theirs = session.run(feeds), peer.run(feeds)
        if not all(is_constant(ours[name]) and is_constant(theirs[name]) for name in ours):
            return feeds, ()
        if given.keys() == session.inputs.keys():
            break
    return first, tuple(session.outputs)


def _read_expected(path: Path, session: Session) -> Mapping[str, Array]:
    """Expected outputs by name; a file of one tensor is about the first output."""
    if path.suffix != ".npz":
        return {session.outputs[0]: read_tensor(path)}
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file") from error
    except (ValueError, OSError, EOFError) as error:
        raise ModelError(f"{path}: not a NumPy archive, or truncated ({error})") from error
    unknown = sorted(arrays.keys() - set(session.outputs))
    if unknown or not arrays:
        rule = f"holds no output of the model, which has {', '.join(session.outputs)}"
        raise InvalidArguments(str(path), ", ".join(unknown), rule)
    return arrays


def _peer(options: Options, model: Model, session: Session) -> OnnxRuntime | None:
    """The peer on the file itself, or on our changed model where we changed it."""
    if options.compare is None:
        return None
    changed = options.batch is not None or options.random_weights is not None
    source = model.to_onnx() if changed else str(options.model)
    return OnnxRuntime(source, session.num_threads)


def _measure(
    session: Session,
    peer: OnnxRuntime | None,
    feeds: Mapping[str, Array],
    outputs: Mapping[str, Array],
    repeat: int,
) -> tuple[list[float], Comparison | None]:
    """Times of ours and of the peer, alternating after several runs."""
    contenders = [Contender(OURS, partial(session.run, feeds))]
    differences: list[Difference] = []
    if peer is not None:
        theirs = peer.run(feeds)
        tolerance = Tolerance.of(session.rounding)
        differences = [compare(n, array, theirs[n], tolerance) for n, array in outputs.items()]
        contenders.append(Contender(peer_onnxruntime.NAME, partial(peer.run, feeds)))
    found = measure(contenders, Effort(min(repeat, ROUNDS), 0.0, REST, repeat, WARM_UP))
    times = {c.name: [1e3 * seconds for seconds in found.every(c.name)] for c in contenders}
    if peer is None:
        return times[OURS], None
    name = f"{peer_onnxruntime.NAME} {peer.version}"
    return times[OURS], Comparison(name, times[peer_onnxruntime.NAME], differences)


def _layer_times(timed: Sequence[Sequence[Span]]) -> list[float]:
    """The median time of each layer, in milliseconds."""
    return [
        median((span.stop - span.start) / 1e6 for span in spans)
        for spans in zip(*timed, strict=True)
    ]


def _settings(options: Options, session: Session) -> dict[str, object]:
    sizes = next((kind.sizes for kind in session.inputs.values() if kind.shape), (1,))
    settings = {
        "engine": options.engine,
        "batch": sizes[0],
        "threads": session.num_threads,
        "layout": options.layout,
        "precision": options.precision,
    }
    if options.random_weights is not None:
        settings["random_weights"] = options.random_weights
    return settings


def _write(
    options: Options,
    session: Session,
    report: Report,
    outputs: Mapping[str, Array],
    timed: Sequence[Sequence[Span]],
) -> None:
    """Write the files that were asked for."""
    if options.output:
        with writing("--output", options.output), options.output.open("wb") as file:
            _save(file, outputs)
    if options.profile:
        with writing("--profile", options.profile):
            write_trace(options.profile, session.layers, timed)
    if options.json:
        text = json.dumps(report.as_json(), indent=2, allow_nan=False)
        with writing("--json", options.json):
            options.json.write_text(text + "\n", encoding="utf-8")


def _save(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """As numpy.savez, whose own parameters are no names for an array."""
    with ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
