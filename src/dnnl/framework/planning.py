"""From a lowered graph to its plan, and to the kernels of its steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from dnnl.framework.bound import Descs
from dnnl.framework.plan import (
    Contents,
    Counted,
    Indices,
    Layer,
    Placed,
    Plan,
    PlannedStep,
)
from dnnl.graph.expressions import (
    Expressions,
    SizedDesc,
    Values,
    condition,
    named_symbols,
    picked,
)
from dnnl.graph.graph import Array, TensorType
from dnnl.graph.rounding import Rounding
from dnnl.graph.sizes import is_open
from dnnl.lowering.facts import Step
from dnnl.lowering.graphs import Lowering
from dnnl.primitives.primitive import Primitive
from dnnl.runtime.launch import KernelCode, Launch
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, surely_equal


class PrimitiveKernels:
    """The kernels of a primitive, which makes further ones for sizes that need them."""

    def __init__(
        self, primitive: Primitive, numbers: Sequence[int], descs: Mapping[int, SizedDesc]
    ) -> None:
        self._primitive, self._descs = primitive, descs
        self._numbers = picked(numbers)

    def launch(self, values: Values) -> Launch:
        """The execution in a run of these values."""
        return self._primitive.launch(self._numbers(values), partial(self._descs_of, values))

    def codes(self) -> Sequence[KernelCode]:
        """All that there are now, for a file."""
        return self._primitive.kernels()

    def _descs_of(self, values: Values) -> dict[int, MemoryDesc]:
        return {arg: desc.of(values) for arg, desc in self._descs.items()}


def plan_of(lowering: Lowering, rounding: Rounding | None) -> Plan:
    """The plan of a lowered graph."""
    graph, expressions = lowering.graph, Expressions()
    steps = tuple(_planned(step, expressions) for step in lowering.steps)
    values = {*graph.inputs, *graph.outputs.values()}
    tensors = {
        value: Placed(
            expressions.form(tensor.layout.desc),
            tensor.layout.permutation,
            tensor.storage,
            graph.type_of(value).dtype,
        )
        for value, tensor in lowering.tensors.items()
        if value in values
    }
    contents = {
        public: _contents(graph.type_of(value), expressions, graph.constants[value])
        for public, value in graph.outputs.items()
        if value in graph.constants
    }
    counted = tuple(
        Counted(
            expressions.form(own.ref.desc), own.ref.storage, expressions.place(own.first), own.step
        )
        for own in lowering.counted
    )
    host = lowering.engine.host_memory
    read = {
        name: lowering.tensors[name].storage
        for name in (graph.inputs if host else ())
        if lowering.tensors[name].layout.desc.data_type.bits >= 8
    }
    known = {*read.values(), *lowering.prepared.values()}
    filled = [own.ref.storage for own in lowering.counted]  # before the first step
    written = _written_in_place(lowering, known.union(filled)) if host else {}
    elsewhere = known.union(written)
    sizes = {s: expressions.place(n) for s, n in lowering.sizes.items() if s not in elsewhere}
    touched = [[ref.storage for ref in step.args.values()] for step in lowering.steps]
    symbols = lowering.symbols
    return Plan(
        inputs={name: named_symbols(kind) for name, kind in graph.inputs.items()},
        outputs=dict(graph.outputs),
        symbols=0 if symbols is None else len(symbols.ranges),
        condition="" if symbols is None else condition(symbols),
        expressions=expressions.texts,
        steps=steps,
        layers=tuple(map(_layer, lowering.steps)),
        tensors=tensors,
        contents=contents,
        counted=counted,
        read=read,
        written=written,
        sizes=sizes,
        touched=tuple(tuple(s for s in own if s not in elsewhere) for own in touched),
        rounding=rounding,
    )


def kernels_of(plan: Plan, primitives: Sequence[Primitive]) -> list[PrimitiveKernels]:
    """The kernels of the steps of a plan, in order."""
    descs = Descs()
    return [
        PrimitiveKernels(
            primitive, step.numbers, {arg: descs.of(form) for arg, form in step.forms.items()}
        )
        for step, primitive in zip(plan.steps, primitives, strict=True)
    ]


def _planned(step: Step, expressions: Expressions) -> PlannedStep:
    """A step without its primitive."""
    forms = {int(arg): expressions.form(ref.desc) for arg, ref in step.args.items()}
    patterns = step.pd.patterns if step.pd.variants is not None else ()
    numbers = [place for arg in patterns for place in expressions.places(step.args[arg].desc)]
    indices = None
    if step.indexed is not None:
        ref = step.args[Arg.SRC_1]
        place = expressions.place(step.indexed)
        indices = Indices(expressions.form(ref.desc), ref.storage, place)
    return PlannedStep(
        step.name,
        {int(arg): ref.storage for arg, ref in step.args.items()},
        forms,
        tuple(numbers),
        indices,
    )


def _contents(kind: TensorType, expressions: Expressions, array: Array) -> Contents:
    """A constant, whose elements may be expressions."""
    if not is_open(array):
        return Contents(kind, array)
    return Contents(kind, None, tuple(expressions.place(n) for n in array.ravel()))


def _layer(step: Step) -> Layer:
    named = {"src": Arg.SRC, "weights": Arg.WEIGHTS, "dst": Arg.DST}
    refs = {name: step.args.get(arg) for name, arg in named.items()}
    if refs["src"] is None:
        refs["src"] = step.args.get(Arg.MULTIPLE_SRC)
    layouts = {name: layout_name(ref.desc) for name, ref in refs.items() if ref is not None}
    pd = step.pd
    return Layer(step.name, step.kind, pd.impl_info, layouts, step.flops, step.fused)


def layout_name(desc: MemoryDesc) -> str:
    """The tag of a memory's layout, or its strides where no tag spells it."""
    tag = desc.tag
    strides = (str(n) if is_known(n) else "*" for n in desc.strides)
    return str(tag) if tag is not None else "x".join(strides)


def _written_in_place(lowering: Lowering, elsewhere: Collection[int]) -> dict[int, str]:
    """The storages that a run has as new arrays, each with the output that it becomes: those of
    exactly one layout, row-major and without gaps."""
    found: dict[int, str] = {}
    for value in dict.fromkeys(lowering.graph.outputs.values()):
        tensor = lowering.tensors.get(value)
        if tensor is None or tensor.constant or tensor.storage in elsewhere:
            continue
        desc, shape = tensor.layout.desc, lowering.graph.shape_of(value)
        plain = MemoryDesc(shape, desc.data_type)
        same = desc.kind == plain.kind and desc.data_type.bits >= 8
        same = same and tuple(tensor.layout.permutation) == tuple(range(len(shape)))
        numbers = zip(desc.layout_numbers, plain.layout_numbers, strict=True) if same else ()
        whole = same and surely_equal(lowering.sizes[tensor.storage], plain.size)
        if whole and all(surely_equal(a, b) for a, b in numbers):
            found[tensor.storage] = value
    return found
