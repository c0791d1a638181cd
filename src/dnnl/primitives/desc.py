"""What an operation is: the base of the frozen descriptions.

A description is a value. Its fields are descriptors of tensors and parameters, and what is true of
all descriptions of a kind stands in the operation's record (`dnnl.primitives.operation`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple, Self

from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.errors import InvalidArguments
from dnnl.primitives.implementation import Implementation, laid_out_as
from dnnl.primitives.operation import Operation, Role
from dnnl.types.arg import GRADIENT, Arg, name_of
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import RUNTIME_DIM, FormatKind, PropKind, coerce
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp
from dnnl.types.symbols import LEAST


@dataclass(frozen=True)
class Tensor:
    """One tensor of an operation: its execution argument, its name in verbose lines, its
    descriptor and the field that holds it, whether the operation writes it, and what verbose lines
    add to its token."""

    argument: int
    name: str
    desc: MemoryDesc
    field: str
    output: bool = False
    remark: str = ""


class Stage(NamedTuple):
    """Post-ops that are applied to one tensor ``dst``, the first of which has the number
    ``begin``."""

    begin: int
    entries: tuple[PostOp, ...]
    dst: MemoryDesc


@dataclass(frozen=True)
class Desc:
    """Base of the operation descriptions.

    Equality, hashing, cache keys and verbose lines come from the fields.
    """

    operation: ClassVar[Operation]
    shortest_row: ClassVar[int] = LEAST
    """Where only executions know sizes, contiguous rows of fewer elements have kernels of their
    own."""
    single: ClassVar[Collection[str]] = ()
    """The names of open sizes that are symbols even in a kernel made for an execution with 1."""

    @classmethod
    def made(cls, **given: Any) -> Self:
        """A description with these fields. Tensors that are left out, or None, are absent; a
        parameter that is None has its default."""
        values = dict(given)
        for role in cls.operation.roles:
            if role.field and not role.many and values.get(role.field) is None:
                values[role.field] = MemoryDesc.zero()
        return cls(**values)

    def _fill(self, **given: Any) -> None:
        """Give the fields their values, for a description that takes its arguments itself."""
        for name, value in given.items():
            self._set(name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        if hasattr(self, "prop_kind"):
            self._set("prop_kind", coerce(PropKind, self.prop_kind, "prop_kind"))
            if self.propagation not in self.operation.passes:
                known = [kind.name for kind in PropKind if kind in self.operation.passes]
                rule = f"expected {' or '.join(known)}"
                raise InvalidArguments("prop_kind", str(self.propagation), rule)
        roles = [role for role in self.operation.roles if role.field and not role.many]
        for role in roles:
            self._check_type(role.field)
        for role in roles:
            self._check_presence(role)
        ndims = next(desc.ndims for _, desc in self._given())
        self.check_dims()
        for parameter in self.operation.parameters:
            means = self.propagation in parameter.passes
            value = getattr(self, parameter.field) if means else parameter.usual
            if value is None and parameter.default is not None:
                value = parameter.default(self)
            self._set(parameter.field, parameter.domain.read(parameter.field, value, ndims))
        self.check()

    def check_dims(self) -> None:
        """Raise unless the tensors have dims that parameters can refer to."""

    @abstractmethod
    def check(self) -> None:
        """Raise unless tensors and parameters agree; each has been read by itself."""

    def size_name(self, argument: int, dim: int, letter: str) -> str:
        """The name of a dimension of a tensor of the record, whose role gives it a ``letter``.
        Where only the execution knows sizes, those of one name are expected to be equal."""
        return letter

    def other_sizes(self) -> Sequence[Mapping[str, int]]:
        """Further sizes, by name, whose kernels are built with the primitive, beside the typical
        ones: for open sizes that have classes with different code."""
        return ()

    def size_promise(self, argument: int, dim: int) -> int:
        """What is known of the size of a dimension of a tensor that only the execution knows."""
        return RUNTIME_DIM

    def derived_size(
        self, argument: int, dim: int, dims: Mapping[int, Sequence[int]]
    ) -> int | None:
        """The size of a dimension of a tensor, if it follows from the ``dims`` of those before it,
        by argument."""
        return None

    def complete_typical(self, dims: dict[int, list[int]]) -> None:
        """Make the dims of typical tensors, by argument, agree where one size follows from
        others."""

    def check_execution(self, pattern: Self) -> None:
        """Raise where the sizes of an execution are others than ``pattern`` has code for."""

    @property
    @abstractmethod
    def problem(self) -> str:
        """The sizes in benchdnn's notation."""

    @property
    def kind(self) -> str:
        """The name of the operation in verbose lines."""
        return self.operation.kind

    @property
    def propagation(self) -> PropKind:
        """The propagation kind; forward_inference for an operation that has none."""
        kind: PropKind = getattr(self, "prop_kind", PropKind.forward_inference)
        return kind

    @property
    def spelled_propagation(self) -> str:
        """The propagation kind in verbose lines."""
        return str(self.propagation) if hasattr(self, "prop_kind") else "undef"

    def check_attr(self, attr: PrimitiveAttr) -> None:
        """Raise InvalidArguments where an attribute that only this operation has does not fit."""

    def under(self, post_ops: Sequence[PostOp]) -> Desc:
        """The description of what is done with these post-ops: itself, unless one of them has
        tensors of its own or another result."""
        return self

    def stages(self, post_ops: Sequence[PostOp]) -> Sequence[Stage]:
        """The post-ops by what they are applied to."""
        return [Stage(0, tuple(post_ops), self.outputs[0].desc)]

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of this propagation, absent ones left out, in the order of the record."""
        return self.named

    @cached_property
    def named(self) -> tuple[Tensor, ...]:
        """The tensors of the record, as verbose lines list them."""
        return tuple(self._tensors())

    def _tensors(self) -> Iterator[Tensor]:
        kind = self.propagation
        for role in self.operation.roles:
            output = kind in role.writes
            if not (output or kind in role.reads) or not role.when(self):
                continue
            for number, desc in enumerate(self._descs(role)):
                if not desc.is_zero:
                    remark = "" if role.remark is None else role.remark(desc)
                    yield Tensor(
                        role.argument + number, role.name, desc, role.field, output, remark
                    )

    def has(self, role: Role) -> bool:
        """Whether a role takes part."""
        kind = self.propagation
        return (kind in role.reads or kind in role.writes) and role.when(self)

    def _descs(self, role: Role) -> Sequence[MemoryDesc]:
        if role.derived is not None:
            return [role.derived(self)]
        value = getattr(self, role.field)
        return value if role.many else [value]

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """What is written; post-ops are applied to the first."""
        return tuple(tensor for tensor in self.tensors if tensor.output)

    @property
    def writes_nothing(self) -> bool:
        """Whether every output is empty."""
        return all(tensor.desc.has_zero_dim for tensor in self.outputs)

    def desc_of(self, argument: int) -> MemoryDesc:
        """The descriptor of an argument; the zero one if there is no such tensor."""
        for tensor in self.tensors:
            if tensor.argument == argument:
                return tensor.desc
        return MemoryDesc.zero()

    def quantized(self, argument: int) -> MemoryDesc:
        """The descriptor of what the scales and zero points of an argument belong to."""
        return self.desc_of(argument)

    def quantizes(self, output: int) -> int:
        """The argument whose scales and zero points an output has."""
        return output

    @cached_property
    def has_runtime_values(self) -> bool:
        """Whether only the execution knows some of the sizes, strides or offsets."""
        return any(tensor.desc.has_runtime_values for tensor in self.tensors)

    @property
    def is_encoded(self) -> bool:
        """Whether a tensor has several buffers."""
        return any(tensor.desc.encoding is not None for tensor in self.tensors)

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Who can do it, best first; of encodings those who serve them, if anybody does."""
        every = [i for i in self.operation.implementations if self.propagation in i.passes]
        alike = tuple(impl for impl in every if impl.encoded == self.is_encoded)
        return alike or tuple(every)

    @property
    def auxiliary(self) -> str:
        """Algorithm and parameters in the notation of verbose lines."""
        return self.auxiliary_in(self.propagation)

    def auxiliary_in(self, propagation: PropKind) -> str:
        """The same with those parameters alone that mean something in a propagation."""
        every = (each for each in self.operation.parameters if propagation in each.passes)
        given = ((each, getattr(self, each.field)) for each in every)
        return " ".join(
            f"{parameter.verbose}:{parameter.domain.spell(value)}"
            for parameter, value in given
            if parameter.verbose and value != parameter.usual
        )

    def settled(self, hint: Desc | None = None) -> Self:
        """This description with those layouts decided that are ``any`` and follow from others.

        A gradient, or what the forward pass has left, is laid out as its tensor is in the forward
        description ``hint``; everything else as the record's ``like`` says.
        """
        known = {} if hint is None else {tensor.argument: tensor.desc for tensor in hint.tensors}
        settled = self
        for role in self.operation.roles:
            if not role.field or role.many or not self.has(role):
                continue
            desc = getattr(settled, role.field)
            if desc.format_kind is not FormatKind.any:
                continue
            model = known.get(role.argument - GRADIENT) or known.get(role.argument)
            if role.chosen and (model is None or role.independent):
                continue
            models = [model] if model is not None else [*settled._models(role)]
            if not models and "" not in role.like and self.propagation in role.reads:
                raise _open(role, desc)
            settled = settled.laid_out(**{role.field: laid_out_as(desc, models)})
        return settled

    def laid_out(self, **descs: MemoryDesc) -> Self:
        """This description with other layouts of the tensors in the fields ``descs``, whose dims
        and types are the same: all that was checked holds."""
        made = object.__new__(type(self))
        for name in self.fields():
            made._set(name, descs.get(name) or getattr(self, name))
        return made

    @classmethod
    @cache
    def fields(cls) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field.name for field in fields(cls))

    def _models(self, role: Role) -> Iterator[MemoryDesc]:
        """What a role may be laid out as."""
        for name in role.like:
            value = getattr(self, name) if name else ()
            for desc in value if isinstance(value, tuple) else [value]:
                if desc.format_kind is FormatKind.blocked:
                    yield desc

    def _given(self) -> Iterator[tuple[str, MemoryDesc]]:
        """The descriptors of this propagation by the names of their fields."""
        for role in self.operation.roles:
            if role.field and self.has(role):
                for number, desc in enumerate(self._descs(role)):
                    yield (f"{role.field}[{number}]" if role.many else role.field), desc

    def _check_type(self, name: str) -> None:
        if not isinstance(getattr(self, name), MemoryDesc):
            raise InvalidArguments(name, getattr(self, name), "expected a dnnl.MemoryDesc")

    def _check_presence(self, role: Role) -> None:
        """Raise for a tensor that is missing, and for a layout left open that nothing decides."""
        desc: MemoryDesc = getattr(self, role.field)
        if not self.has(role) or (role.optional and desc.is_zero):
            return
        if desc.is_zero:
            raise InvalidArguments(role.field, str(desc), "this tensor is required")
        if desc.format_kind is FormatKind.any and not role.open:
            raise _open(role, desc)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return f"{self.kind} {self.problem} {self.auxiliary}".rstrip()


