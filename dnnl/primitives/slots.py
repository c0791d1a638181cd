"""What an execution takes: the memories by argument, checked, since generated code trusts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dnnl import config, log
from dnnl.codegen.kernel import SIZES
from dnnl.errors import InvalidArguments
from dnnl.primitives.primitive_desc import PrimitiveDesc, describe, is_parameter
from dnnl.runtime.memory import Memory
from dnnl.types.arg import Arg, name_of
from dnnl.types.memory_desc import MemoryDesc

# Keys are integers; since those of a mapping are invariant, Mapping[int, ...] would exclude Arg.
Arguments = Mapping[Any, Memory]

# Executions of how many different sizes are prepared at a time.
_KEPT = 256


class Slots:
    """The arguments ``expected`` from the user of a description, and the descriptor of each.

    A kernel that serves all sizes has slots for each of them, and what it is told about these.
    """

    __slots__ = ("_outputs", "_sizes", "_threads", "expected", "pd")

    def __init__(self, pd: PrimitiveDesc, arguments: Sequence[int]) -> None:
        self.pd = pd
        self.expected = tuple((arg, pd.arg_desc(arg)) for arg in arguments if arg != SIZES)
        written = {tensor.argument for tensor in pd.desc.tensors if tensor.output}
        written.add(Arg.SCRATCHPAD)
        self._outputs = tuple(
            number for number, (arg, _) in enumerate(self.expected) if arg in written
        )
        self._sizes: Memory | None = None
        self._threads = config.MAX_NUM_THREADS
        if SIZES in arguments:
            assert pd.plan.sizes is not None
            made = pd.plan.sizes(dict(self.expected))
            block = Memory(MemoryDesc((len(made.data),), "u8"), pd.engine)
            block.write(np.frombuffer(made.data, np.uint8))
            self._sizes, self._threads = block, made.threads

    def pointers(self, args: Arguments) -> tuple[int, ...]:
        """The addresses for the kernel, but for the library's own."""
        engine = self.pd.engine
        if args.__class__ is not dict or len(args) != len(self.expected):
            self._check_keys(args)
        pointers = []
        for arg, desc in self.expected:
            memory = args.get(arg)
            if memory.__class__ is not Memory:
                raise no_memory(arg, desc, memory)
            own = memory.desc
            if own is not desc and own != desc and not _same_parameters(arg, own, desc):
                raise _mismatch(arg, desc, memory)
            if memory.engine is not engine and memory.engine != engine:
                rule = f"its memory must be on {engine!r}"
                raise InvalidArguments(f"args[{name_of(arg)}]", memory.engine, rule)
            pointers.append(memory.pointer)
        for number in self._outputs:
            self._check_overlap(number, pointers)
        return tuple(pointers)

    def completed(self, pointers: tuple[int, ...], threads: int) -> tuple[tuple[int, ...], int]:
        """The addresses with the library's own behind, and how many of ``threads`` to use."""
        if self._sizes is None:
            return pointers, threads
        return (*pointers, self._sizes.pointer), min(threads, self._threads)

    def _check_keys(self, args: Arguments) -> None:
        """Raise if ``args`` is no mapping; report arguments that are not used."""
        check_mapping(args)
        if not log.enabled("check", self.pd.desc.kind):
            return
        used = {arg for arg, _ in self.expected}
        for key in args:
            if key not in used:
                name = name_of(key) if isinstance(key, int) else repr(key)
                log.line("primitive", "exec:check", self.pd.desc.kind, f"unused argument {name}")

    def _check_overlap(self, number: int, pointers: list[int]) -> None:
        """Raise if an output shares memory with another argument, other than in place."""
        begin = pointers[number]
        arg, desc = self.expected[number]
        end = begin + desc.size
        for other, (pointer, slot) in enumerate(zip(pointers, self.expected, strict=True)):
            if other == number or pointer >= end or pointer + slot[1].size <= begin:
                continue
            in_place = pointer == begin and slot[1] == desc and slot[0] in self.pd.desc.in_place
            if not in_place:
                rule = f"must not share memory with {name_of(slot[0])}"
                may = " or ".join(name_of(a) for a in self.pd.desc.in_place) or "no argument"
                hint = f"in place is possible with {may}, of the same descriptor"
                raise InvalidArguments(f"args[{name_of(arg)}]", str(desc), rule, hint)


def find_slots(pd: PrimitiveDesc, arguments: Sequence[int]) -> Callable[[Arguments], Slots]:
    """What gives the slots of an execution: always the same, or those for its sizes.

    It raises InvalidArguments where memories do not match the description.
    """
    if pd.plan.sizes is None:
        fixed = Slots(pd, arguments)
        return lambda _: fixed
    patterns = tuple((tensor.argument, tensor.desc) for tensor in pd.desc.tensors)

    @lru_cache(_KEPT)
    def made(descs: tuple[MemoryDesc, ...]) -> Slots:
        given = {arg: desc for (arg, _), desc in zip(patterns, descs, strict=True)}
        return Slots(pd.with_sizes(given), arguments)

    def find(args: Arguments) -> Slots:
        if args.__class__ is not dict:
            check_mapping(args)
        descs = []
        for arg, desc in patterns:
            memory = args.get(arg)
            if memory.__class__ is not Memory:
                raise no_memory(arg, desc, memory)
            descs.append(memory.desc)
        return made(tuple(descs))

    return find


def check_mapping(args: Arguments) -> None:
    """Raise if ``args`` is no mapping."""
    if not isinstance(args, Mapping):
        hint = "{dnnl.Arg.SRC: src, dnnl.Arg.DST: dst}"
        raise InvalidArguments("args", args, "expected a dictionary of memories", hint)


def no_memory(arg: int, desc: MemoryDesc, given: object) -> InvalidArguments:
    """The error for an argument that is missing or no memory."""
    where = f"args[{name_of(arg)}]"
    if given is None:
        hint = "keys are members of dnnl.Arg"
        return InvalidArguments(where, None, f"missing; {describe(arg, desc)}", hint)
    hint = "wrap arrays with dnnl.Memory.from_numpy"
    return InvalidArguments(where, type(given).__name__, "expected a dnnl.Memory", hint)


def _mismatch(arg: int, desc: MemoryDesc, memory: Memory) -> InvalidArguments:
    own = memory.desc
    hint = ""
    if own.dims == desc.dims:
        same = own.data_type is desc.data_type
        hint = "memory.reorder_to(desc) changes the layout" if same else "reorder it first"
    if own.compensation != desc.compensation:
        hint = f"compensation is written by a reorder into dnnl.Memory({desc!r}, engine)"
    given = f"{own}, dims {own.dims}"
    return InvalidArguments(f"args[{name_of(arg)}]", given, describe(arg, desc), hint)


def _same_parameters(argument: int, given: object, desc: MemoryDesc) -> bool:
    """Whether scales or zero points come in another shape that lies in memory as ``desc`` does,
    as a line for a mask of one bit."""
    return is_parameter(argument) and isinstance(given, MemoryDesc) and _alike(given, desc)


@lru_cache(maxsize=1024)  # asked anew by every execution
def _alike(given: MemoryDesc, desc: MemoryDesc) -> bool:
    """Whether two descriptors differ in dimensions of size 1 alone, the given one without gaps."""
    plain = MemoryDesc(given.dims, desc.data_type) if not given.is_zero else None
    sizes = [size for size in given.dims if size != 1]
    return given == plain and sizes == [size for size in desc.dims if size != 1]
