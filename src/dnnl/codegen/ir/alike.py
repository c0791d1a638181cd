"""Vector constants, those of equal elements in a short spelling."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir


class _Alike(ir.Constant):  # type: ignore[misc]
    """A constant of equal elements. Its text has one of them, which is written and parsed in a
    fraction of the time that all take."""

    def _get_reference(self) -> str:
        return f"splat ({self.constant[0]})"


class _Zeros(ir.Constant):  # type: ignore[misc]
    """A constant of zeros, of which llvmlite would write each."""

    def __init__(self, kind: ir.VectorType) -> None:
        super().__init__(kind, None)

    def _get_reference(self) -> str:
        return "zeroinitializer"


def zeros(kind: ir.Type) -> ir.Constant:
    """The constant 0, in each element of a vector."""
    return _Zeros(kind) if isinstance(kind, ir.VectorType) else ir.Constant(kind, None)


def of_lanes(kind: ir.Type, lanes: Sequence[float | int]) -> ir.Constant:
    """The constant of these elements. Numbers are equal if they are spelled alike: 0 is not -0."""
    alike = len(lanes) > 1 and len(set(map(str, lanes))) == 1
    return (_Alike if alike else ir.Constant)(kind, list(lanes))
