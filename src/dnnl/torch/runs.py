"""Graphs on tensors of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from dnnl.errors import InvalidArguments
from dnnl.framework.compiler import compiled
from dnnl.framework.feeds import check_input
from dnnl.framework.launched import Arrays
from dnnl.framework.parts import divided
from dnnl.framework.plans import PartSession, Plans, Settings
from dnnl.framework.program import Called
from dnnl.framework.session import AtAddresses, Session
from dnnl.framework.special import Use
from dnnl.framework.steps import Part
from dnnl.graph.expressions import Numbers
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


_MOST_SIZES = 64
"""The number of sets of sizes of a graph of open sizes that are computed at addresses."""


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
    """A session that reads the memory of arguments and writes that of new tensors, for arguments of
    these ``shapes`` in the order of memory by input, by a ``run`` of their numbers. ``values`` are
    what outputs are in its plan."""

    def __init__(
        self,
        session: Session,
        found: Imported,
        shapes: Mapping[str, Shape],
        run: AtAddresses,
        values: Mapping[str, str],
    ) -> None:
        self._session, self._run = session, run  # which have the memory of constants and steps
        plan = session.compiled.plan
        self._execute, dims = run.call, run.written
        self._inputs = []
        for public, own in found.inputs.items():
            dtype = TORCH[plan.inputs[public].dtype]
            placed = own.place, plan.read[public], own.order
            self._inputs.append(_Tensor.of(*placed, shapes[public], dtype))
        storages = {value: storage for storage, value in plan.written.items()}
        self._outputs = []
        for name, own in found.outputs.items():
            value = plan.outputs[values[name]]
            storage, dtype = storages[value], TORCH[plan.tensors[value].dtype]
            made = _Tensor.of(own.place, storage, own.order, dims[storage], dtype)
            self._outputs.append(made._replace(strides=own.strides) if own.strides else made)
        self._results = _known(found)
        self._passed, self._repeated = list(found.passed.items()), list(found.repeated.items())

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
            (name, own.place, None if own.is_row_major else inverse(own.order), own.strides)
            for name, own in found.outputs.items()
        ]
        self._numbers, self._shown = list(found.numbers.items()), list(found.shown.items())
        self._results = _known(found)
        self._passed, self._repeated = list(found.passed.items()), list(found.repeated.items())

    def values(self, arguments: Sequence[Any]) -> dict[str, Array]:
        """The inputs for arguments."""
        values = {name: array_of(arguments[place], order) for name, place, order in self._inputs}
        for name, place in self._numbers:
            values[name] = np.array(arguments[place], np.int64)
        return values

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        found = self._run(self.values(arguments), torch.get_num_threads())
        results = self._results.copy()
        for name, place, back, strides in self._outputs:
            tensor = tensor_of(found[name])
            tensor = tensor if back is None else tensor.permute(back)
            if strides is not None:
                tensor = tensor.as_strided(tensor.shape, strides)
            results[place] = tensor
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


def _direct(
    session: Session,
    found: Imported,
    shapes: Mapping[str, Shape],
    numbers: Numbers,
    values: Mapping[str, str],
) -> _Direct | None:
    """`_Direct`, if a run needs nothing but the addresses of tensors that have elements."""
    plan = session.compiled.plan
    if not plan.is_direct or found.shown or found.inputs.keys() != plan.inputs.keys():
        return None
    run = session.at_addresses(numbers)
    if not all(map(all, (*run.written.values(), *shapes.values()))):
        return None
    return _Direct(session, found, shapes, run, values)


class _Open:
    """A graph of open sizes: those that have come twice are computed at addresses from then on, if
    a plan serves them that needs nothing else."""

    def __init__(self, found: Imported, called: Called) -> None:
        self._found, self._values, plans = found, called.values, called.only_plans
        self._by_arrays = _ByArrays(found, lambda values, n: called(values, num_threads=n))
        self._tensors = [own.place for own in found.inputs.values()]
        self._numbers = list(found.numbers.values())
        # Contents of tensors may decide for a plan as sizes do.
        contents = set() if plans is None else {*plans.part.contents.values()}
        self._plans = plans if contents <= found.numbers.keys() else None
        self._seen: set[Hashable] = set()
        self._served: dict[Hashable, tuple[_Direct | None, Use[PartSession]]] = {}

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        plans = self._plans
        if plans is None:
            return self._by_arrays(arguments)
        key: Hashable = (
            *[arguments[place].shape for place in self._tensors],
            *[arguments[place] for place in self._numbers],
        )
        run, use = self._served.get(key) or self._found_for(key, arguments, plans)
        if run is None or use is None:
            return self._by_arrays(arguments)
        start = perf_counter()
        try:
            results = run(arguments)
        except InvalidArguments:  # other elements: no guard has seen these tensors
            return self._by_arrays(arguments)
        if use.ran(perf_counter() - start):
            plans.build_special(self._by_arrays.values(arguments), use.session)
        if use.is_over:
            self._served.pop(key, None)
        return results

    def _found_for(
        self, key: Hashable, arguments: Sequence[Any], plans: Plans
    ) -> tuple[_Direct | None, Use[PartSession] | None]:
        """What serves these sizes, if they have come before."""
        if key not in self._seen:
            if len(self._seen) >= _MOST_SIZES:
                self._seen.clear()
                self._served.clear()
            self._seen.add(key)
            return None, None
        values, found = self._by_arrays.values(arguments), self._found
        use = plans.use(values)
        shapes = {name: values[name].shape for name in found.inputs}
        run = _direct(use.session, found, shapes, use.numbers, self._values)
        self._served[key] = run, use
        return run, use


def run_of(found: Imported) -> Run:
    """What runs a graph; it compiles in its first call, unless all sizes are known."""
    graph = found.graph
    program = divided(graph)
    is_open = any(isinstance(n, str) for kind in graph.inputs.values() for n in kind.shape)
    contents = any(isinstance(step, Part) and step.contents for step in program.steps)
    if is_open or contents or not program.whole:
        return _Open(found, Called(program, graph, Settings(first_cpu(), opens=True)))
    session = Session(compiled(specialize(graph), first_cpu()))
    shapes = {name: kind.sizes for name, kind in session.inputs.items()}
    direct = _direct(session, found, shapes, (), {name: name for name in graph.outputs})
    if direct is not None:
        return direct

    def run(values: Mapping[str, Array], threads: int) -> Mapping[str, Array]:
        for name, kind in session.inputs.items():
            own = values[name]  # whose type, if it has elements, PyTorch may have foretold wrongly
            check_input(name, own if own.size else own.astype(kind.dtype), kind)
        return session.execute(values, (), threads)

    return _ByArrays(found, run)
