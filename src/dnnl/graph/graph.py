"""A model as frozen values: typed nodes in execution order, and what consumes what.

A pass leaves the graph that it is given as it is and returns another one, so that any stage can be
looked at, exported or compared with the one before it. The graph that a pass is building grows
until the pass returns it; afterwards nobody changes its tables. Graphs share their constants, whose
contents nobody changes either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from dnnl.errors import Error, InvalidArguments, OutOfMemory, Unimplemented
from dnnl.types.dtype import DataType
from dnnl.types.expression import Function

Array = np.ndarray
Shape = tuple[int, ...]
Attributes: TypeAlias = Mapping[str, Any]
"""The attributes of a node, with the types that ONNX gives them; element types and tensors are
NumPy's."""

REAL = frozenset(kind.numpy for kind in (DataType.f32, DataType.bf16, DataType.f16))
"""The types of floats in which primitives read and write what they compute in f32."""

JOINT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
"""What is between the parts of the names that passes make; no name of a file has it."""

AS_NUMBERS = f"{JOINT}numbers"
"""What ends the name of a value that a plan knows as numbers."""

FUNCTION = "dnnl.Function"
"""The operator, and its domain, of nodes that compute the traced ``function`` of their sources, of
which the first has the shape of the result; no file can hold one."""
EXACT = "dnnl.Exact"
"""The same of those whose ``function`` is computed in the types of the elements."""


UNRANKED = ("...",)
"""The shape of an input whose number of dimensions the model leaves open as well."""

SEQUENCE = ("sequence",)
"""The shape of an input that is a list of tensors of one type, of any shapes."""


