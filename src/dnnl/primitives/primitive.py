"""The compiled operation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import Any

from dnnl import config, log
from dnnl.codegen.compile import jit, parallel
from dnnl.codegen.ir.kernel import SIZES, Recipe
from dnnl.errors import InvalidArguments
from dnnl.onednn import Value
from dnnl.primitives.cache import Cache
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.scratchpads import Scratchpads
from dnnl.primitives.sized_slots import SizedSlots, launch_of
from dnnl.primitives.slots import Arguments, Slots, encoded, spread
from dnnl.primitives.transfer import Transfer
from dnnl.primitives.variants import Variant, Variants
from dnnl.runtime.backend import Executable
from dnnl.runtime.event import COMPLETE, Event, checked_events
from dnnl.runtime.image import Image, Unknowns
from dnnl.runtime.launch import KernelCode, Launch, logged
from dnnl.runtime.memory import Memory
from dnnl.runtime.size_class import SizeClass
from dnnl.runtime.stream import Stream
from dnnl.runtime.threads import get_num_threads
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class _Compiled:
    """Loaded code and the arguments that it takes."""

    executable: Executable
    arguments: tuple[int, ...]
    from_disk: bool
    unknowns: Unknowns | None


Descs = Callable[[], Mapping[int, MemoryDesc]]

_cache: Cache[_Compiled] = Cache(
    lambda: int(config.get("primitive_cache_capacity")),
    lambda: int(config.get("primitive_cache_limit")) << 20,
    lambda compiled: compiled.executable.nbytes,
)


class Primitive(Value):
    """Executes what a :class:`PrimitiveDesc` describes; safe for any number of threads.

    Building it takes the kernel from the cache of this process, then from the one on disk, and
    generates it only if it is in neither. ``images`` are kernels built before, by `build_ahead`.
    """

    def __init__(
        self, pd: PrimitiveDesc, *, images: Mapping[Recipe, parallel.Built] = MappingProxyType({})
    ) -> None:
        if not isinstance(pd, PrimitiveDesc):
            raise InvalidArguments("pd", pd, "expected a dnnl.PrimitiveDesc")
        self.pd = pd = copy(pd)  # next_impl of the caller's must not change what this one is
        started = perf_counter()
        compiled, hit = _compiled(pd, images)
        self._engine, self._kind = pd.engine, pd.desc.kind
        self._slots: Callable[[Arguments], Slots]
        self._launch: Callable[[tuple[int, ...], Descs], Launch]
        self._sized: Callable[[Mapping[int, MemoryDesc]], Slots]
        if pd.variants is not None:
            sized = _slots_of_sizes(pd, pd.variants)
            self._slots, self._launch, self._sized = sized.find, sized.launch, sized.of
        else:
            slots = Slots(pd, compiled.arguments, compiled.executable)
            self._slots, launch = lambda _: slots, launch_of(slots)
            self._launch = lambda _numbers, _descs: launch
            self._sized = lambda _: slots
        self._encoded = encoded(pd)
        self._across = pd.across_engines
        self._bound = self._across or pd.plan.verify is not None
        self._local = threading.local()
        if log.enabled("profile_create", self._kind):
            state = "cache_hit" if hit else "cache_miss"
            state = "persistent_cache_hit" if compiled.from_disk and not hit else state
            ms = (perf_counter() - started + pd.creation_time) * 1e3
            log.line("primitive", f"create:{state}", pd.verbose_fields(), ms=ms)

    def execute(self, stream: Stream, args: Arguments, after: Sequence[Event] = ()) -> Event:
        """Run once on the memories of ``args``, one for each argument of the operation.

        Keys are members of :class:`Arg` and combinations of them. The execution begins when all
        events in ``after`` are done; they may be those of other streams and engines. If one of them
        failed, nothing runs, and the returned event has its error; an engine that is done when this
        returns, as the cpu is, raises it instead.

        What is passed is checked here: an argument that is missing, does not fit or is not taken
        raises InvalidArguments. The memories are in use until the event is done.

        ``primitive(stream, args)`` is the same.
        """
        if self._bound or log.enabled("profile_exec", self._kind):
            return self.bind(stream, args)(after)
        slots, _memories, arguments = self._checked(stream, args)
        return self._submit(stream, slots, arguments, after)

    __call__ = execute

    def scratchpad_size(self, args: Arguments) -> int:
        """The bytes of temporary memory of an execution on these memories."""
        return self._slots(args).scratchpad_size

    @property
    def arguments(self) -> tuple[int, ...]:
        """The arguments that an execution takes, in the order of `execute_at`."""
        return tuple(argument for argument, _ in self._slots({}).expected)

    def execute_at(
        self, stream: Stream, addresses: Sequence[Any], slots: Slots | None = None
    ) -> Event:
        """Run once on memory that is known to fit, which nothing checks.

        ``addresses`` are what the engine's queue takes of each of `arguments`. For a description
        with sizes that only the execution knows, ``slots`` are those of `slots_of`, and have the
        arguments.
        """
        slots, arguments = slots or self._slots({}), list(addresses)
        if log.enabled("profile_exec", self._kind):
            run = partial(self._submit, stream, slots, arguments, ())
            return logged(slots.pd.verbose_fields, run)
        return self._submit(stream, slots, arguments, ())

    def slots_of(self, given: Mapping[int, MemoryDesc]) -> Slots:
        """What an execution takes on tensors of known sizes, by argument, for `execute_at`.

        Where no kernel serves the sizes yet, one is made. Raises InvalidArguments for tensors that
        do not match the description, and Unimplemented where nothing does it on these sizes.
        """
        patterns = self.pd.patterns.items()
        return self._sized({a: given[a] if own.has_runtime_values else own for a, own in patterns})

    def launch(self, numbers: tuple[int, ...], descs: Descs) -> Launch:
        """An execution on memories that are known to fit, which nothing checks.

        ``numbers`` are those of the layouts of ``pd.patterns``, one after the other, and none where
        all sizes are known; ``descs()`` gives the descriptors, by argument.
        """
        return self._launch(numbers, descs)

    def kernels(self) -> tuple[KernelCode, ...]:
        """The code that there is now, from the disk cache or generated once more."""
        variants = self.pd.variants
        if variants is None:
            return (self._code(self.pd.plan.recipe, self.pd.scratchpad_desc.size),)
        settled = [own for own in variants.every if own.settled]
        made = [self._code(own.plan.recipe, 0, own.size_class) for own in settled]
        return (*made, *self._of_nothing())

    def _code(
        self, recipe: Recipe, scratchpad: int, size_class: SizeClass | None = None
    ) -> KernelCode:
        image, _ = _image(self.pd, recipe, {})
        order = tuple(argument for argument in image.arguments if argument != SIZES)
        fields = self.pd.verbose_fields()
        return KernelCode(image, order, self._kind, fields, scratchpad, size_class)

    def _of_nothing(self) -> list[KernelCode]:
        """The code for executions with empty outputs, for descriptions with open sizes."""
        places, begin = dict[int, range](), 0
        for argument, desc in self.pd.patterns.items():
            places[argument] = range(begin, begin + desc.ndims)
            begin += len(desc.layout_numbers)
        dims = [places.get(own.argument, range(0)) for own in self.pd.desc.outputs]
        if not all(dims):
            return []
        empty = tuple(f"{'*'.join(f'n[{place}]' for place in own)}==0" for own in dims)
        order = tuple(int(tensor.argument) for tensor in self.pd.desc.tensors)
        image = Image(self.pd.isa.target, b"", (), (*order, SIZES))
        fields = self.pd.verbose_fields()
        return [KernelCode(image, order, self._kind, fields, 0, SizeClass((), empty, (), "0"))]

    def _submit(
        self, stream: Stream, slots: Slots, arguments: list[Any], after: Sequence[Event]
    ) -> Event:
        place = slots.scratchpad_place
        if place is None:
            slots.complete(arguments)
            return stream.queue.submit(slots.executable, arguments, stream.num_threads, after)
        scratchpads = self._scratchpads()
        idle, nbytes = scratchpads.idle, slots.scratchpad_size
        if idle and idle[-1].desc.size >= nbytes:
            scratchpad = idle.pop()
        else:
            scratchpad = scratchpads.find(stream, nbytes)
        arguments.insert(place, scratchpad.argument)
        slots.complete(arguments)
        event = stream.queue.submit(slots.executable, arguments, stream.num_threads, after)
        if event is COMPLETE:
            idle.append(scratchpad)
        else:
            scratchpads.lend(scratchpad, event, stream)
        return event

    def bind(self, stream: Stream, args: Arguments) -> Callable[..., Event]:
        """Check and lay out ``args`` once; each call of the result is one execution.

        A call takes ``after`` and returns the event, as `execute` does. All calls use the same
        memories: each is after the one before it, also on a stream that is out of order, and two
        threads must not call at the same time. Executions are reported in verbose lines if these
        are switched on now.
        """
        if self._across:
            transfer = Transfer(self.pd, args)
            return transfer.around(self._bind(stream, transfer.args))
        return self._bind(stream, args)

    def _bind(self, stream: Stream, args: Arguments) -> Callable[..., Event]:
        slots, memories, arguments = self._checked(stream, args)
        owners: list[object] = [slots, *memories]
        if slots.scratchpad_place is not None:
            scratchpad = Memory(MemoryDesc((slots.scratchpad_size,), "u8"), self.pd.engine)
            owners.append(scratchpad)
            arguments.insert(slots.scratchpad_place, scratchpad.argument)
        slots.complete(arguments)
        bound = stream.queue.bind(slots.executable, arguments, stream.num_threads, owners)
        if not stream.in_order:
            bound = _Chain(bound).submit
        if self.pd.plan.verify is not None:
            known = {arg: own for (arg, _), own in zip(slots.expected, memories, strict=True)}
            bound = _verified(bound, partial(self.pd.plan.verify, known))
        if log.enabled("profile_exec", self._kind):
            fields = slots.pd.verbose_fields
            return lambda after=(): logged(fields, partial(bound, after))
        return bound

    def llvm_ir(self) -> str:
        """The generated IR, before LLVM's own passes."""
        return str(self.pd.plan.recipe.kernel().module)

    def asm(self) -> str:
        """The machine code as assembly text."""
        return jit.assembly(self.pd.plan.recipe.kernel().module)

    def _checked(self, stream: Stream, args: Arguments) -> tuple[Slots, list[Memory], list[Any]]:
        """The slots of this execution, its memories, and what the kernel gets of these; what is
        wrong is reported in verbose lines too."""
        try:
            if stream.__class__ is not Stream or stream.engine is not self._engine:
                self._check_stream(stream)
            if self._encoded:
                args = spread(self._encoded, args)
            slots = self._slots(args)
            memories, arguments = slots.take(args)
            return slots, memories, arguments
        except InvalidArguments as error:
            if log.enabled("check", self._kind):
                log.line("primitive", "exec:check", self._kind, error)
            raise

    def _check_stream(self, stream: Stream) -> None:
        if not isinstance(stream, Stream):
            raise InvalidArguments("stream", stream, "expected a dnnl.Stream")
        if stream.engine != self._engine:
            raise InvalidArguments("stream", stream, f"must be a stream of {self._engine!r}")

    def _scratchpads(self) -> Scratchpads:
        """Those of the calling thread."""
        try:
            found: Scratchpads = self._local.scratchpads
        except AttributeError:
            made = Scratchpads(self.pd.engine)
            found = self._local.scratchpads = made
        return found

    def __reduce__(self) -> tuple[object, ...]:
        return Primitive, (self.pd,)

    def __repr__(self) -> str:
        return f"<Primitive {self.pd.verbose_fields()}>"


