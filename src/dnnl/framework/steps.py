"""The program of a model in parts: parts, which are planned, and nodes between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dnnl.framework.part_plan import PartPlan
from dnnl.graph.graph import Array, Graph, Node


@dataclass(frozen=True)
class Part:
    """A graph that is planned when the sizes of its ``inputs`` and its ``contents`` are known.

    ``contents`` maps names of constants of the graph to the values of the model that they are.
    ``graph()`` returns the graph, without inputs; only compiling calls it. ``plans`` are those of a
    file. A ``small`` part computes few numbers of few numbers, and nothing else.
    """

    inputs: tuple[str, ...]
    contents: Mapping[str, str]
    outputs: tuple[str, ...]
    graph: Callable[[], Graph]
    plans: tuple[PartPlan, ...] = ()
    small: bool = False


@dataclass(frozen=True)
class Between:
    """A node that is computed on arrays, with the programs of its subgraphs. ``sources`` are its
    inputs, without the values that subgraphs capture."""

    node: Node
    sources: tuple[str, ...]
    bodies: Mapping[str, Program]


Step: TypeAlias = Part | Between


@dataclass(frozen=True)
class Program:
    """Steps in order: each reads ``inputs``, ``constants`` and results of earlier steps.

    ``captured`` are the inputs that come from the outer graph. ``sequences`` tells which outputs
    are lists of tensors. A ``whole`` program has one step, the uncut model.
    """

    inputs: tuple[str, ...]
    captured: tuple[str, ...]
    constants: Mapping[str, Array]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    sequences: tuple[bool, ...] = ()
    whole: bool = False
