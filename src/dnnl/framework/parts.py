"""Models in parts: where sizes become known only while a model runs, it is cut.

A value is *sized* if constants and shapes alone decide it. A part is a graph whose plan needs to
know as numbers only what is sized, or what there is before the part begins: the latter are its
*contents*. Between parts, control flow, sequences and selections are computed on arrays.

Levels order both: values from outside have level 0, parts the odd levels, and what is between them
the even ones. Each node has the lowest level that its sources allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from dnnl.framework.steps import Between, Part, Program, Step
from dnnl.graph.branches import is_branching, taken
from dnnl.graph.graph import (
    AS_NUMBERS,
    SEQUENCE,
    UNRANKED,
    Array,
    Branch,
    Graph,
    Node,
    TensorType,
    blamed_on,
)
from dnnl.graph.sizes import computes
from dnnl.operators.numbers import (
    FOLDED,
    HAS_ELEMENT,
    UNCHANGED,
    deciding,
    is_folded,
    makes_sequence,
    number_places,
    runs_between,
)
from dnnl.operators.table import check_form, row_name
from dnnl.passes.constants import RANDOM, constant_results

_FEW = 16
"""Elements of an input that a plan may know as numbers where something is computed of them."""
_OF_ANY = UNCHANGED | {HAS_ELEMENT}
"""Operators that are computed between parts on lists, and within parts on tensors."""
_WHOLE = (np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.bool_))


@dataclass(frozen=True)
class _Value:
    """What is known of a value: its level, the level of the first part that may know it as
    ``numbers``, and whether it is ``sized``, ``small`` or a ``sequence``.

    What is computed of small values may be computed of their numbers, when a part is planned.
    """

    level: int
    numbers: int
    sized: bool = False
    small: bool = False
    sequence: bool = False


def divided(graph: Graph) -> Program:
    """The parts of a model: one where a plan serves for everything, as of most models."""
    inputs = {name: _given(kind) for name, kind in graph.inputs.items()}
    whole = _Cut(graph.opset, dict(graph.constants), dict(inputs), folds=False)
    whole.add(graph.nodes)
    if not whole.is_whole:
        program = _program(graph, inputs, graph.constants)
        steps = program.steps
        if len(steps) != 1 or not isinstance(steps[0], Part) or steps[0].contents:
            return program
    names = tuple(graph.inputs)
    outputs = tuple(graph.outputs)
    part = Part(names, {}, outputs, partial(replace, graph, inputs={}, defaults={}))
    return Program(names, (), {}, (part,), outputs, whole=True)


def _program(graph: Graph, inputs: Mapping[str, _Value], constants: Mapping[str, Array]) -> Program:
    cut = _Cut(graph.opset, dict(constants), dict(inputs), folds=True)
    cut.add(graph.nodes)
    outputs = tuple(map(cut.origin, graph.outputs.values()))
    steps = cut.steps(outputs)
    read = {value for step in steps if isinstance(step, Between) for value in step.node.reads}
    needed = {v: a for v, a in cut.constants.items() if v in read or v in outputs}
    sequences = tuple(v in cut.values and cut.values[v].sequence for v in outputs)
    return Program(tuple(inputs), (), needed, steps, outputs, sequences)


def _given(kind: TensorType | None) -> _Value:
    """A value from outside."""
    if kind is None:
        return _Value(0, 1)
    shape = kind.shape
    fixed = shape not in (UNRANKED, SEQUENCE) and all(isinstance(n, int) for n in shape)
    small = fixed and len(shape) <= 1 and all(int(n) <= _FEW for n in shape)
    return _Value(0, 1, False, small and kind.dtype in _WHOLE, shape == SEQUENCE)


def _to_part(level: int) -> int:
    return level | 1


def _behind_parts(level: int) -> int:
    return level + level % 2


@dataclass
class _Cut:
    """Places the nodes of one graph."""

    opset: int
    constants: dict[str, Array]
    values: dict[str, _Value]
    folds: bool
    placed: list[tuple[int, Between | Node]] = field(default_factory=list)
    producers: dict[str, Node] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether all is one part, which needs no contents."""
        return all(
            level == 1
            and isinstance(node, Node)
            and not any(self._is_known_outside(v, 1) for v in self._numbers(node))
            for level, node in self.placed
        )

    def add(self, nodes: Iterable[Node]) -> None:
        """Place nodes behind what there is."""
        self._known = Graph((), {}, {}, self.constants, self.opset)
        pending = list(reversed(tuple(nodes)))
        while pending:
            node = pending.pop()
            with blamed_on(node):
                if is_branching(node) and node.inputs[0] in self.constants:
                    inside, own = taken(node, self._known)
                    pending += reversed(inside)
                    self.constants.update(own)
                elif not self._fold(node):
                    self._place(node)

    def _fold(self, node: Node) -> bool:
        if not self.folds or not is_folded(node) or not self.constants.keys() >= set(node.reads):
            return False
        check_form(node)
        found = constant_results(node, self._known)
        self.constants.update(found or {})
        return found is not None

    def _value(self, name: str) -> _Value:
        return _Value(0, 1, sized=True) if name in self.constants else self.values[name]

    def _place(self, node: Node) -> None:
        values = [self._value(name) for name in node.reads]
        between = runs_between(node) and not (is_folded(node) and all(v.sized for v in values))
        passed = node.op in _OF_ANY and any(value.sequence for value in values)
        level = self._level(node, values)
        if passed or between or level is None:
            self._place_between(node, values)
            return
        self.placed.append((level, node))
        values = [self._value(name) for name in deciding(node)]
        sized = node.op not in RANDOM and all(v.sized for v in values)
        small = sized or (computes(node) and all(v.small or v.sized for v in values))
        first = max(level, *(v.numbers for v in values), 1) if small else level + 2
        for name in filter(None, node.outputs):
            self.values[name] = _Value(level, first, sized, small)
            self.producers[name] = node

    def _level(self, node: Node, values: Iterable[_Value]) -> int | None:
        """The part of a node; None for a branch that no plan can take.

        A condition that few numbers of the inputs decide is known before the part of its node, so
        that each outcome has a plan.
        """
        needed = [self._value(name).numbers for name in self._numbers(node)]
        level = max(_to_part(level) for level in (1, *needed, *(v.level for v in values)))
        if not is_branching(node):
            return level
        read = {name: self._value(name) for name in node.reads}
        decided = {name for name, value in read.items() if value.sized}
        level = max((level, *(read[name].numbers for name in decided)))
        condition = read[node.inputs[0]]
        if not (condition.sized or condition.small):
            return None
        if not condition.sized:
            level = max(level, _to_part(condition.level + 1))
        if not _is_plain(node, {*decided, *self.constants}):
            return None
        return None if any(self._is_known_outside(name, level) for name in decided) else level

    def _numbers(self, node: Node) -> list[str]:
        """The values that the plan of a node needs to know: all, where it has to be computed
        before anything runs."""
        if row_name(node) in FOLDED or runs_between(node):
            return [v for v in node.inputs if v and v not in self.constants]
        found = (node.input(place) for place in number_places(node))
        return [value for value in found if value and value not in self.constants]

    def _is_known_outside(self, name: str, level: int) -> bool:
        """Whether the numbers of a value depend on what there is before a part."""
        if name in self.constants:
            return False
        if self.values[name].level < level:
            return True
        node = self.producers[name]
        return any(self._is_known_outside(value, level) for value in deciding(node))

    def _place_between(self, node: Node, values: Iterable[_Value]) -> None:
        level = max((0, *(_behind_parts(value.level) for value in values)))
        bodies = {
            key: self._body(value) for key, value in node.attrs.items() if isinstance(value, Branch)
        }
        sources = node.inputs[: len(node.inputs) - len(node.captured)]
        self.placed.append((level, Between(node, sources, bodies)))
        sequences = self._sequences(node, bodies)
        small = node.op == "SequenceLength"
        for name, sequence in zip(node.outputs, sequences, strict=False):
            if name:
                self.values[name] = _Value(level, level + 1, False, small, sequence)

    def _sequences(self, node: Node, bodies: Mapping[str, Program]) -> tuple[bool, ...]:
        """Which results of a node between parts are lists of tensors."""
        count = len(node.outputs)
        if makes_sequence(node):
            return (True,) * count
        if node.op in UNCHANGED:
            return (True,)
        own = tuple(body.sequences for body in bodies.values())
        if not own:
            return (False,) * count
        found = own[0][1:] if node.op == "Loop" else own[0]
        return (*found, *(False,) * count)[:count]

    def _body(self, branch: Branch) -> Program:
        """The program of a graph inside a node, which has constants around it as its own."""
        captured = tuple(v for v in branch.captured if v not in self.constants)
        around = {v: self.constants[v] for v in branch.captured if v in self.constants}
        inputs = {name: _given(kind) for name, kind in branch.inputs.items()}
        for name in captured:
            value = self.values[name]
            inputs[name] = _Value(0, 1, False, value.small or value.sized, value.sequence)
        outputs = {str(place): value for place, value in enumerate(branch.outputs)}
        graph = Graph(branch.nodes, {}, outputs, {}, self.opset)
        made = _program(graph, inputs, {**around, **branch.constants})
        return replace(made, captured=captured)

    def steps(self, outputs: Iterable[str]) -> tuple[Step, ...]:
        """Parts and what is between them, in order."""
        read: dict[str, set[int]] = {value: {-1} for value in outputs}
        for level, step in self.placed:
            for value in step.node.reads if isinstance(step, Between) else step.reads:
                read.setdefault(value, set()).add(level)
        steps: list[Step] = []
        for level in sorted({level for level, _ in self.placed}):
            here = [step for own, step in self.placed if own == level]
            nodes = [step for step in here if isinstance(step, Node)]
            steps += [step for step in here if not isinstance(step, Node)]
            if nodes:
                made = {value for node in nodes for value in node.outputs if value}
                shown = [value for value in made if read.get(value, set()) - {level}]
                part = self._part(level, nodes, sorted(shown))
                steps += [part] if part.outputs else []
        return tuple(steps)

    def _part(self, level: int, nodes: Iterable[Node], outputs: Iterable[str]) -> Part:
        builder = _PartBuilder(self, level)
        for node in nodes:
            builder.add(node)
        shown = {value: value for value in outputs}
        whole = Graph(tuple(builder.nodes), {}, shown, self.constants, self.opset).pruned()
        made = {value for node in whole.nodes for value in node.outputs}
        known = made.union(whole.constants)
        read = dict.fromkeys(value for node in whole.nodes for value in node.reads)
        contents = {name: value for name, value in builder.contents.items() if name in read}
        inputs = tuple(v for v in read if v not in known and v not in contents)
        own = [value for node in nodes for value in node.outputs if value]
        small = all(self._value(value).small for value in (*inputs, *own))
        return Part(inputs, contents, tuple(shown), lambda: whole, small=small)

    def depends_outside(self, name: str, level: int) -> bool:
        """See `_is_known_outside`."""
        return self._is_known_outside(name, level)

    def origin(self, name: str) -> str:
        """The value that a name stands for, through any number of Identity nodes."""
        while name in self.producers and self.producers[name].op == "Identity":
            name = self.producers[name].inputs[0]
        return name

    def numbers_of(self, node: Node) -> list[str]:
        """See `_numbers`."""
        return self._numbers(node)


