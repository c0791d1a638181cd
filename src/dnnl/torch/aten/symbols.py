"""Sizes that PyTorch has as symbolic expressions, as nodes that compute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from dnnl.errors import Unimplemented

Add = Callable[..., str]
Constant = Callable[..., str]

_OPERATORS: Mapping[str, str] = {
    "Add": "Add",
    "CleanDiv": "Div",
    "FloorDiv": "Div",
    "Max": "Max",
    "Min": "Min",
    "Mod": "Mod",
    "Mul": "Mul",
    "PythonMod": "Mod",
}
"""The functions of expressions, by name, as operators on integers that are not negative."""

_REAL_OPERATORS: Mapping[str, str] = {
    "Add": "Add",
    "FloatTrueDiv": "Div",
    "IntTrueDiv": "Div",
    "Mul": "Mul",
}
"""The same on floats."""


class Symbols:
    """Where the sizes of a graph come from: axes of its inputs, and inputs that are numbers."""

    def __init__(self) -> None:
        self._axes: dict[Any, tuple[str, int]] = {}
        self._numbers: dict[Any, str] = {}
        self.used: set[str] = set()

    def add_axis(self, expr: Any, value: str, axis: int) -> None:
        """Input ``value`` has this size along an axis."""
        self._axes.setdefault(expr, (value, axis))

    def add_number(self, expr: Any, value: str) -> None:
        """Input ``value`` is this number."""
        self._numbers.setdefault(expr, value)

    def written(self, expr: Any, add: Add, constant: Constant) -> str:
        """The name of an array of one element that an expression is.

        Raises Unimplemented for a function that is not known, and for a symbol that no input has.
        """
        if expr in self._axes:
            value, axis = self._axes[expr]
            return add("Shape", value, start=axis, end=axis + 1)
        if expr in self._numbers:
            self.used.add(self._numbers[expr])
            return add("Reshape", self._numbers[expr], constant(np.array([1], np.int64)))
        if expr.is_Integer:
            return constant(np.array([int(expr)], np.int64))
        name = type(expr).__name__
        if name == "Pow" and expr.args[1].is_Integer and int(expr.args[1]) > 0:
            base = self.written(expr.args[0], add, constant)
            return reduce(lambda a, b: add("Mul", a, b), [base] * int(expr.args[1]))
        op = _OPERATORS.get(name)
        if op is None:
            rule = "no input has this size" if expr.is_Symbol else "the expression is not known"
            raise Unimplemented(f"size {expr}: {rule}")
        parts = [self.written(own, add, constant) for own in expr.args]
        return reduce(lambda a, b: add(op, a, b), parts)

    def real(self, expr: Any, add: Add, constant: Constant) -> str:
        """The name of an array of one f32 that an expression of floats is.

        Raises Unimplemented as `written` does.
        """
        name = type(expr).__name__
        if expr.is_number:
            return constant(np.array([float(expr)], np.float32))
        if name == "Pow" and expr.args[1].is_number:
            base = self.real(expr.args[0], add, constant)
            return add("Pow", base, constant(np.array([float(expr.args[1])], np.float32)))
        if name == "OpaqueUnaryFn_sqrt":
            return add("Sqrt", self.real(expr.args[0], add, constant))
        op = _REAL_OPERATORS.get(name)
        if op is not None and not expr.is_integer:
            parts = [self.real(own, add, constant) for own in expr.args]
            return reduce(lambda a, b: add(op, a, b), parts)
        size = self.written(expr.args[0] if name == "ToFloat" else expr, add, constant)
        # A range of one number is data, which a run computes with: sizes stay expressions, and one
        # that no integer is would hold a plan to its number.
        scalar, one = constant(np.array([], np.int64)), constant(np.array(1, np.int64))
        first = add("Reshape", size, scalar)
        written = add("Range", first, add("Add", first, one), one)
        return add("Cast", written, to=np.dtype(np.float32))


class AnySymbols(Symbols):
    """Sizes of a graph that is not there yet: each is known."""

    def written(self, expr: Any, add: Add, constant: Constant) -> str:
        """The name of an array of one element."""
        return constant(np.array([2], np.int64))

    def real(self, expr: Any, add: Add, constant: Constant) -> str:
        """The name of an array of one f32."""
        return constant(np.array([2], np.float32))
