"""ptxas assembles kernels of every operation, and the table says what they use."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from dnnl.codegen import isa
from tests.ptx import table
from tests.ptx.assembler import ABSENT, ARCHITECTURES, Rejected, Usage, assembled, ptxas, usages
from tests.ptx.kernels import ROW, Kernel, judged, lines, operation, written
from tests.replay.cases import number_of
from tests.replay.generate import REFUSED, recipe

SAMPLE = 3
"""Cases of each operation that are not refused; ``make ptx`` takes all."""
NEEDS_PTXAS = pytest.mark.skipif(ptxas() is None, reason=ABSENT)
SAID = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'softmax' for 'sm_80'
ptxas info    : Function properties for softmax
    16 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 70 registers, used 0 barriers, 16 bytes cumulative stack size, 512 bytes smem
ptxas info    : Compiling entry function 'sums' for 'sm_80'
ptxas info    : Function properties for sums
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 360 bytes cmem[0]
"""
SOFTMAX = Usage("sm_80", "softmax", 70, 16, 24, 40, 512)
SUMS = Usage("sm_80", "sums", 8, 0, 0, 0, 0)


def by_operation() -> dict[str, list[str]]:
    """The cases of each operation, those with the smallest hashes first."""
    found: dict[str, list[str]] = {}
    for line in sorted(lines(), key=number_of):
        found.setdefault(operation(line), []).append(line)
    return found


@NEEDS_PTXAS
@pytest.mark.parametrize("cases", by_operation().values(), ids=by_operation())
@pytest.mark.covers
def test_kernels_are_assembled(cases: list[str], tmp_path: Path) -> None:
    names = ((line, written(tmp_path, line)) for line in cases)
    for line, name in islice((pair for pair in names if not pair[1].startswith(REFUSED)), SAMPLE):
        kernel = judged(tmp_path, line, name)
        assert not kernel.rejection, kernel
        symbols = {phase.symbol for phase in recipe(ROW.name, line).kernel().phases}
        for architecture in ARCHITECTURES:
            own = [one for one in kernel.usages if one.architecture == architecture]
            assert {one.entry for one in own} == symbols
            assert not any(one.spills for one in own), own


@NEEDS_PTXAS
@pytest.mark.parametrize(
    ("line", "shared"),
    [
        ("--reorder --stag=ab --dtag=ba 64x96", 32 * 33 * 4),
        ("--reorder --sdt=f64 --ddt=f32 --stag=ab --dtag=ba 65x97", 32 * 33 * 8),
        ("--reorder --sdt=bf16 --ddt=s8 --stag=abx --dtag=axb 2x40x7x9", 64 * 34 * 2),
        ("--reorder --sdt=s8 --ddt=s8 --stag=abx --dtag=axb 2x64x8x16", 64 * 68),
        ("--reorder --stag=abcd --dtag=ABcd16b16a 64x48x3x3", 16 * 33 * 4),
        ("--binary --alg=add --stag=abx:abx --dtag=axb 2x40x7x9:2x40x7x9", 2 * 32 * 33 * 4),
    ],
)
def test_transpositions_spill_nothing(line: str, shared: int, tmp_path: Path) -> None:
    kernel = judged(tmp_path, line, written(tmp_path, line))
    assert not kernel.rejection, kernel
    for one in kernel.usages:
        assert (one.shared, one.spills, one.stack) == (shared, 0, 0)
        assert one.registers <= 64  # as many groups as a multiprocessor has threads for, or half


@NEEDS_PTXAS
def test_what_is_not_assembled_is_said(tmp_path: Path) -> None:
    (line, *_) = lines()
    name = written(tmp_path, line)
    file = tmp_path / f"{name}.ptx"
    file.write_text(file.read_text().replace("ret;", "call frexpf;\n\tret;"))
    with pytest.raises(Rejected, match="frexpf"):
        assembled(file, ARCHITECTURES[0])
    assert "frexpf" in judged(tmp_path, line, name).rejection


def test_what_ptxas_says_is_read() -> None:
    assert usages(SAID) == (SOFTMAX, SUMS)
    assert SOFTMAX.spills == 64


def test_operations_have_a_row_each(tmp_path: Path) -> None:
    kernels = [
        Kernel("--softmax 2x3", tmp_path / "a.ptx", on_each(SOFTMAX, SUMS)),
        Kernel("--eltwise 2x3", tmp_path / "b.ptx", on_each(SUMS)),
    ]
    entries = table.entries(kernels)
    assert table.by_operation(entries).splitlines()[2:] == [
        "| eltwise | 1 | 1 | 8, 8 | 8, 8 | 0 | 0 | 0 | 0 |",
        "| softmax | 1 | 2 | 39, 70 | 39, 70 | 2 | 64 | 16 | 512 |",
    ]
    assert table.worst(entries, 5).splitlines()[2:] == [
        "| sm_90 | 70 | 64 | 16 | `--softmax 2x3` |",
        "| sm_80 | 70 | 64 | 16 | `--softmax 2x3` |",
    ]
    table.write(tmp_path / "kernels.csv", entries)
    with (tmp_path / "kernels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["architecture"], row["entry"], row["file"]) for row in rows] == [
        (entry.usage.architecture, entry.usage.entry, entry.kernel.file.name) for entry in entries
    ]


def on_each(*usages: Usage) -> tuple[Usage, ...]:
    """The same on each architecture."""
    return tuple(replace(one, architecture=sm) for sm in ARCHITECTURES for one in usages)


def test_cases_are_those_of_every_target() -> None:
    assert ROW in isa.DEVICES
    assert len(set(lines())) == len(lines()) > 1000
