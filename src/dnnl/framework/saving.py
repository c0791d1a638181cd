"""Writes models with their plans, kernels and prepared constants to files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dnnl.errors import Error, InvalidArguments, Unimplemented
from dnnl.framework.loading import system
from dnnl.framework.parts import divided
from dnnl.framework.plan import Compiled
from dnnl.framework.plans import PartSession, Settings
from dnnl.framework.program import Called, Runner, check_values, values_of
from dnnl.framework.progress import Report
from dnnl.framework.saved_file import Writer
from dnnl.framework.saved_graph import GraphWriter
from dnnl.framework.saved_plan import PlanWriter
from dnnl.framework.saved_program import ProgramWriter
from dnnl.framework.session import Session
from dnnl.framework.steps import Program
from dnnl.graph.graph import UNRANKED, Graph, Shape, TensorType, with_inputs
from dnnl.primitives.primitive_desc import limited
from dnnl.runtime.engine import Engine, first_cpu
from dnnl.runtime.image_bytes import encoded
from dnnl.types.dtype import DataType
from dnnl.types.layout_input import read_integers

Optional = tuple[str, ...]
"""The names of initializers that are passed as inputs."""
Shapes = tuple[tuple[str, Shape], ...]
_PIXELS = (224, 64, 128, 320, 448, 640, 960, 1280)
_LENGTHS = (128, 8, 16, 32, 64, 256, 512, 1024)
_TYPICAL = (*((1, *own) for own in zip(_PIXELS, _LENGTHS, strict=True)), (4, 224, 128), (8, 64, 16))
"""Typical batches, sizes of images, and lengths of other axes that a model leaves open. There are
several, as kernels differ by how many tiles there are and whether tensors fit into caches."""
_IMAGE_RANK, _FIRST_PIXEL = 4, 2


def save(
    graph: Graph,
    path: str | os.PathLike[str],
    calls: Mapping[Optional, Called],
    shapes: Sequence[Mapping[str, Any]] | None,
    precision: str,
    isa: str | None,
    progress: Report | None,
    memory_budget: int | None,
) -> None:
    """Write a model to a file; ``calls`` are its existing plans, the rest is as for `Model.save`.

    Raises InvalidArguments for a path that cannot be written and for invalid shapes.
    """
    engine = first_cpu() if isa is None else limited(first_cpu(), isa)
    if not isinstance(path, str | os.PathLike):
        raise InvalidArguments("path", path, "expected the path of a file", "save('model.dnnl')")
    _check_folder(path)
    settings = Settings(engine, kind=DataType[precision], progress=progress, opens=True)
    made = _Made(graph, calls, settings)
    if shapes is not None:
        for number, given in enumerate(shapes):
            made.add_of(number, given)
    elif not made.program().whole and not made.sessions:
        rule = "the model has data-dependent sizes, whose plans only a run can make: call it before"
        hint = "shapes=[{name: array}] has arrays on which it runs"
        raise InvalidArguments("shapes", None, rule, hint)
    elif made.program().whole and not any(session.is_open for session in made.sessions):
        known = [tuple(own.inputs.items()) for own in made.sessions]
        seen = [tuple((name, kind.sizes) for name, kind in own) for own in known]
        for own in seen or typical_shapes(graph.inputs):
            made.add(own)
    _write(path, graph, made.runners, engine, precision, memory_budget)


class _Made:
    """The programs of a file by the initializers that are their inputs. Each has its runners: those
    of the model's calls, and one that compiles what these lack."""

    def __init__(self, graph: Graph, calls: Mapping[Optional, Called], settings: Settings) -> None:
        self.runners = {optional: [called.runner] for optional, called in calls.items()}
        self._calls, self._further = dict(calls), dict[Optional, Called]()
        self._programs: dict[Optional, Program] = {}
        self._fixed = not any(
            isinstance(n, str) for own in graph.inputs.values() for n in own.shape
        )
        self._graph, self._settings = graph, settings

    def program(self, optional: Optional = ()) -> Program:
        """The parts of the model with some of its defaults as inputs."""
        if optional not in self._programs:
            self._programs[optional] = divided(with_inputs(self._graph, optional))
        return self._programs[optional]

    @property
    def sessions(self) -> list[PartSession]:
        """All current plans."""
        every = [runner for runners in self.runners.values() for runner in runners]
        return [session for runner in every for session in runner.sessions]

    def add_of(self, number: int, given: object) -> None:
        """Add the kernels for element ``number`` of the argument ``shapes``.

        Raises InvalidArguments if the model does not take it.
        """
        mapping, argument = _checked(self._graph, number, given), f"shapes[{number}]"
        if not self.program(self._optional(mapping)).whole:
            self._run(argument, mapping)
            return
        hint = "a shape, such as (1, 3, 224, 224)"
        self.add(
            tuple(
                (name, read_integers(f"{argument}[{name!r}]", shape, hint))
                for name, shape in mapping.items()
            )
        )

    def add(self, shapes: Shapes) -> None:
        """Add the kernels for these input shapes of a model of one part.

        Raises InvalidArguments where the model cannot be compiled for them.
        """
        given = dict(shapes)
        optional = self._optional(given)
        for runner in self.runners.get(optional, ()):
            for session in runner.sessions:
                if (session.is_open or self._fixed) and _prepared(session, given):
                    return
        try:
            session = self._planned(optional, given)
        except Error as error:
            hint = "shapes=[{name: shape}] says for which sizes"
            rule = f"the model cannot be compiled for them: {error}"
            raise InvalidArguments("shapes", given, rule, hint) from error
        if not _prepared(session, given):
            raise AssertionError("a session serves the sizes that it was made for")

    def _optional(self, given: Mapping[str, object]) -> Optional:
        return tuple(name for name in self._graph.defaults if name in given)

    def _planned(self, optional: Optional, shapes: Mapping[str, Shape]) -> PartSession:
        """A session for inputs of these shapes and of others, as far as the model allows it."""
        kinds = {**self._graph.inputs, **self._graph.defaults}
        arrays = {name: np.empty(shape, kinds[name].dtype) for name, shape in shapes.items()}
        check_values(arrays, {name: kinds[name] for name in shapes})
        (plans,) = self._more(optional).runner.plans
        return plans.prepare(arrays)

    def _run(self, argument: str, given: Mapping[str, Any]) -> None:
        """Add the plans of a run on these arrays."""
        for name, array in given.items():
            if isinstance(array, tuple):
                rule = "the model has data-dependent sizes: expected an array, on which it runs"
                raise InvalidArguments(f"{argument}[{name!r}]", array, rule)
        kinds = {**self._graph.inputs, **self._graph.defaults}
        values = values_of(given, {name: kinds[name] for name in given})
        optional = self._optional(given)
        called = self._calls.get(optional)
        (self._more(optional) if called is None else called)(values)

    def _more(self, optional: Optional) -> Called:
        """The runner for plans that the model's calls lack."""
        found = self._further.get(optional)
        if found is None:
            graph = replace(with_inputs(self._graph, optional), defaults={})
            found = Called(self.program(optional), graph, self._settings)
            self._further[optional] = found
            self.runners.setdefault(optional, []).append(found.runner)
        return found


