"""Places of operands whose strides are known at execution only.

Each operand has an offset of its own. Along the lanes of a vector it is either contiguous or
uniform; which one may be known at run time only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dnnl.codegen.ir.builder import Emitter, Value, Values, i64
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.memory.access import Access, Bound, Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.memory.place import Place

_FAR = 2**62  # a limit that is never reached


def advanced(e: Emitter, places: Sequence[Value], steps: Value, strides: Sequence[Value]) -> Values:
    """The offsets ``steps`` iterations further along a loop."""
    pairs = zip(places, strides, strict=True)
    return tuple(e.b.add(place, e.b.mul(steps, stride)) for place, stride in pairs)


class Lanes:
    """The lane axis, and the accesses of operands at given offsets.

    The operands ``paired`` have 4-bit elements, two to a byte; their vectors start at whole bytes.
    """

    def __init__(
        self, e: Emitter, operands: Sequence[Operand], lanes: int, paired: Collection[Operand] = ()
    ) -> None:
        self.e, self.operands = e, operands
        self.lane = Axis(lanes, "lane")
        self._last = Axis(2, "last")  # the distance of the last existing lane
        self._at = {operand: Axis(1, f"at{number}") for number, operand in enumerate(operands)}
        self._paired = paired

    def at(
        self, places: Sequence[Value], lanes: int, moving: Collection[Operand], left: Value | None
    ) -> tuple[dict[Operand, Access], Env, list[Bound]]:
        """The accesses of vectors at the offsets ``places``, the values of their axes, and the
        bounds of existing lanes: all, or the first ``left``. The operands ``moving`` are contiguous
        along the lanes."""
        accesses: dict[Operand, Access] = {}
        env: Env = {}
        exists = []
        if left is not None:
            env[self._last] = self.e.b.sub(left, i64(1))
            exists.append(Bound(Affine.of(self._last) + Affine.of(self.lane, -1), _FAR))
        for operand, where in zip(self.operands, places, strict=True):
            paired = lanes > 1 and operand in self._paired
            env[self._at[operand]] = self.e.b.ashr(where, i64(1)) if paired else where
            form = Affine.of(self._at[operand], 2 if paired else 1)
            along = Affine.of(self.lane, int(operand in moving))
            accesses[operand] = Access(operand, (), form + along)
        return accesses, env, exists


class UniformPlace(Place):
    """A place at which operands may be uniform: run-time flags in ``uniform`` say that all lanes
    read the same element."""

    uniform: Mapping[Operand, Value]

    @property
    def existing(self) -> Mask:
        """The mask of existing lanes; None if all exist."""
        return self.conditions(self._exists)

    def load_stored(self, operand: Operand) -> Value:
        """The operand's elements in their stored type."""
        if operand not in self.uniform:
            return super().load_stored(operand)

        def broadcast() -> Values:
            access = self._accesses[operand]
            assert access.offset is not None
            assert self._lane is not None
            alone = {operand: Access(operand, (), access.offset.without(self._lane))}
            at = Place(
                self.e,
                self._pointers,
                alone,
                self._env,
                self._lane,
                self._lanes,
                masked=False,
                core=self.kind.element,  # the first lane exists
            )
            return (at.load_stored(operand),)

        own = super().load_stored
        (value,) = self.e.branch(self.uniform[operand], broadcast, lambda: (own(operand),))
        return value
