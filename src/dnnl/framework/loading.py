"""Reads saved models: checks a file, and whether this machine can run its kernels."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from dnnl import lazy
from dnnl.errors import Error, Unimplemented
from dnnl.framework.requests import checked_budget
from dnnl.framework.saved_file import SavedFile
from dnnl.framework.saved_graph import GraphReader
from dnnl.framework.saved_plan import read_plans
from dnnl.framework.saved_program import ProgramReader
from dnnl.framework.steps import Program
from dnnl.graph.graph import Graph, ModelError, with_inputs
from dnnl.runtime.engine import Engine, first_cpu
from dnnl.types.dtype import DataType

if TYPE_CHECKING:
    from dnnl.framework import parts
else:  # only compiling divides a model
    parts = lazy.Module("dnnl.framework.parts")


@dataclass(frozen=True)
class Saved:
    """The contents of a file: ``programs`` by the initializers that are inputs of them.

    With ``compiles`` false only its kernels may be used. ``precision`` is that of all its plans.
    """

    path: str
    programs: Mapping[tuple[str, ...], Program]
    compiles: bool = True
    precision: str = "f32"


def read_saved(file: SavedFile, compiles: bool) -> tuple[Graph, int | None, Saved]:
    """The graph of a saved model, its memory budget, and its programs.

    Raises ModelError for a file that is damaged, and Unimplemented for one whose kernels this
    machine cannot run.
    """
    try:
        return _read(file, compiles)
    except Error:
        file.stop()
        raise
    except Exception as error:  # contents that no writer makes, though the checksums are right
        file.stop()
        what = f"{type(error).__name__}: {error}"
        raise ModelError(f"{file.path} is damaged: {what}") from error


def _read(file: SavedFile, compiles: bool) -> tuple[Graph, int | None, Saved]:
    index, engine = file.index, first_cpu()
    _check_machine(file.path, index["target"], engine)
    engine.backend.offer(
        {key: file.blob(place).tobytes() for key, place in index["startup"].items()}
    )

    plans = read_plans(file, engine)
    reading = GraphReader(file.blob)
    graph, programs = reading.read(index["graph"]), ProgramReader(reading, plans)
    made = {}
    for own in index["programs"]:
        optional = tuple(own["optional"])
        program = programs.read(own["program"], cache(partial(_divided, graph, optional)))
        given = (*graph.inputs, *(name for name in optional if name in graph.defaults))
        if program.inputs != given or len(program.outputs) != len(graph.outputs):
            raise ModelError(f"{file.path} is damaged: a program is for another graph")
        made[optional] = program
    precision = DataType[index["precision"]].name
    budget = checked_budget(index["memory_budget"])
    return graph, budget, Saved(file.path, made, compiles, precision)


def _divided(graph: Graph, optional: tuple[str, ...]) -> Program:
    return parts.divided(with_inputs(graph, optional))


def _check_machine(path: str, target: dict[str, Any], engine: Engine) -> None:
    """Raise Unimplemented where kernels for ``target`` do not run here."""
    own = system()
    if target["system"] != own:
        rule = f"its kernels are for {target['system']}, this is {own}"
        raise Unimplemented(f"{path}: {rule}; save the model on such a machine")
    lacking = engine.backend.lacking(target["features"])
    if lacking:
        rule = f"its kernels are for {target['isa']}, and this processor has no"
        hint = "save it with a lower isa, such as model.save(path, isa='avx2')"
        raise Unimplemented(f"{path}: {rule} {', '.join(lacking)}; {hint}")


def system() -> str:
    """What machine code depends on besides features: ``x86_64-linux-little``."""
    machine = platform.machine().lower()
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    return f"{arch}-{sys.platform}-{sys.byteorder}"
