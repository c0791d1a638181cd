"""Work-groups transpose with as few accesses to memory as there can be."""

from __future__ import annotations

import pytest

from tests.codegen.traffic import traffic


@pytest.mark.parametrize(
    ("line", "loads", "stores"),
    [
        ("--reorder --stag=ab --dtag=ba 1024x1024", (2, 32), (2, 32)),
        ("--reorder --stag=abcd --dtag=acdb 2x64x56x56", (2, 32), (2, 32)),
        ("--reorder --stag=acdb --dtag=abcd 2x64x56x56", (2, 32), (2, 32)),
        ("--reorder --sdt=bf16 --ddt=bf16 --stag=abcd --dtag=acdb 2x64x56x56", (4, 32), (4, 32)),
        ("--reorder --sdt=f32 --ddt=s8 --stag=abcd --dtag=acdb 2x64x56x56", (2, 32), (8, 32)),
        ("--reorder --sdt=f64 --ddt=f64 --stag=ab --dtag=ba 256x256", (2, 32), (2, 32)),
        ("--reorder --stag=abcd --dtag=ABcd16b16a 64x64x3x3", (2, 32), (2, 32)),
        ("--reorder --stag=ABcd16b16a --dtag=abcd 64x64x3x3", (2, 32), (2, 32)),
        ("--binary --alg=add --stag=abx:abx --dtag=axb 2x64x56x56:2x64x56x56", (2, 32), (2, 32)),
        # Rows of 49 elements are not aligned.
        ("--reorder --stag=abcd --dtag=acdb 2x256x7x7", (8, 40), (2, 32)),
        # Items alone, each next to the one before it.
        ("--reorder --stag=ab --dtag=ab --sdt=f32 --ddt=f32 256x256", (8, 32), (8, 32)),
    ],
)
def test_sectors_are_filled(line: str, loads: tuple[int, int], stores: tuple[int, int]) -> None:
    found = traffic(line)
    for kind, (requests, sectors) in (("load", loads), ("store", stores)):
        own = found[kind].per_kib
        assert own[0] == pytest.approx(requests), found
        assert own[1] == pytest.approx(sectors, rel=0.05), found


@pytest.mark.parametrize("skipped", [(4, 0), (0, 4), (8, 12)])
def test_wide_accesses_are_aligned(skipped: tuple[int, int]) -> None:
    """Tensors may begin at any element, and kernels must notice: processors would not mind."""
    for line in (
        "--reorder --stag=ab --dtag=ba 64x96",
        "--reorder --stag=abcd --dtag=acdb 2x64x8x8",
    ):
        found = traffic(line, 256, skipped)
        assert {kind: own.misaligned for kind, own in found.items()} == {"load": 0, "store": 0}
