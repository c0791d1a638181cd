"""Planning and writing a kernel takes as many steps for large tensors as for small ones.

What is counted are the lines of Python that run and the length of the LLVM IR. Nothing is compiled,
allocated or executed. Sizes decide on tails, parts and levels of loops, so that some growth is
usual; what is looked for is growth in proportion.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.tools.bench.creation import create

DESCRIPTIONS = {own.operation.driver.name: own for own in OPERATIONS.values()}
SMALL, LARGE = 1009, 10_000_019
"""Primes, which no block, vector or tile divides."""
GROWTH = 20
"""What a size 10,000 times as large may take as often."""

# N is the size that varies. Each line has it in other places.
TEXT = """
--matmul Nx8:8x16
--matmul 8xN:Nx16
--matmul --wtag=ba 8x16:16xN
--matmul --stag=ba --dtag=ba Nx8:8x16
--matmul 1xN:Nx1
--matmul Nx100:100x1
--matmul --stag=ba Nx100:100x1
--matmul Nx4x8:Nx8x16
--matmul --dt=u8:s8:f32 --attr-zero-points=src:0:2+wei:0:3 Nx8:8x16
--matmul --dt=bf16 --wtag=ab 8x16:16xN
--matmul --dt=s64 8xN:Nx16
--matmul --encoding=csr+0.99:: --wtag=ab --dtag=ab Nx8:8x16
--matmul --encoding=:coo+0.99: --stag=ab --dtag=ab 8xN:Nx16
--ip mbNic8oc16
--ip mb8icNoc16
--ip mb8ic3ihNiw1oc16
--conv mb1ic16ih4iwNoc19kh1kw1
--conv mb1icNih4oc8kh1
--conv mb1ic8ih4ocNkh1
--conv mbNic16iw5oc19kw3pw1
--conv mb1ic16ihNiw3oc19kh3kw3ph1pw1
--conv mb1ic16ih3iwNoc19kh3kw3ph1pw1sh2sw2
--conv mb1ic8idNih3iw3oc8kd3kh3kw3pd1ph1pw1
--conv mb1ic2ihNiw1oc8kh301kw1ph150
--conv mb1ic2iwNoc8kw3pw1000000dw999999
--conv gNicNiw50ocNkw3pw1
--conv mb1g8ic8ih3iwNoc8kh3kw3ph1pw1
--conv --stag=axb --dtag=axb mb1g16ic16ih3iwNoc16kh3kw3ph1pw1
--conv --dt=u8:s8:f32 --stag=axb mb1g16ic16ihNiw3oc16kh3kw3ph1pw1
--conv --dt=u8:s8:f32 --attr-zero-points=src:0:2 mb1ic16ih3iwNoc19kh3kw3ph1pw1
--conv --attr-post-ops=relu+dw:k3s2p1+relu mb1ic6ihNiw9oc20kh1kw1
--deconv mb1ic16ih3iwNoc19kh3kw3ph1pw1sh2sw2
--deconv mb1g8ic8ihNiw3oc8kh3kw3ph1pw1sh2sw2
--resampling --alg=nearest,linear mbNic3ih7oh13
--resampling --alg=linear mb1icNiw10ow20
--softmax --axis=1 3xN
--softmax --axis=1 3xNx5
--softmax --axis=0 Nx3
--softmax --dir=BWD_D --axis=1 3xNx5
--eltwise --alg=tanh N
--eltwise --alg=tanh --tag=aBx16b Nx5x3
--eltwise --alg=tanh --dir=BWD_D --tag=axb 3x5xN
--binary --alg=ADD Nx3:1x3
--binary --alg=ADD --stag=ab:ba 3xN:3xN
--sum --sdt=f32:f32 3xN
--concat --axis=1 --dtag=aBx16b 3xNx5:3x7x5
--concat --axis=0 --stag=ab:ab --dtag=ba Nx3:16x3
--shuffle --axis=1 --group=N 2xNx1
--shuffle --axis=1 --group=4 2x20xN
--shuffle --dir=BWD_D --tag=axb --axis=1 --group=4 Nx20x5
--reorder --stag=ab --dtag=ba Nx3
--reorder --stag=abx --dtag=aBx16b 3xNx5
--reorder --ddt=s8 --attr-scales=dst:1 Nx3
--reduction --alg=sum 3xN:3x1
--reduction --alg=sum Nx3:1x3
--reduction --alg=max --stag=axb 3xNx5:3x1x5
--gather --axis=0 Nx4:7
--gather --axis=1 5xN:4xN
--grid_sample --function=linear 2x3xNx5:2x4x3x2
--scatter --axis=0 --function=add Nx4:7
--scatter --axis=1 --function=none 5xN:4xN
--arg_reduction --axis=1 --function=max 3xN
--arg_reduction --axis=0 --function=min Nx3
--cumulative --axis=1 --function=sum 3xN
--cumulative --axis=0 --function=sum --order=reverse Nx3
--attention --masking=causal 1x2xNx8:1x2x9x8:1x2x9x8:1x1xNx9
--attention --dir=FWD_I,BWD_D 2x2x9x8:2x1xNx8:2x1xNx8
--attention --sdt=bf16 --ddt=bf16 --dir=FWD_I,BWD_D 1x2xNx8:1x2xNx8:1x2xNx8
--attention --dir=BWD_D --masking=causal 1xNx30x8:1xNx30x8:1xNx30x8
--rnn --alg=VANILLA_LSTM l1tNmb2sic8
--rnn --alg=LBR_GRU l1t3mbNsic8
--prelu --stag=ab:ab Nx3:1x3
--prelu --dir=BWD_DW --stag=ab:ab 3xN:1xN
--exact --sdt=s64 --ddt=s64 --alg=mul 3xN:1xN
--lrn --alg=ACROSS mb1icNih3iw3
--lrn --alg=WITHIN mb1ic5ih3iwN
--lrn --dir=BWD_D --alg=ACROSS --tag=axb mb1icNih3iw3
--pool --alg=max,avg_np mb1ic5ih3iwNkh3kw3sh2sw2ph1pw1
--pool --alg=avg_np mb1ic2iwNow1kwN
--pool --dir=BWD_D --alg=max,avg_np mb1ic5ih3iwNkh3kw3sh2sw2ph1pw1
--pool --dir=BWD_D --alg=avg_p mb1ic2iwNow1kwN
--bnorm --flags=CHR mb3icNih5
--bnorm --dir=BWD_DW --flags=CH --tag=axb mb3ic19ih1iwN
--lnorm --flags=CH 3xN
--lnorm --dir=BWD_DW --flags=CH Nx3
--gnorm --flags=CH g2mb3ic10ih1iwN
--gnorm --dir=BWD_DW --flags=CH g1mb3icNih1iw3
"""
CASES = TEXT.strip().splitlines()


def cases(line: str, size: int) -> list[Case]:
    *options, problem = line.split()
    options = [option.replace("=N", f"={size}") for option in options]
    return list(Interpreter().cases([*options, problem.replace("N", str(size))]))


def counts(line: str, size: int) -> tuple[int, int]:
    """The lines of Python that run while the cases of a line are planned and written, and the
    characters of the IR."""
    made, number = cases(line, size), 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal number
        number += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        kernels = [create(case, DESCRIPTIONS[case.driver.name]).pd.plan.recipe for case in made]
        modules = [recipe.kernel().module for recipe in kernels]
    finally:
        sys.settrace(before)
    return number, sum(len(str(module)) for module in modules)


def test_every_operation_is_among_them() -> None:
    assert {line.split()[0][2:] for line in CASES} == set(DESCRIPTIONS)


@pytest.mark.parametrize("line", CASES)
@pytest.mark.covers
def test_steps_and_code_do_not_grow_with_sizes(line: str) -> None:
    small, large = counts(line, SMALL), counts(line, LARGE)
    assert large[0] <= GROWTH * small[0], f"{small[0]} and {large[0]} lines of Python"
    assert large[1] <= GROWTH * small[1], f"{small[1]} and {large[1]} characters of IR"