class _Chain:
    """A bound launch, each of whose executions is after the one before it."""

    def __init__(self, launch: Callable[[Sequence[Event]], Event]) -> None:
        self._launch, self._last = launch, COMPLETE

    def submit(self, after: Sequence[Event] = ()) -> Event:
        """Execute once."""
        before = () if self._last.done else (self._last,)
        self._last = self._launch((*checked_events(after), *before))
        return self._last


def _verified(launch: Callable[..., Event], verify: Callable[[], None]) -> Callable[..., Event]:
    """A bound launch after each of whose executions ``verify()`` looks at the results."""

    def run(after: Sequence[Event] = ()) -> Event:
        event = launch(after)
        event.wait()
        verify()
        return event

    return run


def build_ahead(
    pds: Iterable[PrimitiveDesc], ready: Callable[[PrimitiveDesc], object] = lambda _: None
) -> dict[Recipe, parallel.Built]:
    """Kernels for descriptions that the cache in memory does not have, where building them
    beforehand pays: many new ones are built by as many processes as executions have threads.

    ``ready`` is called with each that has its kernel; what it raises ends the building.
    """
    new: dict[Recipe, list[PrimitiveDesc]] = {}
    for pd in pds:
        for key, recipe in _recipes(pd):
            if key not in _cache and not pd.desc.writes_nothing:
                new.setdefault(recipe, []).append(pd)

    def built(recipe: Recipe) -> None:
        for pd in new[recipe]:
            ready(pd)

    return parallel.images(new, get_num_threads(), built)