def _prepared(session: Session, shapes: Mapping[str, Shape]) -> bool:
    """Whether a session serves inputs of these shapes; it has the kernels for them then."""
    if not shapes.keys() >= session.inputs.keys():
        return False
    numbers = session.numbers({name: shapes[name] for name in session.inputs})
    if numbers is None:
        return False
    try:
        session.prepare(numbers)
    except Unimplemented:  # out of a file that has no such kernels
        return False
    return True


def _checked(graph: Graph, number: int, given: object) -> dict[str, Any]:
    """The given shapes or arrays of all inputs, in their order, then of initializers."""
    argument = f"shapes[{number}]"
    kinds = {**graph.inputs, **graph.defaults}
    if not isinstance(given, Mapping):
        rule = "expected a mapping from the names of inputs to their shapes"
        raise InvalidArguments(argument, given, rule, "shapes=[{'x': (1, 3, 224, 224)}]")
    for name in given:
        if name not in kinds:
            rule = f"there is no such input; there are {', '.join(kinds)}"
            raise InvalidArguments(argument, name, rule)
    for name, kind in graph.inputs.items():
        if name not in given:
            raise InvalidArguments(argument, None, f"has no shape of input {name!r}: {kind}")
    return {name: given[name] for name in kinds if name in given}


def typical_shapes(inputs: Mapping[str, TensorType]) -> list[Shapes]:
    """Shapes for a model that nobody has called yet: one image or text, and a few."""
    for name, kind in inputs.items():
        if kind.shape == UNRANKED:
            rule = f"input {name!r} has any rank: no shape of it is typical"
            raise InvalidArguments("shapes", None, rule, f"shapes=[{{{name!r}: (1, 3, 224, 224)}}]")
    found = (tuple(_typical(inputs, *sizes).items()) for sizes in _TYPICAL)
    return list(dict.fromkeys(found))


