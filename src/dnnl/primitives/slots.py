"""What an execution takes: the memories by argument, checked, since generated code trusts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, SupportsIndex, TypeVar

from dnnl.codegen.ir.kernel import SIZES
from dnnl.errors import InvalidArguments
from dnnl.primitives.primitive_desc import PrimitiveDesc, describe, is_parameter
from dnnl.primitives.surplus import check_surplus
from dnnl.runtime.backend import Argument, Executable
from dnnl.runtime.launch import Numbers
from dnnl.runtime.memory import Memory
from dnnl.types.arg import Arg, name_of
from dnnl.types.kinds import ScratchpadMode
from dnnl.types.memory_desc import MemoryDesc

# Keys are integers; since those of a mapping are invariant, Mapping[int, ...] would exclude Arg.
T = TypeVar("T")

Arguments = Mapping[Any, Memory]

# Executions of how many different sizes are prepared at a time.
KEPT = 256


class Slots:
    """The arguments ``expected`` from the user of a description, and the descriptor of each.

    Where only executions know sizes, there are slots for each of these, and ``sizes`` are their
    numbers; ``executable`` is started for as many work items as they have. The library's own
    temporary memory, if it takes any, stands at ``scratchpad_place`` among the arguments.
    """

    __slots__ = (
        "_describe",
        "_engine",
        "_known",
        "_met",
        "_pd",
        "_sizes",
        "apart",
        "executable",
        "expected",
        "scratchpad_place",
        "scratchpad_size",
    )

    def __init__(
        self,
        pd: PrimitiveDesc,
        arguments: Sequence[int],
        executable: Executable,
        sizes: Numbers | None = None,
    ) -> None:
        self._pd: PrimitiveDesc | None = pd
        self._describe: Callable[[], PrimitiveDesc] = lambda: pd
        self._engine, self.executable = pd.engine, executable
        arguments = list(arguments)
        self.scratchpad_place: int | None = None
        self.scratchpad_size = pd.scratchpad_desc.size
        library = pd.attr.scratchpad_mode is ScratchpadMode.library
        if library and Arg.SCRATCHPAD in arguments:
            self.scratchpad_place = arguments.index(Arg.SCRATCHPAD)
            arguments.remove(Arg.SCRATCHPAD)
        parts: dict[int, MemoryDesc] = {}
        for owner, desc in encoded(pd):
            parts.update(_parts(owner, desc.buffers))
        self.expected: Sequence[tuple[int, MemoryDesc]] = tuple(
            (arg, parts[arg] if arg in parts else pd.arg_desc(arg))
            for arg in arguments
            if arg != SIZES
        )
        # What the last memory of each argument had. The next one most often has the same objects,
        # which need no comparison; equal ones are stored here in their place.
        written = {tensor.argument for tensor in pd.written} | {Arg.SCRATCHPAD}
        self._met = tuple((arg, desc, pd.engine, arg in written) for arg, desc in self.expected)
        self.apart: Sequence[Pair] = tuple(_pairs(pd, self.expected, written))
        self._known: list[Argument] = []
        self._sizes = sizes

    def like(
        self,
        describe: Callable[[], PrimitiveDesc],
        executable: Executable,
        expected: Sequence[tuple[int, MemoryDesc]],
        apart: Sequence[Pair],
        sizes: Numbers,
        scratchpad: int,
    ) -> Slots:
        """The slots of the same arguments for other sizes; ``describe()`` gives the description
        with these."""
        made = object.__new__(Slots)
        made._pd, made._describe, made._engine = None, describe, self._engine
        made.executable, made.expected, made.apart = executable, expected, apart
        engine = self._engine
        met = zip(expected, self._met, strict=True)
        made._met = tuple([(arg, desc, engine, own[3]) for (arg, desc), own in met])
        made._known, made._sizes = [], sizes
        made.scratchpad_place, made.scratchpad_size = self.scratchpad_place, scratchpad
        return made

    @property
    def pd(self) -> PrimitiveDesc:
        """The description with the sizes of the execution."""
        if self._pd is None:
            self._pd = self._describe()
        return self._pd

    @property
    def kind(self) -> str:
        """The kind of the operation."""
        return self.pd.desc.kind

    @property
    def sizes(self) -> Numbers | None:
        """The numbers of the sizes, if the kernel takes any."""
        return self._sizes

    def take(self, args: Arguments) -> tuple[list[Memory], list[Argument]]:
        """The memories in the order of `expected`, checked, and what the kernel gets of each.

        The caller keeps the memories alive: ``args`` may change meanwhile.
        """
        if args.__class__ is not dict or len(args) != len(self._met):
            self._check_keys(args)
        memories: list[Memory] = []
        arguments: list[Argument] = []
        for arg, desc, engine, written in self._met:
            memory = args.get(arg)
            if (
                memory.__class__ is not Memory
                or memory.desc is not desc
                or memory.engine is not engine
                or (written and memory.readonly)
            ):
                memory = self._meet(len(memories), memory, args)
            memories.append(memory)
            arguments.append(memory.argument)
        if arguments != self._known:
            self._check_apart(arguments)
            self._known = arguments.copy()
        return memories, arguments

    def _check_apart(self, arguments: Sequence[Argument]) -> None:
        """Raise if an output shares memory with another argument, other than in place."""
        for output, other, low, high, in_place in self.apart:
            distance = arguments[other] - arguments[output]
            if low < distance < high and (distance or not in_place):
                raise self._overlap(output, other)

    def complete(self, arguments: list[Argument]) -> None:
        """Put the numbers of the sizes behind the other arguments."""
        if self._sizes is not None:
            arguments.append(self._sizes.argument)

    def _check_keys(self, args: Arguments) -> None:
        """Raise if ``args`` is no mapping, a key no argument, or one that is not taken."""
        check_mapping(args)
        for key in args:
            if not isinstance(key, SupportsIndex):
                raise InvalidArguments("args", key, "keys are members of dnnl.Arg", _meant(key))
        check_surplus(self.pd, [arg for arg, _ in self.expected], args)

    def _meet(self, number: int, memory: Memory | None, args: Arguments) -> Memory:
        """The memory itself if it serves as an argument, and then its like is known again."""
        arg, desc = self.expected[number]
        if memory is None or memory.__class__ is not Memory:
            raise no_memory(arg, desc, memory, args)
        own = memory.desc
        if own is not desc and own != desc and not _same_parameters(arg, own, desc):
            raise mismatch(arg, desc, own)
        engine = self._engine
        if memory.engine is not engine and memory.engine != engine:
            rule = f"its memory must be on {engine!r}"
            raise InvalidArguments(f"args[{name_of(arg)}]", memory.engine, rule)
        met = self._met
        written = met[number][-1]
        if written and memory.readonly:
            rule = f"{self.pd.desc.kind} writes this memory, and its buffer is read-only"
            hint = "pass dnnl.Memory(desc, engine), or wrap a copy of the buffer"
            raise InvalidArguments(f"args[{name_of(arg)}]", str(own), rule, hint)
        self._met = (*met[:number], (arg, own, memory.engine, written), *met[number + 1 :])
        return memory

    def _overlap(self, output: int, other: int) -> InvalidArguments:
        """The error for an output that shares memory with another argument, other than in place."""
        (arg, desc), (shared, _) = self.expected[output], self.expected[other]
        rule = f"must not share memory with {name_of(shared)}"
        pairs = self.pd.desc.operation.in_place
        names = [name_of(source) for output, source in pairs if output == arg]
        hint = f"{name_of(arg)} of {self.pd.desc.kind} is never written in place"
        if names:
            hint = f"in place is possible with {' or '.join(names)}, of the same descriptor"
        return InvalidArguments(f"args[{name_of(arg)}]", str(desc), rule, hint)


Pair = tuple[int, int, int, int, bool]
"""An output and another argument, by number, which share memory if the distance from the address of
the output to the other's is between two numbers; whether they may have the same address."""


