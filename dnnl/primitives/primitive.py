"""The compiled operation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from dnnl import config, log
from dnnl.codegen import jit
from dnnl.errors import InvalidArguments
from dnnl.primitives.cache import Cache
from dnnl.primitives.primitive_desc import PrimitiveDesc, describe, is_parameter
from dnnl.runtime.backend import Executable
from dnnl.runtime.memory import Memory
from dnnl.runtime.stream import Stream
from dnnl.types.arg import Arg, name_of
from dnnl.types.kinds import ScratchpadMode
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class _Compiled:
    """Loaded code and the arguments that it takes; None for a tensor without elements."""

    executable: Executable | None
    arguments: tuple[int, ...]
    from_disk: bool


# Keys are integers; since those of a mapping are invariant, Mapping[int, ...] would exclude Arg.
Arguments = Mapping[Any, Memory]

_cache: Cache[_Compiled] = Cache(lambda: int(config.get("primitive_cache_capacity")))


class Primitive:
    """Executes what a :class:`PrimitiveDesc` describes; safe for any number of threads.

    Building it takes the kernel from the cache of this process, then from the one on disk, and
    generates it only if it is in neither.
    """

    def __init__(self, pd: PrimitiveDesc) -> None:
        if not isinstance(pd, PrimitiveDesc):
            raise InvalidArguments("pd", pd, "expected a dnnl.PrimitiveDesc")
        self.pd = pd = copy(pd)  # next_impl of the caller's must not change what this one is
        started = perf_counter()
        compiled, hit = _cache.get(pd.key, lambda: _compile(pd))
        self._executable = compiled.executable
        expected = [(arg, pd.arg_desc(arg)) for arg in compiled.arguments]
        library = pd.attr.scratchpad_mode is ScratchpadMode.library
        own = library and Arg.SCRATCHPAD in compiled.arguments
        self._own_scratchpad = own
        self._slots = tuple((a, d) for a, d in expected if not (own and a == Arg.SCRATCHPAD))
        self._scratchpad_place = compiled.arguments.index(Arg.SCRATCHPAD) if own else -1
        self._outputs = tuple(
            number
            for number, (arg, _) in enumerate(self._slots)
            if arg == Arg.SCRATCHPAD or any(t.argument == arg and t.output for t in pd.desc.tensors)
        )
        self._local = threading.local()
        if log.enabled("profile_create", pd.desc.kind):
            state = "cache_hit" if hit else "cache_miss"
            state = "persistent_cache_hit" if compiled.from_disk and not hit else state
            time = (perf_counter() - started + pd.creation_time) * 1e3
            log.line("primitive", f"create:{state}", pd.verbose_fields(), f"{time:.6g}")

    def execute(self, stream: Stream, args: Arguments) -> None:
        """Run once on the memories of ``args``, one for each argument of the operation.

        Keys are members of :class:`Arg` and combinations of them.
        """
        if log.enabled("profile_exec", self.pd.desc.kind):
            self.bind(stream, args)()
            return
        pointers = self._checked(stream, args)
        if self._executable is None:
            return
        if self._own_scratchpad:
            pointers = self._with_scratchpad(pointers, self._thread_scratchpad())
        self._executable.launch(pointers, stream.num_threads)

    def bind(self, stream: Stream, args: Arguments) -> Callable[[], Any]:
        """Check and lay out ``args`` once; each call of the result is one execution.

        Executions are reported in verbose lines if these are switched on now.
        """
        pointers = self._checked(stream, args)
        keep: list[object] = [args[arg] for arg, _ in self._slots]
        if self._executable is None:
            return lambda: None
        if self._own_scratchpad:
            scratchpad = Memory(self.pd.scratchpad_desc, self.pd.engine)
            keep.append(scratchpad)
            pointers = self._with_scratchpad(pointers, scratchpad)
        bound = _Bound(self._executable.bind(pointers, stream.num_threads), keep).run
        if log.enabled("profile_exec", self.pd.desc.kind):
            return lambda: self._log(bound)
        return bound

    def llvm_ir(self) -> str:
        """The generated IR, before LLVM's own passes."""
        return str(self.pd.plan.recipe.kernel().module)

    def asm(self) -> str:
        """The machine code as assembly text."""
        return jit.assembly(self.pd.plan.recipe.kernel().module)

    def _checked(self, stream: Stream, args: Arguments) -> tuple[int, ...]:
        """The addresses for the kernel; what is wrong is reported in verbose lines too."""
        try:
            self._check_stream(stream)
            return self._pointers(args)
        except InvalidArguments as error:
            if log.enabled("check", self.pd.desc.kind):
                log.line("primitive", "exec:check", self.pd.desc.kind, error)
            raise

    def _check_stream(self, stream: Stream) -> None:
        engine = self.pd.engine
        if not isinstance(stream, Stream):
            raise InvalidArguments("stream", stream, "expected a dnnl.Stream")
        if stream.engine is not engine and stream.engine != engine:
            raise InvalidArguments("stream", stream, f"must be a stream of {engine!r}")

    def _pointers(self, args: Arguments) -> tuple[int, ...]:
        """The addresses for the kernel, checked: generated code trusts them."""
        if args.__class__ is not dict or len(args) != len(self._slots):
            self._check_keys(args)
        pointers = []
        for arg, desc in self._slots:
            memory = args.get(arg)
            if memory.__class__ is not Memory:
                raise self._no_memory(arg, desc, memory)
            own = memory.desc
            if own is not desc and own != desc and not _same_parameters(arg, own, desc):
                raise self._mismatch(arg, desc, memory)
            if memory.engine is not self.pd.engine and memory.engine != self.pd.engine:
                rule = f"its memory must be on {self.pd.engine!r}"
                raise InvalidArguments(f"args[{name_of(arg)}]", memory.engine, rule)
            pointers.append(memory.pointer)
        for number in self._outputs:
            self._check_overlap(number, pointers)
        return tuple(pointers)

    def _check_keys(self, args: Arguments) -> None:
        """Raise if ``args`` is no mapping; report arguments that are not used."""
        if not isinstance(args, Mapping):
            hint = "{dnnl.Arg.SRC: src, dnnl.Arg.DST: dst}"
            raise InvalidArguments("args", args, "expected a dictionary of memories", hint)
        if not log.enabled("check", self.pd.desc.kind):
            return
        used = {arg for arg, _ in self._slots}
        for key in args:
            if key not in used:
                name = name_of(key) if isinstance(key, int) else repr(key)
                log.line("primitive", "exec:check", self.pd.desc.kind, f"unused argument {name}")

    def _no_memory(self, arg: int, desc: MemoryDesc, given: object) -> InvalidArguments:
        where = f"args[{name_of(arg)}]"
        if given is None:
            hint = "keys are members of dnnl.Arg"
            return InvalidArguments(where, None, f"missing; {describe(arg, desc)}", hint)
        hint = "wrap arrays with dnnl.Memory.from_numpy"
        return InvalidArguments(where, type(given).__name__, "expected a dnnl.Memory", hint)

    def _mismatch(self, arg: int, desc: MemoryDesc, memory: Memory) -> InvalidArguments:
        own = memory.desc
        hint = ""
        if own.dims == desc.dims:
            same = own.data_type is desc.data_type
            hint = "memory.reorder_to(desc) changes the layout" if same else "reorder it first"
        given = f"{own}, dims {own.dims}"
        return InvalidArguments(f"args[{name_of(arg)}]", given, describe(arg, desc), hint)

    def _check_overlap(self, number: int, pointers: list[int]) -> None:
        """Raise if an output shares memory with another argument, other than in place."""
        begin = pointers[number]
        arg, desc = self._slots[number]
        end = begin + desc.size
        for other, (pointer, slot) in enumerate(zip(pointers, self._slots, strict=True)):
            if other == number or pointer >= end or pointer + slot[1].size <= begin:
                continue
            in_place = pointer == begin and slot[1] == desc and slot[0] in self.pd.desc.in_place
            if not in_place:
                rule = f"must not share memory with {name_of(slot[0])}"
                may = " or ".join(name_of(a) for a in self.pd.desc.in_place) or "no argument"
                hint = f"in place is possible with {may}, of the same descriptor"
                raise InvalidArguments(f"args[{name_of(arg)}]", str(desc), rule, hint)

    def _with_scratchpad(self, pointers: tuple[int, ...], scratchpad: Memory) -> tuple[int, ...]:
        place = self._scratchpad_place
        return (*pointers[:place], scratchpad.pointer, *pointers[place:])

    def _thread_scratchpad(self) -> Memory:
        try:
            memory: Memory = self._local.scratchpad
        except AttributeError:
            memory = self._local.scratchpad = Memory(self.pd.scratchpad_desc, self.pd.engine)
        return memory

    def _log(self, run: Callable[[], Any]) -> None:
        started = perf_counter()
        run()
        time = (perf_counter() - started) * 1e3
        log.line("primitive", "exec", self.pd.verbose_fields(), f"{time:.6g}")

    def __reduce__(self) -> tuple[object, ...]:
        return Primitive, (self.pd,)

    def __repr__(self) -> str:
        return f"<Primitive {self.pd.verbose_fields()}>"


class _Bound:
    """A bound launch together with the memories that must live as long as it."""

    __slots__ = ("keep", "launch")

    def __init__(self, launch: Callable[[], Any], keep: list[object]) -> None:
        self.launch, self.keep = launch, keep

    def run(self) -> None:
        """Execute once."""
        self.launch()


def _same_parameters(argument: int, given: object, desc: MemoryDesc) -> bool:
    """Whether scales or zero points come in another shape that lies in memory as ``desc`` does,
    as a line for a mask of one bit."""
    if not is_parameter(argument) or not isinstance(given, MemoryDesc):
        return False
    plain = MemoryDesc(given.dims, desc.data_type) if not given.is_zero else None
    sizes = [size for size in given.dims if size != 1]
    return given == plain and sizes == [size for size in desc.dims if size != 1]


def _compile(pd: PrimitiveDesc) -> _Compiled:
    if pd.desc.dst.has_zero_dim:
        arguments = tuple(tensor.argument for tensor in pd.desc.tensors)
        return _Compiled(None, arguments, from_disk=False)
    image, from_disk = jit.image(pd.plan.recipe)
    return _Compiled(pd.engine.load(image), image.arguments, from_disk)
