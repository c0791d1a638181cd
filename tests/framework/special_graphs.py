"""Graphs of exactly rounded nodes on special values, whose results ONNX Runtime gives bit for bit.

Numbers are so short that sums of products are exact as well: only the sign of zeros, infinities and
NaN can tell a rewrite from what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.framework.models import Array, make_model, node

F32 = np.float32
SIZES = (4, 6)
INPUTS = {"x": SIZES, "z": SIZES, "row": (6,), "column": (4, 1)}
_VALUES = np.array(
    [0.0, -0.0, 0.0, -0.0, 0.0, -0.0, 1, -1, 2, 0.5, -3, 1, -1, 2, -2, np.inf, -np.inf, np.nan], F32
)
_NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -2.0, np.inf, np.nan)
_DOUBLE, _FLOAT = 11, 1


def bits(array: Array) -> Array:
    """What tells -0 from 0; every NaN is one."""
    return np.where(np.isnan(array), F32(np.nan), array).astype(F32).view(np.uint32)


class SpecialGraph:
    """A graph that grows by a step at a time, each of a value that is there and of a result of the
    last few."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.values = ["x", "z"]
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {f"k{i}": F32(n) for i, n in enumerate(_NUMBERS)}
        self._numbers = list(self._constants)
        self._constants |= {"flat": np.array([24]), "square": np.array(SIZES)}
        self._constants["fixed"] = self._drawn(6)

    def feeds(self) -> dict[str, Array]:
        """An array for each input."""
        return {name: self._drawn(*shape) for name, shape in INPUTS.items()}

    def step(self, name: str) -> None:
        """Append one of `STEPS`."""
        result = f"v{len(self.values)}"
        source = self._one_of(self.values[-4:])
        STEPS[name](self, source, result)
        self.values.append(result)

    def proto(self) -> Any:
        """The model; the last value is a result, and another one."""
        outputs = dict.fromkeys((self.values[-1], self._one_of(self.values[2:])))
        return make_model(self._nodes, INPUTS, list(outputs), self._constants)

    def _drawn(self, *shape: int) -> Array:
        return self._rng.choice(_VALUES, shape).astype(F32)

    def _one_of(self, names: Sequence[str]) -> str:
        return str(self._rng.choice(list(names)))

    def _append(self, op: str, sources: Sequence[str], result: str, **attrs: Any) -> str:
        self._nodes.append(node(op, sources, result, **attrs))
        return result

    def unary(self, op: str, source: str, result: str) -> None:
        """Nothing besides the source."""
        self._append(op, [source], result)

    def binary(self, op: str, source: str, result: str) -> None:
        """The source and anything else, in either order."""
        others = [*self.values, *self._numbers, *self._numbers, "row", "column", "fixed"]
        sources = [source, self._one_of(others)]
        self._rng.shuffle(sources)
        self._append(op, sources, result)

    def total(self, source: str, result: str) -> None:
        """A sum of three."""
        self._append("Sum", [source, self._one_of(self.values), self._one_of(self.values)], result)

    def transposed(self, source: str, result: str) -> None:
        """A node between two transpositions."""
        turned = self._append("Transpose", [source], f"{result}_turned", perm=[1, 0])
        negative = self._append("Neg", [turned], f"{result}_negative")
        self._append("Transpose", [negative], result, perm=[1, 0])

    def reshaped(self, source: str, result: str) -> None:
        """A sum between two reshapes."""
        flat = self._append("Reshape", [source, "flat"], f"{result}_flat")
        shifted = self._append("Add", [flat, self._one_of(self._numbers)], f"{result}_shifted")
        self._append("Reshape", [shifted, "square"], result)

    def chosen(self, source: str, result: str) -> None:
        """The source where it is above 0."""
        above = self._append("Greater", [source, self._numbers[0]], f"{result}_above")
        self._append("Where", [above, source, self._one_of(self.values)], result)

    def converted(self, source: str, result: str) -> None:
        """To f64 and back."""
        wide = self._append("Cast", [source], f"{result}_wide", to=_DOUBLE)
        self._append("Cast", [wide], result, to=_FLOAT)


def _unary(op: str) -> Callable[[SpecialGraph, str, str], None]:
    return lambda graph, source, result: graph.unary(op, source, result)


def _binary(op: str) -> Callable[[SpecialGraph, str, str], None]:
    return lambda graph, source, result: graph.binary(op, source, result)


STEPS: dict[str, Callable[[SpecialGraph, str, str], None]] = {
    **{op: _unary(op) for op in ("Abs", "Floor", "Identity", "Neg", "Sign")},
    **{op: _binary(op) for op in ("Add", "Mul", "Sub")},
    "Chosen": SpecialGraph.chosen,
    "Converted": SpecialGraph.converted,
    "Reshaped": SpecialGraph.reshaped,
    "Total": SpecialGraph.total,
    "Transposed": SpecialGraph.transposed,
}
"""What a graph is made of."""