def _typical(
    inputs: Mapping[str, TensorType], batch: int, pixels: int, length: int
) -> dict[str, Shape]:
    sizes: dict[str, int] = {}
    for kind in inputs.values():
        for dim, size in enumerate(kind.shape):
            if isinstance(size, str):
                image = dim >= _FIRST_PIXEL and len(kind.shape) >= _IMAGE_RANK
                sizes.setdefault(size, batch if not dim else pixels if image else length)
    return {
        name: tuple(sizes[n] if isinstance(n, str) else n for n in kind.shape)
        for name, kind in inputs.items()
    }


def _check_folder(path: str | os.PathLike[str]) -> None:
    """Raise InvalidArguments for a path that cannot be written, before anything is compiled."""
    folder = os.path.dirname(os.fspath(path)) or "."
    if not os.path.isdir(folder):
        raise InvalidArguments("path", str(path), f"there is no folder {folder!r}")
    if os.path.isdir(path):
        raise InvalidArguments("path", str(path), "is a folder, expected the path of a file")


def _write(
    path: str | os.PathLike[str],
    graph: Graph,
    runners: Mapping[Optional, Sequence[Runner]],
    engine: Engine,
    precision: str,
    memory_budget: int | None,
) -> None:
    writer, plans = Writer(), list[Compiled]()

    def number(plan: Compiled) -> int:
        plans.append(plan)
        return len(plans) - 1

    programs = ProgramWriter(GraphWriter(writer.add, "constants"), number)
    listed = [
        {"optional": optional, "program": programs.written(own)}
        for optional, own in runners.items()
    ]
    written = written_plans(writer, plans)
    startup = {
        key: writer.add("kernels", own) for key, own in engine.backend.startup_code().items()
    }
    isas = {own.isa: len(own.features) for own in plans}
    features = dict.fromkeys(feature for own in plans for feature in own.features)
    largest = max(isas, key=isas.__getitem__, default="any processor")
    index = {
        "target": {"system": system(), "isa": largest, "features": list(features)},
        "precision": precision,
        "memory_budget": memory_budget,
        **written,
        "programs": listed,
        "startup": startup,
        "graph": GraphWriter(writer.add).written(graph),
    }
    writer.write(path, index)


def written_plans(writer: Writer, plans: Sequence[Compiled]) -> dict[str, Any]:
    """The plans as entries of the index; their kernels and constants are added to sections."""
    plan_writer = PlanWriter(writer.add, lambda image: encoded(image, ""))
    made = [plan_writer.written(own) for own in plans]
    return {"plans": made, "images": plan_writer.images}
