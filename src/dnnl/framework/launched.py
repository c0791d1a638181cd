"""Launches of a run: each as one call, and those in a row as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dnnl import log
from dnnl.graph.graph import Array
from dnnl.runtime.backend import Argument
from dnnl.runtime.event import Event
from dnnl.runtime.launch import Launch
from dnnl.runtime.stream import Stream

_MOST_JOINED = 16
"""Launches in one call: an interrupt of Python waits for its end."""


class Arrays(NamedTuple):
    """The arrays of one run by storage, and their addresses: inputs that are read without a copy,
    and new arrays for outputs."""

    arrays: Mapping[int, Array]
    addresses: Mapping[int, int]


Call = Callable[[Arrays, int], object]
"""Executes one step of a run on a number of threads."""


class Step(NamedTuple):
    """A launch in the memory of a binder: its ``arguments``, and those among them that are arrays
    of each run, by storage. ``call`` executes it."""

    launch: Launch
    arguments: Sequence[Argument]
    holes: Sequence[tuple[int, int]]
    call: Call


class Placed:
    """The latest execution of a step, and the addresses of its storages in the binder: those of
    ``every`` argument in ``order``."""

    __slots__ = ("_fixed", "_holes", "addresses", "launch", "order", "step")

    def __init__(
        self, addresses: Mapping[int, Argument], order: tuple[int, ...], every: Sequence[int]
    ) -> None:
        self.addresses, self.order = addresses, order
        self._fixed = [addresses.get(storage) for storage in every]
        self._holes = [(n, own) for n, own in enumerate(every) if own not in addresses]
        self.launch: Launch | None = None
        self.step: Step

    def placed(self, launch: Launch, stream: Stream) -> Step:
        """The execution of a launch; arguments outside the binder's memory are arrays of each
        run."""
        sizes = launch.sizes
        fixed = [*self._fixed] if sizes is None else [*self._fixed, sizes.argument]
        return Step(launch, fixed, self._holes, _call(launch.on(stream), fixed, self._holes))


def _call(
    submit: Callable[[list[Any], int], Event],
    fixed: Sequence[Argument],
    holes: Sequence[tuple[int, int]],
) -> Call:
    given = [*fixed]
    if not holes:
        return lambda _run, threads: submit(given, threads)

    def call(run: Arrays, threads: int) -> None:
        arguments, own = given.copy(), run.addresses
        for hole, storage in holes:
            arguments[hole] = own[storage]
        submit(arguments, threads)

    return call


def joined(calls: Sequence[Call], steps: Sequence[Step | None], stream: Stream) -> list[Call]:
    """The calls of a run, of which launches in a row are one: that takes 1 to 2 us less for each.
    ``steps`` has the launch of a call, None for one that does more."""
    found, row = list[Call](), list[tuple[Call, Step]]()
    for call, step in zip(calls, steps, strict=True):
        joins = step is not None and not log.enabled("profile_exec", step.launch.kind)
        if not joins or len(row) == _MOST_JOINED:
            found += _row(row, stream)
            row = []
        if step is not None and joins:
            row.append((call, step))
        else:
            found.append(call)
    return found + _row(row, stream)


def _row(row: Sequence[tuple[Call, Step]], stream: Stream) -> list[Call]:
    """Launches in a row as few calls."""
    calls, steps = [call for call, _ in row], [step for _, step in row]
    queue = stream.queue
    executable = queue.joined([own.launch.executable for own in steps]) if len(row) > 1 else None
    if executable is None:
        return calls
    fixed, holes = list[Argument](), list[tuple[int, int]]()
    for number, step in enumerate(steps):
        fixed += [0] if number else []
        holes += [(len(fixed) + hole, storage) for hole, storage in step.holes]
        fixed += step.arguments
    return [_call(lambda args, threads: queue.submit(executable, args, threads), fixed, holes)]
