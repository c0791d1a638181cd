"""What writes the operators of ATen as nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from dnnl.errors import Unimplemented
from dnnl.graph.graph import Array, Node
from dnnl.torch.aten.symbols import Symbols
from dnnl.torch.dtypes import numpy_type

INT64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of a graph: its name, and what PyTorch says of its elements and sizes.

    A size is an integer, or a `torch.SymInt` where only a run knows it. ``strides`` are those that
    PyTorch gives the tensor, None where it has none.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[Any, ...]
    strides: tuple[Any, ...] | None = None

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether the elements are floats."""
        return self.dtype.is_floating_point

    def axis(self, dim: int) -> int:
        """An axis that PyTorch may count from the end; a scalar counts as one axis."""
        return dim % max(self.rank, 1)

    def axes(self, dims: Sequence[int] | int | None) -> tuple[int, ...]:
        """Axes in order; all of them without ``dims``."""
        given = [dims] if isinstance(dims, int) else dims
        return tuple(self.axis(dim) for dim in given) if given else tuple(range(self.rank))


Translate: TypeAlias = Callable[..., Any]
"""Writes one operator: a function of a writer and the arguments of its schema, in order, which
returns the name of its result, or those of several, None for one that it does not compute."""

REAL = (torch.float32, torch.bfloat16, torch.float16)
"""The floats that primitives compute with."""

_WIDEST = (torch.float64, torch.int64)
"""The types that operators of PyTorch give their results where primitives compute in others."""

Source: TypeAlias = Value | str


