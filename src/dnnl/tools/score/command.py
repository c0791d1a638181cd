"""The command line of ``dnnl score``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from dnnl.errors import Error, InvalidArguments
from dnnl.framework import load
from dnnl.framework.model import PRECISIONS
from dnnl.runtime.threads import available_cpus, limited_num_threads
from dnnl.tools.files import check_place, writing
from dnnl.tools.score import cluster, folder
from dnnl.tools.score.dataset import Dataset, find
from dnnl.tools.score.digest import is_saved, model_digest
from dnnl.tools.score.images import Pixels, image_source
from dnnl.tools.score.npy import npy_source
from dnnl.tools.score.outputs import columns_of
from dnnl.tools.score.parquet import parquet_source
from dnnl.tools.score.report import Tally, advance, shown
from dnnl.tools.score.rows import Source, Task
from dnnl.tools.score.signature import Signature
from dnnl.tools.score.worker import Job

BATCH = 16
"""The default batch size."""


@dataclass(frozen=True)
class Options:
    """The command line of ``dnnl score``."""

    model: Path
    dataset: Path
    output: Path
    batch: int | None
    part_rows: int | None
    workers: int
    threads: int | None
    precision: str | None
    columns: Sequence[str]
    stacked: bool
    size: str | None
    mean: str | None
    std: str | None
    skip_bad: bool
    address: str | None
    json: Path | None


_path = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=_path)
@click.argument("dataset", type=_path)
@click.option(
    "-o", "--output", type=_path, required=True, metavar="OUT", help="The folder of results."
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Rows per call of the model; {BATCH}, unless the model fixes another number.",
)
@click.option(
    "--part-rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="Rows per result file; by default about 16 MiB of input, at most 4096 rows.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Worker processes, each with the model.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads of each worker; by default the cpus of this machine divided by the workers.",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="The type of activations and of factors of products; a saved model has its own.",
)
@click.option(
    "--columns",
    "columns",
    multiple=True,
    metavar="NAME",
    help="A column of the Parquet files to copy to the results; may be repeated.",
)
@click.option(
    "--stacked",
    is_flag=True,
    help="Each .npy file has a batch of rows, not one row.",
)
@click.option("--size", metavar="HxW", help="Scale images to this height and width.")
@click.option(
    "--mean",
    metavar="M[,M,M]",
    help="Subtracted from pixels, scaled to 0 to 1; one number, or one for each channel.",
)
@click.option("--std", metavar="S[,S,S]", help="What pixels are divided by then.")
@click.option("--skip-bad", is_flag=True, help="Leave out bad rows, and list them at the end.")
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="A Ray cluster; by default processes on this machine, which end with the command.",
)
@click.option("--json", type=_path, metavar="FILE", help="Write all figures as JSON.")
def score(**options: Any) -> None:
    """Run MODEL, ONNX or saved, over DATASET: Parquet files, .npy files or images.

    DATASET is a file, or a folder with files of one kind. Results are Parquet files in OUT. Repeat
    the command to continue after an interruption.
    """
    execute(Options(**options))


def execute(options: Options) -> None:
    """Score a data set and print the summary.

    Raises Error or OSError for bad input, if possible before any worker starts.
    """
    if options.json is not None:
        check_place("--json", options.json)
    job, source, tasks, tally = begun(options)
    if tasks:
        _compute(options, source, tasks, job, tally)
    folder.remove_temporary(options.output)
    for line in tally.lines():
        click.echo(line)
    if options.json is not None:
        with writing("--json", options.json):
            text = json.dumps(tally.as_json(), indent=2, allow_nan=False)
            options.json.write_text(text + "\n", encoding="utf-8")


def begun(options: Options) -> tuple[Job, Source, list[Task], Tally]:
    """The job of the workers, the source, the remaining tasks, and the tally of earlier runs.

    Writes the manifest of the folder of results. Raises Error if model, data set, options and
    folder do not fit each other.
    """
    data = find(options.dataset)
    _check_apart(options, data.kind)
    if data.others:
        count, first = len(data.others), data.others[0]
        click.echo(f"{count} other files are not read, such as {first}", err=True)
    job, source = _prepared(options, data)
    parts = list(source.parts)
    tally = Tally(sum(part.rows for part in parts), len(parts))
    if not tally.total:
        raise InvalidArguments("DATASET", str(options.dataset), "has no rows")
    part_rows = max(part.rows for part in parts)
    folder.opened(options.output, _facts(options, data, job, part_rows, tally.total))
    folder.remove_temporary(options.output)
    done = folder.complete(options.output, parts)
    for before in done.values():
        _refuse_bad(options, before)
        tally.add_before(before)
    return job, source, _remaining(source.tasks, done), tally


def _prepared(options: Options, data: Dataset) -> tuple[Job, Source]:
    """The job of the workers, and the source with its read tasks.

    Raises Error if model, data set and options do not fit each other.
    """
    model = load(options.model)
    if options.precision is not None and is_saved(options.model):
        rule = "a saved model has the precision that it was saved with"
        raise InvalidArguments("--precision", options.precision, rule, "give its ONNX file")
    signature = Signature.of(model)
    batch = signature.batch(options.batch, BATCH)
    source, pixels = _source(options, data, signature, batch)
    columns = columns_of(model, source.shapes, batch, options.columns)
    job = Job(
        str(options.model.absolute()),
        model_digest(options.model),
        str(options.output.absolute()),
        options.precision,
        _threads(options),
        batch,
        signature.fixed_batch,
        columns,
        pixels,
        options.skip_bad,
    )
    return job, source


def _source(
    options: Options, data: Dataset, signature: Signature, batch: int
) -> tuple[Source, Pixels | None]:
    """The source of a data set of any kind; for images also the conversion of pixels."""
    _check_kind(options, data)
    data = replace(data, root=data.root.absolute())
    if data.kind == "parquet":
        columns = (options.columns, batch, options.part_rows)
        return parquet_source(data, signature.inputs, *columns), None
    if len(signature.inputs) > 1:
        rule = f"the model has the inputs {', '.join(signature.names)}, and {data.kind} give one"
        raise InvalidArguments("DATASET", str(options.dataset), rule, "Parquet gives several")
    row = signature.inputs[0]
    if data.kind == "npy":
        sizes = (batch, options.part_rows)
        return npy_source(data, row, options.stacked, *sizes, options.skip_bad), None
    pixels = Pixels.of(row, _numbers("--mean", options.mean), _numbers("--std", options.std))
    size = _size(options.size)
    return image_source(data, row, pixels, size, batch, options.part_rows), pixels


def _check_kind(options: Options, data: Dataset) -> None:
    """Raise InvalidArguments for an option that belongs to another kind of data set."""
    for name, value, kind in (
        ("--columns", options.columns, "parquet"),
        ("--stacked", options.stacked, "npy"),
        ("--size", options.size, "images"),
        ("--mean", options.mean, "images"),
        ("--std", options.std, "images"),
    ):
        if value and data.kind != kind:
            raise InvalidArguments(name, value, f"is for {kind}, and the data set is {data.kind}")


def _numbers(option: str, text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(",")) if text else ()
    except ValueError:
        raise InvalidArguments(option, text, "expected numbers with commas between them") from None


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise InvalidArguments("--size", text, "expected a height and a width", "--size 224x224")
    return int(height), int(width)


def _threads(options: Options) -> int:
    """The threads of each worker.

    Raises InvalidArguments if a local run has more threads than this machine has cpus.
    """
    threads = options.threads or max(1, available_cpus() // options.workers)
    count = options.workers * threads
    if options.address is None and limited_num_threads(count) < count:
        option, value = (
            ("--workers", options.workers) if options.threads is None else ("--threads", threads)
        )
        rule = f"{options.workers} workers of {threads} threads need {count} cpus"
        raise InvalidArguments(option, value, f"{rule}, and this machine has {available_cpus()}")
    return threads


def _check_apart(options: Options, kind: str) -> None:
    """Raise InvalidArguments if OUT is inside the data set, which would then include results."""
    out, folder_of_data = options.output.absolute(), options.dataset.absolute()
    if kind == "parquet" and folder_of_data.is_dir() and out.is_relative_to(folder_of_data):
        rule = f"is in the folder of the data set {options.dataset}, to which results would belong"
        raise InvalidArguments("--output", str(options.output), rule)


def _facts(
    options: Options, data: Dataset, job: Job, part_rows: int, total: int
) -> dict[str, dict[str, Any]]:
    """What the results depend on, for the manifest."""
    return {
        "model": {"path": job.model, "sha256": job.digest},
        "data set": {
            "path": str(options.dataset.absolute()),
            "kind": data.kind,
            "files": len(data.files),
            "rows": total,
            "digest": data.digest,
        },
        "option": {
            "--batch": job.batch,
            "--part-rows": part_rows,
            "--precision": options.precision,
            "--columns": list(options.columns),
            "--stacked": options.stacked,
            "--size": options.size,
            "--mean": options.mean,
            "--std": options.std,
        },
    }


def _remaining(tasks: Sequence[Task], done: dict[str, folder.Done]) -> list[Task]:
    """The tasks without the parts that are done."""
    left = [replace(t, parts=tuple(p for p in t.parts if p.name not in done)) for t in tasks]
    return [task for task in left if task.parts]


def _compute(
    options: Options, source: Source, tasks: Sequence[Task], job: Job, tally: Tally
) -> None:
    """Compute the remaining tasks, and add the results to the tally."""
    with cluster.connected(options.address, options.workers, job.threads):
        results = cluster.computed(source.reader, tasks, job, options.workers)
        try:
            with shown(tally, Console(stderr=True)) as progress, closing(results):
                for done in results:
                    if done.failure:
                        raise Failed(done.failure)
                    _refuse_bad(options, done)
                    tally.add(done)
                    advance(progress, tally)
        except KeyboardInterrupt:
            what = f"interrupted at {tally.looked_at} of {tally.total} rows"
            click.echo(f"{what}; repeat the command to continue", err=True)
            raise
    if tally.looked_at != tally.total:
        raise Failed(f"{tally.looked_at} of {tally.total} rows are there")


def _refuse_bad(options: Options, done: folder.Done) -> None:
    if done.bad and not options.skip_bad:
        row = done.bad[0]
        where = f"{row.path}, row {row.row}"
        raise InvalidArguments("DATASET", where, row.reason, "--skip-bad leaves such rows out")


class Failed(Error):
    """A failure of the run that is not caused by the command line."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; repeat the command to continue")
