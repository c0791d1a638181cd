"""Products of bytes by instructions that multiply 16 bits: src is up-converted once, before."""

from __future__ import annotations

import pytest

from dnnl import config
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.creation import create
from tests.primitives.lines import conf_of, each_line, judged
from tests.processor import ISAS

LEVELS = [name for name in ("sse41", "avx2", "avx512_core") if name in ISAS]
LINES = {
    "matmul": (
        "--dt=u8:s8:u8,s8:s8:s32,s8:u8:f32 --stag=ab,ba --wtag=any --dtag=ab 19x36:36x131",
        "--dt=u8:s8:f32 --dtag=ab --attr-zero-points=src:common:3+wei:common:2 9x64:64x130",
        "--dt=s8:u8:s32 2x3x7x20:2x1x20x70",
    ),
    "inner_product": ("--dir=FWD_I --dt=u8:s8:u8,s8:s8:f32 --stag=abx,axb mb9ic32ih3oc70",),
    "convolution": (
        "--dir=FWD_I --dt=u8:s8:u8,s8:s8:s32 --stag=axb,aBx16b --dtag=axb ic16ih7oc70oh7kh3ph1",
        "--dir=FWD_I --dt=s8:u8:f32 --stag=axb g2ic24iw9oc130ow5kw3sw2pw1",
        "--dir=FWD_I --dt=u8:s8:u8 --attr-zero-points=src:common:3 ic3ih9oc66oh9kh3ph1",
    ),
    "deconvolution": ("--dir=FWD_I --dt=u8:s8:u8 --stag=axb ic16ih5oc64oh10kh4sh2ph1",),
}


@pytest.mark.parametrize("level", LEVELS)
@each_line(LINES)
def test_results(kind: str, line: str, level: str) -> None:
    for conf in judged(kind, line, level):
        assert conf.up_converted is not None


@pytest.mark.parametrize(
    ("why", "line"),
    [
        ("a few rows", "--dt=u8:s8:u8 --stag=ab 3x64:64x256"),
        ("few columns", "--dt=u8:s8:u8 --stag=ab 64x64:64x32"),
        ("words that begin anywhere", "--dt=u8:s8:u8 --strides=66x1:: 64x64:64x256"),
        ("gaps", "--dt=u8:s8:u8 --strides=640x1:: 64x64:64x256"),
        ("floats", "--dt=f32 --stag=ab 64x64:64x256"),
    ],
)
def test_a_src_that_stays_as_it_is(why: str, line: str) -> None:
    (case,) = Interpreter().cases(["--matmul", *line.split()])
    with config.override("max_cpu_isa", LEVELS[-1]):
        pd = create(case, OPERATIONS["matmul"]).pd
        assert conf_of(pd).up_converted is None, why


def test_bands_of_a_chain_stay_bands() -> None:
    line = "--dir=FWD_I --dt=u8:s8:u8 --stag=axb --attr-post-ops=dw:k3s1p1:u8 ic32ih28oc192kh1"
    (case,) = Interpreter().cases(["--conv", *line.split()])
    with config.override("max_cpu_isa", LEVELS[-1]):
        made = conf_of(create(case, OPERATIONS["convolution"]).pd)
    assert made.bands is not None