class Writer:
    """Collects the nodes and the constants of a graph.

    ``result`` is what PyTorch says of the result of the operator that is being written: a tensor
    without contents, or a tuple of them, of which something reads those in ``used``.
    """

    def __init__(self, symbols: Symbols) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}
        self.result: Any = None
        self.used: Collection[int] = ()
        self._symbols, self._prefix, self._count = symbols, "", 0
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._sizes: dict[Any, str] = {}
        self._narrow: dict[str, tuple[str, torch.dtype]] = {}

    def begin(self, name: str, result: Any, used: Collection[int] = ()) -> None:
        """Write the operator ``name`` next."""
        self.result, self.used, self._prefix, self._count = result, used, name, 0

    def add(self, op: str, *sources: Source, domain: str = "", **attrs: Any) -> str:
        """Append a node of an operator of ONNX and return the name of its result."""
        return self.add_several(1, op, *sources, domain=domain, **attrs)[0]

    def add_several(
        self, count: int, op: str, *sources: Source, domain: str = "", **attrs: Any
    ) -> tuple[str, ...]:
        """Append a node with ``count`` results and return their names."""
        name = f"{self._prefix}.{self._count}" if self._count else self._prefix
        self._count += 1
        inputs = tuple(own.name if isinstance(own, Value) else own for own in sources)
        results = tuple(f"{name}:{place}" if place else name for place in range(count))
        known = {key: own for key, own in attrs.items() if own is not None}
        self.nodes.append(Node(op, name, inputs, results, known, domain))
        return results

    def constant(self, array: Any, dtype: np.dtype | torch.dtype | None = None) -> str:
        """The name of a constant; equal ones are one."""
        kind = numpy_type(dtype) if isinstance(dtype, torch.dtype) else dtype
        contents = np.asarray(array) if kind is None else np.asarray(array).astype(kind)
        key = (contents.dtype.name, contents.shape, contents.tobytes())
        name = self._known.get(key)
        if name is None:
            self._known[key] = name = f"constant.{len(self._known)}"
            self.constants[name] = contents
        return name

    def scalar(self, number: Any, dtype: torch.dtype) -> str:
        """A number without axes, which may be a size of PyTorch."""
        if isinstance(number, torch.SymInt):
            size = self.reshape(self.sizes([number]), ())
            return self.to(size, dtype, torch.int64)
        if isinstance(number, torch.SymFloat):
            real = self._symbols.real(number.node.expr, self.add, self.constant)
            return self.to(self.reshape(real, ()), dtype, torch.float32)
        if isinstance(number, torch.SymBool):
            raise Unimplemented(f"the truth value {number} is computed from sizes")
        return self.constant(number, dtype)

    def sizes(self, sizes: Sequence[Any]) -> str:
        """Integers with one axis, of which any may be a size that only a run knows."""
        if not any(isinstance(size, torch.SymInt) for size in sizes):
            return self.constant(np.array(sizes, np.int64))
        parts = [
            self._size(size.node.expr)
            if isinstance(size, torch.SymInt)
            else self.constant(np.array([size], np.int64))
            for size in sizes
        ]
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=0)

    def _size(self, expr: Any) -> str:
        """An expression of sizes as an array of one element."""
        found = self._sizes.get(expr)
        if found is None:
            self._sizes[expr] = found = self._symbols.written(expr, self.add, self.constant)
        return found

    # What many operators are written with.

    @property
    def dtype(self) -> torch.dtype:
        """The element type of the result."""
        found: torch.dtype = self.result.dtype
        return found

    def promoted(self, dtype: torch.dtype, *sources: Any) -> list[str]:
        """Tensors and numbers as values of one element type."""
        return [
            self.to(own, dtype) if isinstance(own, Value) else self.scalar(own, dtype)
            for own in sources
        ]

    def to(self, source: Source, dtype: torch.dtype, given: torch.dtype | None = None) -> str:
        """``source`` in another element type; itself if it has that one, and what it was converted
        from without a loss if that has."""
        own = source.dtype if isinstance(source, Value) else given
        name = _name(source)
        narrow, before = self._narrow.get(name, ("", None))
        if dtype in (own, before):
            return name if own == dtype else narrow
        found = self.add("Cast", source, to=numpy_type(dtype))
        if own is not None and dtype in _WIDEST and _holds(dtype, own):
            self._narrow[found] = name, own
        return found

    def reshape(self, source: Source, sizes: Sequence[Any]) -> str:
        """``source`` in another shape."""
        return self.add("Reshape", source, self.sizes(sizes), allowzero=1)

    def unsqueeze(self, source: Source, axes: Sequence[int]) -> str:
        """``source`` with new axes of one element."""
        return self.add("Unsqueeze", source, self.sizes(axes)) if axes else _name(source)

    def squeeze(self, source: Source, axes: Sequence[int]) -> str:
        """``source`` without axes of one element."""
        return self.add("Squeeze", source, self.sizes(axes)) if axes else _name(source)

    def expand(self, source: Source, sizes: Sequence[Any]) -> str:
        """``source`` broadcast to a shape."""
        return self.add("Expand", source, self.sizes(sizes))

    def transpose(self, source: Source, order: Sequence[int]) -> str:
        """``source`` with its axes in another order."""
        if tuple(order) == tuple(range(len(order))):
            return _name(source)
        return self.add("Transpose", source, perm=tuple(order))

    def slice(self, source: Source, axis: int, start: Any, end: Any, step: int = 1) -> str:
        """Elements of one axis from ``start`` up to ``end``."""
        ends = [self.sizes([number]) for number in (start, end)]
        return self.add("Slice", source, *ends, self.sizes([axis]), self.sizes([step]))


def _holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Whether a type has all numbers of another one of the same kind."""
    alike = wide.is_floating_point == narrow.is_floating_point
    return alike and torch.promote_types(wide, narrow) == wide


def common_type(*sources: Any) -> torch.dtype:
    """The element type to which PyTorch promotes tensors and numbers."""
    stand_ins = [
        torch.empty((1,) * min(own.rank, 1), dtype=own.dtype, device="meta")
        if isinstance(own, Value)
        else own
        for own in sources
    ]
    found: torch.dtype = torch.result_type(*stand_ins)
    return found


def require_floats(*sources: Value) -> None:
    """Raise Unimplemented where elements are not of the floats that primitives compute with."""
    for own in sources:
        if own.dtype not in REAL:
            raise Unimplemented(f"elements of {own.dtype}: computed in f32, bf16 and f16 alone")


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes another one."""
    found = [0] * len(order)
    for place, axis in enumerate(order):
        found[axis] = place
    return tuple(found)


def _name(source: Source) -> str:
    return source.name if isinstance(source, Value) else source