class ModelError(Error, ValueError):
    """A file or a graph that is no usable model; the message says where and why."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a value; a dimension is a name where the model leaves it open, and
    the whole shape is `UNRANKED` where it leaves the number of dimensions open."""

    dtype: np.dtype
    shape: tuple[int | str, ...]

    @property
    def sizes(self) -> Shape:
        """The shape as integers.

        Raises InvalidArguments where a dimension is still a name.
        """
        sizes = tuple(n for n in self.shape if not isinstance(n, str))
        if len(sizes) != len(self.shape):
            raise InvalidArguments("shape", self.shape, "every dimension must be known here")
        return sizes

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class PostOp:
    """An operation that a node applies to its result before it is stored.

    ``kind`` is "eltwise" (``alg`` with ``alpha`` and ``beta``), "binary" (``alg`` with the graph
    value that is its operand as second source) or "function" (a traced ``function`` of the result
    and ``operands``). Operands are aligned to the result as NumPy broadcasts.
    """

    kind: str
    alg: str = ""
    alpha: float = 0.0
    beta: float = 0.0
    operands: tuple[str, ...] = ()
    function: Function | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One operator: ``inputs`` may hold "" for an absent optional one.

    ``post_ops`` are what fusion moved into it, ``fused`` the names of the nodes that they, or
    folded arithmetic, come from.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Attributes = field(default_factory=dict)
    domain: str = ""
    post_ops: tuple[PostOp, ...] = ()
    fused: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        """The first output, the only one of most operators."""
        return self.outputs[0]

    @property
    def captured(self) -> tuple[str, ...]:
        """What its branches read of the graph around it: the last of its inputs."""
        inside = [value for value in self.attrs.values() if isinstance(value, Branch)]
        return tuple(dict.fromkeys(value for branch in inside for value in branch.captured))

    @property
    def reads(self) -> tuple[str, ...]:
        """Every value that the node needs, operands of its post-ops included."""
        return (*filter(None, self.inputs), *(v for p in self.post_ops for v in p.operands))

    def input(self, index: int) -> str:
        """The name of input ``index``, "" where it is absent."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def __str__(self) -> str:
        return f"node {self.name!r} ({self.op})"


@dataclass(frozen=True)
class Branch:
    """A graph inside a node, which may read values of the graph around it: the contents of its own
    ``constants``, and which values are its ``outputs``.

    ``inputs`` has what the node hands to it, ``types`` its outputs, each with the declared type or
    None where none is declared.
    """

    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    outputs: tuple[str, ...]
    inputs: Mapping[str, TensorType | None] = field(default_factory=dict)
    types: Mapping[str, TensorType | None] = field(default_factory=dict)

    @property
    def produced(self) -> frozenset[str]:
        """The values that its nodes produce."""
        return frozenset(value for node in self.nodes for value in node.outputs if value)

    @property
    def own(self) -> frozenset[str]:
        """All values that are its own."""
        return self.produced.union(self.constants, self.inputs)

    @property
    def captured(self) -> tuple[str, ...]:
        """The values that it reads of the graph around it."""
        read = (value for node in self.nodes for value in node.reads)
        return tuple(dict.fromkeys(v for v in (*read, *self.outputs) if v not in self.own))


@dataclass(frozen=True)
class Graph:
    """Nodes in execution order with the types of their values.

    ``inputs`` maps a name to its type, ``outputs`` a public name to the value that it shows,
    ``constants`` a value to its contents, which are objects where they are sizes that only a run
    knows, and ``types`` these and every other value to its type, as far as it has been inferred.
    ``defaults`` maps the constants that may also be given to the types that they are declared with.
    """

    nodes: tuple[Node, ...]
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, str]
    constants: Mapping[str, Array]
    opset: int
    types: Mapping[str, TensorType] = field(default_factory=dict)
    defaults: Mapping[str, TensorType] = field(default_factory=dict)

    def type_of(self, value: str) -> TensorType:
        """Type of a value of any kind."""
        constant = self.constants.get(value)
        if constant is not None and constant.dtype != object:
            return TensorType(constant.dtype, constant.shape)
        return self.types[value] if value in self.types else self.inputs[value]

    def shape_of(self, value: str) -> Shape:
        """Shape of a value, all dimensions known."""
        return self.type_of(value).sizes

    def uses(self) -> Counter[str]:
        """How often each value is read, by nodes and as an output."""
        counts = Counter(self.outputs.values())
        for node in self.nodes:
            counts.update(node.reads)
        return counts

    def renamed(self, names: Mapping[str, str]) -> Graph:
        """The graph with every read of a key of ``names`` replaced by its value."""

        def final(value: str) -> str:
            while value in names:
                value = names[value]
            return value

        def with_operands(post_op: PostOp) -> PostOp:
            return replace(post_op, operands=tuple(map(final, post_op.operands)))

        def reading(node: Node) -> Node:
            post_ops = tuple(map(with_operands, node.post_ops))
            return replace(node, inputs=tuple(map(final, node.inputs)), post_ops=post_ops)

        outputs = {public: final(value) for public, value in self.outputs.items()}
        return replace(self, nodes=tuple(map(reading, self.nodes)), outputs=outputs)

    def pruned(self) -> Graph:
        """The graph without nodes and constants that no output needs."""
        needed = set(self.outputs.values())
        used: list[Node] = []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                used.append(node)
                needed.update(node.reads)
        constants = {name: array for name, array in self.constants.items() if name in needed}
        return replace(self, nodes=tuple(reversed(used)), constants=constants)

    def check_order(self) -> None:
        """Raise ModelError where a node or an output reads what nothing before it produced, or
        where a value has two producers."""
        known = {*self.inputs, *self.constants}
        for node in self.nodes:
            for value in _unknown(node.reads, known):
                raise ModelError(f"{node} reads {value!r}, which nothing before it produces")
            for value in filter(None, node.outputs):
                if value in known:
                    raise ModelError(f"{node} produces {value!r}, which there is already")
                known.add(value)
        for value in _unknown(self.outputs.values(), known):
            raise ModelError(f"output {value!r} is produced by no node")


Pass = Callable[[Graph], Graph]
"""A rewrite."""


def is_whole(dtype: np.dtype[Any]) -> bool:
    """Whether elements are integers or truth values."""
    return dtype.kind in "biu"


class blamed_on:  # noqa: N801 - a context; as a generator it would take a microsecond more
    """Whatever goes wrong inside is an error of the library that names ``node``.

    What Python or NumPy raise means contents that no check foresaw: a ModelError.
    """

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        node = self._node
        if isinstance(error, Error):
            if str(node) in str(error):
                return
            if isinstance(error, Unimplemented):
                raise Unimplemented(f"{node}: {error.message}", error.reasons) from error
            if isinstance(error, InvalidArguments):
                where = f"{node}, {error.argument}"
                raise InvalidArguments(where, error.value, error.rule, error.hint) from error
            if isinstance(error, ModelError | OutOfMemory):
                raise type(error)(f"{node}: {error}") from error
        elif isinstance(error, MemoryError):
            raise OutOfMemory(f"{node}: {error}") from error
        elif isinstance(error, Exception):
            what = f"{type(error).__name__}: {error}"
            rule = f"{node} is damaged or has sources that do not fit"
            raise ModelError(f"{rule}: {what}") from error


def with_inputs(graph: Graph, names: Collection[str]) -> Graph:
    """The graph with the initializers ``names`` as inputs. Without names it is the same object, so
    that no constants of a file are read."""
    if not names:
        return graph
    opened = {name: graph.defaults[name] for name in names}
    constants = {name: array for name, array in graph.constants.items() if name not in opened}
    left = {name: kind for name, kind in graph.defaults.items() if name not in opened}
    inputs = {**graph.inputs, **opened}
    return replace(graph, inputs=inputs, constants=constants, defaults=left)


def _unknown(values: Iterable[str], known: set[str]) -> Iterator[str]:
    return (value for value in values if value not in known)
