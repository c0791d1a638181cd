"""``dnnl run``: a model from its file to its outputs, with what each layer took."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter_ns, sleep
from typing import IO, Any
from zipfile import ZipFile

import click
import numpy as np
from rich.console import Console

from dnnl.errors import InvalidArguments
from dnnl.framework import Model, Session, load
from dnnl.framework.graph import Array, ModelError, TensorType
from dnnl.framework.lowering import LAYOUTS
from dnnl.framework.onnx_model import read_tensor
from dnnl.framework.session import Span
from dnnl.runtime.engine import Engine
from dnnl.tools import peer_onnxruntime
from dnnl.tools.difference import Difference, compare
from dnnl.tools.peer_onnxruntime import OnnxRuntime
from dnnl.tools.run_report import Comparison, Report, console_for_output, print_report
from dnnl.tools.trace import write_trace

INPUT_SEED = 0
DIFFERENT = 1
PAUSE_S = 0.1
"""Before each timed run beside a peer: its idle threads still spin for a while after it returns,
which doubled the time of a run on two threads that followed at once."""


@dataclass(frozen=True)
class Options:
    """The command line of ``dnnl run``."""

    model: Path
    inputs: Sequence[str]
    batch: int | None
    random_weights: int | None
    expect: Path | None
    output: Path | None
    repeat: int
    threads: int | None
    layout: str
    profile: Path | None
    compare: str | None
    json: Path | None


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE",
    help="An input from a .npy file or a serialized ONNX tensor (.pb); seeded random values else.",
)
@click.option("--batch", type=int, metavar="N", help="The first size of every input.")
@click.option(
    "--random-weights", type=int, metavar="SEED", help="Fill all parameters with seeded values."
)
@click.option(
    "--expect",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Outputs to agree with (.npz, .npy, .pb); exit status 1 where they differ.",
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
    help="Let layouts propagate, or keep every activation row-major.",
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
    help="Run the same model on a peer, in turns; exit status 1 where the outputs differ.",
)
@click.option(
    "--json", type=click.Path(path_type=Path), metavar="FILE", help="Write all figures as JSON."
)
def run(**options: Any) -> int:
    """Run an ONNX MODEL on generated kernels."""
    return execute(Options(**options))


def execute(options: Options) -> int:
    """Run a model and report; the exit status is 1 where outputs differ from what they should be.

    Raises Error or OSError for bad input.
    """
    _check(options)
    console, progress = console_for_output(), Console(stderr=True)
    started = perf_counter_ns()
    model, feeds = _prepared_model(options)
    loaded = perf_counter_ns()
    with progress.status("building kernels") if progress.is_terminal else nullcontext():
        session = model.compile(Engine("cpu"), None, options.layout, options.threads)
    prepared = perf_counter_ns()
    expected = _read_expected(options.expect, session) if options.expect else {}
    peer = _peer(options, model, session)
    outputs = session.run(feeds)
    differences = tuple(compare(name, outputs[name], array) for name, array in expected.items())
    timed = [session.run_timed(feeds)[1] for _ in range(options.repeat)]
    times, comparison = _measure(session, peer, feeds, outputs, options.repeat)
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
    )
    _write(options, session, report, outputs, timed)
    print_report(console, report)
    return 0 if report.agrees else DIFFERENT


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
    ):
        if path is not None:
            _check_place(name, path)


def _check_place(option: str, path: Path) -> None:
    """Raise InvalidArguments where no file can be written, before anything takes time."""
    rule = ""
    if path.is_dir():
        rule = "is a folder"
    elif not path.parent.is_dir():
        rule = f"there is no folder {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        rule = "cannot be written"
    if rule:
        raise InvalidArguments(option, str(path), rule)


def _prepared_model(options: Options) -> tuple[Model, dict[str, Array]]:
    """The model with the sizes and parameters that were asked for, and its inputs."""
    model = load(options.model)
    if options.batch is not None:
        model = model.with_batch(options.batch)
    given = _read_inputs(options.inputs, model)
    model = model.with_shapes({name: array.shape for name, array in given.items()})
    if options.random_weights is not None:
        model = model.with_random_weights(options.random_weights)
    rng = np.random.default_rng(INPUT_SEED)
    feeds = {
        name: given[name] if name in given else _random(rng, kind)
        for name, kind in model.inputs.items()
    }
    return model, feeds


def _read_inputs(texts: Sequence[str], model: Model) -> dict[str, Array]:
    arrays = {}
    for text in texts:
        name, separator, file = text.rpartition("=")
        if not separator:
            raise InvalidArguments("--input", text, "must be NAME=FILE")
        if name not in model.inputs:
            rule = f"no such input; there are {', '.join(model.inputs)}"
            raise InvalidArguments("--input", name, rule)
        if name in arrays:
            raise InvalidArguments("--input", text, f"the input {name} is given twice")
        arrays[name] = read_tensor(file)
    return arrays


def _random(rng: np.random.Generator, kind: TensorType) -> Array:
    if np.issubdtype(kind.dtype, np.floating):
        return rng.standard_normal(kind.sizes).astype(kind.dtype)
    return rng.integers(0, 2, kind.sizes).astype(kind.dtype)


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
    """Times of ours and, in turns, of the peer, after one run that does not count."""
    if peer is None:
        return [_time_ms(session.run, feeds) for _ in range(repeat)], None
    theirs = peer.run(feeds)
    differences: list[Difference] = []
    for name, array in outputs.items():
        differences.append(compare(name, array, theirs[name]))
    times: list[float] = []
    peer_times: list[float] = []
    for _ in range(repeat):
        for function, measured in ((session.run, times), (peer.run, peer_times)):
            sleep(PAUSE_S)
            measured.append(_time_ms(function, feeds))
    name = f"{peer_onnxruntime.NAME} {peer.version}"
    return times, Comparison(name, peer_times, differences)


def _time_ms(function: Callable[[Mapping[str, Array]], Any], feeds: Mapping[str, Array]) -> float:
    start = perf_counter_ns()
    function(feeds)
    return (perf_counter_ns() - start) / 1e6


def _layer_times(timed: Sequence[Sequence[Span]]) -> list[float]:
    """The median time of each layer, in milliseconds."""
    return [
        median((span.stop - span.start) / 1e6 for span in spans)
        for spans in zip(*timed, strict=True)
    ]


def _settings(options: Options, session: Session) -> dict[str, Any]:
    sizes = next((kind.sizes for kind in session.inputs.values() if kind.shape), (1,))
    settings = {"batch": sizes[0], "threads": session.num_threads, "layout": options.layout}
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
        with _writing("--output", options.output), options.output.open("wb") as file:
            _save(file, outputs)
    if options.profile:
        with _writing("--profile", options.profile):
            write_trace(options.profile, session.layers, timed)
    if options.json:
        text = json.dumps(report.as_json(), indent=2, allow_nan=False)
        with _writing("--json", options.json):
            options.json.write_text(text + "\n", encoding="utf-8")


def _save(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """As numpy.savez, whose own parameters are no names for an array."""
    with ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)


@contextmanager
def _writing(option: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        rule = f"cannot be written: {error.strerror}"
        raise InvalidArguments(option, str(path), rule) from error
