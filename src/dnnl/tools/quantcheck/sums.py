"""Where sums of integers leave their type, on which instruction sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from dnnl.reference.arrays import Array
from dnnl.types.dtype import DataType

S16, S32 = 2**15, 2**31
PAIRS = (
    "on SSE4.1, AVX2 and AVX-512 without VNNI, libraries that multiply bytes by vpmaddubsw "
    "saturate there. Weights in 7 bits, or an instruction set with VNNI, are safe; sums of dnnl "
    "are exact on all"
)
"""What becomes of pairs of products that are added in 16 bits."""
_CELLS = 2**24  # pairs of products that are looked at, at most
_BYTES = (DataType.u8, DataType.s8)
_SHIFT = 128
"""What makes u8 of s8, as the instruction wants its first operand."""


@dataclass(frozen=True)
class Sums:
    """The largest sums, by size, of the tensors at hand and of any src of its type with these
    weights (``bound``). ``pair_overflow`` is the share of pairs of products that leave s16; all
    three are 0 where src or weights are no bytes, as no instruction adds them in pairs.
    ``terms`` is the length of a sum."""

    terms: int
    largest: int
    bound: int
    pair_largest: int = 0
    pair_bound: int = 0
    pair_overflow: float = 0.0

    def advice(self) -> Iterator[str]:
        """Sentences about s32."""
        if self.largest >= S32:
            yield f"sums leave s32 on every instruction set: up to {self.largest:.4g}."
        elif self.bound >= S32:
            yield (
                f"sums of {self.terms} terms stay below {self.largest + 1}, but other values of "
                f"src could take them to {self.bound:.4g}, beyond s32, on every instruction set."
            )


def sums_of(
    patches: Array, weights: Array, types: tuple[DataType, DataType], largest: float
) -> Sums:
    """Look at sums of integers over k: src as ``patches`` [G, P, K] and ``weights`` [G, K, N], as
    they are stored: libraries subtract what zero points make of them behind the sums, of which the
    ``largest`` is known."""
    src, terms = types[0], weights.shape[1]
    bound = int(_bound(weights, src.min, src.max, terms))
    if not set(types) <= set(_BYTES) or not patches.size or not weights.size:
        return Sums(terms, int(largest), bound)
    shift = _SHIFT if src is DataType.s8 else 0
    pair_largest, overflow = _pairs(patches + shift, weights)
    pair_bound = int(_bound(weights, 0, DataType.u8.max, 2))
    return Sums(terms, int(largest), bound, int(pair_largest), pair_bound, overflow)


def _bound(weights: Array, low: float, high: float, terms: int) -> float:
    """The largest sum of so many neighbouring terms with any src between two numbers."""
    most = np.maximum(weights * low, weights * high), np.minimum(weights * low, weights * high)
    return max(float(np.abs(_added(each, terms)).max(initial=0.0)) for each in most)


def _added(values: Array, terms: int) -> Array:
    """Sums of ``terms`` neighbours along k."""
    groups, k, n = values.shape
    whole = -(-k // terms) * terms
    padded = np.concatenate([values, np.zeros((groups, whole - k, n))], axis=1)
    return np.asarray(padded.reshape(groups, whole // terms, terms, n).sum(axis=2))


def _pairs(patches: Array, weights: Array) -> tuple[float, float]:
    """The largest sum of two neighbouring products, by size, and the share of those that leave
    s16: of all, or of the rows of src with the largest numbers and some others."""
    groups, rows, k = patches.shape
    whole = k + k % 2
    a = np.zeros((groups, rows, whole), np.float32)
    a[..., :k] = patches
    b = np.zeros((groups, whole, weights.shape[2]), np.float32)
    b[:, :k] = weights
    most = max(1, _CELLS // max(1, prod(b.shape) // 2))
    if rows > most:
        sizes = np.abs(a).sum(axis=(0, 2))
        largest = np.argsort(sizes)[-max(1, most // 2) :]
        others = np.linspace(0, rows - 1, max(1, most // 2)).astype(int)
        a = a[:, np.union1d(largest, others)]
    worst, over, count = 0.0, 0, 0
    for pair in range(0, whole, 2):
        added = (
            a[..., pair, None] * b[:, None, pair] + a[..., pair + 1, None] * b[:, None, pair + 1]
        )
        worst = max(worst, float(np.abs(added).max()))
        over += int(np.count_nonzero((added >= S16) | (added < -S16)))
        count += added.size
    return worst, over / count
