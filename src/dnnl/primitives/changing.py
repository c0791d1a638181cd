"""Primitives for calls whose sizes change from one to the next.

The first sizes of an operation have kernels of their own. Further ones that differ from these in
the same numbers share a primitive that leaves those numbers to its executions
(`dnnl.primitives.open_desc`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

from dnnl import config, forks
from dnnl.errors import Error, InvalidArguments, Unimplemented
from dnnl.primitives.cache import Cache
from dnnl.primitives.desc import Desc
from dnnl.primitives.open_desc import with_operands
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.sizes import fields_of
from dnnl.primitives.slots import Slots
from dnnl.runtime.engine import Engine
from dnnl.runtime.event import Event
from dnnl.runtime.stream import Stream
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import RUNTIME_DIM, FormatKind
from dnnl.types.memory_desc import MemoryDesc

_FAMILIES, _PRIMITIVES = 1024, 256
"""The families that are remembered, and their primitives for open sizes."""
_ALONE = 3
"""So many sets of sizes that differ in the same numbers have kernels of their own."""
_MET = 64
"""The sets of sizes that a family remembers."""
_KERNELS = 8
"""A primitive for open sizes with more kernels than that needs one for each set of sizes."""
_EXECUTIONS = 1000
"""After so many a set of sizes gets a kernel of its own. A number, and no time: the same calls give
the same bits."""

_Places: TypeAlias = frozenset[tuple[int, int]]
"""Numbers of layouts (`MemoryDesc.layout_numbers`), by the argument and the place there."""


def primitive_for(
    desc: Desc, engine: Engine, attr: PrimitiveAttr | None = None
) -> Primitive | Sized:
    """What executes ``desc``, whose sizes are known, by `Primitive.execute_at`: a primitive for
    these sizes, or one that serves many.

    DNNL_SPECIAL_KERNELS decides as for models (`dnnl.SpecialKernels`). With "always" each set of
    sizes has its own primitive, with "never" only the first one. Engines without the memory of the
    host have one for each set. Raises what `PrimitiveDesc` raises.
    """
    policy = config.get("special_kernels")
    if policy != "always" and engine.host_memory and not desc.writes_nothing:
        member = Member.of(desc.settled(), PrimitiveAttr() if attr is None else attr)
        family, _ = _families.get((engine, member.family), partial(Family, engine))
        shared = family.shared(member, 1 if policy == "never" else _ALONE)
        if shared is not None:
            return Sized(*shared, settles=policy == "often")
    return Primitive(PrimitiveDesc(desc, engine, attr))


class Sized:
    """Executions of a primitive with open sizes on tensors of one set of sizes. After many they get
    a kernel of their own, if ``settles``."""

    def __init__(self, primitive: Primitive, slots: Slots, *, settles: bool) -> None:
        self.pd = slots.pd
        self.arguments = tuple(argument for argument, _ in slots.expected)
        self._run: Callable[..., Event] = partial(primitive.execute_at, slots=slots)
        self._left = _EXECUTIONS if settles else -1

    def execute_at(self, stream: Stream, addresses: Sequence[Any]) -> Event:
        """As `Primitive.execute_at`."""
        if self._left == 0:
            self._settle()
        self._left -= 1
        return self._run(stream, addresses)

    def _settle(self) -> None:
        """Have executions use a kernel for these sizes, if there is one, in the same layouts."""
        pd = self.pd
        with suppress(Error, ValueError):
            own = Primitive(PrimitiveDesc(pd.desc, pd.engine, pd.attr))
            places = [self.arguments.index(argument) for argument in own.arguments]
            self._run = lambda stream, given: own.execute_at(stream, [given[n] for n in places])


class Member(NamedTuple):
    """An operation on known sizes; ``tensors`` are all that it has, by argument."""

    desc: Desc
    attr: PrimitiveAttr
    tensors: Mapping[int, MemoryDesc]

    @classmethod
    def of(cls, desc: Desc, attr: PrimitiveAttr) -> Member:
        """An operation with its attributes."""
        tensors = {tensor.argument: tensor.desc for tensor in desc.tensors}
        for number, entry in enumerate(attr.post_ops):
            tensors |= {Arg.post_op(number) | argument: own for argument, own in entry.operands}
        return cls(desc, attr, tensors)

    @property
    def family(self) -> tuple[object, ...]:
        """All but sizes. Those of 0 and 1 count: they decide what is empty, or broadcast. So do
        those of the weights of a layer, which differ from layer to layer."""
        weights = [role for role in self.desc.operation.roles if {"i", "o"} <= {*role.letters}]
        fixed = {own for own in self.tensors if any(role.covers(own) for role in weights)}
        alike = [
            (argument, *_alike(own), own.layout_numbers if argument in fixed else None)
            for argument, own in self.tensors.items()
        ]
        given = (getattr(self.desc, name) for name in self.desc.fields())
        parameters = [own for own in given if not _is_tensors(own)]
        attr = self.attr.with_post_ops(own.mapped(_scalar) for own in self.attr.post_ops)
        return type(self.desc), *parameters, attr.key, *alike

    def differences(self, other: Member) -> _Places:
        """The numbers in which another operation of the family differs."""
        return frozenset(
            (argument, place)
            for argument, own in self.tensors.items()
            if own != other.tensors[argument]
            for place, pair in enumerate(
                zip(_free(own), _free(other.tensors[argument]), strict=True)
            )
            if pair[0] != pair[1]
        )

    def opened(self, places: _Places, engine: Engine) -> tuple[Desc, PrimitiveAttr]:
        """The operation with these numbers left to executions. Layouts of such tensors that are
        ``any`` are those that an implementation decides for the numbers of this one."""
        free = {argument for argument, _ in places}
        given = self.tensors
        if any(given[own].format_kind is FormatKind.any for own in free):
            pd = PrimitiveDesc(self.desc, engine, self.attr)
            given = {own: pd.arg_desc(own) if own in free else given[own] for own in given}
        made = {
            argument: _opened(own, {place for owner, place in places if owner == argument})
            for argument, own in given.items()
        }
        post_ops = [with_operands(n, entry, made) for n, entry in enumerate(self.attr.post_ops)]
        roles = [role for role in self.desc.operation.roles if role.field and not role.many]
        # Tensors that take no part have no sizes either.
        absent = {role.field: MemoryDesc.zero() for role in roles if not self.desc.has(role)}
        fields = absent | fields_of(self.desc, made)
        return self.desc.laid_out(**fields), self.attr.with_post_ops(post_ops)


def _is_tensors(value: object) -> bool:
    first = value[0] if isinstance(value, tuple) and value else value
    return isinstance(first, MemoryDesc)


def _alike(desc: MemoryDesc) -> tuple[object, ...]:
    sizes = tuple([min(size, 2) for size in desc.dims])
    return desc.kind, desc.tag, desc.offset0, sizes


def _scalar(desc: MemoryDesc) -> MemoryDesc:
    return MemoryDesc((1,) * desc.ndims, desc.data_type)


def _free(desc: MemoryDesc) -> Sequence[int]:
    """The numbers of a layout that do not follow from others."""
    plain = desc.format_kind is FormatKind.blocked and desc.tag is None
    return desc.layout_numbers if plain else desc.dims


def _opened(desc: MemoryDesc, places: set[int]) -> MemoryDesc:
    """The tensor with the numbers at some places of its layout left to executions."""
    if not places:
        return desc
    numbers = [RUNTIME_DIM if n in places else own for n, own in enumerate(desc.layout_numbers)]
    ndims, blocks, given = desc.ndims, desc.inner_blocks, desc.offset0
    if desc.tag is not None:
        return MemoryDesc(numbers[:ndims], desc.data_type, desc.tag, offset0=given)
    dims, padded, strides = (numbers[n * ndims : (n + 1) * ndims] for n in range(3))
    return MemoryDesc(
        dims, desc.data_type, strides, inner_blocks=blocks, padded_dims=padded, offset0=given
    )


class Family:
    """The operations that differ in sizes alone, and which of them share a primitive."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._lock = engine, forks.Lock()
        self._alone: tuple[Member, ...] = ()
        self._met: tuple[Member, ...] = ()
        self._open: tuple[_Open, ...] = ()
        self._refused: tuple[_Places, ...] = ()

    def shared(self, member: Member, alone: int) -> tuple[Primitive, Slots] | None:
        """A primitive for open sizes, and its slots for those of an operation. None where the
        operation gets a primitive of its own, as the first ``alone`` that differ in the same
        numbers do."""
        with self._lock.own:
            if member in self._alone:
                return None
            found = self._find(member, alone)
            if member not in self._met:
                self._met = (*self._met, member)[-_MET:]
            if found is None:
                self._alone = (*self._alone, member)[-_MET:]
            return found

    def _find(self, member: Member, alone: int) -> tuple[Primitive, Slots] | None:
        for own in self._open:
            if own.first.differences(member) <= own.places:
                return self._executing(own, member)
        counted = Counter(own.differences(member) for own in self._met)
        for places, count in sorted(counted.items(), key=lambda own: len(own[0])):
            refused = any(places >= own for own in self._refused)
            if places and count >= alone and not refused:
                return self._executing(_Open(member, places, self._engine), member)
        return None

    def _executing(self, own: _Open, member: Member) -> tuple[Primitive, Slots] | None:
        """What executes an operation with open sizes. The latest one is asked first the next
        time."""
        others = tuple(other for other in self._open if other is not own)
        try:
            primitive = own.primitive
        except (InvalidArguments, Unimplemented):
            self._refuse(own.places, others)
            return None
        try:
            slots = primitive.slots_of(_in_layouts(primitive, member.tensors))
        except (InvalidArguments, Unimplemented):
            return None  # these sizes alone
        variants = primitive.pd.variants
        if variants is not None and len(variants.every) > _KERNELS:
            self._refuse(own.places, others)
        else:
            self._open = (own, *others)[:_MET]
        return primitive, slots

    def _refuse(self, places: _Places, others: tuple[_Open, ...]) -> None:
        self._open, self._refused = others, (*self._refused, places)[-_MET:]


