"""Loads and stores of operands at one vector of iterations, in any layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from llvmlite import ir

from dnnl.codegen.conversion import nibbles
from dnnl.codegen.conversion.convert import Conversion, storage
from dnnl.codegen.ir import interleave, plan_numbers, registers, vector
from dnnl.codegen.ir.builder import F32, I1, I8, I32, I64, Emitter, i64
from dnnl.codegen.memory.access import Access, Bound, Env, Half, Number, Operand
from dnnl.codegen.memory.address import Affine, Axis, emit_offset
from dnnl.codegen.memory.deferred_store import DeferredStores
from dnnl.types.dtype import DataType
from dnnl.types.size import is_known

# Elements at most this far apart are loaded with everything between them and shuffled.
NEAR = 4


class Place:
    """One vector of iterations: ``env`` fixes all axes but ``lane``, along which the lanes run.

    Bodies work on vectors of type ``core``; ``load`` and ``store`` convert. If ``masked``, elements
    outside an operand's window or outside ``exists`` are not touched, and stores outside
    ``domain``, which is padding, write zero. Whole vectors of the operands ``streamed`` are stored
    non-temporally, at addresses that are multiples of the vector's size. ``known`` has bounds that
    hold, or fail, for all lanes. Stores of the operands of ``deferred`` are collected there. The
    items of a work-group differ in the value of the axis ``member``.
    """

    def __init__(
        self,
        e: Emitter,
        pointers: Mapping[Operand, ir.Value],
        accesses: Mapping[Operand, Access],
        env: Env,
        lane: Axis | None,
        lanes: int,
        *,
        masked: bool,
        domain: Sequence[Bound] = (),
        exists: Sequence[Bound] = (),
        streamed: Collection[Operand] = (),
        core: ir.Type = F32,
        known: dict[Bound, bool] | None = None,
        deferred: DeferredStores | None = None,
        member: Axis | None = None,
    ) -> None:
        self.e, self.masked, self.streamed = e, masked, streamed
        self.kind = vector.vector_type(core, lanes)
        self._pointers, self._accesses = pointers, accesses
        self._env, self._lane, self._lanes = env, lane, lanes
        self._domain, self._exists = domain, exists
        self._known, self._deferred, self._member = known or {}, deferred, member

    def constant(self, value: float) -> ir.Constant:
        """A vector with ``value`` in every lane."""
        return vector.splat_constant(self.kind, value)

    def address(self, operand: Operand) -> ir.Value:
        """The base address of the operand."""
        return self._pointers[operand]

    def form_of(self, number: Number) -> Affine:
        """The form of a number over the axes of the schedule."""
        return number.form

    def start_and_step(self, form: Affine) -> tuple[ir.Value, int]:
        """The value of a form in the first lane, and its step from lane to lane."""
        return self._start(form), form.stride(self._lane) if self._lane is not None else 0

    def load(self, operand: Operand) -> ir.Value:
        """The operand's elements in the core type; unspecified in lanes that have no element."""
        return self.widen(operand, self.load_stored(operand))

    def load_or_zero(self, operand: Operand) -> ir.Value:
        """The operand's elements in the core type; zero in lanes that have no element."""
        value = self.load(operand)
        return value if self._masks_to_zero(operand) else self.zero_where_absent(operand, value)

    def zero_where_absent(self, operand: Operand, value: ir.Value) -> ir.Value:
        """``value`` where the operand has an element, else zero."""
        mask = self.conditions(self._accesses[operand].window)
        return value if mask is None else self.e.b.select(mask, value, self.constant(0.0))

    def zero_outside(self, operand: Operand, bounds: Collection[Bound]) -> bool:
        """Whether a load of the operand gives zero wherever one of the bounds fails."""
        masked = {*self._exists, *self._domain, *self._accesses[operand].window}
        return self._masks_to_zero(operand) and masked.issuperset(bounds)

    def _masks_to_zero(self, operand: Operand) -> bool:
        """Whether masked-off lanes load as zero. Elements of 4 bits are loaded in pairs, so a lane
        may read its neighbour's."""
        access = self._accesses[operand]
        masked = not access.contained and self._lane_stride(access) != 0
        return masked and operand.data_type.bits >= 8

    def widen(self, operand: Operand, stored: ir.Value) -> ir.Value:
        """Convert elements of the operand from their stored type to the core type."""
        return storage(operand.data_type, self.kind.element).to_core(self.e, stored)

    def load_as(self, operand: Operand, data_type: DataType) -> ir.Value:
        """The operand's elements in the core type, reinterpreted as another type of the same
        size."""
        stored = self.load_stored(operand)
        row = storage(data_type, self.kind.element)
        kind = vector.vector_type(row.element, self._lanes)
        return row.to_core(self.e, self.e.b.bitcast(stored, kind))

    def load_stored(self, operand: Operand) -> ir.Value:
        """The operand's elements in their stored type."""
        access = self._accesses[operand]
        row = storage(operand.data_type, self.kind.element)
        kind = vector.vector_type(row.element, self._lanes)
        bounds = [*self._exists, *self._domain, *access.window]
        pointer = self._pointers[operand]
        stride = self._lane_stride(access)
        mask = self.conditions(bounds)
        if vector.is_empty(mask):
            return vector.splat_constant(kind, 0)
        if operand.desc.data_type.bits == 4:
            return self._load_nibbles(access, pointer, mask)
        if stride == 1:
            where = self.e.element(pointer, self._base(access), row.element)
            return registers.load(self.e, where, kind, None if access.contained else mask)
        if stride == 0:
            return self._broadcast(access, pointer, row.element, mask)
        if stride is not None and is_known(stride) and 1 < stride <= NEAR:
            return self._pick(access, pointer, kind, stride, bounds)
        dim = self._between_vectors(access, bounds)
        if dim is not None:
            return self._neighbours(access, dim, pointer, kind, mask)
        return vector.gather(self.e, pointer, self._lane_offsets(access), kind, mask)

    def lookup(self, operand: Operand) -> ir.Value:
        """The integers of a table, for `Point.at`: a scalar if all lanes have the same one."""
        stored = self.load_stored(operand)
        if self.is_uniform(operand) or self.kind.count == 1:
            return self.e.b.zext(vector.lane(self.e, stored, 0), I64)
        return self.e.b.zext(stored, vector.vector_type(I64, self.kind.count))

    def index(self, operand: Operand, extent: int) -> ir.Value:
        """The signed integers of an operand, for `Point.at`. Negative ones count from the end of
        ``extent`` elements; those out of range are clamped."""
        b, stored = self.e.b, self.load_stored(operand)
        alone = self.is_uniform(operand) or self.kind.count == 1
        number = vector.lane(self.e, stored, 0) if alone else stored
        kind = I64 if alone else vector.vector_type(I64, self.kind.count)
        if number.type != kind:
            number = b.sext(number, kind)
        zero, last = (plan_numbers.like(self.e, number, n) for n in (0, extent - 1))
        from_end = b.add(number, plan_numbers.like(self.e, number, extent))
        number = b.select(b.icmp_signed("<", number, zero), from_end, number)
        number = b.select(b.icmp_signed("<", number, zero), zero, number)
        return b.select(b.icmp_signed(">", number, last), last, number)

    def load_from(self, operand: Operand, further: int, count: int) -> ir.Value:
        """Consecutive stored elements, one for each lane, that start ``further`` elements past the
        operand's element here. The start must be the same for all lanes. Only the first ``count``
        elements exist."""
        access = self._accesses[operand]
        element = storage(operand.data_type, self.kind.element).element
        place = self.e.add(self._base(access), i64(further))
        if is_known(count):
            mask = vector.known_lanes([lane < count for lane in range(self._lanes)])
        else:
            mask = vector.first_lanes(self.e, self.e.number(count), self._lanes)
        bounds = (*self._exists, *self._domain)
        uniform = [bound for bound in bounds if not (self._lane and bound.form.stride(self._lane))]
        mask = vector.both(self.e, mask, self.conditions(uniform))
        kind = vector.vector_type(element, self._lanes)
        where = self.e.element(self._pointers[operand], place, element)
        return registers.load(self.e, where, kind, mask)

    def lookup_first(self, operand: Operand) -> ir.Value:
        """The integer of a table in the first lane."""
        return self.e.b.zext(vector.lane(self.e, self.load_stored(operand), 0), I64)

    def store(self, operand: Operand, value: ir.Value) -> None:
        """Convert and store; lanes outside the domain store zero."""
        self._store(operand, value, storage(operand.data_type, self.kind.element).from_core)

    def store_stored(self, operand: Operand, stored: ir.Value) -> None:
        """Store elements in their stored type; lanes outside the domain store zero."""
        self._store(operand, stored, lambda _, value: value)

    def _store(self, operand: Operand, value: ir.Value, convert: Conversion) -> None:
        access = self._accesses[operand]
        mask = self.conditions([*self._exists, *access.window])
        mask = vector.both(self.e, mask, self._first_member(access))
        if vector.is_empty(mask):
            return
        inside = self.conditions(self._domain)
        if inside is not None:
            value = self.e.b.select(inside, value, vector.splat_constant(value.type, 0))
        pointer = self._pointers[operand]
        stride = self._lane_stride(access)
        streamed = operand in self.streamed
        whole = (stride == 1 or self._lanes == 1) and mask is None and inside is None
        if whole and self._deferred is not None and operand in self._deferred.operands:
            element = storage(operand.data_type, self.kind.element).element
            where = self.e.element(pointer, self._base(access), element)
            self._deferred.add(self.e, operand, value, where, convert, streamed)
            return
        raw = convert(self.e, value)
        if operand.desc.data_type.bits == 4:
            self._store_nibbles(access, pointer, raw, mask)
            return
        if stride == 0:  # one value for all lanes
            one = vector.known_lanes([lane == 0 for lane in range(self._lanes)])
            mask = vector.both(self.e, mask, one)
        if stride in (0, 1):
            where = self.e.element(pointer, self._base(access), raw.type.element)
            registers.store(self.e, raw, where, mask, streamed=streamed)
            return
        vector.scatter(self.e, raw, pointer, self._lane_offsets(access), mask)

    def _first_member(self, access: Access) -> vector.Mask:
        """The mask of the first item of a work-group, if all of them have the same element."""
        forms = access.index if access.offset is None else (access.offset,)
        if self._member is None or any(form.stride(self._member) for form in forms):
            return None
        return self.e.b.icmp_signed("==", self._env[self._member], i64(0))

    def store_interleaved(self, operands: Sequence[Operand], values: Sequence[ir.Value]) -> None:
        """Store vectors whose elements alternate in memory (the first of each, the second of each,
        ...). Operands of any other layout are stored one by one."""
        first = self._accesses[operands[0]]
        if self._lanes == 1 or not self._interleaved(operands):
            for operand, value in zip(operands, values, strict=True):
                self.store(operand, value)
            return
        row = storage(operands[0].data_type, self.kind.element)
        windows = [self._accesses[operand].window for operand in operands]
        masks = [self.conditions([*self._exists, *window]) for window in windows]
        inside = self.conditions(self._domain)
        if inside is not None:
            values = [self.e.b.select(inside, value, self.constant(0.0)) for value in values]
        parts = interleave.interleave(self.e, [row.from_core(self.e, value) for value in values])
        for number, (part, mask) in enumerate(
            zip(parts, interleave.interleave_masks(self.e, masks, self._lanes), strict=True)
        ):
            if not vector.is_empty(mask):
                place = self.e.add(self._base(first), i64(number * self._lanes))
                where = self.e.element(self._pointers[operands[0]], place, row.element)
                registers.store(self.e, part, where, mask, streamed=operands[0] in self.streamed)

    def _interleaved(self, operands: Sequence[Operand]) -> bool:
        """Whether the elements of the operands alternate in memory along the lanes."""
        accesses = [self._accesses[operand] for operand in operands]
        starts = [access.offset.const for access in accesses if access.offset is not None]
        follow = starts == [starts[0] + n for n in range(len(operands))] if starts else False
        return follow and all(self._lane_stride(access) == len(operands) for access in accesses)

    def _load_nibbles(self, access: Access, pointer: ir.Value, mask: vector.Mask) -> ir.Value:
        if self._lane_stride(access) == 1 and self._lanes % 2 == 0:
            return nibbles.unpack(self.e, self._load_pairs(access, pointer, mask))
        return nibbles.load_each(self.e, pointer, self._lane_offsets(access), mask)

    def load_pairs(self, operand: Operand) -> ir.Value:
        """Load consecutive 4-bit elements as bytes, two elements in each."""
        access = self._accesses[operand]
        mask = self.conditions([*self._exists, *self._domain, *access.window])
        if vector.is_empty(mask):
            return vector.splat_constant(vector.vector_type(I8, self._lanes // 2), 0)
        return self._load_pairs(access, self._pointers[operand], mask)

    def _load_pairs(self, access: Access, pointer: ir.Value, mask: vector.Mask) -> ir.Value:
        start = access.byte_offset(self._lane, self._lanes)
        if start is None:
            first = self._base(access)
            return nibbles.load_pairs_anywhere(self.e, pointer, first, self._lanes, mask)
        where = self.e.element(pointer, self._start(start), I8)
        return nibbles.load_pairs(self.e, where, self._lanes, mask)

    def store_pairs(self, operand: Operand, pairs: ir.Value) -> None:
        """Store consecutive 4-bit elements from bytes; lanes outside the domain store zero."""
        access = self._accesses[operand]
        start = access.byte_offset(self._lane, self._lanes)
        assert start is not None, "bytes that vectors share are stored one element at a time"
        mask = self.conditions([*self._exists, *access.window])
        if vector.is_empty(mask):
            return
        inside = self.conditions(self._domain)
        if inside is not None:
            pairs = nibbles.zero_outside(self.e, pairs, inside)
        where = self.e.element(self._pointers[operand], self._start(start), I8)
        nibbles.store_pairs(self.e, pairs, where, mask)

    def _store_nibbles(
        self, access: Access, pointer: ir.Value, codes: ir.Value, mask: vector.Mask
    ) -> None:
        start = access.byte_offset(self._lane, self._lanes)
        if start is None:
            assert self._lanes == 1, "bytes that vectors share are stored one element at a time"
            nibbles.store_one(self.e, codes, pointer, self._lane_offsets(access), mask)
        else:
            where = self.e.element(pointer, self._start(start), I8)
            nibbles.store_pairs(self.e, nibbles.pack(self.e, codes), where, mask)

    def prefetch(self, operand: Operand, further: ir.Value | None = None) -> None:
        """Prefetch the line of the last lane's element, or of the one ``further`` elements past it.
        The other lanes' lines were prefetched by earlier iterations."""
        access = self._accesses[operand]
        if access.offset is None:
            return
        last = (self._lanes - 1) * access.offset.stride(self._lane) if self._lane else 0
        place = self.e.add(self._base(access), self.e.add(further or i64(0), self.e.number(last)))
        element = storage(operand.data_type, self.kind.element).element
        if operand.desc.data_type.bits == 4:
            place = self.e.b.lshr(place, i64(1))
        vector.prefetch(self.e, self.e.element(self._pointers[operand], place, element))

    def conditions(self, bounds: Sequence[Bound]) -> vector.Mask:
        """The mask of the lanes for which all bounds hold; None if all lanes are known to."""
        return self._conditions(bounds, 0, 1)

    def _conditions(self, bounds: Sequence[Bound], first: int, parts: int) -> vector.Mask:
        """The mask of the points ``(first + n) / parts`` lanes past the first lane for which all
        bounds hold; n is the number of the result's lane. Strided loads read points between
        lanes."""
        mask: vector.Mask = None
        if not self.masked:
            return mask
        if any(self._known.get(bound) is False for bound in bounds):
            return vector.known_lanes([False] * self._lanes)
        for bound in dict.fromkeys(bounds):
            if bound in self._known:
                continue
            base = self.e.mul(self._bounded(bound.form), parts)
            step = bound.form.stride(self._lane) if self._lane is not None else 0
            if bound.above and Half.of(bound, upper=True) not in self._known:
                last = self.e.number((bound.limit - 1) * parts)
                slack = self.e.add(last, self.e.mul(base, -1))
                mask = vector.both(self.e, mask, self._within(slack, step, first))
            if bound.below_zero and Half.of(bound, upper=False) not in self._known:
                mask = vector.both(self.e, mask, self._within(base, -step, first))
        return mask

    def _within(self, slack: ir.Value, step: int, first: int) -> vector.Mask:
        """The lanes for which ``step * (first + lane) <= slack``."""
        if not is_known(step):
            kind = vector.vector_type(I64, self._lanes)
            first_step = plan_numbers.splat(self.e, kind, step * first)
            steps = self.e.b.add(first_step, plan_numbers.multiples(self.e, kind, step))
            return self.e.b.icmp_signed("<=", steps, vector.splat(self.e, slack, self._lanes))
        if isinstance(slack, ir.Constant):
            limit = slack.constant
            return vector.known_lanes([step * (first + n) <= limit for n in range(self._lanes)])
        if self._lanes == 1:
            return self.e.b.icmp_signed(">=", slack, i64(step * first))
        kind = vector.vector_type(I1, self._lanes)
        if step == 0:
            yes = self.e.b.icmp_signed(">=", slack, i64(0))
            some = vector.splat_constant(kind, 1)
            return self.e.b.select(yes, some, vector.splat_constant(kind, 0))
        steps = [step * (first + lane) for lane in range(self._lanes)]
        # Clamp the slack to 32 bits: the steps that it is compared with are small.
        limit = max(map(abs, steps)) + 1
        low, high = i64(-limit), i64(limit)
        slack = self.e.b.select(self.e.b.icmp_signed("<", slack, low), low, slack)
        slack = self.e.b.select(self.e.b.icmp_signed(">", slack, high), high, slack)
        slacks = vector.splat(self.e, self.e.b.trunc(slack, I32), self._lanes)
        return self.e.b.icmp_signed(
            "<=", ir.Constant(vector.vector_type(I32, self._lanes), steps), slacks
        )

    def is_uniform(self, operand: Operand) -> bool:
        """Whether all lanes read the same element of the operand."""
        return self._lane_stride(self._accesses[operand]) == 0

    def _apart(self, form: Affine) -> list[Axis]:
        """The axes of a form whose value differs between lanes."""
        return [axis for axis in form.strides if _is_vector(self._env.get(axis))]

    def _start(self, form: Affine) -> ir.Value:
        """The value of ``form`` in the first lane."""
        if self._lane is not None:
            form = form.without(self._lane)
        return form.emit(self.e, self._env)

    def _bounded(self, form: Affine) -> ir.Value:
        """The value in the first lane of the form of a bound."""
        return self._start(form)

    def _spread(self, form: Affine) -> ir.Value:
        """The vector of the form's value in each lane."""
        kind = vector.vector_type(I64, self._lanes)
        apart = self._apart(form)
        start = vector.splat(self.e, self._start(form.without(*apart)), self._lanes)
        for axis in apart:
            steps = plan_numbers.splat(self.e, kind, form.stride(axis))
            start = self.e.b.add(start, self.e.b.mul(self._env[axis], steps))
        stride = form.stride(self._lane) if self._lane is not None else 0
        if stride == 0:
            return start
        return self.e.b.add(start, plan_numbers.multiples(self.e, kind, stride))

    def _lane_stride(self, access: Access) -> int | None:
        if access.offset is None or self._apart(access.offset):
            return None
        return access.offset.stride(self._lane) if self._lane is not None else 0

    def _base(self, access: Access) -> ir.Value:
        assert access.offset is not None
        return self._start(access.offset)

    def _lane_offsets(self, access: Access) -> ir.Value:
        if access.offset is not None:
            return self._spread(access.offset)
        index = [self._spread(form) for form in access.index]
        for dim, size in enumerate(access.operand.groups):
            index[dim] = self.e.b.udiv(index[dim], vector.splat_constant(index[dim].type, size))
        return emit_offset(self.e, access.operand.desc, index)

    def _broadcast(
        self, access: Access, pointer: ir.Value, element: ir.Type, mask: vector.Mask
    ) -> ir.Value:
        """Load one element into all lanes. If no lane is valid, an element that exists is read."""
        offset = self._base(access)
        if mask is not None and not isinstance(mask, ir.Constant):
            some = vector.any_lane(self.e, mask)
            first = self.e.number(access.operand.desc.offset0)
            offset = self.e.b.select(some, offset, first)
        where = self.e.element(pointer, offset, element)
        one = self.e.b.load(where, typ=element, align=vector.bits(element) // 8)
        if access.operand.settled:
            one.set_metadata("invariant.load", self.e.module.ir.add_metadata([]))
        return vector.splat(self.e, one, self._lanes)

    def _pick(
        self,
        access: Access,
        pointer: ir.Value,
        kind: ir.VectorType,
        stride: int,
        bounds: Sequence[Bound],
    ) -> ir.Value:
        """Load elements ``stride`` apart: load the range from the first lane's element to the last
        lane's, vector by vector, and shuffle. Nothing outside the range is touched."""
        lanes = self._lanes
        length = (lanes - 1) * stride + 1
        starts = [min(first, length - lanes) for first in range(0, length, lanes)]
        base = self._base(access)
        picked: ir.Value = None
        for start in starts:
            where = self.e.element(pointer, self.e.add(base, i64(start)), kind.element)
            part = registers.load(self.e, where, kind, self._conditions(bounds, start, stride))
            inside = [lane * stride - start for lane in range(lanes)]
            if picked is None:
                picked = vector.shuffle(self.e, part, part, [at % lanes for at in inside])
            else:
                choose = [lanes + at if 0 <= at < lanes else lane for lane, at in enumerate(inside)]
                picked = vector.shuffle(self.e, picked, part, choose)
        return picked

    def _between_vectors(self, access: Access, bounds: Sequence[Bound]) -> int | None:
        """The blocked dimension along which the lanes are consecutive, if its blocks are whole
        vectors, the first lane is inside a block, and only this dimension is bounded; else None."""
        lane, lanes, desc = self._lane, self._lanes, access.operand.desc
        blocks = desc.inner_blocks
        if access.offset is not None or lane is None or not blocks or access.operand.groups:
            return None
        dim, size = blocks[-1]
        form = access.index[dim]
        if form.stride(lane) != 1 or not is_known(form.const) or form.const % lanes == 0:
            return None
        others = (other for number, other in enumerate(access.index) if number != dim)
        if any(other.stride(lane) for other in others) or any(map(self._apart, access.index)):
            return None
        unknown = (bound for bound in bounds if bound not in self._known)
        alone = all(form.strides.keys() >= bound.form.strides.keys() for bound in unknown)
        # A sub-tensor may end inside a block.
        steps = (size, desc.padded_dims[dim], *form.without(lane).strides.values())
        return dim if alone and all(step % lanes == 0 for step in steps) else None

    def _neighbours(
        self, access: Access, dim: int, pointer: ir.Value, kind: ir.VectorType, mask: vector.Mask
    ) -> ir.Value:
        """Load elements that straddle two vectors of a blocked dimension: load both and shuffle."""
        e, lanes, desc = self.e, self._lanes, access.operand.desc
        index, shift = [self._start(form) for form in access.index], access.index[dim].const % lanes

        def part(step: int) -> ir.Value:
            begin = e.add(index[dim], i64(step))
            if mask is not None:  # one of the two may be outside the tensor
                begin = e.larger(i64(0), e.smaller(begin, i64(desc.padded_dims[dim] - lanes)))
            offset = emit_offset(e, desc, [*index[:dim], begin, *index[dim + 1 :]])
            return registers.load(e, e.element(pointer, offset, kind.element), kind, None)

        chosen = [shift + lane for lane in range(lanes)]
        value = vector.shuffle(e, part(-shift), part(lanes - shift), chosen)
        return value if mask is None else e.b.select(mask, value, vector.splat_constant(kind, 0))


def _is_vector(value: ir.Value | None) -> bool:
    return value is not None and isinstance(value.type, ir.VectorType)
