"""Graphs of PyTorch, of operators of ATen without side effects, as graphs of the library."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import fx

from dnnl.errors import Error, Unimplemented
from dnnl.graph.graph import Array, Graph, ModelError, TensorType
from dnnl.torch.aten.symbols import AnySymbols, Symbols
from dnnl.torch.aten.table import TRANSLATIONS
from dnnl.torch.aten.writer import Value, Writer, inverse
from dnnl.torch.dtypes import numpy_type
from dnnl.torch.tensors import array_of, number_of, odd_strides, order_of

OPSET = 21
"""The operator set of the nodes that translations write."""

_INT64 = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor of a call: its place among the arguments or the results, and the order in which its
    axes are in memory. ``strides`` are those of a result, where they are others than those of this
    order: along axes of one element."""

    place: int
    order: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    @property
    def is_row_major(self) -> bool:
        """Whether the axes are in memory in their own order."""
        return self.order == tuple(range(len(self.order)))


@dataclass(frozen=True)
class Imported:
    """A graph, and which arguments and results of PyTorch's graph its inputs and outputs are.

    ``inputs`` and ``outputs`` have tensors by name, ``numbers`` and ``shown`` the numbers among
    arguments and results; ``known`` are results that are no values at all, ``passed`` the arguments
    that are results, ``repeated`` the results that are earlier ones.
    """

    graph: Graph
    inputs: Mapping[str, Placed]
    numbers: Mapping[str, int]
    outputs: Mapping[str, Placed]
    shown: Mapping[str, int]
    known: Mapping[int, Any] = field(default_factory=dict)
    passed: Mapping[int, int] = field(default_factory=dict)
    repeated: Mapping[int, int] = field(default_factory=dict)

    @property
    def results(self) -> int:
        """The number of results."""
        others = self.shown, self.known, self.passed, self.repeated
        return len(self.outputs) + sum(len(own) for own in others)


def reasons_against(
    module: fx.GraphModule, refused: Mapping[str, str] = MappingProxyType({})
) -> dict[fx.Node, str]:
    """Why graphs do not have operators of PyTorch, by node; ``refused`` has further ones by name.

    The parts of a result are refused with it.
    """
    reasons: dict[fx.Node, str] = {}
    for node in module.graph.nodes:
        if node.op != "call_function" or is_size(node):
            continue
        if node.target is operator.getitem:
            if node.args[0] in reasons:
                reasons[node] = reasons[node.args[0]]
            continue
        reason = refused.get(node.name) or _reason_against(node)
        if reason is not None:
            reasons[node] = reason
    return reasons


def _reason_against(node: fx.Node) -> str | None:
    """Why graphs do not have an operator; None where they do."""
    importer = _Importer({}, {}, AnySymbols())
    try:
        for source in node.all_input_nodes:
            importer.assume(source)
        importer.translate(node)
    except Error as error:
        return str(error)
    for user in node.users:  # a result that only gradients need
        if user.target is operator.getitem:
            parts = importer.values[node]
            if parts[user.args[1]] is None:
                return f"result {user.args[1]} is not computed"
    return None


def alone(node: fx.Node) -> Graph:
    """The graph of one operator of PyTorch on the sizes that PyTorch saw first."""
    importer = _Importer({}, {}, Symbols())
    for source in node.all_input_nodes:
        importer.read_as_argument(source)
    importer.translate(node)
    found = importer.values[node]
    importer.show([found] if isinstance(found, Value) else found)
    return importer.finish().graph


def is_size(node: fx.Node) -> bool:
    """Whether a node computes a number from sizes, which translations have as an expression."""
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat)


def imported(
    module: fx.GraphModule, frozen: Mapping[int, Array], names: Sequence[str] = ()
) -> Imported:
    """The graph of ``module``; ``frozen`` are the contents of arguments that are constants.

    Tensors have their axes in the order of memory. With ``names``, those of its results, all of
    them are row-major.

    Raises Unimplemented for what graphs do not have.
    """
    attributes = {
        node: _attribute(module, str(node.target))
        for node in module.graph.nodes
        if node.op == "get_attr"
    }
    importer = _Importer(frozen, attributes, Symbols(), names)
    for node in module.graph.nodes:
        importer.read(node)
    return importer.finish()


def _attribute(module: torch.nn.Module, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name)
    return found


