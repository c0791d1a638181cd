"""The compiled operation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from dnnl import config, log
from dnnl.codegen import jit
from dnnl.errors import InvalidArguments
from dnnl.primitives.cache import Cache
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.slots import Arguments, Slots, find_slots
from dnnl.primitives.transfer import Transfer
from dnnl.runtime.backend import Executable
from dnnl.runtime.memory import Memory
from dnnl.runtime.stream import Stream
from dnnl.types.arg import Arg
from dnnl.types.kinds import ScratchpadMode


@dataclass(frozen=True)
class _Compiled:
    """Loaded code and the arguments that it takes; None for a tensor without elements."""

    executable: Executable | None
    arguments: tuple[int, ...]
    from_disk: bool


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
        self._engine, self._kind = pd.engine, pd.desc.kind
        arguments = list(compiled.arguments)
        library = pd.attr.scratchpad_mode is ScratchpadMode.library
        self._own_scratchpad = library and Arg.SCRATCHPAD in arguments
        if self._own_scratchpad:
            self._scratchpad_place = arguments.index(Arg.SCRATCHPAD)
            arguments.remove(Arg.SCRATCHPAD)
        self._slots = find_slots(pd, arguments)
        self._across = pd.across_engines
        self._local = threading.local()
        if log.enabled("profile_create", self._kind):
            state = "cache_hit" if hit else "cache_miss"
            state = "persistent_cache_hit" if compiled.from_disk and not hit else state
            time = (perf_counter() - started + pd.creation_time) * 1e3
            log.line("primitive", f"create:{state}", pd.verbose_fields(), f"{time:.6g}")

    def execute(self, stream: Stream, args: Arguments) -> None:
        """Run once on the memories of ``args``, one for each argument of the operation.

        Keys are members of :class:`Arg` and combinations of them.
        """
        if self._across or log.enabled("profile_exec", self._kind):
            self.bind(stream, args)()
            return
        slots, _memories, pointers = self._checked(stream, args)
        if self._executable is None:
            return
        if self._own_scratchpad:
            pointers.insert(self._scratchpad_place, self._thread_scratchpad().pointer)
        threads = slots.complete(pointers, stream.num_threads)
        self._executable.launch(pointers, threads)

    def bind(self, stream: Stream, args: Arguments) -> Callable[[], Any]:
        """Check and lay out ``args`` once; each call of the result is one execution.

        Executions are reported in verbose lines if these are switched on now.
        """
        if self._across:
            transfer = Transfer(self.pd, args)
            return transfer.around(self._bind(stream, transfer.args))
        return self._bind(stream, args)

    def _bind(self, stream: Stream, args: Arguments) -> Callable[[], Any]:
        slots, memories, pointers = self._checked(stream, args)
        keep: list[object] = [slots, *memories]
        if self._executable is None:
            return lambda: None
        if self._own_scratchpad:
            scratchpad = Memory(self.pd.scratchpad_desc, self.pd.engine)
            keep.append(scratchpad)
            pointers.insert(self._scratchpad_place, scratchpad.pointer)
        threads = slots.complete(pointers, stream.num_threads)
        launch = self._executable.bind(pointers, threads)
        bound = _Bound(launch, keep).run
        if log.enabled("profile_exec", self._kind):
            return lambda: _log(slots.pd, bound)
        return bound

    def llvm_ir(self) -> str:
        """The generated IR, before LLVM's own passes."""
        return str(self.pd.plan.recipe.kernel().module)

    def asm(self) -> str:
        """The machine code as assembly text."""
        return jit.assembly(self.pd.plan.recipe.kernel().module)

    def _checked(self, stream: Stream, args: Arguments) -> tuple[Slots, list[Memory], list[int]]:
        """The slots of this execution, its memories, and the addresses of these for the kernel;
        what is wrong is reported in verbose lines too."""
        try:
            if stream.__class__ is not Stream or stream.engine is not self._engine:
                self._check_stream(stream)
            slots = self._slots(args)
            return slots, *slots.take(args)
        except InvalidArguments as error:
            if log.enabled("check", self._kind):
                log.line("primitive", "exec:check", self._kind, error)
            raise

    def _check_stream(self, stream: Stream) -> None:
        if not isinstance(stream, Stream):
            raise InvalidArguments("stream", stream, "expected a dnnl.Stream")
        if stream.engine != self._engine:
            raise InvalidArguments("stream", stream, f"must be a stream of {self._engine!r}")

    def _thread_scratchpad(self) -> Memory:
        try:
            memory: Memory = self._local.scratchpad
        except AttributeError:
            memory = self._local.scratchpad = Memory(self.pd.scratchpad_desc, self.pd.engine)
        return memory

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


def _log(pd: PrimitiveDesc, run: Callable[[], Any]) -> None:
    started = perf_counter()
    run()
    time = (perf_counter() - started) * 1e3
    log.line("primitive", "exec", pd.verbose_fields(), f"{time:.6g}")


def _compile(pd: PrimitiveDesc) -> _Compiled:
    if pd.desc.outputs[0].desc.has_zero_dim:
        arguments = tuple(tensor.argument for tensor in pd.desc.tensors)
        return _Compiled(None, arguments, from_disk=False)
    image, from_disk = jit.image(pd.plan.recipe)
    return _Compiled(pd.engine.load(image), image.arguments, from_disk)
