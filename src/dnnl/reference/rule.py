"""Whether a result is right, by benchdnn's rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dnnl.reference.arrays import Array
from dnnl.reference.conversions import convert
from dnnl.types.dtype import DataType

SMALL = 1e-5
SHOWN = 10
FEWEST = 10
"""Below so many elements zeros are no reason for mistrust."""
_EPS = DataType.f32.eps
_TIE = 1e-6
_NARROW = (DataType.f16, DataType.f8_e5m2, DataType.f8_e4m3, DataType.f4_e2m1)

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Rule:
    """What a driver accepts besides equality.

    ``threshold`` bounds the relative error (the absolute one of small values), ``zeros`` is the
    percentage of zeros from which on a test proves little. Any difference below ``slack`` is
    accepted; ``absolute`` and ``relative``, where one of them is set, are further bounds of at
    least the type's epsilon. ``non_finite`` accepts equal infinities and NaN, ``offset`` is what
    the result is taken relative to, and ``absolute_at`` where ``threshold`` bounds the absolute
    error. What post-ops are applied to may be off by ``before``, and results by what that makes of
    it. ``size``, if given, is what errors are relative to where it is more than the result: a term
    that another one cancels. ``anything_at`` is where nothing is judged.
    """

    threshold: float
    zeros: float = 30
    slack: float = 0.0
    absolute: float = 0.0
    relative: float = 0.0
    non_finite: bool = False
    offset: Array | None = None
    size: Array | None = None
    absolute_at: Mask | None = None
    anything_at: Mask | None = None
    before: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """How many of ``total`` elements are wrong, and whether nearly all should be zero.

    ``worst`` is the largest error, right or wrong: relative, but absolute for small values.
    """

    errors: int
    total: int
    mistrusted: bool
    lines: tuple[str, ...] = ()
    worst: float = 0.0

    def and_also(self, other: Verdict) -> Verdict:
        """The verdict on two tensors."""
        return Verdict(
            self.errors + other.errors,
            self.total + other.total,
            self.mistrusted or other.mistrusted,
            self.lines + other.lines,
            max(self.worst, other.worst),
        )

    def with_errors(self, errors: int, lines: tuple[str, ...]) -> Verdict:
        """The verdict on the same elements with errors found besides."""
        return replace(self, errors=self.errors + errors, lines=self.lines + lines)


def core_eps(kind: DataType) -> float:
    """The epsilon of what a result of a type is computed in: f64 where it is one, else f32."""
    return kind.eps if kind is DataType.f64 else _EPS


def compare(
    name: str, got: Array, want: Array, data_type: DataType, core: DataType, rule: Rule
) -> Verdict:
    """Judge ``got`` by ``want``, the reference before it was rounded to ``data_type``."""
    expected = convert(want, data_type, core)
    errors, worst = 0, 0.0
    lines: tuple[str, ...] = ()
    if not np.array_equal(got, expected):
        with np.errstate(all="ignore"):
            relative = _relative(got, expected, rule)
            right = _right(got, expected, want, relative, data_type, rule)
            worst = float(np.max(relative, where=np.isfinite(relative), initial=0.0))
            errors = int(expected.size - np.count_nonzero(right))
            lines = _lines(name, got, expected, want, right, rule) if errors else ()
    zeros = int(expected.size - np.count_nonzero(expected))
    mistrusted = expected.size >= FEWEST and 100 * zeros > rule.zeros * expected.size
    return Verdict(errors, int(expected.size), mistrusted, lines, worst)


def _relative(got: Array, expected: Array, rule: Rule) -> Array:
    """The error of each element, relative but for small values."""
    diff = np.abs(expected - got)
    size = np.abs(expected if rule.offset is None else expected - rule.offset)
    if rule.size is not None:
        size = np.maximum(size, rule.size)
    return np.where(size > SMALL, diff / size, diff)


def _right(
    got: Array, expected: Array, want: Array, relative: Array, data_type: DataType, rule: Rule
) -> Mask:
    diff = np.abs(expected - got)
    eps = data_type.eps
    right: Mask = (expected == got) | (relative <= rule.threshold)
    right |= diff < rule.slack
    right |= (np.abs(expected) <= SMALL) & (diff < _EPS)
    if rule.absolute_at is not None:
        right |= rule.absolute_at & (diff <= rule.threshold)
    if rule.anything_at is not None:
        right |= rule.anything_at
    if rule.absolute or rule.relative:
        right |= (diff <= max(eps, rule.absolute)) | (relative <= max(eps, rule.relative))
    if rule.non_finite or data_type in _NARROW:
        right |= np.isnan(expected) & np.isnan(got)
        right |= np.isinf(want) & np.isinf(got) & (np.sign(want) == np.sign(got))
    if data_type.is_integer:
        right |= np.isnan(want)
    if data_type.is_integer or data_type.bits < 16:
        right |= _tie(got, expected, want, data_type, rule)
    return right


def _tie(got: Array, expected: Array, want: Array, data_type: DataType, rule: Rule) -> Mask:
    """Where the reference is half way between the result and what was expected; integers as far
    from there as the rule says of what they are rounded from."""
    middle = np.where(np.isfinite(got) & np.isfinite(expected), (got + expected) / 2, 0.0)
    share, size = _TIE, np.maximum(np.abs(want), SMALL)
    if data_type.is_integer:
        share = max(share, rule.threshold)
        size = size if rule.size is None else np.maximum(size, rule.size)
    near = np.abs(want - middle) <= share * size
    rounded = convert(middle, data_type, DataType.f64)
    neighbours: Mask = near & ((rounded == got) | (rounded == expected))
    return neighbours


def _lines(
    name: str, got: Array, expected: Array, want: Array, right: Mask, rule: Rule
) -> tuple[str, ...]:
    """The first wrong elements, as benchdnn shows them."""
    wrong = np.argwhere(~right)
    lines = []
    for place in wrong[:SHOWN]:
        at: Any = tuple(int(i) for i in place)
        diff = abs(expected[at] - got[at])
        ratio = diff / abs(expected[at]) if abs(expected[at]) > SMALL else diff
        number = int(np.ravel_multi_index(at, got.shape)) if at else 0
        lines.append(
            f"[{number:4d}][{name}][{':'.join(map(str, at))}] exp_f32:{want[at]:14g} "
            f"exp:{expected[at]:14g} got:{got[at]:14g} diff:{diff:8g} rdiff:{ratio:8g}"
        )
    return (*lines, f"[COMPARE_STATS][{name}]: trh={rule.threshold:g} errors:{len(wrong)}")
