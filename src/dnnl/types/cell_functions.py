"""The functions of recurrent cells: of the sums of gates, and of the state of an LSTM.

Places are f; f, g; or f, g, h:

    vanilla   h = f(sum)
    gru       u, r = f(sums), o = g(sum)
    lstm      i, f, o = f(sums), c~ = g(sum), h = o h(c)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from dnnl.errors import InvalidArguments
from dnnl.types.expression import Expression, Function
from dnnl.types.kinds import Alg
from dnnl.types.layout_input import read_bool, read_float, read_sequence
from dnnl.types.scalar import Number, Scalar, apply, replayed, trace, traced

GATE_LETTERS = {
    Alg.vanilla_rnn: "h",
    Alg.vanilla_lstm: "ifco",
    Alg.vanilla_gru: "uro",
    Alg.lbr_gru: "uro",
    Alg.vanilla_augru: "uro",
    Alg.lbr_augru: "uro",
}
"""The gates of each cell, in its order; c is that of c~."""


@dataclass(frozen=True, slots=True)
class CellFunctions:
    """The functions of the cells of one direction; `of` makes them of Python functions.

    ``functions`` are f of a vanilla cell; f and g of a GRU: those of u and r, and of o; f, g and h
    of an LSTM: those of i, f and o, of c~, and of the new c that is multiplied by o. With a
    ``clip``, f and g are of sums clipped to [-clip, clip]; what h is of is not clipped. The forget
    gate of a ``coupled`` LSTM is 1 - i, whatever its sum.
    """

    functions: tuple[Function, ...]
    clip: float | None = None
    coupled: bool = False

    def __post_init__(self) -> None:
        rule, hint = "expected traced functions", "CellFunctions.of traces them"
        functions = read_sequence("functions", self.functions, f"{rule}; {hint}")
        if not all(isinstance(own, Function) for own in functions):
            raise InvalidArguments("functions", functions, rule, hint)
        clip = None if self.clip is None else read_float("clip", self.clip)
        if clip is not None and not 0 <= clip < math.inf:
            rule = "expected a finite number that is not negative"
            raise InvalidArguments("clip", clip, rule, "None clips nothing")
        object.__setattr__(self, "functions", functions)
        object.__setattr__(self, "clip", clip)
        object.__setattr__(self, "coupled", read_bool("coupled", self.coupled))

    @classmethod
    def of(
        cls,
        *functions: Callable[[Scalar], Scalar | Number],
        clip: float | None = None,
        coupled: bool = False,
    ) -> CellFunctions:
        """Trace ``functions`` of one scalar each, such as those of `dnnl.math`.

        Raises InvalidArguments for what cannot be traced, and for a ``clip`` that is negative or
        not finite.
        """
        return cls(tuple(traced(function, 1) for function in functions), clip, coupled)

    def of_sum(self, place: int) -> Expression:
        """f or g, of what is clipped first."""
        return _clipped(self.functions[place].expression, self.clip)

    @property
    def of_state(self) -> Expression:
        """h."""
        return self.functions[-1].expression

    def __str__(self) -> str:
        parts = [*map(str, self.functions)]
        parts += [] if self.clip is None else [f"clip={self.clip:g}"]
        parts += ["coupled"] if self.coupled else []
        return "/".join(parts)


def places_of(alg: Alg) -> int:
    """How many functions a cell has."""
    return {Alg.vanilla_rnn: 1, Alg.vanilla_lstm: 3}.get(alg, 2)


def are_bounded(functions: tuple[CellFunctions, ...] | None, activation: Alg | None) -> bool:
    """Whether cells with these functions and this ``activation`` give states that are no larger
    than 1, or than the first ones."""
    return functions is None and activation is not Alg.eltwise_relu


@lru_cache(maxsize=64)
def usual(alg: Alg, activation: Alg, alpha: float) -> CellFunctions:
    """Those that oneDNN has: vanilla cells have an ``activation``, with the slope ``alpha`` below 0
    of a relu; others the logistic function and tanh."""

    def logistic(x: Scalar) -> Scalar:
        return apply("sigmoid", x)

    def tanh(x: Scalar) -> Scalar:
        return apply("tanh", x)

    def relu(x: Scalar) -> Scalar:
        return apply("where", x > 0.0, x, x * alpha if alpha else 0.0)

    if alg is Alg.vanilla_rnn:
        known = {Alg.eltwise_tanh: tanh, Alg.eltwise_logistic: logistic, Alg.eltwise_relu: relu}
        return CellFunctions.of(known[activation])
    return CellFunctions.of(*(logistic, tanh, tanh)[: places_of(alg)])


@lru_cache(maxsize=256)
def _clipped(expression: Expression, clip: float | None) -> Expression:
    if clip is None:
        return expression

    def of_clipped(x: Scalar) -> Scalar:
        return replayed(expression, [apply("minimum", clip, apply("maximum", -clip, x))])

    return trace(of_clipped, 1)