def _pairs(
    pd: PrimitiveDesc, expected: Sequence[tuple[int, MemoryDesc]], written: Set[int]
) -> Iterator[Pair]:
    """Every output (an argument ``written``) with every other argument, two outputs once."""
    for output, (arg, desc) in enumerate(expected):
        for other, (argument, its) in enumerate(expected if arg in written else ()):
            if other != output and not (other < output and argument in written):
                in_place = (arg, argument) in pd.desc.operation.in_place and its == desc
                yield output, other, -its.size, desc.size, in_place


def encoded(pd: PrimitiveDesc) -> list[tuple[int, MemoryDesc]]:
    """The tensors of several buffers, by argument."""
    return [(t.argument, t.desc) for t in pd.desc.tensors if t.desc.encoding is not None]


def _parts(argument: int, buffers: Sequence[T]) -> Iterator[tuple[int, T]]:
    """The buffers of a tensor by the keys under which a kernel takes them."""
    return ((Arg.part(argument, number), own) for number, own in enumerate(buffers))


def spread(tensors: Sequence[tuple[int, MemoryDesc]], args: Arguments) -> Arguments:
    """``args`` with the buffers of the ``tensors``, each under a key of its own.

    Raises InvalidArguments where what is given for one of these is not such a memory.
    """
    check_mapping(args)
    made = dict(args)
    for argument, desc in tensors:
        memory = made.pop(argument, None)
        if memory.__class__ is not Memory:
            raise no_memory(argument, desc, memory, args)
        if memory.desc != desc:
            raise mismatch(argument, desc, memory.desc)
        for key, part in _parts(argument, memory.parts):
            if key in made:
                rule = f"the buffers of a tensor are those of args[{name_of(argument)}]"
                raise InvalidArguments(f"args[{name_of(key)}]", made[key], rule)
            made[key] = part
    return made


