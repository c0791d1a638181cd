"""Graphs on tensors of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from dnnl.errors import InvalidArguments
from dnnl.framework.bound import Arrays
from dnnl.framework.compiler import compiled
from dnnl.framework.feeds import check_input
from dnnl.framework.parts import divided
from dnnl.framework.plans import Settings
from dnnl.framework.program import Called
from dnnl.framework.session import Session
from dnnl.framework.steps import Part
from dnnl.graph.graph import Array, Shape
from dnnl.passes.specialize import specialize
from dnnl.runtime.engine import first_cpu
from dnnl.torch import private
from dnnl.torch.aten.writer import inverse
from dnnl.torch.dtypes import TORCH
from dnnl.torch.graphs import Imported
from dnnl.torch.tensors import array_of, tensor_of

Run: TypeAlias = Callable[[Sequence[Any]], list[Any]]
"""Computes the results of a graph for arguments, as PyTorch's graph has both."""

_OnArrays: TypeAlias = Callable[[Mapping[str, Array], int], Mapping[str, Array]]
"""Computes outputs of inputs by name, on a number of threads."""


class _Tensor(NamedTuple):
    """An argument or a result: its place, and how kernels read or write it in memory; ``order`` has
    its axes, outermost first."""

    place: int
    storage: int
    shape: Shape
    strides: Shape
    dtype: torch.dtype
    order: tuple[int, ...]

    @classmethod
    def of(
        cls, place: int, storage: int, order: tuple[int, ...], shape: Shape, dtype: torch.dtype
    ) -> _Tensor:
        """A tensor that has these sizes in the order of memory."""
        back, strides, step = inverse(order), list[int](), 1
        for size in reversed(shape):
            strides.insert(0, step)
            step *= max(size, 1)
        sizes, steps = (tuple(own[axis] for axis in back) for own in (shape, strides))
        return cls(place, storage, sizes, steps, dtype, order)


class _Direct:
    """A session that reads the memory of arguments and writes that of new tensors."""

    def __init__(self, session: Session, found: Imported) -> None:
        self._session = session  # which has the memory of constants
        self._execute, plan = session.at_addresses, session.compiled.plan
        self._inputs = []
        for public, own in found.inputs.items():
            kind, storage = plan.inputs[public], plan.read[public]
            dtype = TORCH[kind.dtype]
            self._inputs.append(_Tensor.of(own.place, storage, own.order, kind.sizes, dtype))
        storages = {value: storage for storage, value in plan.written.items()}
        self._outputs = []
        for name, own in found.outputs.items():
            value = plan.outputs[name]
            placed, storage = plan.tensors[value], storages[value]
            dtype = TORCH[placed.dtype]
            self._outputs.append(
                _Tensor.of(own.place, storage, own.order, placed.form.like.dims, dtype)
            )
        self._results = _known(found)
        self._passed, self._repeated = list(found.passed.items()), list(found.repeated.items())

    @staticmethod
    def serves(session: Session, found: Imported) -> bool:
        """Whether a run needs nothing but the addresses of tensors that have elements."""
        plan = session.compiled.plan
        if not plan.is_direct or found.shown or found.numbers:
            return False
        written = (plan.tensors[value].form.like.dims for value in plan.written.values())
        return all(map(all, (*written, *(kind.sizes for kind in plan.inputs.values()))))

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The results for arguments as PyTorch's graph takes them.

        Raises InvalidArguments for another type or other sizes.
        """
        addresses, copies = dict[int, int](), []
        for place, storage, shape, strides, dtype, order in self._inputs:
            tensor = arguments[place]
            if tensor.shape != shape or tensor.dtype is not dtype:
                given = f"{tensor.dtype} {tuple(tensor.shape)}"
                raise InvalidArguments(f"argument {place}", given, f"expected {dtype} {shape}")
            plain = tensor.stride() == strides and not tensor.is_neg()
            address = tensor.data_ptr() if plain else 0
            if not address or address % dtype.itemsize:
                array = np.require(array_of(tensor, order), requirements="A")
                copies.append(array)  # which exists until the end
                address = array.__array_interface__["data"][0]
            addresses[storage] = address
        results = self._results.copy()
        for place, storage, shape, strides, dtype, _ in self._outputs:
            results[place] = new = private.empty_strided(shape, strides, dtype)
            addresses[storage] = new.data_ptr()
        self._execute(Arrays({}, addresses), torch.get_num_threads())
        for place, source in self._passed:
            results[place] = arguments[source]
        for place, other in self._repeated:
            results[place] = results[other]
        return results


class _ByArrays:
    """What computes on arrays of NumPy, on tensors: their memory is the same."""

    def __init__(self, found: Imported, run: _OnArrays) -> None:
        self._run = run
        self._inputs = [(name, own.place, own.order) for name, own in found.inputs.items()]
        self._outputs = [
            (name, own.place, None if own.is_row_major else inverse(own.order))
            for name, own in found.outputs.items()
        ]
        self._numbers, self._shown = list(found.numbers.items()), list(found.shown.items())
        self._results = _known(found)
        self._passed, self._repeated = list(found.passed.items()), list(found.repeated.items())

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        values = {name: array_of(arguments[place], order) for name, place, order in self._inputs}
        for name, place in self._numbers:
            values[name] = np.array(arguments[place], np.int64)
        found = self._run(values, torch.get_num_threads())
        results = self._results.copy()
        for name, place, back in self._outputs:
            tensor = tensor_of(found[name])
            results[place] = tensor if back is None else tensor.permute(back)
        for name, place in self._shown:
            results[place] = found[name].item()
        for place, given in self._passed:
            results[place] = arguments[given]
        for place, other in self._repeated:
            results[place] = results[other]
        return results


def _known(found: Imported) -> list[Any]:
    """The results of a graph, of which those are there that are no values."""
    results: list[Any] = [None] * found.results
    for place, own in found.known.items():
        results[place] = own
    return results


def run_of(found: Imported) -> Run:
    """What runs a graph; it compiles in its first call, unless all sizes are known."""
    graph = found.graph
    program = divided(graph)
    is_open = any(isinstance(n, str) for kind in graph.inputs.values() for n in kind.shape)
    contents = any(isinstance(step, Part) and step.contents for step in program.steps)
    if is_open or contents or not program.whole:
        called = Called(program, graph, Settings(first_cpu(), opens=True))
        return _ByArrays(found, lambda values, threads: called(values, num_threads=threads))
    session = Session(compiled(specialize(graph), first_cpu()))
    if _Direct.serves(session, found):
        return _Direct(session, found)

    def run(values: Mapping[str, Array], threads: int) -> Mapping[str, Array]:
        for name, kind in session.inputs.items():
            own = values[name]  # whose type, if it has elements, PyTorch may have foretold wrongly
            check_input(name, own if own.size else own.astype(kind.dtype), kind)
        return session.execute(values, (), threads)

    return _ByArrays(found, run)
