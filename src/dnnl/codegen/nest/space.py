"""The iteration space of a nest: its axes, and the access of each operand.

A :class:`Space` is immutable. The steps of a schedule derive new ones: they split axes at block
boundaries, merge axes that are contiguous in every operand, join axes for one operand, and cut axes
into vectors or squares.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations

from dnnl.codegen.memory.access import Access, Bound, Number, Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.types.size import larger, surely_at_most, surely_divides, surely_equal, typical


@dataclass(frozen=True, eq=False)
class Line:
    """Two axes that are contiguous in one operand and walked as one line: ``form`` is
    ``inner.extent * outer + inner``. Other operands compute both axes from it."""

    form: Affine
    outer: Axis
    inner: Axis


@dataclass(frozen=True, eq=False)
class Space:
    """The iterations that are left to schedule: the parallel ``axes``, and the reduced ones,
    ``inner``.

    ``accesses`` has all operands; those in ``outputs`` are written, and the first decides the loop
    order. Iterations inside ``domain`` have a value. Those outside it but inside ``exists`` store
    the zeros of padding. ``numbers`` are integers that the body reads. ``lines`` are joined axes,
    inner ones first. ``indirect`` are the axes whose values the body computes, with the pieces that
    each was split into.
    """

    axes: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    accesses: Mapping[Operand, Access]
    outputs: tuple[Operand, ...]
    numbers: Mapping[Number, Affine]
    domain: tuple[Bound, ...] = ()
    exists: tuple[Bound, ...] = ()
    lines: tuple[Line, ...] = ()
    indirect: Mapping[Axis, Affine] = field(default_factory=dict)

    @staticmethod
    def of(
        parallel: Sequence[Axis],
        reduced: Sequence[Axis],
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        where: Sequence[Bound] = (),
        numbers: Sequence[Number] = (),
        filled: Sequence[Bound] = (),
        indirect: Sequence[Axis] = (),
    ) -> Space:
        """The space ``parallel`` x ``reduced`` inside the bounds ``where``, extended by the padding
        of ``outputs``: an axis that starts at the beginning of an output covers all of its padded
        dimension. Iterations outside ``filled`` are padding too. Axes are split at the blocks of
        operands, ``c -> 16 * c_o + c_i``, which makes offsets affine."""
        extents = {axis: _extent(axis, outputs) for axis in (*parallel, *reduced, *indirect)}
        split = {
            axis: _split(axis, extent, (*outputs, *inputs)) for axis, extent in extents.items()
        }
        ends = [Bound(split[axis], axis.extent) for axis in (*parallel, *reduced)]

        # Indirect indices are in range, even where the last block is larger.
        within = {piece for axis in indirect for piece in split[axis].strides}

        def access(operand: Operand) -> Access:
            index = tuple(_substitute(form, split) for form in operand.index)
            made = Access.of(operand, index, bounds(operand.inside))
            ends = tuple(end for end in made.ends if not set() < end.form.strides.keys() <= within)
            return replace(made, ends=ends)

        def bounds(given: Sequence[Bound]) -> tuple[Bound, ...]:
            return tuple(Bound(_substitute(bound.form, split), bound.limit) for bound in given)

        others = (Bound(split[axis], extents[axis]) for axis in _apart(parallel, outputs))
        return Space(
            axes=tuple(piece for axis in parallel for piece in split[axis].strides),
            inner=tuple(piece for axis in reduced for piece in split[axis].strides),
            accesses={operand: access(operand) for operand in (*inputs, *outputs)},
            outputs=tuple(outputs),
            numbers={number: _substitute(number.form, split) for number in numbers},
            domain=tuple(bound for bound in (*ends, *bounds(filled)) if bound.above),
            exists=tuple(bound for bound in (*bounds(where), *others) if bound.needed),
            indirect={axis: split[axis] for axis in indirect},
        )

    @property
    def dst(self) -> Access:
        """The access of the first output."""
        return self.accesses[self.outputs[0]]

    @property
    def parts_of_dst(self) -> tuple[Operand, ...]:
        """The outputs that are in the same buffer as the first."""
        slot = self.outputs[0].slot
        return tuple(output for output in self.outputs if output.slot == slot)

    @property
    def reads(self) -> tuple[Access, ...]:
        """The accesses of the operands that are only read."""
        return tuple(a for operand, a in self.accesses.items() if operand not in self.outputs)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """All bounds on iterations and accesses, without duplicates."""
        windows = (bound for access in self.accesses.values() for bound in access.window)
        return tuple(dict.fromkeys((*self.domain, *self.exists, *windows)))

    def merged(self) -> Space:
        """The space with all axes merged that are contiguous in every operand: a dense tensor
        becomes one line, whatever its shape."""
        pairs = (pair for axes in (self.axes, self.inner) for pair in permutations(axes, 2))
        for outer, inner in pairs:
            if self._mergeable(outer, inner):
                line = _line(outer, inner)
                accesses = {o: a.joined(outer, inner, line) for o, a in self.accesses.items()}
                numbers = {n: f.joined(outer, inner, line) for n, f in self.numbers.items()}
                own = replace(self, accesses=accesses, numbers=numbers)
                return own._with(outer, (line,))._with(inner, ()).merged()
        return self

    def _mergeable(self, outer: Axis, inner: Axis) -> bool:
        if self.bounded(outer, inner):
            return False
        offsets = [access.offset for access in self.accesses.values()]
        return all(
            form is not None and surely_equal(form.stride(outer), form.stride(inner) * inner.extent)
            for form in (*offsets, *self.numbers.values())
        )

    def bounded(self, *axes: Axis) -> bool:
        """Whether a bound depends on one of the axes."""
        return any(bound.form.stride(axis) for bound in self.bounds for axis in axes)

    def cut(self, old: Axis, loop: Axis, inside: Affine, size: int) -> Space:
        """The space with ``old`` cut into a loop over blocks of ``size`` iterations. ``inside`` is
        the form of an iteration in a block, over axes that are not loops of the space."""
        form = Affine.of(loop, size) + inside
        end = () if surely_divides(size, old.extent) else (Bound(form, old.extent),)
        own = replace(
            self,
            accesses={o: access.substitute(old, form) for o, access in self.accesses.items()},
            numbers={n: number.substitute(old, form) for n, number in self.numbers.items()},
            domain=tuple(bound.substitute(old, form) for bound in self.domain),
            exists=(*(bound.substitute(old, form) for bound in self.exists), *end),
            lines=tuple(replace(line, form=line.form.substitute(old, form)) for line in self.lines),
        )
        return own._with(old, () if surely_at_most(loop.extent, 1) else (loop,))

    def cut_off(self, old: Axis, part: Axis, size: int) -> Space:
        """The space with a reduced axis cut into parts of ``size`` iterations, over which a
        parallel axis runs."""
        rest = () if surely_at_most(size, 1) else (Axis(size, old.name),)
        own = self.cut(old, part, sum(map(Affine.of, rest), ZERO), size)._with(part, rest)
        return replace(own, axes=(*own.axes, part))

    def displaced(self, outputs: Sequence[Operand], number: Affine) -> Space:
        """The space in which the results of parts are stored one behind the other: those of part
        ``number`` at offset ``number`` * size."""
        moved = {output: self.accesses[output].displaced(number) for output in outputs}
        return replace(self, accesses={**self.accesses, **moved})

    def _with(self, old: Axis, new: tuple[Axis, ...]) -> Space:
        """The space with ``old`` replaced by the axes ``new``."""

        def changed(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
            return tuple(x for axis in axes for x in (new if axis is old else (axis,)))

        return replace(self, axes=changed(self.axes), inner=changed(self.inner))

    def joined(self, operand: Operand, outer: Axis, inner: Axis) -> tuple[Space, Axis]:
        """The space in which one operand walks two parallel axes as a line, and the line."""
        line = _line(outer, inner)
        access = self.accesses[operand].joined(outer, inner, line)
        lines = (*self.lines, Line(Affine.of(line), outer, inner))
        own = replace(self, accesses={**self.accesses, operand: access}, lines=lines)
        return own._with(outer, (line,))._with(inner, ()), line

    def invariant(self, access: Access) -> bool:
        """Whether an operand is invariant in the reduction loops."""
        unmoved = all(stride(access, axis) == 0 for axis in self.inner)
        return unmoved and not self.indirect_strides(access)

    def indirect_strides(self, access: Access) -> set[int | None]:
        """The non-zero strides of an operand along the indirect axes."""
        pieces = (piece for form in self.indirect.values() for piece in form.strides)
        return {stride(access, piece) for piece in pieces} - {0}

    def step(self, access: Access, axis: Axis) -> int:
        """The typical stride along an axis of an operand with an affine offset, in elements. It is
        approximate for a line whose axes are not contiguous in this operand."""
        assert access.offset is not None
        distance = typical(access.offset.stride(axis))
        for line in self.lines:
            count = line.form.stride(axis)
            if count == 1:
                distance = distance or self.step(access, line.inner)
            elif count:
                lines = self.step(access, line.outer) * count
                distance = distance or lines // line.inner.typical
        return distance

    def step_bytes(self, access: Access, axis: Axis) -> int:
        """The absolute typical stride along an axis in bytes; 0 if it is not constant."""
        if access.offset is None:
            return 0
        return abs(self.step(access, axis)) * access.operand.desc.data_type.bits // 8


def stride(access: Access, axis: Axis) -> int | None:
    """The stride along ``axis`` in elements; None if it is not constant."""
    if access.offset is not None:
        return access.offset.stride(axis)
    return None if any(form.stride(axis) for form in access.index) else 0


def _line(outer: Axis, inner: Axis) -> Axis:
    return Axis(outer.extent * inner.extent, f"{outer.name}{inner.name}")


def _extent(axis: Axis, outputs: Sequence[Operand]) -> int:
    """The extent of an axis, including the padding of outputs that it walks from their
    beginning."""
    extent = axis.extent
    for operand in outputs:
        for dim, form in enumerate(operand.index):
            if form.strides == {axis: 1} and form.const == 0:
                end = operand.desc.dims[dim]
                assert surely_at_most(end, axis.extent), (
                    f"{axis!r} does not reach {end!r} elements of an output"
                )
                extent = larger(extent, operand.desc.padded_dims[dim])
    return extent


def _apart(axes: Sequence[Axis], outputs: Sequence[Operand]) -> list[Axis]:
    """Axes past whose end an output has elements of other iterations: no dimension ends there, as
    for ``c`` in an index ``16 * g + c``."""

    def ends(axis: Axis, operand: Operand) -> bool:
        own = [form for form in operand.index if form.stride(axis)]
        return not own or any(form.strides == {axis: 1} and form.const == 0 for form in own)

    return [axis for axis in axes if not all(ends(axis, operand) for operand in outputs)]


def _split(axis: Axis, extent: int, operands: Sequence[Operand]) -> Affine:
    """Split ``extent`` iterations of an axis at the block boundaries of operands that it walks with
    stride 1."""
    boundaries: set[int] = set()
    for operand in operands:
        for dim, form in enumerate(operand.index):
            if form.strides != {axis: 1}:
                continue
            sizes = operand.boundaries(dim)
            if sizes and form.const % sizes[-1] == 0 and divide_each_other(boundaries | set(sizes)):
                boundaries |= set(sizes)
    return in_pieces(axis.name, extent, boundaries)


def in_pieces(name: str, extent: int, boundaries: Collection[int]) -> Affine:
    """The form of ``extent`` iterations (rounded up) on one axis for each block size, and one over
    the largest. Each size divides the next."""
    pieces = ZERO
    step = 1
    inner = sorted(s for s in boundaries if s > 1 and not surely_at_most(extent, s))
    for number, size in enumerate(inner):
        pieces = pieces + Affine.of(Axis(size // step, f"{name}{number}"), step)
        step = size
    outer = -(-extent // step)
    if surely_at_most(outer, 1):
        return pieces
    return pieces + Affine.of(Axis(outer, name), step)


def divide_each_other(sizes: Collection[int]) -> bool:
    """Whether each size divides the next larger one."""
    ordered = sorted(sizes)
    return all(b % a == 0 for a, b in pairwise(ordered))


def _substitute(form: Affine, splitting: Mapping[Axis, Affine]) -> Affine:
    result = Affine({}, form.const)
    for axis, step in form.strides.items():
        result = result + splitting[axis] * step
    return result
