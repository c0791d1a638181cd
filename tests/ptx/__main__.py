"""``python -m tests.ptx``: a table of what the kernels for NVIDIA devices use."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from tests.ptx import table
from tests.ptx.assembler import ABSENT, ptxas, version
from tests.ptx.kernels import ROW, kernels, lines

FOLDER = Path(__file__).resolve().parents[2] / "build" / "ptx"


@click.command()
@click.option("--worst", default=8, show_default=True, help="How many entry points to list.")
def main(worst: int) -> None:
    """Assemble the kernels of all replayed cases for NVIDIA devices, by ptxas.

    Exits with 1 where one is not assembled. build/ptx has the PTX of each kernel, and in
    kernels.csv what each entry point uses.
    """
    if ptxas() is None:
        raise click.ClickException(ABSENT)
    asked = lines()
    found, refused = kernels(FOLDER, asked)
    entries = table.entries(found)
    table.write(FOLDER / "kernels.csv", entries)
    click.echo(f"ptxas {version()}\n\n{table.by_operation(entries)}\n")
    click.echo(f"{table.worst(entries, worst)}\n")
    # Other reasons hold for processors too.
    reasons = (line for text in refused for line in text.splitlines() if ROW.name in line)
    for reason, count in Counter(reasons).items():
        click.echo(f"{count} refused:{reason}")
    rejected = [kernel for kernel in found if kernel.rejection]
    for kernel in rejected:
        click.echo(f"{kernel.line}\n    {kernel.file}\n{kernel.rejection}")
    click.echo(
        f"{len(asked)} cases, {len(refused)} refused, {len(found)} kernels: "
        f"{len(found) - len(rejected)} assembled, {len(rejected)} rejected"
    )
    sys.exit(bool(rejected))


if __name__ == "__main__":
    main()
