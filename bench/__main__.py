"""``python -m bench``: subjects one after another, each in a process, then the targets reached."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from bench import peers
from bench.report import Report, markdown
from bench.unit import SUBJECTS, THREADLESS, Unit, console_for_output
from dnnl.runtime.threads import available_cpus

FAILED = 1
PEERS = {
    "onednn": (peers.ONEDNN, peers.ONEDNN_OPENMP),
    "torch": (peers.PYTORCH,),
    "onnxruntime": (peers.ONNXRUNTIME,),
}
"""The peers by the names that the command line has for them."""
ISA_LIMITS = ("DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA")
TORCH_LIMITS = {"avx2": "avx2", "sse41": "default"}
"""ATEN_CPU_CAPABILITY, where it is not that of the machine."""


def _counts(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, ...]:
    if value is None:
        return tuple(n for n in (1, 2) if n <= available_cpus())
    try:
        counts = tuple(int(text) for text in value.replace(",", " ").split())
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        rule = f"{value!r} is no list of numbers of threads, such as 1,2"
        raise click.BadParameter(rule)
    return counts


def _pattern(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no regular expression: {error}") from None
    return value


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("subjects", nargs=-1, type=click.Choice(list(SUBJECTS)))
@click.option("--quick", is_flag=True, help="Little time for each figure: to see that all works.")
@click.option(
    "--only",
    default="",
    callback=_pattern,
    metavar="REGEX",
    help="Reorders, normalizations and lists whose names contain this.",
)
@click.option("--full", is_flag=True, help="Print all cases, not only the worst of many.")
@click.option(
    "--threads",
    "counts",
    callback=_counts,
    metavar="1,2",
    help="Thread counts; by default 1 and 2.",
)
@click.option(
    "--isa",
    "isas",
    multiple=True,
    metavar="NAME",
    help="Hold all sides to an instruction set, such as avx2; several are measured in turn.",
)
@click.option(
    "--peer",
    "peer_names",
    multiple=True,
    type=click.Choice(list(PEERS)),
    help="Compare with these only.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures.")
@click.option("--markdown", "text_file", type=click.Path(path_type=Path), help="Write all tables.")
@click.option(
    "--resume",
    type=click.Path(path_type=Path, file_okay=False),
    help="Store the figures of each subject in this folder, and measure only what is not there.",
)
def main(
    subjects: Sequence[str],
    quick: bool,
    only: str,
    full: bool,
    counts: tuple[int, ...],
    isas: Sequence[str],
    peer_names: Sequence[str],
    json_file: Path | None,
    text_file: Path | None,
    resume: Path | None,
) -> None:
    """Measure speed relative to the machine's limits, oneDNN, PyTorch and ONNX Runtime.

    All SUBJECTS are measured unless some are named, each in a process of its own.

    Exits with 1 where a result is wrong or a subject fails; a missed target is no failure.
    """
    console = console_for_output()
    names = tuple(name for key in peer_names or PEERS for name in PEERS[key])
    units = [
        Unit(subject, count, isa, names, quick, only, full)
        for isa, subject, count in product(isas or ("",), SUBJECTS, counts)
        if not subjects or subject in subjects
        if subject not in THREADLESS or count == counts[0]
    ]
    report, documents = Report(console), []
    with tempfile.TemporaryDirectory(prefix="dnnl-bench-") as scratch:
        for document in _measured(units, resume or Path(scratch), console):
            documents.append(document)
            report.extend(document)
    if only and not report.tables:
        console.print(Text(f"\nno case of these subjects has {only!r} in its name"))
    report.print_targets()
    failures = {each["unit"]["subject"]: each["failure"] for each in documents if each["failure"]}
    if json_file is not None:
        text = json.dumps({"failures": failures, "units": documents, **report.as_json()}, indent=2)
        json_file.write_text(text + "\n", encoding="utf-8")
    if text_file is not None:
        text_file.write_text(_text(documents, report), encoding="utf-8")
    sys.exit(FAILED if failures or len(documents) < len(units) else 0)


def _measured(units: Sequence[Unit], folder: Path, console: Console) -> Iterator[dict[str, Any]]:
    """The figures of each unit that could be measured, those in the folder as they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for unit in units:
        path = folder / f"{re.sub('[^a-z0-9_]+', '-', unit.name)}.json"
        document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if document.get("unit") == unit.document() and not document["failure"]:
            console.print(Text(f"\n{unit.name}: taken from {path}"))
            yield document
            continue
        path.unlink(missing_ok=True)
        arguments = [sys.executable, "-m", "bench.unit", json.dumps(asdict(unit)), str(path)]
        root = Path(__file__).parents[1]
        done = subprocess.run(arguments, cwd=root, env=_environment(unit), check=False)
        if path.exists():
            yield json.loads(path.read_text(encoding="utf-8"))
        else:
            console.print(Text(f"\n{unit.name}: its process ended with {done.returncode}"))


def _environment(unit: Unit) -> dict[str, str]:
    """That of this process, with all sides held to the instruction set and the threads."""
    changed = {"OMP_NUM_THREADS": str(unit.threads)}
    if unit.isa:
        changed |= dict.fromkeys(ISA_LIMITS, unit.isa)
        changed |= {"ATEN_CPU_CAPABILITY": TORCH_LIMITS.get(unit.isa.lower(), "avx512")}
    return {**os.environ, **changed}


def _text(documents: Sequence[dict[str, Any]], report: Report) -> str:
    """All tables as a document has them, behind what they depend on."""
    facts: dict[str, str] = {}
    for document in documents:
        facts |= document["machine"]
    head = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    return "\n".join([head, "", *(markdown(table) for table in report.tables)])


if __name__ == "__main__":
    main()
