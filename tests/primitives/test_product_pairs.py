"""Products of bytes by sums of two in 16 bits: exact where weights are just small enough."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import Arg, config
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.creation import create
from tests import test_records as records
from tests.primitives.lines import conf_of, each_line
from tests.processor import ISAS

LEVELS: list[str] = [name for name in ("sse41", "avx2", "avx512_core") if name in ISAS]
SMALL = ((64, 64), (127, 1), (127, -128), (-64, -64), (-128, 0), (0, -128), (-1, 127))
LARGE = ((65, 64), (64, 65), (127, 127), (-65, -64), (-128, -1))
LINES = {
    "matmul": (
        "--dt=u8:s8:s32 --stag=ab,ba --wtag=any,ab --dtag=ab 67x132:132x150",
        "--dt=u8:s8:s32 --dtag=ab --attr-zero-points=src:common:3+wei:common:2 64x128:128x130",
        "--dt=u8:s8:s32 2x3x40x64:2x1x64x140",
        "--dt=u8:s8:s32 --wtag=any 33x70002:70002x20",
    ),
    "inner_product": ("--dir=FWD_I --dt=u8:s8:s32 --stag=abx,axb mb65ic32ih3oc70",),
    "convolution": (
        "--dir=FWD_I --dt=u8:s8:s32 --stag=axb,aBx16b --dtag=axb ic32ih9oc70oh9kh3ph1",
        "--dir=FWD_I --dt=u8:s8:s32 --stag=axb g2mb4ic64iw19oc130ow10kw9sw2pw4",
        "--dir=FWD_I --dt=u8:s8:s32 --attr-zero-points=src:common:3 mb2ic30ih13oc66oh13kh3ph1",
        "--dir=FWD_I --dt=u8:s8:s32 --stag=axb --dtag=axb mb2ic128ih14oc140oh7kh1sh2",
    ),
    "deconvolution": ("--dir=FWD_I --dt=u8:s8:s32 --stag=axb mb2ic32ih7oc64oh14kh4sh2ph1",),
}
SUMMED = {"matmul": -2, "inner_product": 1, "convolution": 1, "deconvolution": 1}


def small_weights(dims: tuple[int, ...], along: int) -> np.ndarray:
    """Neighbours along a dimension whose sums are at the edge of what is exact."""
    rng = np.random.default_rng(len(dims))
    last = np.moveaxis(np.zeros(dims), along, -1).shape
    chosen = rng.choice(np.array(SMALL), (*last[:-1], -(-last[-1] // 2)))
    return np.moveaxis(chosen.reshape(*last[:-1], -1)[..., : last[-1]], -1, along)


def with_large(weights: np.ndarray, along: int, number: int) -> np.ndarray:
    """The weights with one pair beyond the edge, somewhere."""
    rng = np.random.default_rng(number)
    turned = np.moveaxis(weights.copy(), along, -1)
    lines = turned.reshape(-1, turned.shape[-1])
    k = 2 * int(rng.integers(turned.shape[-1] // 2))
    lines[int(rng.integers(len(lines))), k : k + 2] = LARGE[number]
    turned = lines.reshape(turned.shape)
    return np.moveaxis(turned, -1, along)


@pytest.mark.parametrize("level", LEVELS)
@each_line(LINES)
def test_results_at_the_edge(kind: str, line: str, level: str) -> None:
    """Of weights that are all small enough, and of such that are not in one place, another one for
    each line, beside a src that is as large as can be nearly everywhere."""
    first = LINES[kind].index(line) + LEVELS.index(level)
    with config.override("max_cpu_isa", level):
        driver = OPERATIONS[kind].operation.driver.name
        for number, case in enumerate(Interpreter().cases([f"--{driver}", *line.split()])):
            made = records.trial(case, OPERATIONS[kind])
            assert conf_of(made.pd).flags is not None
            weights, src = made.inputs[Arg.WEIGHTS], made.inputs[Arg.SRC]
            along = SUMMED[kind] + (weights.ndim > src.ndim)
            small = small_weights(weights.shape, along)
            made.inputs[Arg.SRC] = np.where(src % 5, 255, src).astype(src.dtype)
            for some in (small, with_large(small, along, (first + number) % len(LARGE))):
                made.inputs[Arg.WEIGHTS] = some.astype(weights.dtype)
                made.place()
                records.judge(made, records.results_between_guard_pages(made))


@pytest.mark.parametrize(
    ("why", "line"),
    [
        ("weights that the sum shifts", "--dt=s8:s8:s32 64x128:128x160"),
        ("unsigned weights", "--dt=u8:u8:s32 64x128:128x160"),
        ("few products of each weight", "--dt=u8:s8:s32 31x512:512x512"),
        ("few products", "--dt=u8:s8:s32 64x64:64x64"),
        ("floats", "--dt=f32 64x128:128x160"),
    ],
)
def test_products_of_one_way(why: str, line: str) -> None:
    (case,) = Interpreter().cases(["--matmul", *line.split()])
    with config.override("max_cpu_isa", LEVELS[-1]):
        assert conf_of(create(case, OPERATIONS["matmul"]).pd).flags is None, why


@pytest.mark.isa("avx2_vnni", "avx512_core_vnni")
def test_vnni_needs_no_other_way() -> None:
    (case,) = Interpreter().cases(["--matmul", "--dt=u8:s8:s32", "64x128:128x160"])
    assert conf_of(create(case, OPERATIONS["matmul"]).pd).flags is None
