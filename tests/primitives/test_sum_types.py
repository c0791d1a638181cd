"""A sum that reads dst as another type of the same size, behind every kind of kernel."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from dnnl import InvalidArguments, PrimitiveDesc, Unimplemented
from dnnl.primitives.registry import OPERATIONS
from dnnl.reference.arrays import Array
from dnnl.reference.fill import integers, stored
from dnnl.reference.post_ops import reread
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.creation import create
from dnnl.tools.bench.drivers import description
from dnnl.tools.bench.execute import Executor
from dnnl.tools.bench.result import State
from dnnl.tools.bench.trial import Trial
from dnnl.types.dtype import DataType
from tests.primitives.harness import ENGINE
from tests.test_records import judge, results_between_guard_pages

BYTES = "--attr-post-ops=relu+sum:0.5:2:u8"
NARROW = "--attr-post-ops=sum:0.25:0:f16"
LINES = (
    f"--reorder --sdt=f32 --ddt=s8 --stag=abx --dtag=axb {BYTES} 2x19x5",
    "--reorder --sdt=f32 --ddt=s4 --stag=abx --dtag=aBx16b --attr-post-ops=sum:1:2:u4 2x32x6",
    "--reorder --sdt=f32 --ddt=u8 --stag=abx --dtag=abx --attr-post-ops=sum:1:0:f8_e4m3 2x19x5",
    f"--eltwise --dt=s8 --alg=linear --alpha=2 --beta=1 --tag=abx,aBx16b {BYTES} 2x19x5",
    f"--eltwise --dt=bf16 --alg=tanh --tag=abx {NARROW} 2x19x5",
    f"--binary --alg=add --sdt=s8:f32 --ddt=s8 --stag=abx:axb --dtag=axb {BYTES} 2x19x5:2x1x5",
    f"--sum --sdt=s8:u8 --ddt=s8 --stag=abx:axb --dtag=abx {BYTES} 2x19x5",
    f"--softmax --ddt=s8 --attr-scales=dst:common:0.0078125 {BYTES} 2x19x5",
    f"--softmax --ddt=bf16 --axis=2 {NARROW} 2x19x5",
    f"--lnorm --dt=f32:s8 --tag=acb {BYTES} 2x19x25",
    f"--gnorm --dt=f32:s8 --tag=abx {BYTES} g1mb2ic4ih9",
    f"--bnorm --dt=s8 --flags=GCH --tag=axb {BYTES} mb2ic19ih5",
    f"--bnorm --dir=FWD_D --dt=bf16 {NARROW} mb2ic19ih5",
    f"--lrn --dir=FWD_I --dt=f32:bf16 --tag=axb {NARROW} mb2ic19ih5",
    f"--prelu --dir=FWD_I --sdt=f32:f32:bf16 {NARROW} 2x19x5:1x19x1",
    f"--shuffle --dir=FWD_I --dt=s8 --group=3 --axis=1 {BYTES} 2x18x5",
    f"--pool --dt=s8 --tag=axb --alg=max {BYTES} ic19ih9oh5kh3sh2ph1",
    f"--resampling --sdt=s8 --ddt=s8 --tag=axb --alg=linear {BYTES} mb2ic5ih7oh12",
    f"--reduction --sdt=s8 --ddt=s8 --alg=sum {BYTES} 9x33:9x1 300x7:1x7",
    f"--matmul --dt=u8:s8:s8 --dtag=ba {BYTES} 17x20:20x33",
    "--matmul --dt=u8:s8:s32 --attr-post-ops=sum:0.5:0:f32 3x20:20x33",
    f"--conv --dt=bf16 --stag=abx --dtag=aBx8b {NARROW} ic16oc20ih5kh3ph1",
    f"--conv --dt=bf16 {NARROW} g16ic16oc16ih5kh3ph1",
    f"--deconv --dt=bf16 {NARROW} ic16oc20ih5oh9kh3sh2ph1",
    f"--ip --dt=bf16 {NARROW} mb3ic20oc17",
)


def trial(line: str) -> list[Trial]:
    made = []
    for case in Interpreter().cases(line.split()):
        kind = description(case.driver)
        assert kind is not None
        created = create(case, kind)
        filled = Trial(case, created, created.pd)
        filled.fill(bitwise=False)
        filled.previous = _held(filled)
        filled.place()
        made.append(filled)
    return made


def _held(made: Trial) -> Array:
    """Numbers of both signs, which another type reads as others, though none as a large one."""
    dst = made.result.desc
    rng = np.random.default_rng(3)
    if dst.data_type.is_float:
        return stored(rng.uniform(-2, 2, dst.dims), dst.data_type)
    low, high = max(int(dst.data_type.min), -90), min(int(dst.data_type.max), 110)
    return integers(rng, dst.dims, low, high)


@pytest.mark.parametrize("line", LINES)
def test_a_sum_reads_dst_as_another_type(line: str) -> None:
    for made in trial(line):
        judge(made, results_between_guard_pages(made))


def test_sizes_that_the_execution_knows() -> None:
    line = f"--reorder --sdt=f32 --ddt=s8 --runtime-dim-mask=7 --dtag=acb {BYTES} 2x19x5"
    (case,) = Interpreter().cases(line.split())
    assert Executor().run(case).state is State.PASSED


@pytest.mark.parametrize("kind", OPERATIONS)
def test_every_operation_that_takes_a_sum_is_here(kind: str) -> None:
    driver, *example = (
        OPERATIONS[kind].operation.driver.name,
        OPERATIONS[kind].operation.examples[0],
    )
    case = next(Interpreter().cases(f"--{driver} {' '.join(example)}".split()))
    made = create(case, OPERATIONS[kind])
    made.attr.post_ops.append_sum()
    named = any(line.startswith(f"--{driver} ") for line in LINES)
    with nullcontext() if named else pytest.raises(Unimplemented, match=r"post-op|attribute"):
        PrimitiveDesc(made.desc, ENGINE, made.attr)


def test_another_size_is_refused() -> None:
    line = "--eltwise --dt=s8 --alg=relu --attr-post-ops=sum:1:0:f16 3x5"
    (case,) = Interpreter().cases(line.split())
    kind = description(case.driver)
    assert kind is not None
    with pytest.raises(InvalidArguments, match=r"post_ops\[0\].data_type.*f16.*dst is s8"):
        create(case, kind)


def test_bits_are_read_again() -> None:
    assert reread([-1.0, 3.0], DataType.s8, DataType.u8).tolist() == [255.0, 3.0]
    assert reread([15.0, 3.0], DataType.u4, DataType.s4).tolist() == [-1.0, 3.0]
    assert reread([1.0], DataType.f32, DataType.s32).tolist() == [0x3F800000]
    assert reread([1.0], DataType.bf16, DataType.f16).tolist() == [1.875]
