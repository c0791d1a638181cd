"""Quotients by the scale of dst, which stays the same for a whole kernel."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import Arg, MatmulDesc, Memory, MemoryDesc, PrimitiveAttr, config
from tests.primitives.harness import every_isa, execute

SCALES = (3.0, 0.1, 0.7, -1.5, 2.0**-64, 1e-30, 1e30, 3e38, 1e-38, 1e-41, 0.0, np.inf)
SMALLEST = np.float32(1e-45)
LIMITS = {"u8": (0, 255), "s8": (-128, 127), "s32": (-(2.0**31), 2147483520.0)}


def values(scale: np.float32) -> np.ndarray:
    """Numbers whose quotients are whole, lie halfway between whole ones, or anywhere."""
    rng = np.random.default_rng(1)
    special = [np.inf, -np.inf, 0.0, 3e38, -3e38, SMALLEST, 1e-38, 5e-39, 1e-20, 1.0]
    near = np.arange(-300, 300) / np.float32(2) * min(scale, np.float32(1e35))
    anywhere = rng.standard_normal(400) * 100 * min(float(abs(scale)) or 1.0, 1e36)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.concatenate([special, near, anywhere]).astype(np.float32)


@every_isa
@pytest.mark.parametrize("kind", LIMITS)
def test_quotients_are_those_of_a_division(kind: str, isa: str) -> None:
    """Products of one term: a number in each row, and sixteen ones."""
    with config.override("max_cpu_isa", isa):
        for scale in map(np.float32, SCALES):
            _check(kind, scale)


def _check(kind: str, scale: np.float32) -> None:
    x = values(scale)
    with np.errstate(all="ignore"):
        exact = x / scale
    known = ~np.isnan(exact)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.DST, 0)
    desc = MatmulDesc(
        MemoryDesc((x.size, 1), "f32"),
        MemoryDesc((1, 16), "f32"),
        MemoryDesc((x.size, 16), kind),
    )
    given = {
        Arg.SRC: Memory.from_numpy(x[:, None]),
        Arg.WEIGHTS: Memory.from_numpy(np.ones((1, 16), np.float32)),
        Arg.SCALES | Arg.DST: Memory.from_numpy(np.array([scale])),
    }
    got = execute(desc, {int(key): memory for key, memory in given.items()}, attr).numpy()
    wanted = np.rint(np.clip(exact, *LIMITS[kind]))
    assert (got[known] == wanted[known, None]).all(), scale
