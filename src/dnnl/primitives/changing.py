"""Primitives for calls whose sizes change from one to the next.

The first sizes of an operation have kernels of their own. Further ones that differ from these in
the same numbers share a primitive that leaves those numbers to its executions
(`dnnl.primitives.open_desc`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

from dnnl import config, forks
from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.primitives.cache import Cache
from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.sizes import fields_of
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
"""A primitive for open sizes with more kernels than that needs one for each."""
_SECONDS = 1.0
"""Sizes whose executions have taken so long get a kernel of their own."""

_Places: TypeAlias = frozenset[tuple[int, int]]
"""Numbers of layouts (`MemoryDesc.layout_numbers`), by the argument and the place there."""


def primitive_for(
    desc: Desc, engine: Engine, attr: PrimitiveAttr | None = None
) -> Primitive | Sized:
    """What executes ``desc``, whose sizes are known, by `Primitive.execute_at`.

    DNNL_SPECIAL_KERNELS decides as for models (`dnnl.SpecialKernels`): with "always" that is a
    primitive for these sizes, with "never" the first sizes of an operation alone have one. Raises
    what `PrimitiveDesc` raises.
    """
    policy = config.get("special_kernels")
    if policy != "always" and engine.host_memory and not desc.writes_nothing:
        member = Member.of(desc.settled(), PrimitiveAttr() if attr is None else attr)
        family, _ = _families.get((engine, member.family), partial(Family, engine))
        shared = family.shared(member, 1 if policy == "never" else _ALONE)
        if shared is not None:
            return Sized(shared, settles=policy == "often")
    return Primitive(PrimitiveDesc(desc, engine, attr))


class Sized:
    """Executions on tensors of one set of sizes of a primitive that is ``shared`` with others.
    After some time they get a kernel of their own, if ``settles``."""

    def __init__(self, shared: Primitive, settles: bool) -> None:
        self.pd, self.arguments = shared.pd, shared.arguments
        self._run: Callable[[Stream, Sequence[Any]], Event] = shared.execute_at
        self._left = _SECONDS if settles else inf

    def execute_at(self, stream: Stream, addresses: Sequence[Any]) -> Event:
        """As `Primitive.execute_at`."""
        if self._left <= 0:
            return self._run(stream, addresses)
        started = perf_counter()
        event = self._run(stream, addresses)
        self._left -= perf_counter() - started
        if self._left <= 0:
            self._settle()
        return event

    def _settle(self) -> None:
        """Have further executions use a kernel for these sizes, in the same layouts."""
        pd = self.pd
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

    def opened(self, places: _Places) -> tuple[Desc, PrimitiveAttr]:
        """The operation with these numbers left to executions."""
        made = {
            argument: _opened(own, {place for owner, place in places if owner == argument})
            for argument, own in self.tensors.items()
        }
        post_ops = []
        for number, entry in enumerate(self.attr.post_ops):
            ids = [Arg.post_op(number) | argument for argument, _ in entry.operands]
            post_ops.append(entry.mapped(partial(_next, iter([made[own] for own in ids]))))
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


def _next(descs: Iterator[MemoryDesc], _: MemoryDesc) -> MemoryDesc:
    return next(descs)


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
    if desc.format_kind is not FormatKind.blocked or desc.tag is not None:
        layout = "any" if desc.tag is None else desc.tag
        return MemoryDesc(numbers[:ndims], desc.data_type, layout, offset0=given)
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

    def shared(self, member: Member, alone: int) -> Primitive | None:
        """The primitive for open sizes on those of an operation; None where it is to have its own,
        as the first ``alone`` that differ in the same numbers do."""
        with self._lock.own:
            if member in self._alone:
                return None
            found = self._find(member, alone)
            if member not in self._met:
                self._met = (*self._met, member)[-_MET:]
            if found is None:
                self._alone = (*self._alone, member)[-_MET:]
            return found

    def _find(self, member: Member, alone: int) -> Primitive | None:
        for own in self._open:
            if own.first.differences(member) <= own.places:
                return self._executing(own, member)
        counted = Counter(own.differences(member) for own in self._met)
        for places, count in sorted(counted.items(), key=lambda own: len(own[0])):
            if places and count >= alone and places not in self._refused:
                return self._executing(_Open(member, places), member)
        return None

    def _executing(self, own: _Open, member: Member) -> Primitive | None:
        """The primitive for open sizes on those of an operation. The latest one is the first that
        is asked the next time."""
        others = tuple(other for other in self._open if other is not own)
        try:
            primitive = own.primitive(self._engine)
            found = primitive.sized(member.tensors)
        except (InvalidArguments, Unimplemented):
            self._refuse(own.places, others)
            return None
        variants = primitive.pd.variants
        if variants is not None and len(variants.every) > _KERNELS:
            self._refuse(own.places, others)
        else:
            self._open = (own, *others)[:_MET]
        return found

    def _refuse(self, places: _Places, others: tuple[_Open, ...]) -> None:
        self._open, self._refused = others, (*self._refused, places)[-_MET:]


@dataclass(frozen=True, eq=False)
class _Open:
    """What leaves the numbers at some places to its executions; for all others it has those of the
    operation ``first``."""

    first: Member
    places: _Places

    @cached_property
    def _opened(self) -> tuple[Desc, PrimitiveAttr]:
        return self.first.opened(self.places)

    def primitive(self, engine: Engine) -> Primitive:
        """The primitive, made once."""
        desc, attr = self._opened
        key = engine, desc, attr.key
        return _primitives.get(key, lambda: Primitive(PrimitiveDesc(desc, engine, attr)))[0]


_families: Cache[Family] = Cache(lambda: _FAMILIES)
_primitives: Cache[Primitive] = Cache(lambda: _PRIMITIVES)
