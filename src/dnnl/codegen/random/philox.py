"""Philox 4x32-10 on vectors.

A counter of four 32-bit words is mixed in ten rounds, each with its own key. Words are held in
64-bit lanes, since a round needs the upper halves of two 32-bit products.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I32, I64, Emitter, Value, Values

_ROUNDS = 10
_FACTORS = 0xD2511F53, 0xCD9E8D57
_BUMPS = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF
BLOCK = 4
"""The words of a counter, each of which yields a random number."""


def keys(e: Emitter, seed: Sequence[Value], lanes: int) -> list[Values]:
    """The two key words of each round, in ``lanes`` lanes of i64. ``seed`` is the key of the first
    round (i32)."""
    rounds = [tuple(seed)]
    for _ in range(1, _ROUNDS):
        bumped = zip(rounds[-1], _BUMPS, strict=True)
        rounds.append(tuple(e.b.add(word, ir.Constant(I32, bump)) for word, bump in bumped))
    return [tuple(vector.splat(e, e.b.zext(word, I64), lanes) for word in key) for key in rounds]


def mixed(e: Emitter, counter: Sequence[Value], rounds: Sequence[Values]) -> Values:
    """The four random numbers (i32) of each counter. ``counter`` has the four words as i64
    vectors."""
    first, second, third, fourth = counter
    lanes = first.type.count
    low = vector.splat_constant(first.type, _LOW)
    half = vector.splat_constant(first.type, 32)

    def product(word: Value, factor: int) -> Value:
        return e.b.mul(e.b.and_(word, low), vector.splat_constant(word.type, factor))

    def keyed(upper: Value, word: Value, key: Value) -> Value:
        return e.b.xor(e.b.xor(e.b.lshr(upper, half), word), key)

    for key in rounds:
        a, b = product(first, _FACTORS[0]), product(third, _FACTORS[1])
        first, second = keyed(b, second, key[0]), b
        third, fourth = keyed(a, fourth, key[1]), a
    kind = vector.vector_type(I32, lanes)
    return tuple(e.b.trunc(word, kind) for word in (first, second, third, fourth))
