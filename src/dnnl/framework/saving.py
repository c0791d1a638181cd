"""Writes models with their plans, kernels and prepared constants to files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dnnl.errors import Error, InvalidArguments, Unimplemented
from dnnl.framework.loading import system
from dnnl.framework.parts import Part, divided
from dnnl.framework.plan import Compiled
from dnnl.framework.plans import Plans, Settings
from dnnl.framework.program import check_values
from dnnl.framework.progress import Report
from dnnl.framework.saved_file import Writer
from dnnl.framework.saved_graph import GraphWriter
from dnnl.framework.saved_plan import PlanWriter
from dnnl.framework.session import Session
from dnnl.graph.graph import UNRANKED, Graph, Shape, TensorType, with_inputs
from dnnl.primitives.primitive_desc import limited
from dnnl.runtime.engine import Engine, first_cpu
from dnnl.runtime.image_bytes import encoded
from dnnl.types.dtype import DataType

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
    sessions: Sequence[Session],
    shapes: Sequence[Mapping[str, Shape]] | None,
    precision: str,
    isa: str | None,
    progress: Report | None,
    memory_budget: int | None,
) -> None:
    """Write a model; ``sessions`` are those that it has, for the other arguments see `Model.save`.

    Raises InvalidArguments where the path or a shape is of no use.
    """
    engine = first_cpu() if isa is None else limited(first_cpu(), isa)
    if not isinstance(path, str | os.PathLike):
        raise InvalidArguments("path", path, "expected the path of a file", "save('model.dnnl')")
    _check_folder(path)
    kind = DataType[precision]
    settings = Settings(engine, kind=kind, progress=progress, opens=True)
    made = _Made(graph, sessions, settings)
    if shapes is not None:
        for number, given in enumerate(shapes):
            made.add(_checked(graph, number, given))
    elif not any(session.is_open for session in sessions):
        known = [tuple(own.inputs.items()) for own in sessions]
        seen = [tuple((name, kind.sizes) for name, kind in own) for own in known]
        for own in seen or typical_shapes(graph.inputs):
            made.add(own)
    _write(path, graph, [own.compiled for own in made.sessions], engine, precision, memory_budget)


class _Made:
    """The sessions of a file: those that there are, and more where none serves a size."""

    def __init__(self, graph: Graph, sessions: Sequence[Session], settings: Settings) -> None:
        self.sessions = list(sessions)
        self._fixed = not any(
            isinstance(n, str) for own in graph.inputs.values() for n in own.shape
        )
        self._graph, self._settings = graph, settings
        self._further: dict[tuple[str, ...], Plans] = {}

    def add(self, shapes: Shapes) -> None:
        """Have the kernels for these shapes.

        Raises InvalidArguments where the model cannot be compiled for them.
        """
        given = dict(shapes)
        for session in self.sessions:
            if (session.is_open or self._fixed) and _prepared(session, given):
                return
        try:
            session = self._planned(given)
        except Error as error:
            hint = "shapes=[{name: shape}] says for which sizes"
            rule = f"the model cannot be compiled for them: {error}"
            raise InvalidArguments("shapes", given, rule, hint) from error
        if not _prepared(session, given):
            raise AssertionError("a session serves the sizes that it was made for")
        self.sessions.append(session)

    def _planned(self, shapes: Mapping[str, Shape]) -> Session:
        """A session for inputs of these shapes and of others, as far as the model allows it."""
        optional = tuple(name for name in shapes if name in self._graph.defaults)
        plans = self._further.get(optional)
        if plans is None:
            graph = with_inputs(self._graph, optional)
            (part,) = divided(graph).steps
            assert isinstance(part, Part)
            self._further[optional] = plans = Plans(part, graph.inputs, self._settings)
        kinds = {**self._graph.inputs, **self._graph.defaults}
        arrays = {name: np.empty(shape, kinds[name].dtype) for name, shape in shapes.items()}
        check_values(arrays, {name: kinds[name] for name in shapes})
        return plans.prepare(arrays)


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


def _checked(graph: Graph, number: int, given: object) -> Shapes:
    """The shapes of all inputs, in their order, and of defaults that are given."""
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
    return tuple((name, tuple(map(int, given[name]))) for name in kinds if name in given)


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
    plans: Sequence[Compiled],
    engine: Engine,
    precision: str,
    memory_budget: int | None,
) -> None:
    writer = Writer()
    written = written_plans(writer, plans)
    startup = {
        key: writer.add("kernels", own) for key, own in engine.backend.startup_code().items()
    }
    largest = max(plans, key=lambda own: len(own.features))
    features = dict.fromkeys(feature for own in plans for feature in own.features)
    index = {
        "target": {"system": system(), "isa": largest.isa, "features": list(features)},
        "precision": precision,
        "memory_budget": memory_budget,
        **written,
        "startup": startup,
        "graph": GraphWriter(writer.add).written(graph),
    }
    writer.write(path, index)


def written_plans(writer: Writer, plans: Sequence[Compiled]) -> dict[str, Any]:
    """What an index has of plans, whose kernels and constants get places in sections."""
    plan_writer = PlanWriter(writer.add, lambda image: encoded(image, ""))
    made = [plan_writer.written(own) for own in plans]
    return {"plans": made, "images": plan_writer.images}
