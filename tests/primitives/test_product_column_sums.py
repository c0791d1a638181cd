"""Zero points of src beside many rows: the sums of the columns of weights are added up before."""

from __future__ import annotations

import pytest

from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.creation import create
from tests.primitives.lines import conf_of, each_line, judged
from tests.processor import ISAS

LEVELS = [name for name in ("sse41", "avx2", "avx2_vnni", ISAS[-1]) if name in ISAS]
LINES = {
    "matmul": (
        (
            "--dt=u8:s8:u8,s8:s8:s32,u8:u8:f32 --wtag=any,ab,ba --attr-zero-points=src:common:3"
            " 40x37:37x67"
        ),
        ("--dt=s8:u8:f32 --stag=ba --attr-zero-points=src:1:s8+wei:2:s8 36x64:64x41"),
        "--dt=u8:s8:s8 --dtag=ba --attr-zero-points=wei:common:-2+dst:common:1 70x20:20x33",
        (
            "--dt=s8:s8:f32 --attr-zero-points=src:common:3 --attr-scales=wei:8:f32"
            " 2x3x48x20:2x1x20x70"
        ),
        "--dt=u8:s8:f32 --attr-zero-points=src:common:3 48x1:1x24 48x24:24x1",
        "--dt=u8:s4:f32 --wtag=any,ab --attr-zero-points=src:common:3+wei:common:1 64x64:64x48",
    ),
    "inner_product": (
        (
            "--dir=FWD_I --dt=u8:s8:u8,s8:u8:f32 --stag=abx,axb,aBx16b"
            " --attr-zero-points=src:common:3 mb40ic32ih3oc70"
        ),
        "--dir=FWD_I --dt=u8:s8:s32 --attr-zero-points=src:common:3+wei:common:2 mb40ic21oc19",
    ),
}


@pytest.mark.parametrize("level", LEVELS)
@each_line(LINES)
def test_results(kind: str, line: str, level: str) -> None:
    for conf in judged(kind, line, level):
        assert conf.compensation.columns is not None


@pytest.mark.parametrize(
    ("why", "line"),
    [
        ("a few rows", "--dt=u8:s8:u8 --attr-zero-points=src:common:3 8x64:64x256"),
        ("nothing to sum up", "--dt=u8:s8:u8 --attr-zero-points=wei:common:3 64x64:64x256"),
        ("sums of groups", "--dt=u8:s8:f32 --attr-zero-points=src:per_ocic:s8:1x16 64x64:64x64"),
    ],
)
def test_rows_of_ones_that_stay(why: str, line: str) -> None:
    (case,) = Interpreter().cases(["--matmul", *line.split()])
    assert conf_of(create(case, OPERATIONS["matmul"]).pd).compensation.columns is None, why
