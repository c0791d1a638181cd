"""Recurrent networks in float64: cells over time steps, layers and directions, and their gradients.

Each layer and direction has states of its own; the layers of a direction follow each other, and
directions meet behind the last layer. Weights are [layers, directions, inputs, gates, channels].

    vanilla   h = activation(W x + U h' + b)
    lstm      i, f, o = logistic(...), c~ = tanh(...), c = f c' + i c~, h = o tanh(c)
              gates i, f, c~, o; with a peephole i and f see P_i c' and P_f c', and o sees P_o c;
              with a projection h = R (o tanh(c))
    gru       u, r = logistic(...), o = tanh(W x + U (r h') + b), h = u h' + (1 - u) o
    lbr_gru   o = tanh(W x + b + r (U h' + b')): b' is a fourth bias
    augru     the same two with (1 - a) u for u; a is the attention of each step and row
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dnnl.reference.arrays import Array
from dnnl.reference.expression import evaluate
from dnnl.types.cell_functions import CellFunctions
from dnnl.types.kinds import Direction

CELLS: Mapping[str, int] = {
    "vanilla_rnn": 1,
    "vanilla_lstm": 4,
    "vanilla_gru": 3,
    "lbr_gru": 3,
    "vanilla_augru": 3,
    "lbr_augru": 3,
}
"""The number of gates of each cell."""


@dataclass(frozen=True)
class Activation:
    """A function and its slope by its result."""

    function: Callable[[Array], Array]
    slope: Callable[[Array], Array]


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, e) / (1 + e))


_LOGISTIC = Activation(logistic, lambda y: y * (1 - y))
_TANH = Activation(np.tanh, lambda y: 1 - y * y)


def activation(name: str, alpha: float = 0.0) -> Activation:
    """That of a vanilla cell: relu with the slope ``alpha`` below 0, tanh or logistic."""
    if name == "eltwise_relu":
        return Activation(
            lambda x: np.where(x > 0, x, alpha * x), lambda y: np.where(y > 0, 1.0, alpha)
        )
    return {"eltwise_tanh": _TANH, "eltwise_logistic": _LOGISTIC}[name]


@dataclass(frozen=True)
class Weights:
    """What one layer and direction multiplies and adds: layer [SLC, G, DHC], iter [SIC, G, DHC],
    bias [G, DHC] (of lbr cells one more), peephole [3, DHC], projection [DHC, DIC]."""

    layer: Array
    iter: Array
    bias: Array | None = None
    peephole: Array | None = None
    projection: Array | None = None

    @property
    def outputs(self) -> int:
        """DIC: the channels of the states behind a step."""
        last = self.layer if self.projection is None else self.projection
        return int(last.shape[-1])


@dataclass
class Gradients:
    """The gradients of `Weights`, added up over the steps."""

    layer: Array
    iter: Array
    bias: Array
    peephole: Array
    projection: Array | None

    @classmethod
    def zero(cls, weights: Weights, biases: int) -> Gradients:
        """Before the first step."""
        channels = weights.layer.shape[-1]
        projection = None if weights.projection is None else np.zeros_like(weights.projection)
        return cls(
            np.zeros_like(weights.layer),
            np.zeros_like(weights.iter),
            np.zeros((biases, channels)),
            np.zeros((3, channels)),
            projection,
        )


@dataclass(frozen=True)
class Step:
    """What the gradient of a step needs: its sources, gates, and the new cell state."""

    x: Array
    h: Array
    c: Array
    attention: Array | None
    gates: Array
    state: Array
    extra: Array


State = tuple[Array, Array]


def unrounded(x: Array) -> Array:
    """States that are not rounded."""
    return x


@dataclass(frozen=True)
class Cell:
    """A kind of cell; ``act`` is the activation of a vanilla one; forward passes have ``functions``
    in place of the usual ones. ``rounded`` is done to what a
    product of a later step, or a second one of the same step, multiplies: states, r h' of a GRU,
    and what is projected. Results are not rounded by it, unless directions are added up."""

    kind: str
    act: Activation = field(default=_TANH)
    rounded: Callable[[Array], Array] = unrounded
    functions: CellFunctions | None = None

    @property
    def gates(self) -> int:
        """The number of gates."""
        return CELLS[self.kind]

    @property
    def biases(self) -> int:
        """The number of biases of a channel."""
        return self.gates + self.kind.startswith("lbr")

    def forward(
        self, w: Weights, x: Array, h: Array, c: Array, a: Array | None
    ) -> tuple[State, Step]:
        """The states [N, DIC] and [N, DHC] behind a step, for rows x [N, SLC]."""
        bias = np.zeros((self.biases, w.layer.shape[-1])) if w.bias is None else w.bias
        z = np.einsum("ns,sgc->ngc", x, w.layer) + bias[: self.gates]
        if self.kind == "vanilla_rnn":
            y = self._gate(0, z + np.einsum("ns,sgc->ngc", h, w.iter))
            return (y[:, 0], c), Step(x, h, c, a, y, c, y[:, 0])
        if self.kind == "vanilla_lstm":
            z = z + np.einsum("ns,sgc->ngc", h, w.iter)
            p = np.zeros((3, z.shape[-1])) if w.peephole is None else w.peephole
            i = self._gate(0, z[:, 0] + p[0] * c)
            coupled = self.functions is not None and self.functions.coupled
            f = 1 - i if coupled else self._gate(0, z[:, 1] + p[1] * c)
            g = self._gate(1, z[:, 2])
            state = f * c + i * g
            o = self._gate(0, z[:, 3] + p[2] * state)
            out = o * self._of_state(state)
            step = Step(x, h, c, a, np.stack([i, f, g, o], 1), state, out)
            if w.projection is not None:
                out = self.rounded(out) @ w.projection
            return (out, state), step
        first = np.einsum("ns,sgc->ngc", h, w.iter[:, :2])
        u, r = self._gate(0, z[:, 0] + first[:, 0]), self._gate(0, z[:, 1] + first[:, 1])
        if self.kind.startswith("lbr"):
            extra = h @ w.iter[:, 2] + bias[3]
            o = self._gate(1, z[:, 2] + r * extra)
        else:
            extra = self.rounded(r * h)
            o = self._gate(1, z[:, 2] + extra @ w.iter[:, 2])
        scaled = u if a is None else (1 - a) * u
        new = scaled * h + (1 - scaled) * o
        return (new, c), Step(x, h, c, a, np.stack([u, r, o], 1), c, extra)

    def _gate(self, place: int, z: Array) -> Array:
        """A gate, by its sum: of the first function or the second one."""
        if self.functions is None:
            usual = self.act.function if self.kind == "vanilla_rnn" else logistic
            return (usual, np.tanh)[place](z)
        if self.functions.clip is not None:
            z = np.clip(z, -self.functions.clip, self.functions.clip)
        return evaluate(self.functions.functions[place].expression, [z])

    def _of_state(self, c: Array) -> Array:
        """What an output gate is multiplied by."""
        if self.functions is None:
            return np.asarray(np.tanh(c))
        return evaluate(self.functions.of_state, [c])

    def backward(
        self, w: Weights, step: Step, dh: Array, dc: Array, sums: Gradients
    ) -> tuple[Array, Array, Array, Array]:
        """The gradients of x, h and c before the step, and of its attention [N, 1], for those of
        the states behind it. ``sums`` gets those of the weights."""
        no_attention = np.zeros((len(dh), 1))
        if self.kind == "vanilla_rnn":
            dz = (dh * self.act.slope(step.gates[:, 0]))[:, None]
            return (*_through(w, step, dz, dz, step.h, sums), dc, no_attention)
        if self.kind == "vanilla_lstm":
            return (*self._lstm_backward(w, step, dh, dc, sums), no_attention)
        return self._gru_backward(w, step, dh, dc, sums)

    @staticmethod
    def _lstm_backward(
        w: Weights, step: Step, dh: Array, dc: Array, sums: Gradients
    ) -> tuple[Array, Array, Array]:
        i, f, g, o = step.gates.swapaxes(0, 1)
        if w.projection is not None and sums.projection is not None:
            sums.projection += step.extra.T @ dh
            dh = dh @ w.projection.T
        p = np.zeros((3, i.shape[-1])) if w.peephole is None else w.peephole
        t = np.tanh(step.state)
        do = dh * t * o * (1 - o)
        dc = dc + dh * o * (1 - t * t) + do * p[2]
        di, df, dg = dc * g * i * (1 - i), dc * step.c * f * (1 - f), dc * i * (1 - g * g)
        sums.peephole += np.stack(
            [(di * step.c).sum(0), (df * step.c).sum(0), (do * step.state).sum(0)]
        )
        dz = np.stack([di, df, dg, do], 1)
        dx, dh_before = _through(w, step, dz, dz, step.h, sums)
        return dx, dh_before, dc * f + di * p[0] + df * p[1]

    def _gru_backward(
        self, w: Weights, step: Step, dh: Array, dc: Array, sums: Gradients
    ) -> tuple[Array, Array, Array, Array]:
        u, r, o = step.gates.swapaxes(0, 1)
        share = 1.0 if step.attention is None else 1 - step.attention
        scaled = share * u
        dscaled = dh * (step.h - o)
        da = -(dscaled * u).sum(1, keepdims=True)
        dzo = dh * (1 - scaled) * (1 - o * o)
        dzu = dscaled * share * u * (1 - u)
        dh_before = dh * scaled
        if self.kind.startswith("lbr"):
            dzr = dzo * step.extra * r * (1 - r)
            dz = np.stack([dzu, dzr, dzo], 1)
            inner = np.stack([dzu, dzr, dzo * r], 1)
            sums.bias[3] += (dzo * r).sum(0)
            dx, through = _through(w, step, dz, inner, step.h, sums)
            return dx, dh_before + through, dc, da
        dextra = dzo @ w.iter[:, 2].T
        sums.iter[:, 2] += step.extra.T @ dzo
        dzr = dextra * step.h * r * (1 - r)
        dz = np.stack([dzu, dzr, dzo], 1)
        inner = np.stack([dzu, dzr, np.zeros_like(dzo)], 1)
        dx, through = _through(w, step, dz, inner, step.h, sums)
        return dx, dh_before + through + dextra * r, dc, da


def _through(
    w: Weights, step: Step, dz: Array, inner: Array, h: Array, sums: Gradients
) -> tuple[Array, Array]:
    """The gradients of x and h for those of the products with each; those of weights are added."""
    sums.layer += np.einsum("ns,ngc->sgc", step.x, dz)
    sums.iter += np.einsum("ns,ngc->sgc", h, inner)
    sums.bias[: dz.shape[1]] += dz.sum(0)
    return np.einsum("ngc,sgc->ns", dz, w.layer), np.einsum("ngc,sgc->ns", inner, w.iter)


def reversed_of(direction: Direction) -> tuple[bool, ...]:
    """Whether each direction goes from the last step to the first."""
    return {
        Direction.unidirectional_left2right: (False,),
        Direction.unidirectional_right2left: (True,),
    }.get(direction, (False, True))


@dataclass(frozen=True)
class Network:
    """Cells of a kind over time steps, in layers. ``direction`` says what is done with the results
    of both directions where there are two; each may have ``functions`` of its own."""

    cell: Cell
    direction: Direction = Direction.unidirectional_left2right
    functions: Sequence[CellFunctions] | None = None

    def forward(
        self,
        src: Array,
        weights: Sequence[Sequence[Weights]],
        h: Array,
        c: Array,
        attention: Array | None = None,
        lengths: Array | None = None,
    ) -> Run:
        """Run ``src`` [T, N, SLC] from the states ``h`` [L, D, N, SIC] and ``c`` [L, D, N, DHC].

        ``attention`` is [T, N, 1]. A row has ``lengths`` [N] steps: those behind leave its states
        as they are and give zeros. A single step of all rows may have other SIC than DIC.
        """
        steps, rows = src.shape[:2]
        times = np.arange(steps)[:, None, None]
        last = np.full(rows, steps) if lengths is None else lengths
        alive = np.asarray(times < last[:, None], np.float64)
        last_h, last_c = np.zeros((*h.shape[:3], weights[0][0].outputs)), np.zeros_like(c)
        outs, tapes = list[Array](), list[list[list[Step]]]()
        for d, backwards in enumerate(reversed_of(self.direction)):
            out, tape = src, list[list[Step]]()
            cell = replace(
                self.cell, functions=None if self.functions is None else self.functions[d]
            )
            for layer, own in enumerate(weights):
                x = self.cell.rounded(out) if layer else src
                out, made, ends = self._layer(
                    cell, own[d], x, h[layer, d], c[layer, d], attention, alive, backwards
                )
                last_h[layer, d], last_c[layer, d] = ends
                tape.append(made)
            outs.append(out)
            tapes.append(tape)
        if self.direction is Direction.bidirectional_sum:
            joined = np.asarray(sum(map(self.cell.rounded, outs)))
        else:
            joined = np.concatenate(outs, -1)
        return Run(joined, last_h, last_c, tapes, alive)

    def _layer(
        self,
        cell: Cell,
        w: Weights,
        x: Array,
        h: Array,
        c: Array,
        attention: Array | None,
        alive: Array,
        backwards: bool,
    ) -> tuple[Array, list[Step], State]:
        """The results of all steps of a layer and direction, and its last states."""
        out, made = np.zeros((*x.shape[:2], w.outputs)), list[Step]()
        h = self.cell.rounded(h)
        for t in _order(len(x), backwards):
            a = None if attention is None else attention[t]
            (new_h, new_c), step = cell.forward(w, x[t], h, c, a)
            on = alive[t] > 0
            h = _where(on, self.cell.rounded(new_h), h)
            c = _where(on, new_c, c)
            out[t] = np.where(on, new_h, 0)
            made.append(step)
        return out, made, (h, c)

    def backward(
        self,
        run: Run,
        weights: Sequence[Sequence[Weights]],
        diff_dst: Array,
        diff_h: Array,
        diff_c: Array,
    ) -> Differences:
        """The gradients for those of the results and of the last states."""
        first_h = np.zeros((*diff_h.shape[:3], weights[0][0].iter.shape[0]))
        first_c = np.zeros_like(diff_c)
        sums = [[Gradients.zero(w, self.cell.biases) for w in own] for own in weights]
        dattention = np.zeros((*diff_dst.shape[:2], 1))
        dsrc: Array | float = 0.0
        for d, backwards in enumerate(reversed_of(self.direction)):
            dout = diff_dst
            if self.direction is Direction.bidirectional_concat:
                dout = np.split(diff_dst, 2, -1)[d]
            for layer in reversed(range(len(weights))):
                w, tape = weights[layer][d], run.tapes[d][layer]
                dx = np.zeros((*dout.shape[:2], w.layer.shape[0]))
                dh, dc = diff_h[layer, d], diff_c[layer, d]
                order = list(_order(len(dout), backwards))
                for t, step in zip(reversed(order), reversed(tape), strict=True):
                    on = run.alive[t]
                    own = (dh + dout[t]) * on, dc * on
                    back = self.cell.backward(w, step, *own, sums[layer][d])
                    dx[t] = back[0]
                    dh = back[1] + _where(on > 0, np.zeros_like(back[1]), dh)
                    dc = back[2] + dc * (1 - on)
                    dattention[t] += back[3]
                first_h[layer, d], first_c[layer, d] = dh, dc
                dout = dx
            dsrc = dsrc + dout
        return Differences(np.asarray(dsrc), first_h, first_c, sums, dattention)


@dataclass(frozen=True)
class Run:
    """What a network gives: dst_layer [T, N, DLC], the last states, and its steps by direction and
    layer."""

    out: Array
    h: Array
    c: Array
    tapes: list[list[list[Step]]]
    alive: Array


@dataclass(frozen=True)
class Differences:
    """Gradients of src_layer, of the first states, of weights by layer and direction, and of the
    attention."""

    src: Array
    h: Array
    c: Array
    weights: list[list[Gradients]]
    attention: Array


def _where(on: Array, behind: Array, before: Array) -> Array:
    """States of the rows [N, 1] that a step is one of, and of others those before it; where it is
    one of all rows, these may have other channels."""
    return behind if on.all() else np.where(on, behind, before)


def _order(steps: int, backwards: bool) -> range:
    return range(steps - 1, -1, -1) if backwards else range(steps)