def check_mapping(args: Arguments) -> None:
    """Raise if ``args`` is no mapping."""
    if not isinstance(args, Mapping):
        hint = "{dnnl.Arg.SRC: src, dnnl.Arg.DST: dst}"
        raise InvalidArguments("args", args, "expected a dictionary of memories", hint)


def no_memory(arg: int, desc: MemoryDesc, given: object, args: Arguments) -> InvalidArguments:
    """The error for an argument of ``args`` that is missing or no memory."""
    where = f"args[{name_of(arg)}]"
    if given is None:
        foreign = [key for key in args if not isinstance(key, SupportsIndex)]
        hint = f"the key {foreign[0]!r} is no dnnl.Arg; {_meant(foreign[0])}" if foreign else ""
        hint = hint or f"there are {', '.join(map(name_of, args)) or 'no arguments'}"
        return InvalidArguments(where, None, f"missing; {describe(arg, desc)}", hint)
    hint = "wrap arrays with dnnl.Memory.from_numpy"
    return InvalidArguments(where, type(given).__name__, "expected a dnnl.Memory", hint)


def _meant(key: object) -> str:
    """What a key that is no argument was meant as."""
    name = key.upper() if isinstance(key, str) else ""
    return f"write dnnl.Arg.{name if name in Arg.__members__ else 'SRC'}"


def mismatch(arg: int, desc: MemoryDesc, own: MemoryDesc) -> InvalidArguments:
    """The error for a memory of the descriptor ``own`` where an argument has ``desc``."""
    hint = ""
    if own.dims == desc.dims:
        same = own.data_type is desc.data_type
        hint = "memory.reorder_to(desc) changes the layout" if same else "reorder it first"
    if own.compensation != desc.compensation:
        hint = f"compensation is written by a reorder into dnnl.Memory({desc!r}, engine)"
    given = f"{own}, dims {own.dims}"
    return InvalidArguments(f"args[{name_of(arg)}]", given, describe(arg, desc), hint)


def _same_parameters(argument: int, given: object, desc: MemoryDesc) -> bool:
    """Whether parameters come in another shape that is stored as ``desc`` is, as a line for
    a mask of one bit."""
    return is_parameter(argument) and isinstance(given, MemoryDesc) and _alike(given, desc)


@lru_cache(maxsize=1024)  # asked by every execution that makes its scales anew
def _alike(given: MemoryDesc, desc: MemoryDesc) -> bool:
    """Whether two descriptors differ in dimensions of size 1 alone, the given one without gaps."""
    plain = MemoryDesc(given.dims, desc.data_type) if not given.is_zero else None
    sizes = [size for size in given.dims if size != 1]
    return given == plain and sizes == [size for size in desc.dims if size != 1]
