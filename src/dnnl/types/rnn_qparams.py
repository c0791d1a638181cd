"""Quantization of recurrent networks as an attribute: integers for states, inputs and weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Real

from dnnl.errors import InvalidArguments
from dnnl.types.layout_input import read_float, read_int, read_sequence

GATES_AND_UNITS = 24
"""The mask of weights [layers, directions, inputs, gates, units] with a scale for each column."""
UNITS = 8
"""That of a projection [layers, directions, units, outputs]."""
_LARGEST = 2.0**60
"""Of scales: products of two, and their inverses, are f32."""
_FARTHEST = 1024.0
"""Of shifts: sums of products of so large integers have 32 bits."""


@dataclass(frozen=True, slots=True)
class WeightsScales:
    """By what numbers were multiplied to become integers: one for all, or with a mask one for each
    column, in row-major order."""

    mask: int = 0
    values: tuple[float, ...] = (1.0,)

    @classmethod
    def read(cls, mask: object, scales: Sequence[float] | float, columns: int) -> WeightsScales:
        """The scales, checked; ``columns`` is the mask with a scale for each."""
        bits = read_int("mask", mask)
        if bits not in (0, columns):
            rule = f"expected 0, for one scale, or {columns}, for one of each column"
            raise InvalidArguments("mask", bits, rule)
        rule = "expected positive numbers"
        given = [scales] if isinstance(scales, Real) else scales
        values = tuple(_positive("scales", scale) for scale in read_sequence("scales", given, rule))
        if bits == 0 and len(values) != 1:
            raise InvalidArguments("scales", len(values), "expected one scale with a mask of 0")
        return cls(bits, values)

    def check(self, name: str, columns: int) -> None:
        """Raise InvalidArguments unless there are as many as weights have columns."""
        if self.mask and len(self.values) != columns:
            rule = f"expected {columns} scales, one for each column of the weights"
            raise InvalidArguments(name, f"{len(self.values)} scales", rule)


@dataclass(frozen=True, slots=True)
class RnnQparams:
    """Inputs and states x are stored as x ``scale`` + ``shift``, weights as w times their scale."""

    scale: float = 1.0
    shift: float = 0.0
    weights: WeightsScales = field(default_factory=WeightsScales)
    projection: WeightsScales = field(default_factory=WeightsScales)

    @staticmethod
    def read_data(scale: object, shift: object) -> tuple[float, float]:
        """Scale and shift, checked."""
        number = read_float("shift", shift)
        if abs(number) > _FARTHEST:
            rule = f"expected a number from {-_FARTHEST:g} to {_FARTHEST:g}"
            raise InvalidArguments("shift", shift, rule)
        return _positive("scale", scale), number

    @property
    def attributes(self) -> Iterator[str]:
        """The attributes of a verbose line, for what is set; oneDNN has a name for the first."""
        if (self.scale, self.shift) != (1.0, 0.0):
            yield f"rnn_data_qparams:{self.scale:g}:{self.shift:g}"
        for name, own in (("weights", self.weights), ("projection", self.projection)):
            if own != WeightsScales():
                yield f"attr-rnn-{name}-qparams:{own.mask}"


def _positive(argument: str, value: object) -> float:
    number = read_float(argument, value)
    if not 1 / _LARGEST <= number <= _LARGEST:
        rule = "expected a positive number, from 2^-60 to 2^60"
        raise InvalidArguments(argument, value, rule)
    return number
