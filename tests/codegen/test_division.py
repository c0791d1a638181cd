"""Quotients by the scale of dst, which stays the same for a whole kernel."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import Arg, MatmulDesc, Memory, MemoryDesc, PrimitiveAttr, ReorderDesc, config
from dnnl.primitives.desc import Desc
from tests.primitives.harness import every_isa, execute

SCALES = (3.0, 0.1, 0.7, -1.5, 2.0**-64, 1e-30, 1e30, 3e38, 1e-38, 1e-41, 0.0, np.inf)
SMALLEST = np.float32(1e-45)
LIMITS = {"u8": (0, 255), "s8": (-128, 127), "s32": (-(2.0**31), 2.0**31 - 1)}


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
    """A reorder divides, or multiplies by the reciprocal and corrects that."""
    with config.override("max_cpu_isa", isa):
        for scale in map(np.float32, SCALES):
            x = values(scale)
            desc = ReorderDesc(MemoryDesc(x.shape, "f32"), MemoryDesc(x.shape, kind))
            given = {Arg.SRC: Memory.from_numpy(x)}
            with np.errstate(all="ignore"):
                _check(desc, given, x / scale, scale)


@every_isa
@pytest.mark.parametrize("kind", LIMITS)
def test_sums_of_products_are_multiplied_by_the_reciprocal(kind: str, isa: str) -> None:
    """Products of one term: a number in each row, and sixteen ones."""
    with config.override("max_cpu_isa", isa):
        for scale in map(np.float32, SCALES):
            x = values(scale)
            shapes = (x.size, 1), (1, 16), (x.size, 16)
            types = ("f32", "f32", kind)
            desc = MatmulDesc(*map(MemoryDesc, shapes, types))
            given = {
                Arg.SRC: Memory.from_numpy(x[:, None]),
                Arg.WEIGHTS: Memory.from_numpy(np.ones((1, 16), np.float32)),
            }
            with np.errstate(all="ignore"):
                _check(desc, given, (x * (np.float32(1) / scale))[:, None], scale)


def _check(desc: Desc, given: dict[Arg, Memory], exact: np.ndarray, scale: np.float32) -> None:
    attr = PrimitiveAttr()
    attr.set_scales(Arg.DST, 0)
    args = {int(arg): memory for arg, memory in given.items()}
    args[Arg.SCALES | Arg.DST] = Memory.from_numpy(np.array([scale]))
    got = execute(desc, args, attr).numpy()
    limits = LIMITS[str(desc.outputs[0].desc.data_type)]
    wanted = np.rint(np.clip(exact.astype(np.float64), *limits))
    known = np.broadcast_to(~np.isnan(exact), got.shape)
    assert (got[known] == np.broadcast_to(wanted, got.shape)[known]).all(), scale
