"""Graphs as JSON, and back, with their constants in sections of a file."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.framework.saved_file import WEIGHTS
from dnnl.framework.saved_plan import Read, Store, type_of, type_to_json
from dnnl.graph.graph import Array, Branch, Graph, ModelError, Node, TensorType

_PLAIN = (str, bool, int, float, type(None))


class GraphWriter:
    """Graphs as JSON. ``store`` puts the bytes of arrays into a ``section``."""

    def __init__(self, store: Store, section: str = WEIGHTS) -> None:
        self._store, self._section = store, section

    def written(self, graph: Graph) -> dict[str, Any]:
        """A graph that no pass has changed yet."""
        return {
            "nodes": list(map(self.node, graph.nodes)),
            "inputs": _types(graph.inputs),
            "outputs": dict(graph.outputs),
            "constants": self.arrays(graph.constants),
            "opset": graph.opset,
            "types": _types(graph.types),
            "defaults": _types(graph.defaults),
        }

    def node(self, node: Node) -> list[Any]:
        """A node, with the graphs inside it."""
        if node.post_ops or node.fused:
            raise Unimplemented(f"{node} is fused: save the model as it was loaded")
        attrs = {name: self._attr(node, name, value) for name, value in node.attrs.items()}
        return [node.op, node.name, node.inputs, node.outputs, attrs, node.domain]

    def arrays(self, arrays: Mapping[str, Array]) -> dict[str, Any]:
        """Arrays by name."""
        return {name: self._array(name, array) for name, array in arrays.items()}

    def _array(self, name: str, array: Array) -> list[Any]:
        if array.dtype.kind in "OSUM":
            rule = f"has elements of {array.dtype}, which no file can hold"
            raise Unimplemented(f"constant {name!r} {rule}")
        return [self._store(self._section, array), array.dtype.name, list(array.shape)]

    def _attr(self, node: Node, name: str, value: object) -> Any:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, bytes):
            return {"bytes": b64encode(value).decode()}
        if isinstance(value, np.dtype):
            return {"dtype": value.name}
        if isinstance(value, np.ndarray | np.generic):
            return {"array": self._array(name, np.asarray(value))}
        if isinstance(value, list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self._attr(node, name, own) for own in value]}
        if isinstance(value, Branch):
            return {"branch": self._branch(value)}
        rule = f"is a {type(value).__name__}, which no file can hold"
        raise Unimplemented(f"{node}: attribute {name!r} {rule}")

    def _branch(self, branch: Branch) -> dict[str, Any]:
        return {
            "nodes": list(map(self.node, branch.nodes)),
            "constants": self.arrays(branch.constants),
            "outputs": branch.outputs,
            "inputs": _types(branch.inputs),
            "types": _types(branch.types),
        }


class GraphReader:
    """Graphs out of JSON. ``blob`` gives the bytes at a place."""

    def __init__(self, blob: Read) -> None:
        self._blob = blob

    def read(self, given: dict[str, Any]) -> Graph:
        """The graph, whose constants are read when they are asked for."""
        return Graph(
            tuple(map(self.node, given["nodes"])),
            _types_of(given["inputs"]),
            given["outputs"],
            _Arrays(self._array, given["constants"]),
            given["opset"],
            _types_of(given["types"]),
            _types_of(given["defaults"]),
        )

    def arrays(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """Arrays by name, which are read at once."""
        return {name: self._array(own) for name, own in given.items()}

    def node(self, given: Sequence[Any]) -> Node:
        """A node, with the graphs inside it."""
        op, name, inputs, outputs, attrs, domain = given
        made = {key: self._attr(value) for key, value in attrs.items()}
        return Node(op, name, tuple(inputs), tuple(outputs), made, domain)

    def _array(self, given: Sequence[Any]) -> Array:
        place, dtype, shape = given
        found: Array = self._blob(place).view(np.dtype(dtype)).reshape(shape)
        return found

    def _attr(self, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        ((kind, value),) = given.items()
        readers: dict[str, Callable[[Any], Any]] = {
            "bytes": b64decode,
            "dtype": np.dtype,
            "array": self._array,
            "list": lambda own: list(map(self._attr, own)),
            "tuple": lambda own: tuple(map(self._attr, own)),
            "branch": self._branch,
        }
        if kind not in readers:
            raise ModelError(f"an attribute of kind {kind!r} is unknown")
        return readers[kind](value)

    def _branch(self, given: dict[str, Any]) -> Branch:
        return Branch(
            tuple(map(self.node, given["nodes"])),
            self.arrays(given["constants"]),
            tuple(given["outputs"]),
            _types_of(given["inputs"]),
            _types_of(given["types"]),
        )


class _Arrays(Mapping[str, Array]):
    """Arrays in a file, whose bytes are checked when the first is asked for."""

    def __init__(self, array: Callable[[Sequence[Any]], Array], places: dict[str, Any]) -> None:
        self._array, self._places = array, places

    def __getitem__(self, name: str) -> Array:
        return self._array(self._places[name])

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __reduce__(self) -> tuple[object, ...]:
        return dict, ({name: np.array(self[name]) for name in self},)


def _types(types: Mapping[str, TensorType | None]) -> dict[str, Any]:
    return {name: kind and type_to_json(kind) for name, kind in types.items()}


def _types_of(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: kind and type_of(kind) for name, kind in given.items()}
