"""Slots of executions that decide on sizes, made in microseconds.

The first execution of each kernel is checked by all rules of the operation, and its slots are a
model. The conditions of a kernel contain those rules, so for other sizes only numbers are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dnnl.primitives import slots
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.slots import (
    Arguments,
    Slots,
    check_mapping,
    mismatch,
    no_memory,
)
from dnnl.primitives.variants import Variant, recent
from dnnl.runtime.backend import Executable
from dnnl.runtime.launch import Launch, numbers_at
from dnnl.runtime.memory import Memory
from dnnl.runtime.size_class import Execution
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

Descs = tuple[MemoryDesc, ...]


def launch_of(slots: Slots) -> Launch:
    """The execution that slots stand for."""
    order = tuple(arg for arg, _ in slots.expected)
    kind, fields = slots.kind, partial(_fields, slots)
    return Launch(slots.executable, order, slots.sizes, slots.scratchpad_size, kind, fields)


def _fields(slots: Slots) -> str:
    return slots.pd.verbose_fields()


class SizedSlots:
    """Finds the slots of an execution, by the descriptors of its tensors.

    ``choose(given)`` gives the kernel that serves tensors by argument, which it makes where there
    is none yet; ``code(variant)`` its loaded code and the arguments that this takes.
    """

    def __init__(
        self,
        pd: PrimitiveDesc,
        choose: Callable[[Mapping[int, MemoryDesc]], tuple[Variant, Execution]],
        code: Callable[[Variant], tuple[Executable, Sequence[int]]],
        nothing: Callable[[PrimitiveDesc], Slots],
    ) -> None:
        self._pd, self._choose, self._code, self._nothing = pd, choose, code, nothing
        self._patterns = tuple(pd.patterns.items())
        self._whole = {
            desc.buffers[0]: desc for _, desc in self._patterns if desc.encoding is not None
        }
        self._models: tuple[_Model, ...] = ()
        self._made: dict[Descs, Slots] = {}
        self._launches: dict[tuple[int, ...], Launch] = {}

    def find(self, args: Arguments) -> Slots:
        """The slots for memories, by argument.

        Raises InvalidArguments where these do not match the description.
        """
        if args.__class__ is not dict:
            check_mapping(args)
        descs = []
        for arg, desc in self._patterns:
            memory = args.get(arg)
            if memory.__class__ is not Memory:
                raise no_memory(arg, desc, memory, args)
            descs.append(memory.desc)
        if self._whole:  # a memory of the first buffer is in the place of the tensor
            descs = [self._whole.get(desc, desc) for desc in descs]
        key = tuple(descs)
        made = self._made
        found = made.get(key)
        if found is None:
            found = self._made_of(key)
            if len(made) >= slots.KEPT:  # those of sizes that may never come again
                self._made = made = {}
            made[key] = found
        return found

    def of(self, given: Mapping[int, MemoryDesc]) -> Slots:
        """The slots for tensors of known sizes, by argument."""
        return self._made_of(tuple(given[arg] for arg, _ in self._patterns))

    def launch(
        self, numbers: tuple[int, ...], descs: Callable[[], Mapping[int, MemoryDesc]]
    ) -> Launch:
        """The execution on tensors with these ``numbers``, those of one layout after the other;
        ``descs()`` are their descriptors, by argument."""
        found = self._launches.get(numbers)
        if found is None:
            found = self._launch_of(numbers, descs)
            if len(self._launches) >= slots.KEPT:
                self._launches = {}
            self._launches[numbers] = found
        return found

    def _launch_of(
        self, numbers: tuple[int, ...], descs: Callable[[], Mapping[int, MemoryDesc]]
    ) -> Launch:
        for model in self._models:
            found = model.launch(numbers, descs)
            if found is not None:
                return found
        given = descs()
        return launch_of(self._made_of(tuple(given[arg] for arg, _ in self._patterns)))

    def _made_of(self, descs: Descs) -> Slots:
        for model in self._models:
            found = model.slots(descs)
            if found is not None:
                return found
        pd = self._pd
        given = {arg: desc for (arg, _), desc in zip(self._patterns, descs, strict=True)}
        sized = pd.with_sizes(given)
        for arg, tensor in given.items():  # kernels are made for tensors that agree
            if tensor != sized.arg_desc(arg):
                raise mismatch(arg, sized.arg_desc(arg), tensor)
        if sized.desc.writes_nothing:
            return self._nothing(sized)
        variant, (numbers, counts, scratchpad) = self._choose(given)
        executable, arguments = self._code(variant)
        own = pd.engine.sized(executable, counts)
        sizes = numbers_at(pd.engine, numbers)
        made = Slots(sized.with_scratchpad(scratchpad), arguments, own, sizes)
        if _Model.suits(pd, made):
            model = _Model(pd, [arg for arg, _ in self._patterns], variant, executable, made, descs)
            self._models = recent(self._models, model)
        return made


class _Model:
    """Makes the slots of executions that one kernel serves like those ``first``, which were made
    for the tensors ``descs``."""

    def __init__(
        self,
        pd: PrimitiveDesc,
        patterns: Sequence[int],
        variant: Variant,
        executable: Executable,
        first: Slots,
        descs: Descs,
    ) -> None:
        self._pd, self._ids, self._variant = pd, tuple(patterns), variant
        self._executable, self._first = executable, first
        self._kinds = tuple(desc.kind for desc in descs)
        places = {
            arg: place
            for place, (arg, desc) in enumerate(zip(patterns, descs, strict=True))
            if desc.encoding is None  # the size of one with an encoding is known
        }
        self._places = [
            (place, places[arg]) for place, (arg, _) in enumerate(first.expected) if arg in places
        ]
        in_place = pd.desc.operation.in_place
        self._order = order = tuple(arg for arg, _ in first.expected)
        self._pairs = [(a, b, (order[a], order[b]) in in_place) for a, b, *_ in first.apart]

    @staticmethod
    def suits(pd: PrimitiveDesc, slots: Slots) -> bool:
        """Whether all arguments but the tensors of patterns are the same for all sizes."""
        others = [arg for arg, _ in slots.expected if arg not in pd.patterns]
        known = not any(pd.arg_desc(arg).has_runtime_values for arg in others)
        return known and Arg.SCRATCHPAD not in others

    def slots(self, descs: Descs) -> Slots | None:
        """The slots for other tensors; None where the kernel does not serve them."""
        numbers: tuple[int, ...] = ()
        for desc, kind in zip(descs, self._kinds, strict=True):
            if desc.kind != kind:
                return None
            numbers += desc.layout_numbers
        found = self._variant.serve(numbers)
        if found is None:
            return None
        symbols, counts, scratchpad = found
        first, engine = self._first, self._pd.engine
        expected = list(first.expected)
        for place, number in self._places:
            expected[place] = expected[place][0], descs[number]
        apart = []
        for output, other, may in self._pairs:
            desc, its = expected[output][1], expected[other][1]
            apart.append((output, other, -its.size, desc.size, may and its == desc))
        return first.like(
            partial(self._sized, descs),
            engine.sized(self._executable, counts),
            expected,
            apart,
            numbers_at(engine, symbols),
            scratchpad,
        )

    def launch(
        self, numbers: tuple[int, ...], descs: Callable[[], Mapping[int, MemoryDesc]]
    ) -> Launch | None:
        """The execution of other numbers; None where the kernel does not serve them."""
        found = self._variant.serve(numbers)
        if found is None:
            return None
        symbols, counts, scratchpad = found
        engine = self._pd.engine
        executable, sizes = engine.sized(self._executable, counts), numbers_at(engine, symbols)
        fields, kind = partial(self._fields_of, descs), self._pd.desc.kind
        return Launch(executable, self._order, sizes, scratchpad, kind, fields)

    def _fields_of(self, descs: Callable[[], Mapping[int, MemoryDesc]]) -> str:
        return self._pd.with_sizes(dict(descs())).verbose_fields()

    def _sized(self, descs: Descs) -> PrimitiveDesc:
        given: dict[int, Any] = dict(zip(self._ids, descs, strict=True))
        return self._pd.with_sizes(given)
