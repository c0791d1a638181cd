"""Plans and kernels as JSON, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.framework.plan import (
    Compiled,
    Contents,
    Counted,
    Indices,
    Layer,
    Placed,
    Plan,
    PlannedStep,
)
from dnnl.framework.saved_file import HELD, Place, SavedFile
from dnnl.framework.stored import StoredKernels
from dnnl.graph.expressions import Form
from dnnl.graph.graph import Array, ModelError, TensorType
from dnnl.graph.rounding import Rounding
from dnnl.runtime.engine import Engine
from dnnl.runtime.image import Image
from dnnl.runtime.image_bytes import decoded
from dnnl.runtime.launch import KernelCode
from dnnl.runtime.memory import Memory
from dnnl.runtime.size_class import SizeClass
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc

Store = Callable[[str, "bytes | Array"], Place]
Read = Callable[[Place], Array]


class PlanWriter:
    """Compiled plans as JSON. ``store`` puts bytes into a section; equal images and forms are there
    once."""

    def __init__(self, store: Store, encode: Callable[[Image], bytes]) -> None:
        self._store, self._encode = store, encode
        self._images: dict[Image, int] = {}
        self.images: list[Place] = []

    def written(self, compiled: Compiled) -> dict[str, Any]:
        """A plan with its kernels and constants."""
        plan = compiled.plan
        self._forms: dict[Form, int] = {}
        made = {
            "isa": compiled.isa,
            "features": compiled.features,
            "inputs": {name: type_to_json(kind) for name, kind in plan.inputs.items()},
            "outputs": dict(plan.outputs),
            "symbols": plan.symbols,
            "condition": plan.condition,
            "expressions": plan.expressions,
            "steps": list(map(self._step, plan.steps)),
            "layers": [_layer_to_json(layer) for layer in plan.layers],
            "tensors": {
                value: [self._form(own.form), own.permutation, own.storage, own.dtype.name]
                for value, own in plan.tensors.items()
            },
            "contents": {name: self._contents(own) for name, own in plan.contents.items()},
            "counted": [
                [self._form(own.form), own.storage, own.first, own.step] for own in plan.counted
            ],
            "read": dict(plan.read),
            "written": list(plan.written.items()),
            "sizes": list(plan.sizes.items()),
            "touched": plan.touched,
            "rounding": plan.rounding and [plan.rounding.eps, plan.rounding.depth],
            "kernels": [[self._code(code) for code in own.codes()] for own in compiled.kernels],
            "constants": [
                [storage, self._store("constants", memory.read())]
                for storage, memory in compiled.constants.items()
            ],
        }
        return {**made, "forms": [_form_to_json(form) for form in self._forms]}

    def _form(self, form: Form) -> int:
        return self._forms.setdefault(form, len(self._forms))

    def _step(self, step: PlannedStep) -> list[Any]:
        own = step.indices
        indices = own and [self._form(own.form), own.storage, own.extent]
        return [step.name, list(step.storages.items()), step.numbers, indices]

    def _contents(self, own: Contents) -> list[Any]:
        place = None if own.array is None else self._store("constants", own.array)
        return [type_to_json(own.kind), place, own.places]

    def _code(self, code: KernelCode) -> list[Any]:
        if code.image not in self._images:
            self._images[code.image] = len(self.images)
            self.images.append(self._store("kernels", self._encode(code.image)))
        own = code.size_class
        sizes = own and [own.sources, own.conditions, own.counts, own.scratchpad]
        image = self._images[code.image]
        return [image, code.order, code.kind, code.fields, code.scratchpad, sizes]


class PlanReader:
    """Compiled plans out of JSON, on an engine. ``image`` gives an image by its number, ``blob``
    the bytes at a place."""

    def __init__(self, engine: Engine, image: Callable[[int], Image], blob: Read) -> None:
        self._engine, self._image, self._blob = engine, image, blob

    def read(self, given: dict[str, Any]) -> Compiled:
        """A plan with its kernels and constants."""
        forms = [_form_of(own) for own in given["forms"]]
        steps = tuple(_step_of(own, forms) for own in given["steps"])
        rounding = given["rounding"]
        if not given["symbols"]:
            given["expressions"] = [str(int(text)) for text in given["expressions"]]
        plan = Plan(
            inputs={name: type_of(own) for name, own in given["inputs"].items()},
            outputs=given["outputs"],
            symbols=given["symbols"],
            condition=given["condition"],
            expressions=tuple(given["expressions"]),
            steps=steps,
            layers=tuple(map(_layer_of, given["layers"])),
            tensors={
                value: Placed(forms[form], tuple(permutation), storage, np.dtype(dtype))
                for value, (form, permutation, storage, dtype) in given["tensors"].items()
            },
            contents={name: self._contents_of(own) for name, own in given["contents"].items()},
            counted=tuple(Counted(forms[form], *numbers) for form, *numbers in given["counted"]),
            read=given["read"],
            written=dict(given["written"]),
            sizes=dict(given["sizes"]),
            touched=tuple(map(tuple, given["touched"])),
            rounding=rounding and Rounding(*rounding),
        )
        kernels = [
            StoredKernels(self._engine, step, [_code_of(self._image, code) for code in codes])
            for step, codes in zip(steps, given["kernels"], strict=True)
        ]
        constants = {storage: self._constant(place) for storage, place in given["constants"]}
        isa, features = given["isa"], tuple(given["features"])
        return Compiled(plan, self._engine, isa, features, kernels, constants)

    def _constant(self, place: Place) -> Memory:
        data = self._blob(place)
        return Memory(MemoryDesc((data.size,), "u8"), self._engine, data)

    def _contents_of(self, given: Sequence[Any]) -> Contents:
        kind, place, places = type_of(given[0]), given[1], tuple(given[2])
        array = None if place is None else self._blob(place).view(kind.dtype).reshape(kind.sizes)
        return Contents(kind, array, places)


def read_plans(file: SavedFile, engine: Engine, held: Sequence[Array] = ()) -> tuple[Compiled, ...]:
    """The plans of a file; blobs in section `HELD` are taken from ``held``.

    Raises ModelError where it is damaged.
    """

    @cache
    def image(number: int) -> Image:
        found = decoded(file.blob(file.index["images"][number]).tobytes(), "")
        if found is None:
            raise ModelError(f"{file.path} is damaged: image {number} has another checksum")
        return found

    def blob(place: Place) -> Array:
        return held[place[1]] if place[0] == HELD else file.blob(place)

    return tuple(map(PlanReader(engine, image, blob).read, file.index["plans"]))


def _code_of(image: Callable[[int], Image], given: Sequence[Any]) -> KernelCode:
    number, order, kind, fields, scratchpad, sizes = given
    own = None
    if sizes:
        sources, conditions, counts, nbytes = sizes
        own = SizeClass(tuple(sources), tuple(conditions), tuple(counts), nbytes)
    return KernelCode(image(number), tuple(order), kind, fields, scratchpad, own)


def _step_of(given: Sequence[Any], forms: Sequence[Form]) -> PlannedStep:
    name, storages, numbers, indices = given
    own = indices and Indices(forms[indices[0]], *indices[1:])
    return PlannedStep(name, dict(storages), {}, tuple(numbers), own)


def _layer_to_json(layer: Layer) -> list[Any]:
    own = layer
    return [own.name, own.primitive, own.implementation, dict(own.layouts), own.flops, own.fused]


def _layer_of(given: Sequence[Any]) -> Layer:
    name, primitive, implementation, layouts, flops, fused = given
    return Layer(name, primitive, implementation, layouts, flops, tuple(fused))


def type_to_json(kind: TensorType) -> list[Any]:
    """The type of a value."""
    return [kind.dtype.name, list(kind.shape)]


def type_of(given: Sequence[Any]) -> TensorType:
    """The type of a value out of JSON."""
    return TensorType(np.dtype(given[0]), tuple(given[1]))


def _form_to_json(form: Form) -> list[Any]:
    desc = form.like
    if desc.format_kind is not FormatKind.blocked or desc.compensation is not None:
        raise Unimplemented(f"an input or an output is laid out as {desc}, which no file can hold")
    numbers = [desc.dims, desc.padded_dims, desc.strides, desc.offset0]
    return [str(desc.data_type), *numbers, desc.inner_blocks, form.places]


def _form_of(given: Sequence[Any]) -> Form:
    kind, dims, padded, strides, offset, blocks, places = given
    further: dict[str, Any] = {}
    if blocks:
        further = {"inner_blocks": [tuple(own) for own in blocks], "padded_dims": tuple(padded)}
    desc = MemoryDesc(tuple(dims), DataType[kind], list(strides), offset0=offset, **further)
    return Form(desc, tuple(places))
