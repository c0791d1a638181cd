"""Outputs whose elements lie in turns in memory."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.reference.tolerance import EXACT
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc
from tests.check import check, logical
from tests.codegen.lanes import runnable_rows
from tests.codegen.nests import Build, described, launch, random_of

EACH_ISA = pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)


def spread(src: MemoryDesc, dst: MemoryDesc, turns: int) -> Build:
    """A nest that writes element x of src times 1, times 2, ... to ``turns`` elements of dst."""

    def build(module: Module) -> list[Phase]:
        row, block = (Axis(extent, name) for extent, name in zip(src.dims, "rx", strict=True))
        given = Operand(0, src, (Affine.of(row), Affine.of(block)))
        made = [
            Operand(1, dst, (Affine.of(row), Affine.of(block, turns) + turn))
            for turn in range(turns)
        ]

        def body(point: Point) -> None:
            value = point.load(given)
            values = [point.e.b.fmul(value, point.constant(n + 1.0)) for n in range(turns)]
            point.store_interleaved(made, values)

        return [emit_nest(module, "spread", Nest((row, block), (), (given,), tuple(made), body))]

    return build


@EACH_ISA
@pytest.mark.parametrize(
    ("turns", "extent", "kind", "layouts"),
    [
        (2, 74, "f32", "ab:ab"),
        (2, 73, "f32", "ab:gaps"),
        (2, 73, "bf16", "gaps:ab"),
        (2, 90, "s8", "ab:ab"),
        (3, 109, "f32", "ab:ab"),
        (3, 47, "s8", "ab:ba"),
        (4, 62, "f32", "ba:ab"),
        (5, 5, "f32", "ab:ab"),
        (7, 90, "bf16", "ab:ab"),
    ],
)
def test_elements_in_turns(turns: int, extent: int, kind: str, layouts: str, isa: Isa) -> None:
    """Also where the last block has not all of its elements."""
    source, target = layouts.split(":")
    src = random_of(described((3, -(-extent // turns)), source, kind))
    dst = described((3, extent), target, kind)
    (made,) = launch(isa, spread(src.desc, dst, turns), [src], [dst])
    factors = np.arange(extent) % turns + 1.0
    want = np.repeat(logical(src), turns, axis=1)[:, :extent] * factors
    check(made, want, EXACT(kind))
