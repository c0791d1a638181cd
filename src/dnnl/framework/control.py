"""Control flow on arrays: data-dependent branches, loops, and scans.

A body is a function from the values that its node hands to it to its results, each an array or a
list of arrays. What it reads of the graph around it is bound when a node begins to use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.graph.graph import UNRANKED, Array, Branch, ModelError, Node
from dnnl.graph.scope import normal_axis

Body = Callable[[Sequence[Any]], Sequence[Any]]
Bodies = Mapping[str, Callable[[], Body]]
"""By attribute, what makes a body that may be called any number of times."""


def branch(node: Node, given: Sequence[Any], bodies: Bodies) -> list[Any]:
    """The results of one of two graphs, by a condition of one element."""
    key = "then_branch" if _truth(given[0], f"condition {node.input(0)!r}") else "else_branch"
    results = list(_body(bodies, key)([]))
    if len(results) != len(node.outputs):
        raise ModelError(f"{key} has {len(results)} results, not {len(node.outputs)}")
    return results


def loop(node: Node, given: Sequence[Any], bodies: Bodies) -> list[Any]:
    """The carried values after the last iteration, then what each iteration made, stacked.

    There are as many iterations as the first source says, unless the second, or a body, says that
    there are no more. A body gets the number of the iteration, the condition and what is carried.
    """
    body = _body(bodies, "body")
    most = None if given[0] is None else _integer(given[0], f"trip count {node.input(0)!r}")
    condition = f"condition {node.input(1)!r}"
    goes_on = len(given) < 2 or given[1] is None or _truth(given[1], condition)
    carried = list(given[2:])
    count = len(carried)
    inside = _graph(node)
    _check_form(node, inside, count + 2, 1 + count)
    made: list[list[Array]] = [[] for _ in inside.outputs[1 + count :]]
    iteration = 0
    while goes_on and (most is None or iteration < most):
        number = np.array(iteration, np.int64)
        results = body([number, np.array(True), *carried])
        goes_on = _truth(results[0], f"condition {inside.outputs[0]!r} of the body")
        carried = list(results[1 : 1 + count])
        for every, value in zip(made, results[1 + count :], strict=True):
            every.append(value)
        iteration += 1
    names = inside.outputs[1 + count :]
    stacked = [_stacked(every, inside, name, 0) for every, name in zip(made, names, strict=True)]
    return [*carried, *stacked]


def scan(node: Node, given: Sequence[Any], bodies: Bodies, opset: int) -> list[Any]:
    """The states after the last iteration, then what each made, stacked: a body gets the states
    and one slice of each of the other sources."""
    if opset < 9:
        return _scan_of_batch(node, given, bodies)
    return _scan(node, given, bodies, _Axes(node, len(given)))


class _Axes:
    """Along which axis, and in which direction, a Scan reads and stacks."""

    def __init__(self, node: Node, sources: int) -> None:
        self.scanned = int(node.attrs.get("num_scan_inputs", 0))
        self.states = sources - self.scanned
        if self.scanned < 1 or self.states < 0:
            rule = (
                f"num_scan_inputs = {self.scanned} of {sources} sources: it must have one or more"
            )
            raise ModelError(rule)
        made = len(node.outputs) - self.states
        self.read = self._each(node, "scan_input_axes", self.scanned)
        self.backward = self._each(node, "scan_input_directions", self.scanned)
        self.stacked = self._each(node, "scan_output_axes", made)
        self.reversed = self._each(node, "scan_output_directions", made)

    @staticmethod
    def _each(node: Node, name: str, count: int) -> tuple[int, ...]:
        given = tuple(node.attrs.get(name, (0,) * count))
        if len(given) != count:
            raise ModelError(f"attribute {name!r} = {given} must have {count} numbers")
        return given


def _scan(node: Node, given: Sequence[Any], bodies: Bodies, axes: _Axes) -> list[Any]:
    body, inside = _body(bodies, "body"), _graph(node)
    _check_form(node, inside, len(given), axes.states)
    states, sources = list(given[: axes.states]), []
    for source, axis, back in zip(given[axes.states :], axes.read, axes.backward, strict=True):
        rows = np.moveaxis(source, normal_axis(axis, source.ndim), 0)
        sources.append(rows[::-1] if back else rows)
    counts = {len(rows) for rows in sources}
    if len(counts) > 1:
        raise ModelError(f"scanned sources have {sorted(counts)} slices, which must be one number")
    names = inside.outputs[axes.states :]
    made: list[list[Array]] = [[] for _ in names]
    for slices in zip(*sources, strict=True):
        results = body([*states, *(np.asarray(each, order="C") for each in slices)])
        states = list(results[: axes.states])
        for every, value in zip(made, results[axes.states :], strict=True):
            every.append(value)
    stacked = [
        _stacked(every[::-1] if back else every, inside, name, axis)
        for every, name, axis, back in zip(made, names, axes.stacked, axes.reversed, strict=True)
    ]
    return [*states, *stacked]


def _scan_of_batch(node: Node, given: Sequence[Any], bodies: Bodies) -> list[Any]:
    """As before operator set 9: a scan for each element of a batch, axis 0 of all sources."""
    if given[0] is not None:
        raise Unimplemented(f"lengths {node.input(0)!r} of sequences of different lengths")
    sources = given[1:]
    axes = _Axes(node, len(sources))
    axes.backward = axes._each(node, "directions", axes.scanned)
    batches = {len(source) for source in sources}
    if len(batches) != 1:
        raise ModelError(f"sources have batches of {sorted(batches)}, which must be one number")
    each = [
        _scan(node, [source[place] for source in sources], bodies, axes)
        for place in range(batches.pop())
    ]
    if not each:
        raise Unimplemented("a batch of 0")
    return [np.stack(results) for results in zip(*each, strict=True)]


def mapped(node: Node, given: Sequence[Any], bodies: Bodies) -> list[Any]:
    """Lists of what a graph makes of each element of the first list; further lists have as many,
    tensors are the same for all."""
    body = _body(bodies, "body")
    if not given or not isinstance(given[0], list):
        raise ModelError(f"input {node.input(0)!r} is no list of tensors")
    lengths = {len(source) for source in given if isinstance(source, list)}
    if len(lengths) > 1:
        raise ModelError(f"lists of {sorted(lengths)} tensors must have as many")
    results = [
        body([source[place] if isinstance(source, list) else source for source in given])
        for place in range(len(given[0]))
    ]
    return [[own[place] for own in results] for place in range(len(node.outputs))]


def _check_form(node: Node, inside: Branch, inputs: int, carried: int) -> None:
    """Raise ModelError where a body has other inputs or outputs than its node hands over."""
    if len(inside.inputs) != inputs:
        raise ModelError(f"the body has {len(inside.inputs)} inputs; it must have {inputs}")
    results = len(node.outputs) + (node.op == "Loop")
    if len(inside.outputs) != results or results < carried:
        least = max(results, carried)
        raise ModelError(f"the body has {len(inside.outputs)} outputs; it must have {least}")


def _graph(node: Node) -> Branch:
    body = node.attrs.get("body")
    if not isinstance(body, Branch):
        raise ModelError("attribute 'body' is missing")
    return body


def _body(bodies: Bodies, key: str) -> Body:
    if key not in bodies:
        raise ModelError(f"attribute {key!r} is missing")
    return bodies[key]()


def _stacked(every: Sequence[Array], inside: Branch, name: str, axis: int) -> Array:
    """What iterations made, along a new axis; without iterations by its declared type."""
    if not every:
        kind = inside.types.get(name)
        shape = () if kind is None or kind.shape == UNRANKED else kind.shape
        sizes = [n if isinstance(n, int) else 0 for n in shape]
        dtype = np.dtype(np.float32) if kind is None else kind.dtype
        sizes.insert(normal_axis(axis, len(sizes) + 1), 0)
        return np.zeros(sizes, dtype)
    shapes = {array.shape for array in every}
    if len(shapes) > 1:
        found = ", ".join(map(str, sorted(shapes)))
        raise ModelError(f"output {name!r} of the body has shapes {found}, which must be one")
    return np.stack(every, normal_axis(axis, every[0].ndim + 1))


def _truth(array: Array, what: str) -> bool:
    if array.size != 1 or array.dtype != np.bool_:
        found = f"{array.dtype} {list(array.shape)}"
        raise InvalidArguments(what, found, "must be one bool")
    return bool(array.item())


def _integer(array: Array, what: str) -> int:
    if array.size != 1 or array.dtype.kind not in "iu":
        raise InvalidArguments(what, f"{array.dtype} {list(array.shape)}", "must be one integer")
    return int(array.item())
