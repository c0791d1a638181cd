"""Models: given other sizes or parameters, compiled to sessions, saved.

This module imports what runs a plan and no more. What compiles one, and reads ONNX, comes with
``building`` when it is first needed: a model out of its own file may never need it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from dnnl import lazy
from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.framework.feeds import as_given, named
from dnnl.framework.loading import Saved, read_saved
from dnnl.framework.plans import Settings
from dnnl.framework.program import Called, values_of
from dnnl.framework.progress import Report
from dnnl.framework.requests import Budget, awaited, checked_budget
from dnnl.framework.saved_file import SavedFile, opened
from dnnl.framework.session import Session, checked_if_any
from dnnl.framework.special import SpecialKernels, checked_policy
from dnnl.framework.steps import Program
from dnnl.graph.graph import Graph, Shape, TensorType, with_inputs
from dnnl.runtime.engine import Engine, checked_engine, first_cpu
from dnnl.runtime.storage import allocating
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.dtype import DataType
from dnnl.types.runtime_dim import RuntimeDim

if TYPE_CHECKING:
    from dnnl.framework import building, saving
else:
    building = lazy.Module("dnnl.framework.building")
    saving = lazy.Module("dnnl.framework.saving")

PRECISIONS = ("f32", "bf16", "f16")
"""What a model of f32 may be computed in."""


@dataclass(frozen=True, eq=False)
class Model:
    """A graph as its file has it; methods give changed models and leave this one as it is.

    ``model(x)`` runs it. Models can be pickled and copied; each is equal to itself alone.
    ``memory_budget`` is what :meth:`with_memory_budget` has set, None without, and
    ``special_kernels`` what :meth:`with_special_kernels` has.
    """

    graph: Graph
    memory_budget: int | None = None
    special_kernels: SpecialKernels = field(default_factory=SpecialKernels)
    _saved: Saved | None = field(default=None, repr=False)

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """What the model takes."""
        return self.graph.inputs

    @property
    def defaults(self) -> Mapping[str, TensorType]:
        """What the model takes besides, and has a value for: initializers that its file declares as
        inputs."""
        return self.graph.defaults

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its results."""
        return tuple(self.graph.outputs)

    @allocating
    def with_batch(self, batch: int) -> Model:
        """The model with ``batch`` as the first size of every input."""
        return self._of(building.rebatched(self.graph, batch))

    @allocating
    def with_inputs(self, *names: str) -> Model:
        """The model with these of its `defaults` as inputs, which must then be given.

        Raises InvalidArguments for another name.
        """
        given: tuple[object, ...] = names
        for name in given:
            if not isinstance(name, str) or name not in self.defaults:
                rule = f"is no input with a default; there are {', '.join(self.defaults) or 'none'}"
                raise InvalidArguments("names", name, rule)
        return self._of(with_inputs(self.graph, names))

    @allocating
    def with_shapes(self, input_shapes: Mapping[str, Shape]) -> Model:
        """The model for these sizes: every shape known, what is constant computed.

        Where the model decides sizes while it runs, only its inputs get them.
        """
        if not self._program.whole:
            inputs = building.with_sizes(self.graph.inputs, input_shapes)
            return self._of(replace(self.graph, inputs=inputs, defaults={}))
        return self._of(building.specialize(self.graph, input_shapes))

    @allocating
    def with_random_weights(self, seed: int) -> Model:
        """The model, all sizes known, with seeded parameters of a proper scale.

        Raises Unimplemented where the model decides sizes while it runs.
        """
        graph = building.specialize(self.graph)
        return self._of(building.with_random_weights(graph, seed))

    def _of(self, graph: Graph) -> Model:
        """The model of another graph."""
        return Model(graph, self.memory_budget, self.special_kernels)

    def with_memory_budget(self, nbytes: int | None) -> Model:
        """The model with a bound for the memory of activations, in bytes; None for no bound.

        It holds for all calls of the model together that run at the same time, and by default for
        each session that is compiled, by itself. Calls wait for memory then, as runs of a session
        do, see :meth:`compile`.
        """
        return replace(self, memory_budget=checked_budget(nbytes))

    def with_special_kernels(self, policy: SpecialKernels) -> Model:
        """A model with another policy for kernels of single sizes.

        It holds for calls, and for sessions that are compiled for a range of sizes. Raises
        InvalidArguments if ``policy`` is no :class:`SpecialKernels`.
        """
        return replace(self, special_kernels=checked_policy(policy))

    @property
    def special_sizes(self) -> tuple[dict[str, Shape], ...]:
        """The shapes of inputs for which there are plans of their own now.

        In a model with data-dependent sizes these are the inputs of each part.
        """
        plans = [own for called in self._calls.values() for own in called.runner.plans]
        return tuple(shapes for own in plans for shapes in own.special_sizes)

    @allocating
    def compile(
        self,
        engine: Engine | None = None,
        precision: str = "f32",
        num_threads: int | None = None,
        *,
        batch: int | None = None,
        sizes: Mapping[str, int | tuple[int, int] | RuntimeDim] | None = None,
        layout: str = "propagate",
        progress: Report | None = None,
        memory_budget: int | None = None,
    ) -> Session:
        """The model on an engine, by default the first cpu engine.

        ``num_threads`` is what the stream of a run uses. ``batch`` is the first size of every
        input, as of :meth:`with_batch`. ``sizes`` gives sizes that the model leaves open, by the
        names that they have in `inputs`: a number, or the least and the largest that a run may
        have, or a :class:`RuntimeDim`, whose multiple kernels use. With such ranges the session
        plans for all sizes at once, and a run with another size raises InvalidArguments.

        ``layout`` "plain" has every activation row-major instead of letting layouts propagate;
        "middle" those around operators that give meaning to axes by their numbers, such as Reshape,
        Transpose and MatMul. ``precision`` is one of `PRECISIONS`: the type of what is between
        inputs and outputs, and of the factors of products, as far as it may be rounded.

        ``progress`` is called with how many kernels are there, how many there will be, and what the
        last one is for: first with 0, 0 and "planning", then once for each kernel, in this thread.
        What it raises ends the compilation.

        ``memory_budget`` bounds the memory of activations, in bytes, by default as the model does.
        Each run that takes place at the same time needs `Session.activation_nbytes` of its own: one
        that would exceed the budget waits until another one ends.

        Raises InvalidArguments where the model leaves a size open that nothing here gives, and
        OutOfMemory where a single run needs more than the budget.
        """
        if progress is not None and not callable(progress):
            rule = "expected a function of two numbers and a text"
            hint = "compile(progress=print)"
            raise InvalidArguments("progress", progress, rule, hint)
        self._check_precision(precision)
        where = first_cpu() if engine is None else checked_engine(engine)
        graph = self.graph if batch is None else building.rebatched(self.graph, batch)
        kind = DataType[str(precision)]
        limit = checked_budget(memory_budget) or self.memory_budget
        budget = None if limit is None else Budget(limit)
        promises, graph = promised(sizes or {}, graph)
        if promises or not self._program.whole:
            settings = Settings(
                where,
                layout,
                num_threads,
                kind,
                progress,
                budget,
                promises,
                opens=bool(promises),
                special=self.special_kernels,
            )
            graph = replace(graph, defaults={})
            return building.OpenSession(building.divided(graph), graph, settings)
        checked_if_any(num_threads)
        made = building.compiled(building.specialize(graph), where, layout, kind, progress)
        return Session(made, num_threads, budget)

    def __call__(
        self,
        /,
        *arrays: ArrayLike | Mapping[str, ArrayLike],
        num_threads: int | None = None,
        **keywords: ArrayLike,
    ) -> Any:
        """Run on arrays in the order of ``inputs``, by keyword, or on one mapping by name.
        Keywords and the mapping may override ``defaults``.

        The result is an array, or a dict of arrays if there are several outputs; tensors of PyTorch
        if an argument is one. The first call compiles its shapes as :meth:`compile` does. Later
        calls share plans in which open sizes stay open, so that new sizes need no compilation.
        ``num_threads`` is the maximum for this run, by default that of `get_num_threads`.

        Raises InvalidArguments for wrong names, types and shapes.
        """
        given = named(arrays, keywords, self.inputs)
        optional = {name: kind for name, kind in self.defaults.items() if name in given}
        feeds = values_of(given, {**self.inputs, **optional})
        results = self._called(tuple(optional))(feeds, num_threads=num_threads)
        return as_given(results, given.values())

    async def run_async(
        self,
        /,
        *arrays: ArrayLike | Mapping[str, ArrayLike],
        num_threads: int | None = None,
        **keywords: ArrayLike,
    ) -> Any:
        """What a call of the model returns or raises, computed and compiled in another thread; see
        `Session.run_async`.
        """
        return await awaited(partial(self, *arrays, num_threads=num_threads, **keywords))

    @cached_property
    def _budget(self) -> Budget | None:
        """The memory of all calls together."""
        return None if self.memory_budget is None else Budget(self.memory_budget)

    @cached_property
    def _program(self) -> Program:
        """The parts of the model."""
        return building.divided(self.graph)

    @cached_property
    def _calls(self) -> dict[tuple[str, ...], Called]:
        return {}

    def _called(self, optional: tuple[str, ...]) -> Called:
        """What runs the model in parts on inputs and some of its defaults."""
        found = self._calls.get(optional)
        if found is None:
            graph, saved = with_inputs(self.graph, optional), self._saved
            program = None if saved is None else saved.programs.get(optional)
            file = "" if saved is None or saved.compiles else saved.path
            if program is None:
                if file:
                    raise Unimplemented(
                        f"{file} has no kernels for inputs {', '.join(graph.inputs)}"
                    )
                program = self._program if not optional else building.divided(graph)
            settings = Settings(
                first_cpu(),
                kind=DataType[self._precision],
                budget=self._budget,
                opens=saved is not None,
                file=file,
                special=self.special_kernels,
            )
            made = Called(program, replace(graph, defaults={}), settings)
            found = self._calls.setdefault(optional, made)
        return found

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {kind}" for name, kind in self.inputs.items())
        return (
            f"<dnnl.Model ({inputs}) -> {', '.join(self.outputs)}, {len(self.graph.nodes)} nodes>"
        )

    def __str__(self) -> str:
        return building.page_of(self.graph)

    def __reduce__(self) -> tuple[type[Model], tuple[Graph, int | None, SpecialKernels]]:
        return type(self), (self.graph, self.memory_budget, self.special_kernels)  # no sessions

    def to_onnx(self) -> bytes:
        """The model as an ONNX file, in the lowest operator set that has its operators.

        Raises Unimplemented that names all nodes which ONNX does not have.
        """
        content: bytes = building.graph_to_proto(self.graph).SerializeToString()
        return content

    @allocating
    def save(
        self,
        path: str | os.PathLike[str],
        shapes: Sequence[Mapping[str, Shape | ArrayLike]] | None = None,
        *,
        precision: str = "f32",
        isa: str | None = None,
        progress: Report | None = None,
    ) -> None:
        """Write the model with its plans, kernels and constants to a file, which `dnnl.load` reads.

        The file has the plans that calls of this model have made. ``shapes`` adds further ones: it
        is a list of mappings from each input to its shape. Without both, the model is compiled for
        typical sizes. Open sizes stay open: the file serves each size for which its kernels hold.

        Plans of a model with data-dependent sizes follow from runs: ``shapes`` then maps each input
        to an array, on which the model runs. It is required if there were no calls.

        ``precision`` and ``progress`` are as for :meth:`compile`. ``isa`` names a weaker
        instruction set than that of this machine, such as "avx2", so that the file runs on more
        machines. With ``precision`` or ``isa``, plans of calls are not used.

        Raises InvalidArguments for a path that cannot be written, and for shapes that the model
        does not take.
        """
        self._check_precision(precision)
        own = precision == self._precision and isa is None
        if own and self._saved is not None:
            for optional in self._saved.programs:
                self._called(optional)
        calls = dict(self._calls) if own else {}
        given = (shapes, str(precision), isa, progress, self.memory_budget)
        saving.save(self.graph, path, calls, *given)

    @property
    def _precision(self) -> str:
        """That of calls."""
        return "f32" if self._saved is None else self._saved.precision

    @staticmethod
    def _check_precision(precision: object) -> None:
        if str(precision) not in PRECISIONS:
            rule = f"must be one of {', '.join(PRECISIONS)}"
            raise InvalidArguments("precision", precision, rule)


