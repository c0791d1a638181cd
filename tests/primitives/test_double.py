"""f64: whatever is computed of tensors of which one is f64 has its digits, not those of f32."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dnnl import Arg, DataType, config
from dnnl.reference.conversions import convert
from dnnl.reference.tolerance import Bound
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.creation import create
from dnnl.tools.bench.drivers import description
from dnnl.tools.bench.trial import Trial
from tests.check import assert_close, assert_padding_zero, logical
from tests.primitives.harness import ISAS
from tests.test_records import results_between_guard_pages

# Far above all errors of f64, far below one rounding to f32.
_RELATIVE = {DataType.f64: 2.0**-40}
_COARSE = 2.0**-17  # of statistics and gradients that are f32

CASES = (
    "--softmax --sdt=f64,f32 --ddt=f64 --stag=axb --alg=SOFTMAX,LOGSOFTMAX 3x19x5",
    "--softmax --dir=BWD_D --sdt=f64 --ddt=f64 --stag=aBx16b --alg=SOFTMAX,LOGSOFTMAX 3x19x5",
    "--softmax --sdt=f64 --ddt=f64 --axis=0 --attr-scales=src:per_oc+dst:common:0.25 40x21",
    "--softmax --sdt=f64 --ddt=f64 --attr-post-ops=sum:0.5+add:f64:per_oc+relu 3x19x5",
    "--softmax --sdt=f64 --ddt=f64 --attr-dropout=0.5:12345:abx 3x19x5",
    "--lnorm --dir=FWD_D,BWD_DW --dt=f64,f32:f64 --flags=CH,GCH 3x19x25",
    "--lnorm --dir=FWD_I,BWD_DW --dt=f64 --tag=acb --flags=CH,M 5x9x40",
    "--bnorm --dir=FWD_D --dt=f64 --tag=abx,aBx16b --flags=CH mb5ic19ih7",
    "--bnorm --dir=FWD_I,BWD_DW --dt=f64 --flags=G,CH mb5ic19ih7",
    "--bnorm --dir=FWD_D,BWD_DW --dt=f64 --tag=axb --flags=CHR mb70ic3ih40",
    "--gnorm --dir=FWD_D,BWD_DW --dt=f64 --tag=axb --flags=,GCH g3mb2ic12ih40",
    "--gnorm --dir=FWD_I,BWD_DW --dt=f64:f32,f64 --flags=CH g3mb2ic12ih40",
    "--pool --dir=FWD_D,BWD_D --dt=f64 --tag=axb --alg=max,avg_np ic19ih9oh5kh3sh2ph1",
    "--pool --dir=BWD_D --dt=f64 --alg=avg_np,avg_p ic3ih9oh9kh3ph1",
    "--resampling --dir=FWD_D,BWD_D --sdt=f64 --ddt=f64 --alg=nearest,linear mb2ic5ih7oh12iw3ow5",
    "--resampling --sdt=f32 --ddt=f64 --tag=axb --alg=linear mb2ic5ih7oh12",
    "--reduction --sdt=f64,f32 --ddt=f64 --alg=sum,mean 300x70:300x1 9x7:1x1",
    "--reduction --sdt=f64 --ddt=f64 --stag=ba --alg=max,mul,norm_lp_max --p=3 300x70:1x70",
    "--prelu --dir=FWD_D,BWD_DW --sdt=f64:f64,f32:f64 --stag=axb:any 3x19x5:1x19",
    "--prelu --dir=BWD_DW --sdt=f64:f64 --stag=ba:aB16b 40x9:40x1",
    "--lrn --dir=FWD_D,BWD_D --dt=f64 --alg=ACROSS,WITHIN mb2ic19ih5beta0.75",
    "--lrn --dir=FWD_D,BWD_D --dt=f64 --tag=axb --alg=ACROSS mb2ic19ih5beta0.6",
    "--sum --sdt=f64:f32 --ddt=f64 --stag=abx:axb --scales=0.3:2 3x19x5",
)


def trials(line: str) -> Iterator[Trial]:
    """Cases of which every f64 holds more digits than f32 has."""
    for case in Interpreter().cases(line.split()):
        kind = description(case.driver)
        assert kind is not None
        created = create(case, kind)
        made = Trial(case, created, created.pd)
        made.fill(bitwise=False)
        for argument in made.inputs.keys() & {Arg.SRC, Arg.DST, Arg.DIFF_DST, Arg.WEIGHTS}:
            # What a workspace was made of stays.
            if Arg.WORKSPACE in made.inputs and argument == Arg.SRC:
                continue
            kind_of = made.desc.desc_of(argument).data_type
            values = made.inputs[argument]
            part = np.random.default_rng(int(argument)).uniform(0, 2.0**-28, values.shape)
            with np.errstate(over="ignore"):
                made.inputs[argument] = convert(values * (1 + part), kind_of, kind_of)
        made.place()
        yield made


def verify(line: str) -> None:
    for made in trials(line):
        first, *others = results_between_guard_pages(made)
        expected = made.expect().outputs
        for tensor in made.desc.outputs:
            got, kind = first[tensor.argument], tensor.desc.data_type
            assert all((got.data == other[tensor.argument].data).all() for other in others)
            relative = _RELATIVE.get(kind, _COARSE)
            assert_close(logical(got), expected[tensor.argument], Bound(kind, relative, None))
            assert_padding_zero(got)


@pytest.mark.parametrize("line", CASES)
def test_results_have_the_digits_of_f64(line: str) -> None:
    verify(line)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("driver", ["softmax", "lnorm", "pool"])
def test_instruction_sets(driver: str, isa: str) -> None:
    line = next(line for line in CASES if line.startswith(f"--{driver} "))
    with config.override("max_cpu_isa", isa):
        verify(line)
