"""Functions of scalars as values: what a traced Python function computes, step by step.

An expression is a list of steps, each of which names earlier ones as its sources. Equal programs
are equal values with equal hashes, whatever Python functions they came from; they can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PARAMETER, CONSTANT = "parameter", "constant"

COMPARISONS: Mapping[str, str] = {
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
"""The functions of two numbers that give a truth value, with Python's operators."""
LOGIC: Mapping[str, int] = {"and": 2, "or": 2, "not": 1}
"""The functions of truth values that give one, with the number of their sources."""
ARITHMETIC: Mapping[str, int] = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "pow": 2, "minimum": 2, "maximum": 2,
    "neg": 1, "abs": 1, "sqrt": 1, "rsqrt": 1, "exp": 1, "log": 1,
    "tanh": 1, "erf": 1, "sigmoid": 1, "softplus": 1, "floor": 1, "ceil": 1, "round": 1, "where": 3,
}  # fmt: skip
"""The functions that give a number, with the number of their sources. The first source of
``where`` is a truth value."""


@dataclass(frozen=True, slots=True)
class Step:
    """One function of earlier steps.

    ``detail`` is the place of a parameter, or the text of a constant (``float.hex``: so -0 differs
    from 0, and NaN equals itself).
    """

    name: str
    sources: tuple[int, ...] = ()
    detail: str = ""

    @property
    def is_truth(self) -> bool:
        """Whether the step gives a truth value."""
        return self.name in COMPARISONS or self.name in LOGIC

    @property
    def constant(self) -> float:
        """The number of a constant."""
        return float.fromhex(self.detail)


@dataclass(frozen=True, slots=True)
class Expression:
    """A number that follows from ``parameters`` numbers; the last step is the result."""

    parameters: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        texts: list[str] = []
        for step in self.steps:
            sources = ", ".join(texts[source] for source in step.sources)
            if step.name == PARAMETER:
                texts.append("xyz"[int(step.detail)] if self.parameters < 4 else f"x{step.detail}")
            elif step.name == CONSTANT:
                texts.append(f"{step.constant:g}")
            else:
                texts.append(f"{step.name}({sources})")
        return texts[-1]
