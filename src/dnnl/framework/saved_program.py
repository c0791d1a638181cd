"""Programs of models, with the plans of their parts, to JSON and back."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.framework.part_plan import PartPlan, Pattern
from dnnl.framework.plan import Compiled
from dnnl.framework.plans import Plans
from dnnl.framework.program import Runner
from dnnl.framework.saved_graph import GraphReader, GraphWriter
from dnnl.framework.steps import Between, Part, Program, Step
from dnnl.graph.graph import Branch, Graph, ModelError, Node


class ProgramWriter:
    """Programs as JSON. Plans are written elsewhere; ``number`` gives the number of one."""

    def __init__(self, graphs: GraphWriter, number: Callable[[Compiled], int]) -> None:
        self._graphs, self._number = graphs, number

    def written(self, runners: Sequence[Runner]) -> dict[str, Any]:
        """The program that ``runners`` share, with the plans of all of them."""
        program = runners[0].program
        steps = zip(*(runner.steps for runner in runners), strict=True)
        return {
            "inputs": program.inputs,
            "captured": program.captured,
            "constants": self._graphs.arrays(program.constants),
            "steps": list(map(self._step, steps)),
            "outputs": program.outputs,
            "whole": program.whole,
        }

    def _step(self, own: Sequence[tuple[Plans | Between, Mapping[str, Runner]]]) -> list[Any]:
        step, inside = own[0]
        if isinstance(step, Plans):
            sessions = [
                each for plans, _ in own if isinstance(plans, Plans) for each in plans.sessions
            ]
            part, made = step.part, [self._plan(session.plan) for session in sessions]
            return ["part", part.inputs, dict(part.contents), part.outputs, part.small, made]
        bodies = {key: self.written([bodies[key] for _, bodies in own]) for key in inside}
        return ["between", self._graphs.node(_bare(step.node)), step.sources, bodies]

    def _plan(self, plan: PartPlan) -> list[Any]:
        patterns = {name: _pattern_to_json(own) for name, own in plan.patterns.items()}
        return [self._number(plan.compiled), patterns, dict(plan.numbers)]


class ProgramReader:
    """Programs out of JSON, on the ``plans`` of a file."""

    def __init__(self, graphs: GraphReader, plans: Sequence[Compiled]) -> None:
        self._graphs, self._plans = graphs, plans

    def read(self, given: dict[str, Any], divided: Callable[[], Program]) -> Program:
        """A program; ``divided()`` returns the same one with graphs, for parts without a plan.

        Raises ModelError if the program is damaged.
        """
        program = Program(
            tuple(given["inputs"]),
            tuple(given["captured"]),
            self._graphs.arrays(given["constants"]),
            tuple(self._step(own, divided, n) for n, own in enumerate(given["steps"])),
            tuple(given["outputs"]),
            whole=bool(given["whole"]),
        )
        _check(program)
        return program

    def _step(self, given: Sequence[Any], divided: Callable[[], Program], place: int) -> Step:
        kind, *own = given
        if kind == "part":
            inputs, contents, outputs, small, plans = own
            part = Part(
                tuple(inputs),
                contents,
                tuple(outputs),
                lambda: _graph(part, divided, place),
                small=bool(small),
            )
            return replace(part, plans=tuple(self._plan(plan, part) for plan in plans))
        node, sources, bodies = own
        read = {
            key: self.read(body, partial(_body, divided, place, key))
            for key, body in bodies.items()
        }
        return Between(self._graphs.node(node), tuple(sources), read)

    def _plan(self, given: Sequence[Any], part: Part) -> PartPlan:
        number, patterns, numbers = given
        own = {name: _pattern_of(pattern) for name, pattern in patterns.items()}
        made = PartPlan(self._plans[number], own, {n: tuple(s) for n, s in numbers.items()})
        plan = made.compiled.plan
        signs = {name: [n for n in own[name].elements if isinstance(n, str)] for name in numbers}
        if (
            set(plan.inputs) != set(part.inputs)
            or set(plan.outputs) != set(part.outputs)
            or own.keys() != part.contents.keys()
            or any(len(signs[name]) != len(sizes) for name, sizes in numbers.items())
            or made.sizes.symbols != plan.symbols
        ):
            raise ModelError(f"plan {number} is for another part")
        return made


def _bare(node: Node) -> Node:
    """A node without the contents of its subgraphs, which their programs have."""
    attrs = {
        key: replace(own, nodes=(), constants={}) if isinstance(own, Branch) else own
        for key, own in node.attrs.items()
    }
    return replace(node, attrs=attrs)


def _pattern_to_json(own: Pattern) -> list[Any]:
    text = own.elements
    elements = b64encode(text).decode() if isinstance(text, bytes) else list(text)
    return [own.dtype.name, own.shape, elements]


def _pattern_of(given: Sequence[Any]) -> Pattern:
    name, shape, elements = given
    dtype, sizes = np.dtype(name), tuple(map(int, shape))
    if isinstance(elements, str):
        return Pattern(dtype, sizes, b64decode(elements))
    known = all(n in ("+", "-") if isinstance(n, str) else isinstance(n, int) for n in elements)
    if not known or len(elements) != prod(sizes) or dtype.kind not in "iu":
        raise ModelError("contents of a plan are no integers")
    return Pattern(dtype, sizes, tuple(elements))


def _check(program: Program) -> None:
    """Raise ModelError if a step or an output needs a value that no earlier step computes."""
    known = {*program.inputs, *program.constants}
    for step in program.steps:
        if isinstance(step, Part):
            needed, made = {*step.inputs, *step.contents.values()}, step.outputs
        else:
            needed, made = set(step.node.reads), step.node.outputs
            inside = {name for body in step.bodies.values() for name in body.captured}
            if not needed >= inside.union(filter(None, step.sources)):
                raise ModelError(f"{step.node} does not read what it needs")
        if not known >= needed:
            raise ModelError(f"nothing computes {', '.join(sorted(needed - known))}")
        known.update(filter(None, made))
    if not known >= set(program.outputs) or not set(program.inputs) >= set(program.captured):
        raise ModelError("outputs are made by nothing")


def _graph(part: Part, divided: Callable[[], Program], place: int) -> Graph:
    """The graph of a part, which is step ``place`` of the divided program.

    Raises Unimplemented if this version of the library divides the model differently.
    """
    steps = divided().steps
    found = steps[place] if place < len(steps) else None
    if not isinstance(found, Part) or (found.inputs, found.contents, found.outputs) != (
        part.inputs,
        part.contents,
        part.outputs,
    ):
        raise Unimplemented("another version has divided the model: save it with this library")
    return found.graph()


def _body(divided: Callable[[], Program], place: int, key: str) -> Program:
    """The program of subgraph ``key`` of step ``place``."""
    steps = divided().steps
    found = steps[place] if place < len(steps) else None
    if not isinstance(found, Between) or key not in found.bodies:
        raise Unimplemented("another version has divided the model: save it with this library")
    return found.bodies[key]
