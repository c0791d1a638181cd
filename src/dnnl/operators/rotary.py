"""Rotary position embeddings: pairs of elements rotated by angles of their positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import JOINT, Array, ModelError, Shape, TensorType, is_whole
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import same_shape
from dnnl.graph.writer import Writer
from dnnl.operators.microsoft import MICROSOFT, check_known
from dnnl.operators.operator import Operator
from dnnl.operators.scaled_dot_product import integers
from dnnl.operators.writing import with_size


@dataclass(frozen=True, slots=True)
class Angles:
    """Factors that are broadcast to [..., 2 * pairs]: x * ``cosines`` + partner(x) * ``sines``.

    ``sines`` are negated for the first element of a pair. The elements of a pair are neighbours if
    ``interleaved``, else ``pairs`` apart.
    """

    cosines: str
    sines: str
    interleaved: bool = False


def rotated(writer: Writer, value: str, angles: Angles) -> str:
    """``value`` with the first elements of its last axis rotated, as many as there are factors."""
    kind = writer.type_of(value)
    shape, dtype = kind.sizes, kind.dtype
    paired = with_size(shape, len(shape) - 1, writer.shape_of(angles.cosines)[-1])
    whole = same_shape(paired, shape)
    first = value if whole else _part(writer, value, 0, paired[-1])
    swapped = _joined_pairs(writer, *_pairs(writer, first, angles.interleaved), angles.interleaved)
    products = tuple(
        writer.add("Mul", sources, paired, {}, dtype)
        for sources in ((first, angles.cosines), (swapped, angles.sines))
    )
    result = writer.add("Add", products, paired, {}, dtype)
    if whole:
        return result
    rest = _part(writer, value, paired[-1], shape[-1])
    return writer.add("Concat", (result, rest), shape, {"axis": len(shape) - 1}, dtype)


def _part(writer: Writer, value: str, first: int, end: int, step: int = 1) -> str:
    """A slice of the last axis."""
    kind = writer.type_of(value)
    axis = len(kind.sizes) - 1
    shape = with_size(kind.sizes, axis, -(-(end - first) // step))
    named = {"starts": (first,), "ends": (end,), "axes": (axis,), "steps": (step,)}
    return writer.add("Slice", (value,), shape, named, kind.dtype)


def _pairs(writer: Writer, value: str, interleaved: bool) -> tuple[str, str]:
    """The second elements of all pairs, and the first ones."""
    size = writer.shape_of(value)[-1]
    if interleaved:
        return _part(writer, value, 1, size, 2), _part(writer, value, 0, size, 2)
    return _part(writer, value, size // 2, size), _part(writer, value, 0, size // 2)


def _joined_pairs(writer: Writer, first: str, second: str, interleaved: bool) -> str:
    kind = writer.type_of(first)
    shape = kind.sizes
    both = with_size(shape, len(shape) - 1, 2 * shape[-1])
    if not interleaved:
        return writer.add("Concat", (first, second), both, {"axis": len(shape) - 1}, kind.dtype)
    single = (*shape, 1)
    parts = tuple(writer.reshape(value, single, kind.dtype) for value in (first, second))
    joined = writer.add("Concat", parts, (*shape, 2), {"axis": len(shape)}, kind.dtype)
    return writer.reshape(joined, both, kind.dtype)


def angles_of(writer: Writer, cosines: str, sines: str, *, interleaved: bool) -> Angles:
    """The factors of cosines and sines that are broadcast to [..., pairs]."""
    kind = writer.type_of(sines)
    negative = writer.add("Neg", (sines,), kind.sizes, {}, kind.dtype)
    return Angles(
        _joined_pairs(writer, cosines, cosines, interleaved),
        _joined_pairs(writer, negative, sines, interleaved),
        interleaved,
    )


def angles_at(
    writer: Writer, caches: tuple[str, str], positions: str, shape: Shape, *, interleaved: bool
) -> Angles:
    """The factors at ``positions`` of two tables [most positions, pairs]. ``shape`` is that of the
    result without its last axis.

    Constant tables become one constant of all factors, which all nodes with these tables share.
    """
    if all(cache in writer.graph.constants for cache in caches):
        table = _factors(writer, caches, interleaved)
        rows = _rows(writer, table, positions, shape)
        width = writer.shape_of(table)[-1] // 2
        return Angles(
            _part(writer, rows, 0, width), _part(writer, rows, width, 2 * width), interleaved
        )
    cosines, sines = (_rows(writer, cache, positions, shape) for cache in caches)
    return angles_of(writer, cosines, sines, interleaved=interleaved)


def _rows(writer: Writer, table: str, positions: str, shape: Shape) -> str:
    kind = writer.type_of(table)
    whole = (*writer.shape_of(positions), kind.sizes[-1])
    rows = writer.add("Gather", (table, positions), whole, {"axis": 0}, kind.dtype)
    return writer.reshape(rows, (*shape, kind.sizes[-1]), kind.dtype)


def _factors(writer: Writer, caches: tuple[str, str], interleaved: bool) -> str:
    """A constant [most positions, 4 * pairs]: cosines of 2 * pairs elements, then signed sines."""
    name = f"{caches[0]}{JOINT}{caches[1]}{JOINT}{'neighbours' if interleaved else 'halves'}"
    cosines, sines = (writer.graph.constants[cache] for cache in caches)
    if name not in writer.graph.constants:
        join = _neighbours if interleaved else _halves
        joined = np.concatenate((join(cosines, cosines), join(-sines, sines)), -1)
        writer.constants[name] = joined
    return name


def _halves(first: Array, second: Array) -> Array:
    return np.concatenate((first, second), -1)


def _neighbours(first: Array, second: Array) -> Array:
    return np.stack((first, second), -1).reshape(len(first), -1)


def _infer(scope: Scope) -> list[TensorType]:
    """The type of the source. Tables have a row for each position, or without position_ids for each
    row of the source."""
    batch, rows, _, size = _by_heads(scope)
    pairs = _pair_count(scope, size)
    caches = [scope.shape(place) for place in (1, 2)]
    if scope.node.input(3):
        expected: tuple[Shape, ...] = ((caches[0][0], pairs),) * 2
        if scope.shape(3) != (batch, rows):
            raise ModelError(f"position_ids {scope.shape(3)} are not {(batch, rows)}")
    else:
        expected = ((batch, rows, pairs),) * 2
    if tuple(caches) != expected:
        raise ModelError(f"cosines {caches[0]} and sines {caches[1]} are not {expected[0]}")
    return scope.result(scope.shape())


def _by_heads(scope: Scope) -> tuple[int, int, int, int]:
    """Batch, rows, heads, and the size of a head."""
    shape, count = scope.shape(), scope.attr("num_heads", 0)
    if is_whole(scope.type().dtype):
        raise ModelError(f"{scope.type().dtype} is not rotated by angles")
    if len(shape) == 4:
        batch, heads, rows, size = shape
        return batch, rows, heads, size
    if len(shape) != 3 or count < 1 or shape[2] % count:
        raise ModelError(f"attribute 'num_heads' = {count} does not divide source {shape}")
    return shape[0], shape[1], count, shape[2] // count


def _pair_count(scope: Scope, size: int) -> int:
    count = scope.attr("rotary_embedding_dim", 0) or size
    if not 0 < count <= size or count % 2:
        rule = f"must be even and at most {size}"
        raise ModelError(f"attribute 'rotary_embedding_dim' = {count} {rule}")
    return count // 2


def _expand(writer: Writer) -> bool:
    node, graph = writer.node, writer.graph
    interleaved = bool(Scope(node, graph).attr("interleaved", 0))
    if node.input(3):
        batch, rows, _, _ = _by_heads(Scope(node, graph))
        seen = _row_shape(graph.shape_of(node.output), batch, rows)
        caches = node.inputs[1], node.inputs[2]
        angles = angles_at(writer, caches, node.inputs[3], seen, interleaved=interleaved)
    else:
        batch, rows, pairs = graph.shape_of(node.inputs[1])
        seen = (*_row_shape(graph.shape_of(node.output), batch, rows), pairs)
        cosines, sines = (writer.reshape(value, seen) for value in node.inputs[1:3])
        angles = angles_of(writer, cosines, sines, interleaved=interleaved)
    _rotated_heads(writer, angles)
    return True


def _row_shape(shape: Shape, batch: int, rows: int) -> Shape:
    """The shape, without the last axis, in which factors of rows broadcast to a source."""
    return (batch, rows, 1) if len(shape) == 3 else (batch, 1, rows)


def _rotated_heads(writer: Writer, angles: Angles) -> None:
    """Rotate the source, which is [batch, rows, heads * size] or [batch, heads, rows, size]."""
    source = writer.node.inputs[0]
    shape = writer.shape_of(source)
    if len(shape) == 4:
        rotated(writer, source, angles)
        return
    batch, rows, heads, size = _by_heads(Scope(writer.node, writer.graph))
    seen = writer.reshape(source, (batch, rows, heads, size))
    writer.reshape(rotated(writer, seen, angles), shape)


_KNOWN = "interleaved", "is_packed_batching", "num_heads", "rotary_embedding_dim", "scale"


def _infer_microsoft(scope: Scope) -> list[TensorType]:
    """As in ONNX's domain, but positions come before the tables: one for each row, or the first."""
    check_known(scope, *_KNOWN)
    node = scope.node
    if scope.attr("is_packed_batching", 0) or scope.attr("scale", 1.0) != 1.0:
        rule = "is_packed_batching or scale: only angles as they are, of batches, are computed"
        raise Unimplemented(f"{node}: {rule}")
    caches = scope.shape(2), scope.shape(3)
    if len(caches[0]) != 2 or caches[0] != caches[1]:
        raise ModelError(f"tables of angles {caches[0]} and {caches[1]} are not two of one shape")
    batch, rows, size = _sizes_by_table(scope)
    if size < 2 * caches[0][1]:
        raise ModelError(f"tables of {caches[0][1]} angles rotate more than {size} numbers")
    if scope.shape(1) not in ((1,), (batch, rows)):
        raise ModelError(f"position_ids {scope.shape(1)} are not (1,) or {(batch, rows)}")
    return scope.result(scope.shape())


