"""What runs a model: the facts that a binder needs, and nothing that has to be planned again.

A plan comes from a lowered graph (`planning`) or from a file (`saved_plan`). All sizes of a run are
``expressions`` of its symbols s0, s1, ...: everything else refers to them by their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from dnnl.graph.expressions import Form, Values
from dnnl.graph.graph import Array, TensorType
from dnnl.graph.rounding import Rounding
from dnnl.runtime.engine import Engine
from dnnl.runtime.launch import KernelCode, Launch
from dnnl.runtime.memory import Memory

_SAMPLE = 256
"""Bytes by which most constants differ, of those of one descriptor."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one step of a session does: for tables and profiles.

    ``layouts`` maps src, weights and dst, as far as the primitive has them, to their format tags.
    """

    name: str
    primitive: str
    implementation: str
    layouts: Mapping[str, str]
    flops: float
    fused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Indices:
    """Indices in ``storage``, which must be within ``-extent..extent - 1``; ``extent`` is the place
    of an expression."""

    form: Form
    storage: int
    extent: int


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One execution: the storage and the descriptor of each argument, and the indices of the
    ``numbers`` by which it chooses its kernel. Plans of a file have no descriptors."""

    name: str
    storages: Mapping[int, int]
    forms: Mapping[int, Form]
    numbers: tuple[int, ...] = ()
    indices: Indices | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """Numbers ``step`` apart, from that at the place ``first`` on, which a run writes before its
    first step."""

    form: Form
    storage: int
    first: int
    step: int


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an input or an output is stored, the axis of its shape that each axis of the
    descriptor is, and the type that its elements have as an array."""

    form: Form
    permutation: tuple[int, ...]
    storage: int
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """An output that no step computes: an array, or the places of its elements."""

    kind: TensorType
    array: Array | None
    places: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A model on inputs of known sizes, or of all sizes for which ``condition`` holds.

    ``inputs`` have the name s0, s1, ... of a symbol for each size that is open; ``symbols`` are so
    many. ``outputs`` maps public names to values; ``contents`` are those that are constants, by
    public name. ``tensors`` says where inputs and outputs are stored, ``read`` and ``written``
    which of these storages are the arrays of whoever runs the model: inputs by name, and the value
    that each storage is. ``sizes`` maps storages of activations to the places of their bytes,
    ``touched`` has those that each step needs.
    """

    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, str]
    symbols: int
    condition: str
    expressions: tuple[str, ...]
    steps: tuple[PlannedStep, ...]
    layers: tuple[Layer, ...]
    tensors: Mapping[str, Placed]
    contents: Mapping[str, Contents]
    counted: tuple[Counted, ...]
    read: Mapping[str, int]
    written: Mapping[int, str]
    sizes: Mapping[int, int]
    touched: tuple[tuple[int, ...], ...]
    rounding: Rounding | None = None

    @property
    def is_open(self) -> bool:
        """Whether inputs may have several sizes."""
        return self.symbols > 0

    @property
    def is_direct(self) -> bool:
        """Whether a run of known sizes needs nothing but the addresses of its inputs and outputs:
        steps read and write these where they are, and nothing looks at elements before."""
        return not (
            self.contents
            or set(self.inputs) - set(self.read)
            or sorted(self.outputs.values()) != sorted(self.written.values())
            or any(step.indices is not None for step in self.steps)
        )


class Kernels(Protocol):
    """The kernels of one step."""

    def launch(self, values: Values) -> Launch:
        """The execution in a run of these values."""

    def codes(self) -> Sequence[KernelCode]:
        """All that there are now, for a file."""


@dataclass(frozen=True)
class Compiled:
    """A plan, the kernels of its steps, and the memory of each constant by its storage. ``isa`` is
    what the kernels are written for, ``features`` are what they need, by LLVM's names."""

    plan: Plan
    engine: Engine
    isa: str
    features: tuple[str, ...]
    kernels: Sequence[Kernels]
    constants: Mapping[int, Memory] = field(default_factory=dict)

    def sharing(self, others: Iterable[Memory]) -> Compiled:
        """The same, with those of ``others`` for constants that are equal to them: plans of one
        graph then have its weights in memory once."""
        if not self.engine.host_memory:
            return self
        known: dict[object, list[Memory]] = {}
        for other in others:
            known.setdefault(_signature(other), []).append(other)

        def shared(own: Memory) -> Memory:
            candidates = known.get(_signature(own), ())
            return next((one for one in candidates if np.array_equal(one.data, own.data)), own)

        constants = {storage: shared(own) for storage, own in self.constants.items()}
        return replace(self, constants=constants)


def _signature(memory: Memory) -> tuple[object, bytes]:
    """What equal memories have in common, and few others."""
    return memory.desc, memory.data[:_SAMPLE].tobytes()
