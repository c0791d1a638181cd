"""Panels: what the gradients of weights multiply, in the order in which products read it.

Singles are blocks of units, one term behind the other. Of pairs one factor has the terms of a
channel side by side, the other one K blocks, in which two terms of a channel are::

    singles   [block, term, lane]
    rows      [channel, term]
    columns   [block, K block, slot, group, lane, 2 terms]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Value, i64
from dnnl.codegen.ir.transpose import transpose_registers
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.math import f32 as math
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.rnn.back_products import BackProducts
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg


@dataclass(frozen=True)
class _Term:
    """A step and a row of a direction; ``there`` is whether they exist, None if they surely do."""

    direction: int
    step: Value
    row: Value
    there: Value | None


@dataclass(frozen=True)
class _Panel:
    """A part, its channels, and what it has of a term."""

    name: str
    channels: int
    load: Callable[[_Term, Value, Mask], Value]


class Panels(BackProducts):
    """Writes the phases that lay out what gradients of weights multiply."""

    def panels(self) -> list[Phase]:
        """All panels. What is behind the end of a sequence is zero, whatever its inputs are."""
        conf = self._conf
        if not conf.in_pairs:
            return [self._singles()]
        names = ["inputs", "before", "second", "gate_rows", "gate_pairs"]
        names += ["projected_rows", "projected_pairs"]
        there = [name for name in names if conf.has(name)]
        rows = [name for name in there if conf.is_rows(name)]
        columns = [name for name in there if name not in rows]
        made = [self._in_rows(rows)] if rows else []
        return [*made, self._in_columns(columns)] if columns else made

    def _singles(self) -> Phase:
        conf = self._conf
        phase = self._phase("panels")
        e, apart = phase.e, conf.steps * conf.rows

        def of(d: int, step: Value, row: Value) -> None:
            term = _Term(d, step, row, None)
            for panel in self._contents(phase):
                to = self._part(phase, panel.name, [i64(d), i64(0), step, row, i64(0)])

                def one(at: Value, mask: Mask, to: Value = to, panel: _Panel = panel) -> None:
                    value = self._of_term(phase, panel, term, at, mask)
                    vector.store(e, value, e.element(to, e.mul(at, apart), F32))

                self._each_vector(e, panel.channels, one)

        def item(number: Value) -> None:
            rest, row = e.divmod(number, conf.rows)
            direction, step = e.divmod(rest, conf.steps)
            self._each_direction(e, direction, lambda d: of(d, step, row))

        count = conf.directions * conf.steps * conf.rows
        phase.each_item(count, item)
        return phase.end(count)

    def _in_rows(self, names: Sequence[str]) -> Phase:
        """Channels with their terms side by side: squares of both, transposed."""
        conf, lanes = self._conf, self._lanes
        phase = self._phase("panels_rows")
        e, form = phase.e, storage(conf.operands.data)

        def of(d: int, first: Value) -> None:
            terms = [self._term(phase, d, e.add(first, i64(n))) for n in range(lanes)]
            for panel in self._contents(phase):
                if panel.name not in names:
                    continue

                def one(at: Value, mask: Mask, panel: _Panel = panel) -> None:
                    square = [self._of_term(phase, panel, own, at, mask) for own in terms]
                    for n, value in enumerate(transpose_registers(e, square)):
                        index = [i64(d), e.add(at, i64(n)), first]
                        to = self._part(phase, panel.name, index)
                        vector.store(e, form.from_core(e, value), to)

                self._each_vector(e, panel.channels, one)

        return self._each_group_of_terms(phase, lanes, of)

    def _in_columns(self, names: Sequence[str]) -> Phase:
        """Two terms of each channel, in K blocks."""
        conf, lanes = self._conf, self._lanes
        phase = self._phase("panels_columns")
        e = phase.e

        def of(d: int, first: Value) -> None:
            terms = [self._term(phase, d, e.add(first, i64(n))) for n in range(2)]
            pair, _ = e.divmod(first, 2)
            k_block, group = e.divmod(pair, conf.operands.groups)
            for panel in self._contents(phase):
                if panel.name not in names:
                    continue
                slots = conf.slots if panel.name == "gate_pairs" else 1
                per_slot = -(-panel.channels // slots // lanes) * lanes

                def one(
                    at: Value, mask: Mask, panel: _Panel = panel, per_slot: int = per_slot
                ) -> None:
                    both = [self._of_term(phase, panel, own, at, mask) for own in terms]
                    slot, unit = e.divmod(at, per_slot)
                    block, _ = e.divmod(unit, lanes)
                    index = [i64(d), block, k_block, slot, group, i64(0), i64(0)]
                    to = self._part(phase, panel.name, index)
                    vector.store(e, self._in_pairs(phase, *both), to)

                self._each_vector(e, panel.channels, one)

        return self._each_group_of_terms(phase, 2, of)

    def _each_group_of_terms(
        self, phase: PhaseFunction, count: int, of: Callable[[int, Value], None]
    ) -> Phase:
        """Work items: so many terms of a direction, from a first one on."""
        conf, e = self._conf, phase.e
        groups = conf.terms // count

        def item(number: Value) -> None:
            direction, group = e.divmod(number, groups)
            self._each_direction(e, direction, lambda d: of(d, e.mul(group, count)))

        phase.each_item(conf.directions * groups, item)
        return phase.end(conf.directions * groups)

    def _term(self, phase: PhaseFunction, d: int, flat: Value) -> _Term:
        """A term by its number; the last one instead of those that pad them."""
        conf, e = self._conf, phase.e
        last = conf.steps * conf.rows - 1
        there = None
        if conf.terms > last + 1:
            there = e.b.icmp_signed("<=", flat, i64(last))
            flat = e.smaller(flat, i64(last))
        step, row = e.divmod(flat, conf.rows)
        return _Term(d, step, row, there)

    def _of_term(
        self, phase: PhaseFunction, panel: _Panel, term: _Term, at: Value, mask: Mask
    ) -> Value:
        """What a panel has of a term: zeros behind the last one, or behind a sequence."""
        e = phase.e
        value = self._unless_past(e, term.there, panel.load(term, at, mask))
        time = self._time(e, term.direction, term.step, layered=False)
        return self._unless_past(e, self._alive(phase, time, term.row), value)

    def _contents(self, phase: PhaseFunction) -> Iterator[_Panel]:
        """What each panel has."""
        conf, e = self._conf, phase.e

        def inputs(term: _Term, at: Value, mask: Mask) -> Value:
            d, step, row = term.direction, term.step, term.row
            if self._layer == 0:
                time = self._time(e, d, step, layered=False)
                return self._load(phase, Arg.SRC_LAYER, [time, row, at], mask)
            below = self._state(phase, i64(d), e.add(step, i64(1)), row, self._layer - 1)
            return self._loaded(e, e.element(below, at, F32), mask)

        def states(term: _Term, at: Value, mask: Mask) -> Value:
            before = self._state(phase, i64(term.direction), term.step, term.row)
            return self._loaded(e, e.element(before, at, F32), mask)

        def gate(term: _Term, number: int, at: Value, mask: Mask) -> Value:
            place = [i64(self._layer), i64(term.direction), term.step, term.row]
            return self._loaded(e, self._part(phase, "gates", [*place, i64(number), at]), mask)

        def reset(term: _Term, at: Value, mask: Mask) -> Value:
            return e.b.fmul(gate(term, 1, at, mask), states(term, at, mask))

        def projected(term: _Term, at: Value, mask: Mask) -> Value:
            following = e.add(term.step, i64(1))
            behind = self._cells(phase, i64(term.direction), following, term.row)
            c = self._loaded(e, e.element(behind, at, F32), mask)
            return e.b.fmul(gate(term, 3, at, mask), math.tanh(e, c))

        yield _Panel("inputs", conf.inputs, inputs)
        yield _Panel("before", conf.before, states)
        if conf.is_gru:
            yield _Panel("second", conf.channels, reset)
        if conf.projection is not None:
            yield _Panel("second", conf.channels, projected)
        if conf.in_pairs:
            yield from self._of_gates(phase)

    def _of_gates(self, phase: PhaseFunction) -> Iterator[_Panel]:
        """The panels of the gradients of gates, and of what a projection gives."""
        conf, e = self._conf, phase.e

        def gradients(name: str) -> Callable[[_Term, Value, Mask], Value]:
            def load(term: _Term, at: Value, _: Mask) -> Value:
                index = [i64(term.direction), term.step, term.row, i64(0)]
                return self._get(e, name, self._part(phase, name, index), at)

            return load

        of_units, of_outputs = map(conf.pitch, (conf.channels, conf.outputs))
        for kind in ("rows", "pairs"):
            yield _Panel(f"gate_{kind}", conf.slots * of_units, gradients("gate_diffs"))
            yield _Panel(f"projected_{kind}", of_outputs, gradients("projected"))