def promised(
    sizes: Mapping[str, int | tuple[int, int] | RuntimeDim], graph: Graph
) -> tuple[dict[str, RuntimeDim], Graph]:
    """What is promised of sizes by their names, and the graph with those that are numbers."""
    names = {n for kind in graph.inputs.values() for n in kind.shape if isinstance(n, str)}
    if not isinstance(sizes, Mapping):
        raise InvalidArguments("sizes", sizes, "expected a mapping from names of sizes")
    promises, known = dict[str, RuntimeDim](), dict[str, int]()
    for name, given in sizes.items():
        if name not in names:
            there = ", ".join(sorted(names)) or "none"
            raise InvalidArguments("sizes", name, f"no open size has this name; there are {there}")
        if isinstance(given, RuntimeDim):
            promises[name] = given
        elif type(given) is int and given >= 0:
            known[name] = given
        elif isinstance(given, tuple) and len(given) == 2:
            promises[name] = RuntimeDim(*given)
        else:
            rule = "expected a number, the least and the largest one, or a dnnl.RuntimeDim"
            raise InvalidArguments(f"sizes[{name!r}]", given, rule, "(32, 2048)")
    inputs = {
        name: replace(
            kind, shape=tuple(known.get(n, n) if isinstance(n, str) else n for n in kind.shape)
        )
        for name, kind in graph.inputs.items()
    }
    return promises, replace(graph, inputs=inputs)


def load(path: str | os.PathLike[str], *, compile: bool = True) -> Model:
    """The model in a file: in that of `Model.save`, or in an ONNX file.

    A saved model runs the kernels of its file, for the sizes that these serve; others are compiled.
    Without ``compile`` they are refused with Unimplemented, which says what the file serves.

    Raises ModelError, with the reason, for a file that is no usable model, and Unimplemented for
    operators or operator sets that are not known, and for a saved model whose kernels need features
    that this machine lacks. What depends on sizes, or is refused of an operator that is known,
    shows when the model is compiled.
    """
    return loaded(path, opened(path), compile)


@allocating
def loaded(path: str | os.PathLike[str], file: SavedFile | None, compile: bool) -> Model:
    """The model in a file, which is opened already if it is that of a saved model; see `load`."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidArguments("path", path, "expected the path of a file", "load('model.onnx')")
    if not isinstance(compile, bool):
        raise InvalidArguments("compile", compile, "expected True or False")
    if file is not None:
        graph, budget, saved = read_saved(file, compile)
        return Model(graph, budget, _saved=saved)
    if not compile:
        rule = "only a model of Model.save has kernels"
        raise InvalidArguments("compile", compile, rule, "model.save('model.dnnl') writes one")
    return Model(building.read(path))
