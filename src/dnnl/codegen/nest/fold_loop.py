"""One loop of a fold: several results side by side, which begin anew after some dozens of terms.

A sum in f32 of thousands of terms, one added after the other, is off by the rounding of each. Here
a result takes no more than `TERMS` or twice as many before it is merged with the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.ir.builder import Emitter, Values, i64

Merge = Callable[[Emitter, Values, Values], Values]
Step = Callable[..., Values]

# Results that a long reduction keeps apart until its end.
ACCUMULATORS = 4
# Iterations after which a result begins anew.
TERMS = 64


def is_fixed(begin: ir.Value, end: ir.Value) -> bool:
    """Whether the ends of a loop are known to the generator."""
    return isinstance(begin, ir.Constant) and isinstance(end, ir.Constant)


def added(e: Emitter, a: Values, b: Values) -> Values:
    """The merger of sums."""
    return tuple(e.b.fadd(x, y) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True, eq=False)
class Folding:
    """A reduction: its step, how two results become one, and what each starts from."""

    step: Step
    merge: Merge
    init: Values


@dataclass(frozen=True, eq=False)
class FoldLoop:
    """A loop of which ``ways`` iterations are done at a time, with results of their own, so that
    none waits for the one before.

    Indices go by ``step``, which is 1 where the ends of the loop are known. ``most`` is a limit
    of the number of iterations, where there is one, and ``terms`` how many terms a result takes in
    each. If the loop is ``written`` out, all of its indices are constants.
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
        if few or self.unrolled or not carried:
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
        """All iterations in pieces of ``least`` or more, of a size that leaves few over."""
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
        """Iterations without a new beginning."""
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
            results = e.loop(begin, last, step, initial, step=size, unroll=False, name="ways")
            return self._merged(e, results, count)

        results = e.branch(e.b.icmp_signed(">", last, begin), unrolled_loop, lambda: carried)
        return e.loop(
            last, end, one, results, step=self.step, unroll=False, name=f"{self.name}.rest"
        )

    def _merged(self, e: Emitter, results: Values, count: int) -> Values:
        """One result, of ``count`` values, out of several."""
        while len(results) > count:
            half = len(results) // count // 2 * count
            pairs = [
                (results[k : k + count], results[k + half : k + half + count])
                for k in range(0, half, count)
            ]
            results = tuple(value for pair in pairs for value in self.fold.merge(e, *pair))
        return results
