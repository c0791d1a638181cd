"""``dnnl check``: which operators of a model run, without compiling it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dnnl.framework.checking import Checked, Refusal, checked
from dnnl.framework.model import PRECISIONS
from dnnl.framework.saving import typical_shapes
from dnnl.graph.graph import SEQUENCE, UNRANKED, Graph, Shape
from dnnl.lowering.graphs import LAYOUTS
from dnnl.onnx.check import refusal
from dnnl.onnx.read import graph_from_proto, read_model
from dnnl.tools.engines import named
from dnnl.tools.files import check_place, writing
from dnnl.tools.run_inputs import read_sizes, shapes_of
from dnnl.tools.run_report import console_for_output
from dnnl.types.dtype import DataType

REFUSED = 1
_NODES = 3
"""The number of nodes that are named for each reason."""


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=N",
    help="Value of an open size, by its name; by default a typical one.",
)
@click.option(
    "--engine",
    default="cpu",
    show_default=True,
    metavar="KIND[:INDEX]",
    help="The engine to check for, as for dnnl run.",
)
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default=LAYOUTS[0],
    show_default=True,
    help="As for dnnl run.",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default=PRECISIONS[0],
    show_default=True,
    help="As for dnnl run.",
)
@click.option(
    "--json",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the result as JSON.",
)
def check(
    model: Path, shapes: Sequence[str], engine: str, layout: str, precision: str, file: Path | None
) -> int:
    """List which operators of an ONNX MODEL run, which are refused, and why.

    Nothing is compiled. The exit status is 1 if something is refused.
    """
    if file is not None:
        check_place("--json", file)
    proto = read_model(model)
    graph = graph_from_proto(proto, str(model))
    taken = _shapes(graph, read_sizes(shapes))
    found = checked(graph, taken, named(engine), layout, DataType[precision])
    invalid = refusal(proto)
    if file is not None:
        document = {"model": str(model), "runs": found.runs, "shapes": taken, **asdict(found)}
        with writing("--json", file):
            file.write_text(json.dumps({**document, "invalid": invalid}, indent=2) + "\n")
    _print(console_for_output(), found, taken, invalid)
    return 0 if found.runs and not invalid else REFUSED


def _shapes(graph: Graph, sizes: Mapping[str, int]) -> dict[str, Shape]:
    """The input shapes to check: the given ``sizes`` by name, typical ones for all others."""
    ranked = {
        name: kind for name, kind in graph.inputs.items() if kind.shape not in (UNRANKED, SEQUENCE)
    }
    typical = dict(typical_shapes(ranked)[0])
    known = dict(sizes)
    for name, kind in ranked.items():
        for own, size in zip(kind.shape, typical[name], strict=True):
            if isinstance(own, str):
                known.setdefault(own, size)
    return shapes_of(ranked, {}, known)[0]


def _print(
    console: Console, found: Checked, shapes: Mapping[str, Shape], invalid: str | None
) -> None:
    refused: Counter[str] = Counter()
    for own in found.refusals:
        refused[own.operator] += len(own.nodes)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", no_wrap=True)
    table.add_column("nodes", justify="right")
    table.add_column("refused", justify="right")
    rows = {**found.operators, **{name: 0 for name in refused if name not in found.operators}}
    for name, count in sorted(rows.items(), key=lambda own: (not refused[own[0]], -own[1])):
        state = Text(str(refused[name]), style="red") if refused[name] else Text("")
        table.add_row(Text(name), str(count) if count else "", state)
    console.print(table)
    for own in found.refusals:
        console.print(f"refused: {_line(own)}", markup=False)
    if invalid:
        console.print(f"refused: no valid ONNX model: {invalid}", markup=False)
    sizes = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    console.print(f"looked at with {sizes}" if sizes else "", markup=False)
    if found.unseen:
        console.print(f"not all was looked at: {found.unseen}", markup=False)
    if found.runs and not invalid:
        steps = f", in {found.steps} steps" if found.steps else ""
        console.print(f"the model runs{steps}", markup=False)


def _line(own: Refusal) -> str:
    names = ", ".join(own.nodes[:_NODES]) + (", ..." if len(own.nodes) > _NODES else "")
    where = f"{own.operator} ({names})" if own.operator else "the model"
    return f"{where}: {own.reason}"
