"""Kernels with run-time sizes: nests of descriptors with RUNTIME_DIM, and their launch parameters.

A kernel whose nests are functions of its configuration serves all sizes; only the fields that are
tensors must be named. Its code is generated from a configuration in which everything is open, so
that all descriptions with the same types and numbers of dimensions share it. The launch parameters
of an execution come from the same nests, built from the descriptors of the memories.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import SIZES, Arguments, Kernel, Reason, Refusal, Sizes, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.work_items import SHARES
from dnnl.codegen.open_nest.nest import OpenWork, emit_open
from dnnl.codegen.open_nest.plan import OpenPlan, plan
from dnnl.types.arg import Arg
from dnnl.types.kinds import RUNTIME_DIM, FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_NIBBLE = 4  # bits

Conf = TypeVar("Conf", bound="DataclassInstance")
"""The configuration of a kernel."""


@dataclass(frozen=True)
class OpenKernel(Generic[Conf]):
    """The description of a kernel with run-time sizes.

    ``nests(conf, arguments)`` creates independent nests; ``behind`` creates nests that run after
    all of these. ``tensors`` maps the fields of a configuration that are descriptors of tensors to
    their arguments; the arguments of a tuple of descriptors are consecutive.
    """

    name: str
    nests: Callable[[Conf, Arguments], Iterable[Nest]]
    tensors: Mapping[str, int]
    behind: Callable[[Conf, Arguments], Iterable[Nest]] = lambda _conf, _arguments: ()

    def refuse(self, conf: Conf) -> Refusal | None:
        """Why a configuration has no code for run-time sizes, or None."""
        descs = [desc for _, desc in self._tensors(conf)]
        entries = getattr(conf, "attributes", Attributes()).post_ops
        operands = [desc for entry in entries for _, desc in entry.operands]
        return refuse_open((*descs, *operands))

    def _tensors(self, conf: Conf) -> Iterable[tuple[int, MemoryDesc]]:
        """The tensors of a configuration by argument."""
        for field, argument in self.tensors.items():
            value = getattr(conf, field)
            descs = value if isinstance(value, tuple) else (value,)
            for number, desc in enumerate(descs):
                if not desc.is_zero:
                    yield argument + number, desc

    def _replaced(self, conf: Conf, desc_of: Callable[[int, MemoryDesc], MemoryDesc]) -> Conf:
        """The configuration with its descriptors replaced."""
        fields: dict[str, object] = {}
        for field, argument in self.tensors.items():
            value = getattr(conf, field)
            descs = value if isinstance(value, tuple) else (value,)
            new = tuple(
                desc if desc.is_zero else desc_of(argument + number, desc)
                for number, desc in enumerate(descs)
            )
            fields[field] = new if isinstance(value, tuple) else new[0]
        attributes = getattr(conf, "attributes", None)
        if isinstance(attributes, Attributes):
            entries = enumerate(attributes.post_ops)
            post_ops = tuple(with_operands(n, entry, desc_of) for n, entry in entries)
            fields["attributes"] = replace(attributes, post_ops=post_ops)
        return replace(conf, **fields)

    def shared(self, conf: Conf) -> Conf:
        """The configuration that all descriptions with the same code share."""
        return self._replaced(conf, lambda _, desc: _opened(desc))

    def sizes(self, conf: Conf, isa: Isa, descs: Mapping[int, MemoryDesc]) -> Sizes:
        """The launch parameters of an execution on memories of these descriptors, by argument."""
        # Descriptors of what is no argument, as unused statistics, are used by no nest.
        known = self._replaced(conf, descs.get)
        nests, behind = (
            [_plans(*pair, isa) for pair in zip(works, patterns, strict=True)]
            for works, patterns in zip(
                self._works(known), self._works(self.shared(conf)), strict=True
            )
        )
        plans = [own for group in (*nests, *behind) for own in group]
        parameters = [parameter for own in plans for parameter in own.parameters]
        phases = [group[:2] for group in nests], [*(group[2:] for group in nests), *behind]
        units = ([own.units for group in phase for own in group] for phase in phases)
        return Sizes(
            struct.pack(f"={len(parameters)}q", *parameters),
            max(own.threads for own in plans),
            tuple(max(1, *own) for own in units if own),
        )

    def _works(self, conf: Conf) -> tuple[Sequence[Nest], Sequence[Nest]]:
        """The nests, and those behind."""
        arguments = Arguments()
        return list(self.nests(conf, arguments)), list(self.behind(conf, arguments))

    def build(self, conf: Conf, isa: Isa) -> Kernel:
        """The phases: independent nests, then those behind. ``conf`` comes from `shared`."""
        module, arguments = Module(self.name, isa), Arguments()
        nests, behind = list(self.nests(conf, arguments)), list(self.behind(conf, arguments))
        slot = arguments.slot(SIZES)
        first: list[OpenWork] = []
        second: list[OpenWork] = []
        start = 0
        for nest in nests:
            first.append(OpenWork(nest, slot, start))
            start = first[-1].end
        for nest in behind:
            second.append(OpenWork(nest, slot, start))
            start = second[-1].end
        entry = symbol(f"{self.name}_open", [desc for _, desc in self._tensors(conf)], isa)
        phases = [emit_open(module, entry, first)] if first else []
        if second:
            phases.append(emit_open(module, f"behind_{entry}", second, SHARES))
        return Kernel(module, tuple(phases), arguments.ids)


def _plans(work: Nest, pattern: Nest, isa: Isa) -> tuple[OpenPlan, ...]:
    """The plan of a nest whose code was generated from ``pattern``."""
    return (plan(work, pattern, isa),)


def refuse_open(plain: Iterable[MemoryDesc], blocked: Iterable[MemoryDesc] = ()) -> Refusal | None:
    """Why tensors with run-time sizes are refused, or None. They must be ``plain``, or may be
    ``blocked``, of whole bytes and with a decided layout."""
    plain = tuple(plain)
    for desc in (*plain, *blocked):
        if desc.format_kind is FormatKind.any:
            return Refusal(Reason.LAYOUT, f"{desc} with run-time sizes")
        if desc.data_type.bits == _NIBBLE:
            return Refusal(Reason.DATA_TYPE, f"{desc.data_type} with run-time sizes")
    for desc in plain:
        if desc.inner_blocks:
            return Refusal(Reason.LAYOUT, f"{desc} in blocks with run-time sizes")
    return None


def refuse_groups(quantization: Quantization) -> Refusal | None:
    """A refusal of scales by groups, whose offsets are not affine."""
    specs = (*quantization.scales, *quantization.zero_points)
    if any(spec.groups for _, spec in specs):
        return Refusal(Reason.ATTRIBUTE, "groups of scales with run-time sizes")
    return None


def with_operands(
    number: int, entry: PostOp, desc_of: Callable[[int, MemoryDesc], MemoryDesc]
) -> PostOp:
    """Post-op ``number`` with the descriptors ``desc_of(argument, desc)`` of its operands."""
    ids = (Arg.post_op(number) | argument for argument, _ in entry.operands)
    return entry.mapped(lambda desc: desc_of(next(ids), desc))


def _opened(desc: MemoryDesc) -> MemoryDesc:
    """The descriptor of all tensors with as many dimensions and the same broadcast ones."""

    def some(values: Sequence[int]) -> list[int]:
        return [1 if extent == 1 else RUNTIME_DIM for extent in values]

    strides = [RUNTIME_DIM] * desc.ndims
    return MemoryDesc(some(desc.dims), desc.data_type, strides, offset0=RUNTIME_DIM)
