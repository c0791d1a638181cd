"""What an operation is: the base of the frozen descriptions, and the checks that they share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum
from math import prod
from typing import ClassVar

from dnnl.codegen.kernel import Reason, Refusal
from dnnl.errors import InvalidArguments
from dnnl.primitives.implementation import Implementation
from dnnl.types.arg import Arg, name_of
from dnnl.types.kinds import (
    RUNTIME_DIM,
    Alg,
    FormatKind,
    Kind,
    NormFlags,
    PropKind,
    coerce,
    sizes_text,
)
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp


@dataclass(frozen=True)
class Tensor:
    """One tensor of an operation: its execution argument, its name in verbose lines, its
    descriptor, and whether the operation writes it."""

    argument: int
    name: str
    desc: MemoryDesc
    output: bool = False


@dataclass(frozen=True)
class Desc:
    """Base of the operation descriptions.

    A description is a value: equality, hashing, cache keys and verbose lines come from its fields.
    """

    kind: ClassVar[str]
    in_place: ClassVar[tuple[int, ...]] = ()  # inputs whose buffer may be that of dst
    across_engines: ClassVar[bool] = False  # whether src may lie on another engine than dst
    compensated: ClassVar[tuple[int, ...]] = ()  # weights that may have sums behind them

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors, absent ones left out, in the order of verbose lines."""

    @property
    @abstractmethod
    def implementations(self) -> tuple[Implementation, ...]:
        """Who can do it, best first."""

    @property
    @abstractmethod
    def problem(self) -> str:
        """The sizes in benchdnn's notation."""

    @property
    def auxiliary(self) -> str:
        """Algorithm and parameters in the notation of verbose lines."""
        return ""

    @property
    def dst(self) -> MemoryDesc:
        """The destination."""
        return next(tensor.desc for tensor in self.tensors if tensor.output)

    def remark(self, tensor: Tensor) -> str:
        """What verbose lines add to the token of a tensor."""
        return ""

    @property
    def propagation(self) -> str:
        """The propagation kind in verbose lines."""
        kind = getattr(self, "prop_kind", None)
        return str(kind) if isinstance(kind, PropKind) else "undef"

    def __str__(self) -> str:
        return f"{self.kind} {self.problem} {self.auxiliary}".rstrip()


def check_tensors(desc: Desc) -> None:
    """Raise unless every field called ``*_desc`` holds a descriptor."""
    for item in fields(desc):
        value = getattr(desc, item.name)
        if item.name.endswith("_desc") and not isinstance(value, MemoryDesc):
            raise InvalidArguments(item.name, value, "expected a dnnl.MemoryDesc")


_KINDS: dict[str, type[Enum]] = {"prop_kind": PropKind, "alg_kind": Alg, "flags": NormFlags}


def read_kinds(desc: Desc) -> None:
    """Turn the names that a description was constructed with into the members that they name."""
    for item in fields(desc):
        if item.name in _KINDS:
            member = coerce(_KINDS[item.name], getattr(desc, item.name), item.name)
            object.__setattr__(desc, item.name, member)


def check_outputs(tensors: Sequence[Tensor]) -> None:
    """Raise if elements of an output share their place in memory."""
    for tensor in tensors:
        strides = zip(tensor.desc.strides, tensor.desc.padded_dims, strict=False)
        if tensor.output and any(stride == 0 and extent > 1 for stride, extent in strides):
            rule = "a stride of 0 is for sources alone: these elements lie on each other"
            raise InvalidArguments(f"{tensor.name}_desc", tensor.desc.strides, rule)


def refuse_compensation(desc: Desc, post_ops: Sequence[PostOp]) -> Refusal | None:
    """A refusal if a tensor has sums behind it that the operation neither writes nor reads."""
    given = {t.argument: t.desc for t in desc.tensors if t.argument not in desc.compensated}
    for number, entry in enumerate(post_ops):
        given |= {Arg.post_op(number) | argument: operand for argument, operand in entry.operands}
    for argument, tensor in given.items():
        if tensor.compensation is not None:
            detail = f"{name_of(argument)} is {tensor}, weights that only a reorder can write"
            return Refusal(Reason.COMPENSATION, detail)
    return None


def check_defined(argument: str, desc: MemoryDesc) -> None:
    """Raise if a tensor that must be there is absent."""
    if desc.is_zero:
        raise InvalidArguments(argument, str(desc), "this tensor is required")


def check_not_any(argument: str, desc: MemoryDesc) -> None:
    """Raise if the layout of a tensor is left open that nothing could decide."""
    check_defined(argument, desc)
    if desc.format_kind is FormatKind.any:
        rule = "the layout of this tensor must be given"
        raise InvalidArguments(argument, str(desc), rule, "'any' is for tensors not yet made")


def check_dims(argument: str, desc: MemoryDesc, expected: Sequence[int], why: str) -> None:
    """Raise unless the dims are as expected."""
    if desc.dims != tuple(expected):
        raise InvalidArguments(argument, desc.dims, f"expected {sizes_text(expected)}, {why}")


def check_alg(alg: Kind, prefix: str) -> None:
    """Raise unless the algorithm belongs to the operation."""
    if not alg.name.startswith(prefix):
        known = ", ".join(name for name in type(alg).__members__ if name.startswith(prefix))
        raise InvalidArguments("alg_kind", str(alg), f"expected one of {known}")


def check_prop_forward(prop_kind: PropKind) -> None:
    """Raise unless the propagation kind is one of the forward ones."""
    if not prop_kind.is_forward:
        rule = "expected forward_training or forward_inference"
        raise InvalidArguments("prop_kind", str(prop_kind), rule)


def spelled(dims: Sequence[int]) -> str:
    """Sizes as benchdnn writes them, 2x3x4; one that only execution knows is ``*``."""
    return "x".join(map(spelled_size, dims))


def spelled_size(*factors: int) -> str:
    """One size of `spelled`, or the product of several."""
    return "*" if RUNTIME_DIM in factors else str(prod(factors))


def src_dst(src: MemoryDesc, dst: MemoryDesc) -> tuple[Tensor, ...]:
    """The tensors of an operation with one source and one destination."""
    return Tensor(Arg.SRC, "src", src), Tensor(Arg.DST, "dst", dst, output=True)


def weighted(
    src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc, dst: MemoryDesc
) -> tuple[Tensor, ...]:
    """The tensors of an operation with weights and, if it is not the zero descriptor, a bias."""
    tensors = [Tensor(Arg.SRC, "src", src), Tensor(Arg.WEIGHTS, "wei", weights)]
    tensors += [] if bias.is_zero else [Tensor(Arg.BIAS, "bia", bias)]
    return *tensors, Tensor(Arg.DST, "dst", dst, output=True)
