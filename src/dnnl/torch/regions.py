"""Regions of a graph of PyTorch that the library computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import fx

from dnnl import forks
from dnnl.errors import Error, InvalidArguments, OutOfMemory
from dnnl.framework.compiler import compiled
from dnnl.framework.parts import divided
from dnnl.framework.plans import Settings
from dnnl.framework.program import Called
from dnnl.framework.session import Session
from dnnl.framework.steps import Part
from dnnl.graph.graph import Array, Graph
from dnnl.passes.specialize import specialize
from dnnl.runtime.engine import first_cpu
from dnnl.torch.aten.writer import inverse
from dnnl.torch.graphs import Imported, imported
from dnnl.torch.tensors import array_of, tensor_of

_WORTH = 8
"""Calls for which weights are worth being packed."""
_MOST_REPACKED = 3
"""How often in a row weights may change before that; then those are arguments like others."""
_MOST_PACKED = 64
"""The sets of weights of a region that are packed at a time."""

State = tuple[tuple[int, int], ...]
"""Where each weight is, and how often it has been changed in place."""


class Program:
    """A graph with its plans, called on tensors."""

    def __init__(self, found: Imported) -> None:
        graph = found.graph
        self._run = _runner(graph)
        self._inputs = [
            (name, own.place, None if own.is_row_major else own.order)
            for name, own in found.inputs.items()
        ]
        self._outputs = [
            (name, own.place, None if own.is_row_major else inverse(own.order))
            for name, own in found.outputs.items()
        ]
        self._numbers = list(found.numbers.items())
        self._shown, self._known = list(found.shown.items()), list(found.known.items())
        self._passed = list(found.passed.items())
        self._count = found.results

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The results for arguments as PyTorch's graph takes them."""
        values = {name: _read(arguments[place], order) for name, place, order in self._inputs}
        for name, place in self._numbers:
            values[name] = np.array(arguments[place], np.int64)
        found = self._run(values, torch.get_num_threads())
        results: list[Any] = [None] * self._count
        for name, place, back in self._outputs:
            tensor = tensor_of(found[name])
            results[place] = tensor if back is None else tensor.permute(back)
        for name, place in self._shown:
            results[place] = found[name].item()
        for place, own in self._known:
            results[place] = own
        for place, given in self._passed:
            results[place] = arguments[given]
        return results


Run = Callable[[Mapping[str, Array], int], Mapping[str, Array]]


def _runner(graph: Graph) -> Run:
    """What computes the outputs of a graph on a number of threads; it compiles in its first call,
    unless all sizes are known."""
    program = divided(graph)
    is_open = any(isinstance(n, str) for kind in graph.inputs.values() for n in kind.shape)
    contents = any(isinstance(step, Part) and step.contents for step in program.steps)
    if is_open or contents or not program.whole:
        called = Called(program, graph, Settings(first_cpu(), opens=True))
        return lambda values, threads: called(values, num_threads=threads)
    session = Session(compiled(specialize(graph), first_cpu()))
    shapes = {name: kind.shape for name, kind in graph.inputs.items()}

    def run(values: Mapping[str, Array], threads: int) -> Mapping[str, Array]:
        for name, shape in shapes.items():
            if values[name].shape != shape:
                raise InvalidArguments(f"input {name!r}", values[name].shape, f"expected {shape}")
        return session.execute(values, (), threads)

    return run


def _read(tensor: torch.Tensor, order: tuple[int, ...] | None) -> Array:
    """The elements of an argument as they are in memory, copied if they have gaps or overlap."""
    own = tensor if order is None else tensor.permute(order)
    return array_of(own if own.is_contiguous() else own.contiguous())


class _Packed:
    """A program whose constants are the weights of a region, and what these were.

    It holds the memory of the weights while they exist: another tensor at the same address would
    look like the same weight.
    """

    def __init__(self, weights: Sequence[torch.Tensor], program: Program) -> None:
        self._tensors = [ref(own, self._forget) for own in weights]
        self._memory = [own.untyped_storage() for own in weights]
        self._program: Program | None = program
        self.state, self.calls = state_of(weights), 0

    @property
    def program(self) -> Program:
        """The program, of weights that are still there."""
        assert self._program is not None
        return self._program

    @property
    def is_alive(self) -> bool:
        """Whether all weights are still there."""
        return self._program is not None

    def has(self, weights: Sequence[torch.Tensor]) -> bool:
        """Whether these are the same tensors, with whatever contents."""
        return all(own() is other for own, other in zip(self._tensors, weights, strict=True))

    def _forget(self, _: object) -> None:
        self._program, self._memory = None, []


def state_of(weights: Sequence[torch.Tensor]) -> State:
    """What changes when a weight is moved, or changed in place by an operator of PyTorch."""
    return tuple([(own.data_ptr(), own._version) for own in weights])


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
        self._single = not isinstance(_results_of(module), list | tuple)
        self._latest: _Packed | None = None
        self._packed: list[_Packed] = []
        self._hasty = 0
        self._unpacked: Program | None = None
        self._instead: Callable[..., Any] | None = None
        self._lock = forks.Lock()

    def __call__(self, *arguments: Any) -> Any:
        """The results for arguments as the part of the graph takes them."""
        if self._instead is not None:
            return self._instead(*arguments)
        try:
            with self._lock.own:
                program = self._program(arguments)
            results = program(arguments)
        except (InvalidArguments, OutOfMemory) as error:
            results = self.module(*arguments)  # which raises PyTorch's error, if it is one
            if isinstance(error, InvalidArguments):
                self._instead = self._otherwise(self.module, self._weights, error)
            return results
        except Error as error:
            self._instead = self._otherwise(self.module, self._weights, error)
            return self._instead(*arguments)
        return results[0] if self._single else results

    def _program(self, arguments: Sequence[Any]) -> Program:
        """What computes the region with the weights as they are now."""
        if not self._weights:
            if self._unpacked is None:
                self._unpacked = Program(imported(self.module, {}))
            return self._unpacked
        weights = [arguments[place] for place in self._weights]
        if any(own.is_inference() for own in weights):  # whose changes are not counted
            return self._without([own.is_inference() for own in weights], arguments)
        packed = self._latest
        if packed is None or not packed.has(weights):
            packed = self._found(weights)
        state = state_of(weights)
        if packed.state != state:
            self._packed.remove(packed)
            self._hasty = self._hasty + 1 if packed.calls < _WORTH else 0
            if self._hasty > _MOST_REPACKED:
                pairs = zip(packed.state, state, strict=True)
                return self._without([before != now for before, now in pairs], arguments)
            packed = self._pack(weights)
        self._latest = packed
        packed.calls += 1
        return packed.program

    def _without(self, dropped: Sequence[bool], arguments: Sequence[Any]) -> Program:
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
        packed = _Packed(weights, Program(imported(self.module, frozen)))
        self._packed = [own for own in self._packed if own.is_alive][1 - _MOST_PACKED :]
        self._packed.append(packed)
        return packed


class Placed(torch.nn.Module):
    """A region as a part of a module of PyTorch."""

    def __init__(self, region: Region) -> None:
        super().__init__()
        self._region = region

    def forward(self, *arguments: Any) -> Any:
        """What the region returns."""
        return self._region(*arguments)


def _results_of(module: fx.GraphModule) -> Any:
    """What the output of a graph returns."""
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    return output.args[0]