def _recipes(pd: PrimitiveDesc) -> Iterator[tuple[object, Recipe]]:
    """The kernels that are built with a primitive, with their keys in the cache."""
    if pd.variants is None:
        yield pd.key, pd.plan.recipe
        return
    for variant in pd.variants.typical:
        yield (pd.key, variant), variant.plan.recipe


def _compiled(pd: PrimitiveDesc, images: Mapping[Recipe, parallel.Built]) -> tuple[_Compiled, bool]:
    """The code of a description (with open sizes that of its first kernel), and whether the cache
    of this process had it."""
    made = [_cache.get(key, partial(_compile, pd, recipe, images)) for key, recipe in _recipes(pd)]
    return made[0][0], all(hit for _, hit in made)


def _code_of(pd: PrimitiveDesc, variant: Variant) -> _Compiled:
    """The code of one kernel of a description."""
    made, _ = _cache.get((pd.key, variant), lambda: _compile(pd, variant.plan.recipe, {}))
    return made


def _slots_of_sizes(pd: PrimitiveDesc, variants: Variants) -> SizedSlots:
    """What gives the slots for the sizes of an execution."""

    def build(variant: Variant) -> Unknowns:
        unknowns = _code_of(pd, variant).unknowns
        assert unknowns is not None
        return unknowns

    def code(variant: Variant) -> tuple[Executable, Sequence[int]]:
        compiled = _code_of(pd, variant)
        return compiled.executable, compiled.arguments

    def nothing(sized: PrimitiveDesc) -> Slots:
        empty = _compile(sized, pd.plan.recipe, {})
        return Slots(sized, empty.arguments, empty.executable)

    return SizedSlots(pd, partial(variants.find, build=build), code, nothing)


def _image(
    pd: PrimitiveDesc, recipe: Recipe, images: Mapping[Recipe, parallel.Built]
) -> parallel.Built:
    if pd.desc.writes_nothing:
        arguments = tuple(int(tensor.argument) for tensor in pd.desc.tensors)
        return Image(pd.isa.target, b"", (), arguments), False
    return images[recipe] if recipe in images else jit.image(recipe)


def _compile(
    pd: PrimitiveDesc, recipe: Recipe, images: Mapping[Recipe, parallel.Built]
) -> _Compiled:
    image, from_disk = _image(pd, recipe, images)
    return _Compiled(pd.engine.load(image), image.arguments, from_disk, image.unknowns)
