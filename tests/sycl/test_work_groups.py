"""What work-groups share, reductions and transpositions: the code for GPUs, run by any SYCL device.

Barriers and memory of a group need a driver: the emulation of devices has none. Drivers of
processors run them one after the other, which takes its time, but the results are those of a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from dnnl import Arg, Engine, Memory, MemoryDesc, Primitive, PrimitiveDesc, ReorderDesc, Stream
from dnnl.primitives import primitive
from dnnl.primitives.registry import OPERATIONS
from dnnl.runtime.engines import sycl
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.trial import Trial
from tests.sycl.test_records import on_device
from tests.test_records import judge, trial

SHARED = [
    # Rows of a group's least size, of elements left over, and of many times its size.
    "--softmax --axis=1 --alg=SOFTMAX,LOGSOFTMAX 3x32 5x33 3x1000",
    "--softmax --axis=1 --sdt=bf16,u8 --ddt=f32,s8 2x5000",
    "--softmax --axis=2 --inplace=true --masked_rows=nan --attr-post-ops=mul:f32 3x4x300",
    "--softmax --dir=BWD_D --axis=1 --alg=SOFTMAX,LOGSOFTMAX 3x33 2x700",
    "--lnorm --flags=,CH,GM --tag=abx 3x5x40 7x1025",
    "--lnorm --dir=BWD_DW --flags=CH --dt=f32,bf16 3x129 6x700",
    "--gnorm --flags=CH --tag=abx g2mb3ic6ih19",
    "--gnorm --dir=BWD_DW --flags=CH --tag=abx g2mb3ic6ih19",
    "--bnorm --flags=CH,CHR --tag=abx mb3ic5ih19",
    "--bnorm --dir=BWD_DW --flags=CH --tag=abx mb3ic5ih19",
    "--reduction --alg=sum,max,min,mul,mean 3x35:3x1 5x257:5x1",
    "--reduction --alg=sum --sdt=s8,f64 --ddt=s32,f64 4x777:4x1",
    "--reduction --alg=norm_lp_sum --p=2 --eps=0.5 3x5x71:3x1x1 2x90000:2x1",
    "--reduction --alg=max --attr-post-ops=sum:0.5+relu 3x400:3x1 1x100003:1x1",
    "--pool --dir=FWD_D --alg=max,avg_np --tag=abx mb2ic3ih9kh9oh1",
    "--prelu --dir=BWD_DW --stag=abx:any 3x7x90:1x7",
]
TRANSPOSED = [
    # Whole squares, tails on each side, and rows shorter than a square.
    "--reorder --stag=ab --dtag=ba 64x96 33x65 100x31 16x16",
    "--reorder --sdt=f32,bf16,s8,f64 --ddt=f32,f16,u8,f64 --stag=abcd --dtag=acdb 2x40x7x9",
    "--reorder --sdt=s8,f32 --ddt=f32,s8 --stag=ab --dtag=ba 128x64",
    "--reorder --sdt=f8_e4m3 --ddt=f8_e5m2 --stag=abc --dtag=acb 2x65x97",
    # Squares of a line of two axes, and padding.
    "--reorder --stag=abcde --dtag=acdeb 2x33x2x3x5",
    "--reorder --ddt=f32,s8 --stag=abcd --dtag=ABcd16b16a,ABcd4b16a4b 32x48x3x3",
    "--reorder --stag=abcd --dtag=ABcd16b16a,aBcd16b 40x33x3x3",
    "--reorder --stag=ABcd16b16a --dtag=abcd 40x33x3x3",
    # Other operands, broadcast or transposed as well.
    "--reorder --attr-scales=src:common:0.5 --attr-post-ops=sum:2 --stag=abc --dtag=acb 2x40x64",
    "--reorder --attr-scales=dst:per_dim_1 --stag=abcd --dtag=acdb 2x40x8x8",
    "--binary --alg=sub --stag=abcd:abcd,acdb:abcd --dtag=acdb 2x40x7x9:2x40x7x9 2x40x7x9:2x40x1x9",
    "--prelu --stag=axb:abx 3x40x70:3x40x70",
    "--concat --stag=abcd:abcd --dtag=acdb --axis=1 2x40x7x9:2x24x7x9",
    "--sum --stag=ab:ba --dtag=ba --scales=0.5:2 40x70",
]
ALONE = [
    # Rows too short for a group, and rows across memory.
    "--softmax --axis=1 5x31",
    "--softmax --axis=1 3x64x100",
    "--softmax --axis=1 --stag=aBx16b 2x129x3",
    "--reduction --alg=sum 300x70:1x70",
    # Rows too short for a square, and two elements in a byte.
    "--reorder --stag=abcd --dtag=acdb 2x7x40x40",
    "--reorder --sdt=s4 --stag=ab --dtag=ba 64x96",
]


@pytest.fixture(autouse=True)
def scalars(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The code is that of GPUs, whatever the device is."""
    own = sycl.Engine.features
    monkeypatch.setattr(
        sycl.Engine, "features", lambda engine: replace(own(engine), arch="spirv64")
    )
    yield
    primitive._cache.clear()


def made(line: str) -> Iterator[Trial]:
    """The trials of a line."""
    for case in Interpreter().cases(line.split()):
        (kind,) = (k for k, d in OPERATIONS.items() if d.operation.driver.name == case.driver.name)
        yield trial(case, OPERATIONS[kind])


def groups(tried: Trial) -> list[int]:
    """The sizes of the groups that run the phases."""
    pd = PrimitiveDesc(tried.desc, Engine("sycl"), tried.pd.attr)
    assert pd.impl_info.endswith("spirv64")
    return [phase.group for phase in pd.plan.recipe.kernel().phases]


@pytest.mark.parametrize("line", [*SHARED, *TRANSPOSED])
def test_groups_are_right(line: str) -> None:
    for tried in made(line):
        assert max(groups(tried)) > 1
        judge(tried, [on_device(tried) for _ in range(2)])


@pytest.mark.parametrize("line", ALONE)
def test_items_alone_are_right(line: str) -> None:
    for tried in made(line):
        assert max(groups(tried)) == 1
        judge(tried, [on_device(tried)])


@pytest.mark.parametrize("skipped", [(0, 0), (1, 0), (0, 1)])
def test_tensors_begin_at_any_element(skipped: tuple[int, int]) -> None:
    """Wide accesses would be misaligned; that there are none is seen in the generated code."""
    engine = Engine("sycl")
    descs = MemoryDesc((64, 96), "f32", "ab"), MemoryDesc((64, 96), "f32", "ba")
    kernel = Primitive(PrimitiveDesc(ReorderDesc(*descs), engine))
    given = np.random.default_rng(7).standard_normal((64, 96), np.float32)
    src, dst = (
        Memory(desc, engine, whole.buffer._replace(offset=4 * first))
        for desc, first in zip(descs, skipped, strict=True)
        for whole in [Memory(MemoryDesc((65 * 96,), "f32"), engine)]
    )
    src.write(given.reshape(-1).view(np.uint8))
    kernel.execute(Stream(engine), {Arg.SRC: src, Arg.DST: dst}).wait()
    assert (dst.numpy() == given).all()