class _Importer:
    """Reads the nodes of one graph in order."""

    def __init__(
        self,
        frozen: Mapping[int, Array],
        attributes: Mapping[fx.Node, Any],
        symbols: Symbols,
        names: Sequence[str] = (),
    ) -> None:
        self._frozen, self._attributes, self._symbols = frozen, attributes, symbols
        self._names, self._writer = names, Writer(symbols)
        self._types: dict[str, TensorType] = {}
        self._inputs: dict[str, Placed] = {}
        self._numbers: dict[str, int] = {}
        self._outputs: dict[str, tuple[str, Placed]] = {}
        self._shown: dict[str, int] = {}
        self._known: dict[int, Any] = {}
        self._passed: dict[int, int] = {}
        self._repeated: dict[int, int] = {}
        self._count = 0
        self.values: dict[fx.Node, Any] = {}

    def read(self, node: fx.Node) -> None:
        """Take the next node of the graph."""
        if node.op == "placeholder":
            self._argument(node)
        elif node.op == "get_attr":
            self._contents(node, self._attributes[node])
        elif node.op == "output":
            results = node.args[0]
            self._results(results if isinstance(results, list | tuple) else [results])
        elif not is_size(node):
            self.translate(node)

    def finish(self) -> Imported:
        """The whole graph."""
        writer = self._writer
        numbers = {n: own for n, own in self._numbers.items() if n in self._symbols.used}
        types = {
            name: kind
            for name, kind in self._types.items()
            if name not in self._numbers or name in numbers
        }
        outputs = {name: value for name, (value, _) in self._outputs.items()}
        graph = Graph(tuple(writer.nodes), types, outputs, writer.constants, OPSET)
        placed = {name: own for name, (_, own) in self._outputs.items() if name not in self._shown}
        others = self._shown, self._known, self._passed, self._repeated
        return Imported(graph, self._inputs, numbers, placed, *others)

    def assume(self, node: fx.Node) -> None:
        """Take a node for a value of the type that PyTorch says."""
        found = node.meta.get("val")
        if isinstance(found, list | tuple):
            self.values[node] = [
                self._value(f"{node.name}:{n}", own) for n, own in enumerate(found)
            ]
        elif isinstance(found, torch.Tensor):
            self.values[node] = self._value(node.name, found)

    def read_as_argument(self, node: fx.Node) -> None:
        """Take any node for an argument of the sizes that PyTorch saw first."""
        found = node.meta.get("val")
        several = isinstance(found, list | tuple)
        values = []
        for place, own in enumerate(found if isinstance(found, list | tuple) else [found]):
            if isinstance(own, torch.SymInt):
                self._symbols.add_number(own.node.expr, node.name)
                self._writer.constants[node.name] = np.array(number_of(own))
            if not isinstance(own, torch.Tensor):
                continue
            name = f"{node.name}:{place}" if several else node.name
            shape = tuple(map(number_of, own.shape))
            self._types[name] = TensorType(numpy_type(own.dtype), shape)
            values.append(self._value(name, own))
            for axis, size in enumerate(own.shape):
                if isinstance(size, torch.SymInt):
                    self._symbols.add_axis(size.node.expr, name, axis)
        self.values[node] = values if several else next(iter(values), None)

    def show(self, values: Sequence[Value | None]) -> None:
        """Make values the outputs."""
        for place, value in enumerate(values):
            if value is not None:
                self._outputs[f"result.{place}"] = value.name, Placed(place, ())

    def translate(self, node: fx.Node) -> None:
        """Write the nodes that compute one of PyTorch."""
        if node.target is operator.getitem:
            source, place = node.args
            found = self.values[source][place]  # type: ignore[index]
            if found is None:
                raise Unimplemented(f"result {place} of {source} is not computed")
            self.values[node] = found
            return
        target: Any = node.target
        translate = TRANSLATIONS.get(target)
        if translate is None:
            raise Unimplemented(f"the operator {node.target} is not known")
        result = node.meta["val"]
        several = isinstance(result, list | tuple)
        for own in result if several else [result]:
            if isinstance(own, torch.Tensor):
                _check_tensor(own)
        used: set[Any] = {user.args[1] for user in node.users if user.target is operator.getitem}
        self._writer.begin(node.name, result, used)
        try:
            found = translate(self._writer, *self._arguments(node))
        except Error:
            raise
        except Exception as error:  # arguments that no check foresaw
            what = f"{type(error).__name__}: {error}"
            raise ModelError(f"{node.target} has arguments that do not fit: {what}") from error
        if not several:
            self.values[node] = self._value(found, result)
            return
        self.values[node] = [
            None if name is None or own is None else self._value(name, own)
            for name, own in zip(found, result, strict=True)
        ]

    def _arguments(self, node: fx.Node) -> list[Any]:
        """The arguments of a call in the order of the schema, with defaults."""
        schema = node.target._schema  # type: ignore[union-attr]
        found = []
        for place, argument in enumerate(schema.arguments):
            if place < len(node.args) and not argument.kwarg_only:
                given: Any = node.args[place]
            elif argument.name in node.kwargs:
                given = node.kwargs[argument.name]
            else:
                given = argument.default_value
            found.append(self._given(given))
        return found

    def _given(self, argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            size = argument.meta.get("val")
            if isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool):
                return size
            return self.values[argument]
        if isinstance(argument, list | tuple):
            return [self._given(own) for own in argument]
        return argument

    def _value(self, name: str, tensor: Any) -> Value:
        _check_tensor(tensor)
        return Value(name, tensor.dtype, tuple(tensor.shape), tensor.stride())

    def _argument(self, node: fx.Node) -> None:
        found, place = node.meta.get("val"), self._count
        self._count += 1
        if isinstance(found, torch.SymInt):
            self._numbers[node.name] = place
            self._types[node.name] = TensorType(_INT64, ())
            self._symbols.add_number(found.node.expr, node.name)
        elif isinstance(found, torch.Tensor) and place in self._frozen:
            self._constant(node, self._frozen[place], found)
        elif isinstance(found, torch.Tensor):
            self._tensor(node, found, place)

    def _tensor(self, node: fx.Node, tensor: torch.Tensor, place: int) -> None:
        """An argument that is read as it is in memory."""
        name, value = node.name, self._value(node.name, tensor)
        order = self._order(tensor)
        shape = tuple(_size(value.shape[axis]) for axis in order)
        self._types[name] = TensorType(numpy_type(tensor.dtype), shape)
        self._inputs[name] = Placed(place, order)
        for axis, size in enumerate(order):
            own = value.shape[size]
            if isinstance(own, torch.SymInt):
                self._symbols.add_axis(own.node.expr, name, axis)
        self._writer.begin(f"{name}.logical", tensor)
        logical = self._writer.transpose(name, inverse(order))
        self.values[node] = replace(value, name=logical)

    def _order(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """The axes of an argument or a result, outermost first."""
        straight = tuple(range(tensor.ndim))
        return straight if self._names else order_of(tensor) or straight

    def _constant(self, node: fx.Node, array: Array, tensor: torch.Tensor) -> None:
        self._writer.constants[node.name] = array
        self.values[node] = self._value(node.name, tensor)

    def _contents(self, node: fx.Node, found: Any) -> None:
        """A tensor that the graph has as an attribute."""
        if not isinstance(found, torch.Tensor):
            raise Unimplemented(f"attribute {node.target} is no tensor")
        self._check_real(found, str(node.target))
        self._constant(node, array_of(found), found)

    @staticmethod
    def _check_real(tensor: torch.Tensor, name: str) -> None:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise Unimplemented(f"attribute {name} is a {type(tensor).__name__}")

    def _results(self, results: Sequence[Any]) -> None:
        given = self._numbers | {name: own.place for name, own in self._inputs.items()}
        for place, node in enumerate(results):
            found = node.meta.get("val") if isinstance(node, fx.Node) else None
            name = self._names[place] if self._names else f"result.{place}"
            if not self._names and isinstance(node, fx.Node) and node.name in given:
                self._passed[place] = given[node.name]
            elif isinstance(found, torch.SymInt | torch.SymFloat):
                kind = torch.int64 if isinstance(found, torch.SymInt) else torch.float32
                self._writer.begin(name, found)
                self._outputs[name] = self._writer.scalar(found, kind), Placed(place, ())
                self._shown[name] = place
            elif not self._names and isinstance(found, torch.Tensor) and node in results[:place]:
                self._repeated[place] = results.index(node)
            elif isinstance(found, torch.Tensor):
                value = self.values[node]
                order = self._order(found)
                self._writer.begin(name, found)
                shown = self._writer.transpose(value, order)
                strides = None if self._names else odd_strides(found)
                self._outputs[name] = shown, Placed(place, order, strides)
            else:
                self._known[place] = node


def _size(size: Any) -> int | str:
    """A size of an input; an expression is the name of one."""
    return size if isinstance(size, int) else str(size.node.expr)


def _check_tensor(tensor: Any) -> None:
    """Raise Unimplemented for a tensor that no array of NumPy has."""
    if not isinstance(tensor, torch.Tensor):
        raise Unimplemented(f"a value of type {type(tensor).__name__}")
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise Unimplemented(f"a tensor of {tensor.device}, {tensor.layout}")
    numpy_type(tensor.dtype)