def _open(role: Role, desc: MemoryDesc) -> InvalidArguments:
    """The error for a layout that nothing decides."""
    rule = "the layout of this tensor must be given"
    return InvalidArguments(role.field, str(desc), rule, "'any' is for tensors not yet made")


def check_outputs(tensors: Sequence[Tensor]) -> None:
    """Raise if elements of an output share their place in memory."""
    for tensor in tensors:
        if not tensor.output or tensor.desc.has_zero_dim:
            continue
        strides = zip(tensor.desc.strides, tensor.desc.padded_dims, strict=False)
        if any(stride == 0 and extent > 1 for stride, extent in strides):
            rule = "a stride of 0 is for sources alone: these elements overlap"
            raise InvalidArguments(tensor.field or tensor.name, tensor.desc.strides, rule)


def refuse_encoding(desc: Desc, post_ops: Sequence[PostOp]) -> Refusal | None:
    """A refusal if a tensor has an encoding and no implementation serves such."""
    given = {t.argument: t.desc for t in desc.tensors}
    if desc.is_encoded and any(impl.encoded for impl in desc.implementations):
        given = {}
    for number, entry in enumerate(post_ops):
        given |= {Arg.post_op(number) | argument: operand for argument, operand in entry.operands}
    for argument, tensor in given.items():
        if tensor.encoding is not None:
            return Refusal(Reason.LAYOUT, f"{name_of(argument)} is {tensor}")
    return None


def refuse_compensation(desc: Desc, post_ops: Sequence[PostOp]) -> Refusal | None:
    """A refusal if a tensor has sums behind it that the operation neither writes nor reads."""
    taken = desc.operation.compensated
    given = {t.argument: t.desc for t in desc.tensors if t.argument not in taken}
    for number, entry in enumerate(post_ops):
        given |= {Arg.post_op(number) | argument: operand for argument, operand in entry.operands}
    for argument, tensor in given.items():
        if tensor.compensation is not None:
            detail = f"{name_of(argument)} is {tensor}, weights that only a reorder can write"
            return Refusal(Reason.COMPENSATION, detail)
    return None
