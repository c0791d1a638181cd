"""``dnnl quantcheck``: the command."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dnnl.errors import InvalidArguments
from dnnl.tools.quantcheck.case import check_case
from dnnl.tools.quantcheck.data import read_arrays
from dnnl.tools.quantcheck.mend import mended
from dnnl.tools.quantcheck.model import check_model, read_model
from dnnl.tools.quantcheck.report import Report, print_report
from dnnl.tools.run_report import console_for_output

UNHEALTHY = 1


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("tokens", nargs=-1, type=click.UNPROCESSED, metavar="MODEL|CASE", required=True)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Real tensors: .npz by name, or one of .npy or .pb.",
)
@click.option(
    "--float",
    "original",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="The model before it was quantized: what its weights were.",
)
@click.option(
    "--mend",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the model with the advised scales.",
)
@click.option(
    "--json",
    "document",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write all figures as JSON.",
)
def quantcheck(
    tokens: tuple[str, ...],
    data: Path,
    original: Path | None,
    mend: Path | None,
    document: Path | None,
) -> int:
    """Tell what integers do to a MODEL (int8, ONNX) or a CASE of dnnl bench, and what to do.

    \b
    dnnl quantcheck int8.onnx --data inputs.npz --float float.onnx --mend better.onnx
    dnnl quantcheck --matmul --dt=u8:s8:f32 128x768:768x768 --data tensors.npz

    The file of a model has its inputs by name, that of a case src and weights as floats, and
    src_scale, weights_scale, dst_scale and zero points. The exit status is 1 where a scale
    should change.
    """
    for name, path in (("--mend", mend), ("--json", document)):
        if path is not None and not path.parent.is_dir():
            raise InvalidArguments(name, str(path), f"there is no folder {path.parent}")
    is_model = len(tokens) == 1 and (tokens[0].endswith(".onnx") or Path(tokens[0]).is_file())
    report = _of_model(Path(tokens[0]), data, original, mend) if is_model else None
    if report is None:
        for name, path in (("--float", original), ("--mend", mend)):
            if path is not None:
                raise click.UsageError(f"{name} belongs to a model")
        report = check_case(tokens, read_arrays(data, "src"))
    print_report(console_for_output(), report)
    if document is not None:
        text = json.dumps(report.as_json(), indent=2, allow_nan=False)
        document.write_text(text + "\n", encoding="utf-8")
    return 0 if report.is_healthy else UNHEALTHY


def _of_model(path: Path, data: Path, original: Path | None, mend: Path | None) -> Report:
    model = read_model(path)
    single = model.graph.input[0].name if model.graph.input else ""
    given = None if original is None else read_model(original)
    report = check_model(model, read_arrays(data, single), given, str(path))
    if mend is not None:
        mend.write_bytes(mended(model, report, given).SerializeToString())
    return report
