"""The innermost loop of a fold: several accumulators, restarted after some dozens of terms.

Adding thousands of f32 one after the other accumulates rounding errors. Here an accumulator takes
at most about 2 * `TERMS` terms before it is merged into the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.ir.builder import Emitter, Values, i64

Merge = Callable[[Emitter, Values, Values], Values]
Step = Callable[..., Values]

# Accumulators of a long reduction: independent dependency chains.
ACCUMULATORS = 4
# Terms after which an accumulator restarts.
TERMS = 64


def is_fixed(begin: ir.Value, end: ir.Value) -> bool:
    """Whether the bounds of a loop are constants."""
    return isinstance(begin, ir.Constant) and isinstance(end, ir.Constant)


def added(e: Emitter, a: Values, b: Values) -> Values:
    """Merge sums."""
    return tuple(e.b.fadd(x, y) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True, eq=False)
class Folding:
    """A reduction: a step, the merge of two results, and the initial values. An ``ordered`` one is
    computed from the first term to the last, and is never merged."""

    step: Step
    merge: Merge
    init: Values
    ordered: bool = False


@dataclass(frozen=True, eq=False)
class FoldLoop:
    """A loop unrolled by ``accumulators``, each with its own dependency chain.

    ``step`` is the increment of the index; it is 1 if the bounds are constants. ``most`` is an
    upper bound of the iterations, if known. ``terms`` are the terms that an accumulator takes in
    each iteration. ``unrolled`` loops are unrolled completely, with constant indices.
    """

    fold: Folding
    accumulators: int
    step: int = 1
    most: int | None = None
    terms: int = 1
    unrolled: bool = False
    name: str = "i"

    def run(self, e: Emitter, begin: ir.Value, end: ir.Value, one: Step, carried: Values) -> Values:
        """Run ``one(index, *values) -> values`` for begin <= index < end."""
        piece = max(1, TERMS // self.terms) * self.accumulators
        few = self.most is not None and self.most < 2 * piece
        if few or self.unrolled or self.fold.ordered or not carried:
            return self._piece(e, begin, end, one, carried)
        if is_fixed(begin, end):
            return self._known_pieces(e, (begin.constant, end.constant), piece, one, carried)
        size = piece * self.step

        def restart(at: ir.Value, *values: ir.Value) -> Values:
            stop = e.smaller(e.add(at, i64(size)), end)
            return self.fold.merge(e, values, self._piece(e, at, stop, one, self.fold.init))

        return e.loop(begin, end, restart, carried, step=size, unroll=False, name=self.name)

    def _known_pieces(
        self, e: Emitter, ends: tuple[int, int], least: int, one: Step, carried: Values
    ) -> Values:
        """Run constant bounds in blocks of at least ``least`` iterations, of a size that leaves few
        over. Accumulators restart with each block."""
        begin, end = ends
        extent = end - begin
        size = min(range(least, 2 * least, self.accumulators), key=lambda size: extent % size)

        def restart(at: ir.Value, *values: ir.Value) -> Values:
            def own(index: ir.Value, *results: ir.Value) -> Values:
                return one(e.add(at, index), *results)

            return self.fold.merge(
                e, values, self._piece(e, i64(0), i64(size), own, self.fold.init)
            )

        rest = i64(end - extent % size)
        results = e.loop(
            i64(begin), rest, restart, carried, step=size, unroll=False, name=f"{self.name}.piece"
        )
        return self._piece(e, rest, i64(end), one, results)

    def _piece(
        self, e: Emitter, begin: ir.Value, end: ir.Value, one: Step, carried: Values
    ) -> Values:
        """Run iterations without a restart."""
        count, size = len(carried), self.step * self.accumulators

        def step(index: ir.Value, *values: ir.Value) -> Values:
            following: Values = ()
            for number in range(self.accumulators):
                own = values[number * count : (number + 1) * count]
                following += one(e.add(index, i64(number * self.step)), *own)
            return following

        initial = carried + self.fold.init * (self.accumulators - 1)
        if is_fixed(begin, end):
            over = max(0, end.constant - begin.constant)
            even = begin.constant + (0 if self.unrolled else over - over % size)
            results = e.loop(begin, i64(even), step, initial, step=size, name=self.name)
            for number, index in enumerate(range(even, end.constant)):
                first = number % self.accumulators * count
                own = one(i64(index), *results[first : first + count])
                results = (*results[:first], *own, *results[first + count :])
            return self._merged(e, results, count)
        if self.accumulators == 1:
            return e.loop(begin, end, one, carried, step=size, unroll=False, name=self.name)
        whole = e.larger(e.b.sub(end, begin), i64(0))
        last = e.add(begin, e.b.and_(whole, i64(-size)))

        def unrolled_loop() -> Values:
            results = e.loop(begin, last, step, initial, step=size, unroll=False, name="unrolled")
            return self._merged(e, results, count)

        results = e.branch(e.b.icmp_signed(">", last, begin), unrolled_loop, lambda: carried)
        return e.loop(
            last, end, one, results, step=self.step, unroll=False, name=f"{self.name}.rest"
        )

    def _merged(self, e: Emitter, results: Values, count: int) -> Values:
        """Merge several accumulators of ``count`` values each into one."""
        while len(results) > count:
            half = len(results) // count // 2 * count
            pairs = [
                (results[k : k + count], results[k + half : k + half + count])
                for k in range(0, half, count)
            ]
            results = tuple(value for pair in pairs for value in self.fold.merge(e, *pair))
        return results
