"""Regions of a graph of PyTorch that the library computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import fx

from dnnl.errors import Error, InvalidArguments, OutOfMemory
from dnnl.framework.parts import divided
from dnnl.framework.plans import Settings
from dnnl.framework.program import Called
from dnnl.runtime.engine import first_cpu
from dnnl.torch.graphs import Imported, Placed, imported
from dnnl.torch.tensors import array_of, inverse, tensor_of

_MOST_REPACKED = 3
"""How often the weights of a region may change before they are arguments like others."""
_MOST_PACKED = 64
"""The sets of weights of a region that are packed at a time."""

State = tuple[tuple[int, int], ...]
"""Where each weight is, and how often it has been changed in place."""


class Program:
    """A graph with its plans, called on tensors."""

    def __init__(self, found: Imported) -> None:
        graph = found.graph
        opens = any(isinstance(n, str) for kind in graph.inputs.values() for n in kind.shape)
        settings = Settings(first_cpu(), opens=opens or bool(found.numbers))
        self._called = Called(divided(graph), graph, settings)
        self._inputs, self._numbers = list(found.inputs.items()), list(found.numbers.items())
        self._outputs = [(n, own.place, _back(own)) for n, own in found.outputs.items()]
        self._shown, self._known = list(found.shown.items()), dict(found.known)
        self._count = found.results

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The results for arguments as PyTorch's graph takes them."""
        values = {name: _read(arguments[own.place], own) for name, own in self._inputs}
        for name, place in self._numbers:
            values[name] = np.array(arguments[place], np.int64)
        found = self._called(values, num_threads=torch.get_num_threads())
        results: list[Any] = [None] * self._count
        for name, place, back in self._outputs:
            tensor = tensor_of(found[name])
            results[place] = tensor if back is None else tensor.permute(back)
        for name, place in self._shown:
            results[place] = int(found[name])
        for place, own in self._known.items():
            results[place] = own
        return results


def _read(tensor: torch.Tensor, placed: Placed) -> np.ndarray:
    """The elements of an argument as they are in memory, copied if they have gaps or overlap."""
    own = tensor.permute(placed.order)
    return array_of(own if own.is_contiguous() else own.contiguous())


def _back(placed: Placed) -> tuple[int, ...] | None:
    """The order that makes a result of the axes in memory; None for row-major ones."""
    straight = placed.order == tuple(range(len(placed.order)))
    return None if straight else inverse(placed.order)


class _Packed:
    """A program whose constants are the weights of a region, and what these were."""

    def __init__(self, weights: Sequence[torch.Tensor], program: Program) -> None:
        self._tensors = [ref(own) for own in weights]
        self.program, self.state = program, state_of(weights)
        self.changes = 0

    @property
    def is_alive(self) -> bool:
        """Whether all weights are still there."""
        return all(own() is not None for own in self._tensors)

    def has(self, weights: Sequence[torch.Tensor]) -> bool:
        """Whether these are the same tensors, with whatever contents."""
        return all(own() is other for own, other in zip(self._tensors, weights, strict=True))


def state_of(weights: Sequence[torch.Tensor]) -> State:
    """What changes when a weight is moved, or changed in place by an operator of PyTorch."""
    return tuple([(own.data_ptr(), own._version) for own in weights])


class Region(torch.nn.Module):
    """A part of a graph as one function of its arguments.

    The first call compiles it. ``weights`` are the arguments that are constants of the plan while
    they stay as they are: a changed one is packed again, and from the fourth change on all are
    read in each call. What is refused when it is compiled is computed by ``otherwise``.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        weights: Sequence[int],
        otherwise: Callable[[fx.GraphModule, Sequence[int], Error], Callable[..., Any]],
    ) -> None:
        super().__init__()
        # Plain attributes: a region has no parameters of its own.
        self.__dict__.update(module=module, _otherwise=otherwise, _weights=tuple(weights))
        self._single = not isinstance(_results_of(module), list | tuple)
        self._latest: _Packed | None = None
        self._packed: list[_Packed] = []
        self._unpacked: Program | None = None
        self._instead: Callable[..., Any] | None = None

    def forward(self, *arguments: Any) -> Any:
        """The results for arguments as the part of the graph takes them."""
        if self._instead is not None:
            return self._instead(*arguments)
        try:
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
        if self._unpacked is not None:
            return self._unpacked
        weights = [arguments[place] for place in self._weights]
        if not weights or any(own.is_inference() for own in weights):
            return self._as_arguments()
        latest = self._latest
        if latest is None or not latest.has(weights):
            latest = self._latest = self._found(weights)
        if latest.state != state_of(weights):
            if latest.changes == _MOST_REPACKED:
                self._packed, self._latest = [], None
                return self._as_arguments()
            changes = latest.changes + 1
            self._packed.remove(latest)
            latest = self._latest = self._pack(weights)
            latest.changes = changes
        return latest.program

    def _as_arguments(self) -> Program:
        """The program that reads all weights in each call."""
        self._unpacked = Program(imported(self.module, {}))
        return self._unpacked

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


def _results_of(module: fx.GraphModule) -> Any:
    """What the output of a graph returns."""
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    return output.args[0]
