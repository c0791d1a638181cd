"""What a model in parts consists of: parts, of which plans are made, and nodes between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dnnl.framework.part_plan import PartPlan
from dnnl.graph.graph import Array, Graph, Node


@dataclass(frozen=True)
class Part:
    """A graph that is planned when its ``inputs`` and the numbers of its ``contents`` are known,
    which map the names of constants to the values that they are.

    ``graph()`` has no inputs yet; it is asked for where something is compiled. ``plans`` are those
    out of a file.
    """

    inputs: tuple[str, ...]
    contents: Mapping[str, str]
    outputs: tuple[str, ...]
    graph: Callable[[], Graph]
    plans: tuple[PartPlan, ...] = ()


@dataclass(frozen=True)
class Between:
    """A node that is computed on arrays, with the programs of the graphs inside it. ``sources`` are
    its inputs without what these graphs read of the graph around it."""

    node: Node
    sources: tuple[str, ...]
    bodies: Mapping[str, Program]


Step: TypeAlias = Part | Between


@dataclass(frozen=True)
class Program:
    """Steps in order: each reads ``inputs``, ``constants`` and results of those before it.

    ``captured`` are those inputs that are values of the graph around; ``sequences`` says which
    outputs are lists of tensors. A ``whole`` one has one step, the model as it is.
    """

    inputs: tuple[str, ...]
    captured: tuple[str, ...]
    constants: Mapping[str, Array]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    sequences: tuple[bool, ...] = ()
    whole: bool = False