@dataclass
class _PartBuilder:
    """The nodes of a part. What computes numbers of its contents is there twice: for those who
    read numbers, with constants for sources, and for those who read data."""

    cut: _Cut
    level: int
    nodes: list[Node] = field(default_factory=list)
    contents: dict[str, str] = field(default_factory=dict)
    copied: set[str] = field(default_factory=set)

    def add(self, node: Node) -> None:
        """Add a node, with what computes the numbers that it needs before it."""
        needed = set(self.cut.numbers_of(node))
        places = number_places(node)
        whole = len(needed) > len(places)
        inputs = tuple(
            self._numbers(value) if value in needed and (whole or place in places) else value
            for place, value in enumerate(node.inputs)
        )
        self.nodes.append(replace(node, inputs=inputs))

    def _numbers(self, value: str) -> str:
        """The name under which a value is known as numbers."""
        if not self.cut.depends_outside(value, self.level):
            return value
        name = f"{value}{AS_NUMBERS}"
        if self.cut.values[value].level < self.level:
            self.contents[name] = value
        elif value not in self.copied:
            node = self.cut.producers[value]
            self.copied.update(node.outputs)
            decided = deciding(node)
            inputs = tuple(self._numbers(v) if v in decided else v for v in node.inputs)
            outputs = tuple(v and f"{v}{AS_NUMBERS}" for v in node.outputs)
            copy = f"{node.name}{AS_NUMBERS}"
            self.nodes.append(replace(node, name=copy, inputs=inputs, outputs=outputs))
        return name


def _is_plain(node: Node, sized: set[str]) -> bool:
    """Whether a plan that knows the condition of a branch needs nothing but shapes inside it."""
    branches = [value for value in node.attrs.values() if isinstance(value, Branch)]
    return all(_is_plain_inside(branch, sized) for branch in branches)


def _is_plain_inside(branch: Branch, sized: set[str]) -> bool:
    known = {*sized, *branch.constants}
    for node in branch.nodes:
        decided = known.issuperset(deciding(node)) and node.op not in RANDOM
        if is_branching(node) and not (node.inputs[0] in known and _is_plain(node, known)):
            return False
        if runs_between(node) and (not decided or not is_folded(node)):
            return False
        if any(v and v not in known for v in map(node.input, number_places(node))):
            return False
        if decided:
            known.update(node.outputs)
    return True
