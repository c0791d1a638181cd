"""What a code generator hands to an engine: machine code and how to launch it.

This is the only thing that code generation and the runtime have in common.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Phase:
    """One function of an image and the number of independent work items that it does.

    In an image for ``cpu`` the function is
    ``void symbol(void **args, int64_t begin, int64_t end, int64_t thread)`` and does the items
    ``begin .. end - 1``; an engine calls it for disjoint ranges that cover ``0 .. count - 1``, in
    any order and at the same time. ``args[i]`` is the address of the execution argument whose id is
    ``arguments[i]`` of the image. ``thread`` is below the number of threads that take part, and no
    two calls that run at the same time have the same. ``args[-1]`` is the address of ``scratch``
    bytes for each thread, one behind the other, aligned to 64; ``scratch`` is a multiple of 64.
    What they hold when a call begins is undefined.

    In an image for a device it is an entry point whose parameters are the addresses of the
    arguments that it touches: of ``arguments[slot]`` for each of ``slots``, in order. An engine
    starts it once for each item, in one dimension, or in groups that are too many in total: an item
    beyond ``count`` does nothing. With a ``group`` above 1 it starts ``count`` groups of exactly so
    many invocations, which do an item together. A phase whose sizes only executions know divides
    its work among all invocations: it may be started for any number of items, of which ``count`` is
    the least that suits; `Backend.sized` gets the number that an execution has work for.

    A phase starts when the one before it is complete.
    """

    symbol: str
    count: int
    slots: tuple[int, ...] = ()
    scratch: int = 0
    group: int = 1

    def with_sizes(self, slot: int) -> Phase:
        """The phase with the slot of the sizes for the slot -1 that stood for it."""
        slots = tuple(slot if own < 0 else own for own in self.slots)
        return replace(self, slots=slots)


@dataclass(frozen=True, slots=True)
class Repeat:
    """Phases ``first`` to ``end - 1`` of an image, which run in order ``count`` times, where only
    executions know their number as often as `Unknowns` say. A phase that needs the number of the
    iteration counts it in memory: processors only."""

    first: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class Unknowns:
    """What an image needs to know of sizes that only an execution knows.

    ``conditions`` and ``counts`` are Python expressions of these sizes, which they call s0, s1, ...
    The code serves those that satisfy all conditions; each phase then has so many work items, and,
    behind the counts of all phases, each repeat so many iterations. The last argument of the image
    is an array of the sizes, in integers of 64 bits.
    """

    conditions: tuple[str, ...]
    counts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """Code for one kind of engine (``target``), immutable and picklable.

    ``code`` defines every phase's symbol; an image without phases does nothing. For ``cpu`` it is a
    relocatable object that refers to nothing but ``memcpy``, ``memmove`` and ``memset``, for
    ``spirv`` a module for OpenCL's environment, for ``ptx`` the text of a module. ``repeats`` are
    in order and have no phase in common.
    """

    target: str
    code: bytes
    phases: tuple[Phase, ...]
    arguments: tuple[int, ...]
    unknowns: Unknowns | None = None
    repeats: tuple[Repeat, ...] = ()

    @property
    def scratch(self) -> int:
        """The bytes that each thread takes besides the arguments."""
        return max((phase.scratch for phase in self.phases), default=0)
