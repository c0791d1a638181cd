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
    "IntTrueDiv": "Div",
    "Max": "Max",
    "Min": "Min",
    "Mod": "Mod",
    "Mul": "Mul",
    "PythonMod": "Mod",
}
"""The functions of expressions, by name, as operators on integers that are not negative."""


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


class AnySymbols(Symbols):
    """Sizes of a graph that is not there yet: each is known."""

    def written(self, expr: Any, add: Add, constant: Constant) -> str:
        """The name of an array of one element."""
        return constant(np.array([2], np.int64))
