"""Resampling by rules between sizes that only the execution knows, and the rules themselves."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from dnnl import (
    RUNTIME_DIM,
    Arg,
    Interpolation,
    InvalidArguments,
    MemoryDesc,
    ResamplingDesc,
    config,
)
from dnnl.language.errors import BadValue
from dnnl.reference import resampling as reference
from tests.check import check, logical, memory_of, poisoned_memory
from tests.primitives.harness import ENGINE, ISAS, describe, every_isa, execute, source, tensor
from tests.primitives.runtime_sizes import trials
from tests.primitives.test_open_windows import kernels_for

R = RUNTIME_DIM
LINEAR = "resampling_linear"
PAIRS = " ".join(
    f"mb{n}ic{c}_ih{h}oh{oh}_iw{w}ow{ow}"
    for n, c, h, oh, w, ow in [
        (2, 19, 9, 13, 5, 10), (3, 3, 33, 7, 40, 80), (2, 5, 4, 41, 6, 123), (2, 5, 64, 3, 70, 9),
        (1, 32, 4, 4, 37, 37), (2, 3, 1, 5, 9, 1), (2, 5, 6, 6, 3, 4),
    ]
)  # fmt: skip
RULES = [
    ("FWD_I", "linear", "linear", "abx"),
    ("FWD_I", "linear", "linear:align_corners", "aBx16b"),
    ("FWD_I", "linear", "cubic", "abx"),
    ("FWD_I", "linear", "cubic:asymmetric+linear:half_pixel::5/2", "aBx8b"),
    ("FWD_I", "linear", "nearest:align_corners+cubic:::1/2:-0.5", "abx"),
    ("FWD_I", "nearest", "nearest:asymmetric:floor", "abx"),
    ("FWD_I", "nearest", "nearest:asymmetric:half_down", "axb"),
    ("FWD_I", "nearest", "nearest:half_pixel_for_nearest:floor", "aBx16b"),
    ("FWD_I", "nearest", "nearest:asymmetric:ceil:3/4", "abx"),
    ("FWD_I", "nearest", "nearest:asymmetric:floor_f32", "axb"),
    ("BWD_D", "linear", "linear", "abx"),
    ("BWD_D", "linear", "linear:align_corners", "aBx8b"),
    ("BWD_D", "linear", "linear:asymmetric+cubic", "abx"),
    ("BWD_D", "nearest", "nearest:asymmetric:floor", "aBx8b"),
    ("BWD_D", "nearest", "nearest:align_corners:half_down", "abx"),
    ("BWD_D", "nearest", "nearest:half_pixel_for_nearest:floor_f32", "abx"),
    ("BWD_D", "nearest", "nearest:half_pixel:ceil", "abx"),
]


def opened(alg: str, rules: list[Interpolation]) -> ResamplingDesc:
    """Images of any size out of such."""
    image = MemoryDesc((R, R, R, R), "f32", "nchw")
    return ResamplingDesc.forward("forward_inference", alg, image, image, taps=rules)


@pytest.mark.parametrize(("direction", "alg", "taps", "tag"), RULES)
@pytest.mark.covers
def test_rules(direction: str, alg: str, taps: str, tag: str) -> None:
    with config.override("max_cpu_isa", ISAS[len(taps) % len(ISAS)]):
        kernels_for(f"--resampling --dir={direction} --alg={alg} --taps={taps} --tag={tag} {PAIRS}")


@pytest.mark.parametrize("direction", ["FWD_I", "BWD_D"])
def test_positions_that_f32_rounds_up(direction: str) -> None:
    """To those of the next element."""
    for coordinates, pairs in (
        ("asymmetric", (6545, 8389)),
        ("half_pixel_for_nearest", (3941, 7710)),
    ):
        taps = f"--taps=nearest:{coordinates}:floor_f32"
        size = "mb1ic1_ih1oh1_iw{}ow{}".format(*pairs)
        kernels_for(f"--resampling --dir={direction} --alg=nearest {taps} --tag=abx {size}")


@pytest.mark.parametrize("kinds", ["bf16 f32", "u8 s8", "f64 f64", "s32 f32", "f16 f16", "s32 s32"])
@pytest.mark.parametrize("alg", ["nearest", "linear"])
def test_types(kinds: str, alg: str) -> None:
    sdt, ddt = kinds.split()
    line = f"--resampling --dir=FWD_I --alg={alg} --sdt={sdt} --ddt={ddt} --tag=abx {PAIRS}"
    kernels_for(line)


@every_isa
@pytest.mark.parametrize("tag", ["abx", "axb"])
@pytest.mark.parametrize(
    ("direction", "taps", "most"),
    [
        ("FWD_I", "", 3),
        ("FWD_I", "linear:align_corners", 3),
        ("FWD_I", "cubic:pytorch_half_pixel+nearest:asymmetric:floor", 3),
        ("BWD_D", "", 3),
        ("BWD_D", "linear:align_corners", 6),
        ("BWD_D", "linear:asymmetric+nearest:asymmetric:floor", 4),
    ],
)
def test_images_of_many_sizes_share_kernels(
    direction: str, taps: str, most: int, tag: str, isa: str
) -> None:
    """All eight get about twice as large, as a decoder has them. No other test has this type, as
    equal descriptions share kernels."""
    sizes = [
        (40, 79, 48, 96), (33, 66, 64, 127), (50, 100, 37, 73), (21, 41, 90, 180),
        (28, 55, 62, 124), (45, 90, 39, 77), (60, 119, 36, 72), (37, 74, 52, 103),
    ]  # fmt: skip
    problems = " ".join(f"mb2ic3_ih{h}oh{oh}_iw{w}ow{ow}" for h, oh, w, ow in sizes)
    with config.override("max_cpu_isa", isa):
        alike = f"--dir={direction} --alg=linear --sdt=f16 --tag={tag} --taps={taps}"
        assert kernels_for(f"--resampling {alike} {problems}") <= most


@pytest.mark.parametrize(
    ("mode", "rule"),
    [
        ({"mode": "bilinear", "align_corners": True}, Interpolation("linear", "align_corners")),
        ({"mode": "bicubic", "align_corners": False}, Interpolation("cubic")),
        ({"mode": "nearest"}, Interpolation("nearest", "asymmetric", "floor_f32")),
        (
            {"mode": "nearest-exact"},
            Interpolation("nearest", "half_pixel_for_nearest", "floor_f32"),
        ),
    ],
)
@pytest.mark.parametrize("size", [(20, 40), (5, 7), (9, 31), (111, 111)])
def test_rules_of_pytorch(mode: dict[str, Any], rule: Interpolation, size: tuple[int, int]) -> None:
    src, dst = source((2, 19, 9, 18), "nchw"), describe((2, 19, *size), "nchw")
    alg = "resampling_nearest" if rule.count == 1 else LINEAR
    desc = ResamplingDesc.forward("forward_inference", alg, src.desc, dst, taps=[rule] * 2)
    # Positions of f32 are rounded in f32.
    given = tensor(src).float() if rule.count == 1 else tensor(src)
    want = torch.nn.functional.interpolate(given, size, **mode).numpy()
    bound = reference.TOLERANCE["resampling_linear"]("f32", 64)
    check(execute(desc, {Arg.SRC: src}), want, bound)
    memory = poisoned_memory(dst, ENGINE)
    check(execute(opened(alg, [rule] * 2), {Arg.SRC: src}, dst=memory), want, bound)


@pytest.mark.parametrize("function", ["linear", "cubic"])
def test_infinities_reach_no_element_but_their_own(function: str) -> None:
    """Where a position is that of an element, its neighbours have the weight 0."""
    values = logical(source((2, 3, 9, 40), "nchw")).astype(np.float32)
    values[0, 1, 4, 8], values[1, 2, 0, 30:] = np.inf, np.nan
    src = memory_of(values, describe(values.shape, "nchw"), ENGINE)
    rules, size = [Interpolation(function, "align_corners")] * 2, (17, 79)
    desc = opened(LINEAR, rules)
    dst = poisoned_memory(describe((2, 3, *size), "nchw"), ENGINE)
    result = logical(execute(desc, {Arg.SRC: src}, dst=dst))
    own = ~np.isfinite(reference.resampling(values, LINEAR, size, rules))
    assert own.sum() < own.size / 20
    np.testing.assert_array_equal(~np.isfinite(result), own)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"function": "lanczos"}, "expected one of nearest, linear, cubic"),
        ({"function": "linear", "coordinates": "corners"}, "expected one of half_pixel"),
        ({"function": "nearest", "rounding": "up"}, "expected one of half_up"),
        ({"function": "nearest", "rounding": "floor_f32"}, "has positions of asymmetric"),
        ({"function": "linear", "scale": 2}, "expected a fractions.Fraction"),
        ({"function": "linear", "scale": Fraction(-1)}, "expected a fractions.Fraction"),
        ({"function": "linear", "coordinates": "align_corners", "scale": Fraction(2)}, "alone"),
        ({"function": "cubic", "cubic": float("inf")}, "expected a finite number"),
    ],
)
def test_rules_that_are_none(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArguments, match=reason):
        Interpolation(**given)


def test_the_nearest_element_is_one() -> None:
    desc = describe((2, 3, 4, 5), "nchw")
    rules = [Interpolation("linear")] * 2
    with pytest.raises(InvalidArguments, match="weighted sums are resampling_linear"):
        ResamplingDesc.forward("forward_inference", "resampling_nearest", desc, desc, taps=rules)


def test_verbose_lines_have_the_rules() -> None:
    desc = describe((2, 3, 4, 5), "nchw")
    rules = [Interpolation("cubic", "asymmetric", cubic=-0.5), Interpolation("nearest")]
    made = ResamplingDesc.forward("forward_inference", "resampling_linear", desc, desc, taps=rules)
    assert made.auxiliary == "alg:resampling_linear taps:cubic:asymmetric:half_up::-0.5+nearest"


@pytest.mark.parametrize(
    "rule",
    [
        Interpolation("cubic"),
        Interpolation("linear", scale=Fraction(5, 2)),
        Interpolation("nearest", "align_corners", "ceil"),
        Interpolation("cubic", cubic=-0.3),
    ],
)
def test_cases_have_the_rules(rule: Interpolation) -> None:
    desc = describe((2, 3, 4, 5), "nchw")
    made = ResamplingDesc.forward("forward_inference", LINEAR, desc, desc, taps=[rule] * 2)
    text = made.auxiliary.rpartition("taps:")[2]
    (case,) = trials(f"--resampling --dir=FWD_I --alg=linear --taps={text} ic3ih4oh4_iw5ow5")
    assert isinstance(case.desc, ResamplingDesc)
    assert case.desc.taps == (rule, rule)


@pytest.mark.parametrize("text", ["::", "cubic:::1/0", "cubic:::::3", "cubic::::nan", "lanczos"])
def test_no_rules(text: str) -> None:
    with pytest.raises(BadValue):
        list(trials(f"--resampling --taps={text} ic3ih4oh4_iw5ow5"))