def _sizes_by_table(scope: Scope) -> tuple[int, int, int]:
    """Batch, rows, and the size of a head: twice the width of the tables if no attribute says
    otherwise."""
    shape = scope.shape()
    if len(shape) == 4:
        return shape[0], shape[2], shape[3]
    if len(shape) != 3:
        raise ModelError(f"source {shape} must have 3 or 4 dimensions")
    count = scope.attr("num_heads", 0)
    size = shape[2] // count if count else 2 * scope.shape(2)[1]
    if shape[2] % size:
        raise ModelError(f"heads of {size} numbers do not divide source {shape}")
    return shape[0], shape[1], size


def _expand_microsoft(writer: Writer) -> bool:
    node, graph = writer.node, writer.graph
    scope = Scope(node, graph)
    batch, rows, size = _sizes_by_table(scope)
    shape, positions = scope.shape(), node.inputs[1]
    if len(scope.shape(1)) == 1:
        first = integers(writer, positions, (1, 1))
        every = writer.numbers(0, rows)
        positions = writer.add("Add", (every, first), (1, rows), {}, writer.type_of(every).dtype)
        batch = 1
    interleaved = bool(scope.attr("interleaved", 0))
    seen = (batch, rows, 1) if len(shape) == 3 else (batch, 1, rows)
    caches = node.inputs[2], node.inputs[3]
    angles = angles_at(writer, caches, positions, seen, interleaved=interleaved)
    if len(shape) == 4:
        rotated(writer, node.inputs[0], angles)
        return True
    heads = writer.reshape(node.inputs[0], (*shape[:2], shape[2] // size, size))
    writer.reshape(rotated(writer, heads, angles), shape)
    return True


OPERATORS: Mapping[str, Operator] = {
    "RotaryEmbedding": Operator(_infer, expand=_expand, inputs=(3, 4)),
    f"{MICROSOFT}.RotaryEmbedding": Operator(
        _infer_microsoft, expand=_expand_microsoft, inputs=(4, 4)
    ),
}
