"""Judging the sums that a reorder appends to weights."""

from __future__ import annotations

from collections.abc import Callable

from dnnl.reference.arrays import Array, f64
from dnnl.reference.compensation import compensation
from dnnl.reference.rule import Rule, Verdict, compare
from dnnl.runtime.memory import Memory
from dnnl.types.dtype import DataType

_EQUAL = Rule(0.0, zeros=100)


def judge_sums(memory: Memory, want: Callable[[str], Array] | None = None) -> list[Verdict]:
    """Compare the sums of each kind with what ``want(kind)`` gives.

    Without it they must be those of the weights before them, whatever these are.
    """
    kinds = memory.desc.compensation.masks if memory.desc.compensation is not None else {}

    def own(kind: str) -> Array:
        return f64(compensation(kind, memory.numpy(), kinds[kind]))

    return [
        compare(
            f"DST {kind}",
            f64(memory.compensation(kind)),
            (want or own)(kind),
            DataType.s32,
            DataType.f64,
            _EQUAL,
        )
        for kind in kinds
    ]
