"""Einsum: any equation, as diagonals, reductions, transpositions and MatMul or Mul."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dnnl.graph.graph import ModelError, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import broadcast
from dnnl.graph.writer import Writer
from dnnl.operators.operator import Operator
from dnnl.operators.writing import ended, summed, transposed
from dnnl.types.size import surely_equal

_TERM = re.compile(r"([A-Za-z]*)(?:(\.\.\.)([A-Za-z]*))?")
_Labels = tuple[str, ...]
"""A label for each dimension: a letter, or for an ellipsis a number, counted from the last."""


@dataclass(frozen=True)
class _Equation:
    """The labels of each source and of the result, and the size of each label."""

    sources: tuple[_Labels, ...]
    result: _Labels
    sizes: Mapping[str, int]


def _read(scope: Scope) -> _Equation:
    """The equation of a node; raises ModelError if it is malformed or does not fit the sources."""
    text = scope.attr("equation", b"").decode().replace(" ", "")
    left, arrow, right = text.partition("->")
    terms, count = left.split(","), len(scope.node.inputs)
    if len(terms) != count:
        raise ModelError(f"equation {text!r} has {len(terms)} terms for {count} sources")
    shapes = [scope.shape(place) for place in range(count)]
    sources = [_labels(term, len(own), text) for term, own in zip(terms, shapes, strict=True)]
    sizes: dict[str, int] = {}
    for labels, shape in zip(sources, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            (sizes[label],) = broadcast([(sizes.get(label, 1),), (size,)])
    hidden = sorted((label for label in sizes if label.isdigit()), key=int, reverse=True)
    if arrow:
        result = _labels(right, None, text, hidden)
    else:  # letters that are there once, in the order of the alphabet
        every = [label for labels in sources for label in labels]
        alone = sorted(label for label in sizes if label.isalpha() and every.count(label) == 1)
        result = (*hidden, *alone)
    if len(set(result)) != len(result) or not set(result) <= sizes.keys():
        raise ModelError(f"equation {text!r}: a letter of the result is there twice, or only there")
    return _Equation(tuple(sources), result, sizes)


def _labels(term: str, rank: int | None, text: str, hidden: Sequence[str] = ()) -> _Labels:
    found = _TERM.fullmatch(term)
    if found is None:
        raise ModelError(f"equation {text!r}: {term!r} is no term of letters")
    before, dots, behind = found.groups("")
    if rank is not None:
        more = rank - len(before) - len(behind)
        if more < 0 or (more and not dots):
            raise ModelError(
                f"equation {text!r}: {term!r} has not the {rank} dimensions of its source"
            )
        hidden = tuple(str(number) for number in reversed(range(more)))
    return (*before, *(hidden if dots else ()), *behind)


def _infer(scope: Scope) -> list[TensorType]:
    """The result has the sizes of its labels."""
    equation = _read(scope)
    return scope.result([equation.sizes[label] for label in equation.result])


@dataclass(frozen=True)
class _Term:
    """A value with a label for each of its dimensions, no two of them equal."""

    value: str
    labels: _Labels


def _expand(writer: Writer) -> bool:
    """Multiply the sources in order. A label that is not needed later is summed: before the product
    if one factor has it, by the product if both have it."""
    node, graph = writer.node, writer.graph
    equation = _read(Scope(node, graph))
    contraction = _Contraction(writer, equation.sizes)
    shape = graph.shape_of(node.output)
    if any(surely_equal(size, 0) for size in equation.sizes.values()):
        writer.add("Identity", (writer.filled(0, shape),), shape)
        return True
    terms = [
        contraction.read(value, labels)
        for value, labels in zip(node.inputs, equation.sources, strict=True)
    ]
    term = terms[0]
    for number, other in enumerate(terms[1:], 2):
        later = {label for each in terms[number:] for label in each.labels}
        term = contraction.product(term, other, later.union(equation.result))
    term = contraction.only(term, equation.result)
    value = contraction.ordered(term, equation.result)
    return ended(writer, value)


@dataclass(frozen=True)
class _Contraction:
    """Writes the nodes of terms whose labels have ``sizes``."""

    writer: Writer
    sizes: Mapping[str, int]

    def shape(self, labels: Collection[str]) -> Shape:
        """The sizes of labels."""
        return tuple(self.sizes[label] for label in labels)

    def read(self, value: str, labels: _Labels) -> _Term:
        """A source as a term: the diagonal of dimensions with the same label, without dimensions of
        size 1 that are broadcast."""
        shape = self.writer.graph.shape_of(value)
        for label in dict.fromkeys(labels):
            while labels.count(label) > 1:
                value, labels, shape = self._diagonal(value, labels, shape, label)
        stay = [
            dim
            for dim, (label, size) in enumerate(zip(labels, shape, strict=True))
            if surely_equal(size, self.sizes[label])
        ]
        if len(stay) < len(labels):
            labels = tuple(labels[dim] for dim in stay)
            value = self.writer.reshape(value, self.shape(labels))
        return _Term(value, labels)

    def _diagonal(
        self, value: str, labels: _Labels, shape: Shape, label: str
    ) -> tuple[str, _Labels, Shape]:
        """The diagonal of two dimensions of one label: a strided slice of both as one axis."""
        first = labels.index(label)
        second = labels.index(label, first + 1)
        size = shape[first]
        if not surely_equal(size, shape[second]):
            raise ModelError(f"{label!r} has sizes {size} and {shape[second]} in one source")
        others = [dim for dim in range(len(labels)) if dim not in (first, second)]
        value = transposed(self.writer, value, shape, (*others, first, second))
        rest = tuple(shape[dim] for dim in others)
        value = self.writer.reshape(value, (*rest, size * size))
        ends = {"starts": (0,), "ends": (size * size,), "axes": (-1,), "steps": (size + 1,)}
        shape = (*rest, size)
        value = self.writer.add("Slice", (value,), shape, ends)
        return value, (*(labels[dim] for dim in others), label), shape

    def only(self, term: _Term, needed: Collection[str]) -> _Term:
        """The term, summed over the labels that are not ``needed``."""
        axes = tuple(dim for dim, label in enumerate(term.labels) if label not in needed)
        if not axes:
            return term
        value = summed(self.writer, term.value, self.shape(term.labels), axes)
        return _Term(value, tuple(label for label in term.labels if label in needed))

    def ordered(self, term: _Term, labels: _Labels) -> str:
        """The value of a term with its dimensions in the order of ``labels``."""
        order = tuple(term.labels.index(label) for label in labels)
        return transposed(self.writer, term.value, self.shape(term.labels), order)

    def product(self, a: _Term, b: _Term, needed: Collection[str]) -> _Term:
        """The product of two terms, summed over the labels that are not ``needed``."""
        a, b = self.only(a, {*needed, *b.labels}), self.only(b, {*needed, *a.labels})
        both = [label for label in a.labels if label in b.labels]
        batch = tuple(label for label in both if label in needed)
        inner = tuple(label for label in both if label not in needed)
        rows = tuple(label for label in a.labels if label not in both)
        columns = tuple(label for label in b.labels if label not in both)
        left = self.ordered(a, (*batch, *rows, *inner))
        right = self.ordered(b, (*batch, *inner, *columns))
        every, m, k, n = (prod(self.shape(own)) for own in (batch, rows, inner, columns))
        left = self.writer.reshape(left, (every, m, k))
        right = self.writer.reshape(right, (every, k, n))
        op = "MatMul" if inner else "Mul"  # an outer product has nothing to sum
        value = self.writer.add(op, (left, right), (every, m, n))
        labels = (*batch, *rows, *columns)
        return _Term(self.writer.reshape(value, self.shape(labels)), labels)


OPERATORS: Mapping[str, Operator] = {
    "Einsum": Operator(_infer, expand=_expand, inputs=(1, None), required=("equation",)),
}