def _in_layouts(
    primitive: Primitive, tensors: Mapping[int, MemoryDesc]
) -> Mapping[int, MemoryDesc]:
    """The tensors, those of open sizes that are ``any`` in the layouts of a primitive."""

    def laid_out(argument: int, given: MemoryDesc) -> MemoryDesc:
        own = primitive.pd.arg_desc(argument)
        is_open = own.has_runtime_values and given.format_kind is FormatKind.any
        return given if own.tag is None or not is_open else given.with_tag(own.tag)

    return {argument: laid_out(argument, given) for argument, given in tensors.items()}


@dataclass(frozen=True, eq=False)
class _Open:
    """What leaves the numbers at some places to its executions; for all others it has those of the
    operation ``first``."""

    first: Member
    places: _Places

    engine: Engine

    @cached_property
    def _opened(self) -> tuple[Desc, PrimitiveAttr]:
        return self.first.opened(self.places, self.engine)

    @property
    def primitive(self) -> Primitive:
        """The primitive, made once."""
        (desc, attr), engine = self._opened, self.engine
        key = engine, desc, attr.key
        return _primitives.get(key, lambda: Primitive(PrimitiveDesc(desc, engine, attr)))[0]


_families: Cache[Family] = Cache(lambda: _FAMILIES)
_primitives: Cache[Primitive] = Cache(lambda: _PRIMITIVES)
