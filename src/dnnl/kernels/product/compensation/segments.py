"""Scales and zero points that change along K, or apply to floats, handled by the product itself.

Sums are cut into segments within which they are constant: the sum of each segment is corrected,
scaled, and added to the total in f32. What is constant along K is applied at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.scales import ScaleSpec
from dnnl.types.size import surely_divides

Summed = Mapping[int, tuple[MemoryDesc, slice]]
"""The tensors of both operands, and the dimensions of each that are summed over."""


@dataclass(frozen=True)
class Segmentation:
    """Segments of ``size`` terms each: the quantization applied to each segment (``inner``), and at
    the end (``outer``)."""

    size: int
    inner: Quantization
    outer: Quantization


def cut(quantization: Quantization, summed: Summed, terms: int) -> Segmentation | None:
    """The segments of sums of ``terms`` terms. None if values change along several summed
    dimensions, or from one term to the next."""
    if terms == 0:
        return None
    given = quantization.of_arguments(summed)
    size = terms
    for arg, spec in (*given.scales, *given.zero_points):
        along = _along(spec, *summed[arg])
        if along is None:
            return None
        size = _common(size, along)
    if size == 1 < terms:
        return None
    changing = tuple((arg, spec) for arg, spec in given.scales if _changes(spec, *summed[arg]))
    outer = tuple(pair for pair in quantization.scales if pair not in changing)
    zero_points = tuple(pair for pair in quantization.zero_points if pair[0] not in summed)
    rest = Quantization(outer, zero_points, quantization.adjust)
    return Segmentation(size, Quantization(changing, given.zero_points), rest)


def _common(a: int, b: int) -> int:
    """The greatest common divisor."""
    if surely_divides(b, a):
        return b
    return a if surely_divides(a, b) else gcd(a, b)


def _counts(spec: ScaleSpec, desc: MemoryDesc, dims: slice) -> tuple[int, ...]:
    return spec.shape(desc.dims)[dims]


def _changes(spec: ScaleSpec, desc: MemoryDesc, dims: slice) -> bool:
    return prod(_counts(spec, desc, dims)) != 1


def _along(spec: ScaleSpec, desc: MemoryDesc, dims: slice) -> int | None:
    """How many consecutive terms of a sum share a value; None if the value changes along several
    dimensions."""
    if not _changes(spec, desc, dims):
        return prod(desc.dims[dims])
    sizes = desc.dims[dims]
    if len(sizes) != 1:
        return None
    return sizes[0] // _counts(spec, desc, dims)[0]
