"""Regions of a graph of PyTorch that the library computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import torch
from torch import fx

from dnnl import forks
from dnnl.errors import Error, InvalidArguments, OutOfMemory
from dnnl.torch import private
from dnnl.torch.graphs import imported
from dnnl.torch.runs import Run, run_of
from dnnl.torch.tensors import array_of

_WORTH = 8
"""Calls for which weights are worth being packed."""
_MOST_REPACKED = 3
"""How often in a row weights may change before that; then those are arguments like others."""
_MOST_PACKED = 64
"""The sets of weights of a region that are packed at a time."""


class State(NamedTuple):
    """Where each weight is, and how often it has been changed in place; and the contents of running
    statistics, which batch normalization changes uncounted."""

    weights: list[tuple[int, int]]
    statistics: bytes


_aten = torch.ops.aten
_NORMALIZATIONS = (
    _aten._native_batch_norm_legit_no_training.default,
    _aten.native_batch_norm.default,
)
"""Operators whose arguments 3 and 4 are running statistics."""


class _Packed:
    """A program whose constants are the weights of a region, and what these were.

    It holds the memory of the weights while they exist: another tensor at the same address would
    look like the same weight.
    """

    def __init__(
        self, weights: Sequence[torch.Tensor], statistics: Sequence[int], program: Run
    ) -> None:
        self._tensors = [ref(own, self._forget) for own in weights]
        self._memory = [own.untyped_storage() for own in weights]
        self._program: Run | None = program
        self._places, self._statistics = statistics, [_bytes_of(weights[n]) for n in statistics]
        self.state, self.calls = self.state_of(weights), 0

    @property
    def program(self) -> Run:
        """The program, of weights that are still there."""
        assert self._program is not None
        return self._program

    @property
    def is_alive(self) -> bool:
        """Whether all weights are still there."""
        return self._program is not None

    def state_of(self, weights: Sequence[torch.Tensor]) -> State:
        """What changes when one of these weights is moved, or changed in place by an operator of
        PyTorch."""
        pairs = [(own.data_ptr(), own._version) for own in weights]
        return State(pairs, b"".join(self._statistics))

    def changed(self, now: State) -> list[bool]:
        """Which weights have another state than they had; all statistics, if one has."""
        before = self.state
        found = [one != other for one, other in zip(before.weights, now.weights, strict=True)]
        if before.statistics != now.statistics:
            for place in self._places:
                found[place] = True
        return found

    def has(self, weights: Sequence[torch.Tensor]) -> bool:
        """Whether these are the same tensors, with whatever contents."""
        return all(own() is other for own, other in zip(self._tensors, weights, strict=True))

    def _forget(self, _: object) -> None:
        self._program, self._memory, self._statistics = None, [], []


def _bytes_of(statistics: torch.Tensor) -> memoryview:
    """The memory of statistics; all of it that their storage has, where they have gaps."""
    if not statistics.is_contiguous():
        whole = torch.empty(0, dtype=statistics.dtype)
        statistics = whole.set_(statistics.untyped_storage())
    return array_of(statistics).view(np.uint8).data


def _running_statistics(module: fx.GraphModule) -> set[int]:
    """The places of arguments that are running statistics of batch normalizations."""
    arguments = {node: n for n, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    read = (
        argument
        for target in _NORMALIZATIONS
        for node in module.graph.find_nodes(op="call_function", target=target)
        for argument in node.args[3:5]
    )
    return {arguments[own] for own in read if own in arguments}


class Region:
    """A part of a graph as one function of its arguments.

    The first call compiles it. ``weights`` are the arguments that are constants of the plan while
    they stay as they are: a changed one is packed again, unless it changes all the time. Where the
    library refuses the region, ``otherwise`` says what computes it.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        weights: Sequence[int],
        otherwise: Callable[[fx.GraphModule, Sequence[int], Error], Callable[..., Any]],
    ) -> None:
        self.module, self._weights, self._otherwise = module, tuple(weights), otherwise
        self._statistics = _running_statistics(module)
        self._single = not isinstance(_results_of(module), list | tuple)
        self._latest: _Packed | None = None
        self._packed: list[_Packed] = []
        self._hasty = 0
        self._unpacked: Run | None = None
        self._instead: Callable[..., Any] | None = None
        self._lock = forks.Lock()

    def __call__(self, *arguments: Any) -> Any:
        """The results for arguments as the part of the graph takes them."""
        if self._instead is not None:
            return self._instead(*arguments)
        try:
            results = self.computed(arguments)
        except (InvalidArguments, OutOfMemory) as error:
            results = self.module(*arguments)  # which raises PyTorch's error, if it is one
            if isinstance(error, InvalidArguments):
                self._instead = self._otherwise(self.module, self._weights, error)
            return results
        except Error as error:
            self._instead = self._otherwise(self.module, self._weights, error)
            return self._instead(*arguments)
        return results[0] if self._single else results

    @property
    def is_refused(self) -> bool:
        """Whether the library has refused the region."""
        return self._instead is not None

    def computed(self, arguments: Sequence[Any]) -> list[Any]:
        """All results by the library, which raises Error where it refuses the region."""
        program = self._unpacked
        if program is None:
            with self._lock.own:
                program = self._program(arguments)
        return program(arguments)

    def _program(self, arguments: Sequence[Any]) -> Run:
        """What computes the region with the weights as they are now."""
        if not self._weights:
            if self._unpacked is None:
                self._unpacked = run_of(imported(self.module, {}))
            return self._unpacked
        weights = [arguments[place] for place in self._weights]
        if any(own.is_inference() for own in weights):  # whose changes are not counted
            return self._without([own.is_inference() for own in weights], arguments)
        packed = self._latest
        if packed is None or not packed.has(weights):
            packed = self._found(weights)
        state = packed.state_of(weights)
        if packed.state != state:
            self._packed.remove(packed)
            self._hasty = self._hasty + 1 if packed.calls < _WORTH else 0
            if self._hasty > _MOST_REPACKED:
                return self._without(packed.changed(state), arguments)
            packed = self._pack(weights)
        self._latest = packed
        packed.calls += 1
        return packed.program

    def _without(self, dropped: Sequence[bool], arguments: Sequence[Any]) -> Run:
        """The program with some of the weights as arguments from now on."""
        pairs = zip(self._weights, dropped, strict=True)
        self._weights = tuple(place for place, is_dropped in pairs if not is_dropped)
        self._packed, self._latest, self._hasty = [], None, 0
        return self._program(arguments)

    def _found(self, weights: Sequence[torch.Tensor]) -> _Packed:
        for packed in self._packed:
            if packed.has(weights):
                return packed
        return self._pack(weights)

    def _pack(self, weights: Sequence[torch.Tensor]) -> _Packed:
        frozen = {place: array_of(own) for place, own in zip(self._weights, weights, strict=True)}
        statistics = [n for n, place in enumerate(self._weights) if place in self._statistics]
        packed = _Packed(weights, statistics, run_of(imported(self.module, frozen)))
        self._packed = [own for own in self._packed if own.is_alive][1 - _MOST_PACKED :]
        self._packed.append(packed)
        return packed


class Whole:
    """A region that is a whole graph; ``wrapped`` computes it as well, with what PyTorch has around
    a graph for operators that are its own. Results are marked where sizes are open."""

    def __init__(self, region: Region, open_axes: private.OpenAxes) -> None:
        self._region, self._open_axes = region, open_axes
        self.wrapped: Callable[..., Any] = region

    def __call__(self, *arguments: Any) -> Any:
        """What the graph returns."""
        if not self._region.is_refused:
            try:
                results = self._region.computed(arguments)
            except Error:  # of which the region knows what follows
                return self.wrapped(*arguments)
            for place, axes in self._open_axes:
                private.mark(results[place], axes)
            return results
        return self.wrapped(*arguments)


def _results_of(module: fx.GraphModule) -> Any:
    """What the output of a graph returns."""
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    return output.args[0]
