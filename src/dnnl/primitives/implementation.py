"""How an operation is done: implementations, what they answer, and what they share in deciding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.kernel import Kernel, Reason, Recipe, Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.runtime.memory import Memory
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dropout import Dropout
from dnnl.types.dtype import DataType, any_of
from dnnl.types.kinds import FormatKind, PropKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpBinary, PostOpFunction, PostOpPrelu, PostOpSum
from dnnl.types.size import broadcasts
from dnnl.types.tag import FormatTag

Conf = TypeVar("Conf")
"""The configuration of a kernel, which is what its build takes."""


class Output(Protocol):
    """A tensor that an operation writes."""

    @property
    def desc(self) -> MemoryDesc:
        """Its descriptor."""


class Described(Protocol):
    """What planning reads of any description (`dnnl.primitives.desc.Desc`)."""

    @property
    def outputs(self) -> Sequence[Output]:
        """What is written; post-ops are applied to the first."""

    @property
    def writes_nothing(self) -> bool:
        """Whether every output is empty."""


@dataclass(frozen=True)
class Hint:
    """One number that an execution may be given, or not; ``check`` raises where it is wrong beside
    the other memories, by argument."""

    argument: int
    desc: MemoryDesc
    check: Callable[[Mapping[int, Memory]], None]


@dataclass(frozen=True)
class Plan:
    """An accepted problem: the description and post-ops with every layout decided, the kernel's
    recipe, and the bytes of temporary memory that it takes.

    Where results may be found not to fit, ``verify`` looks at the memories of an execution, by
    argument, and raises. ``hints`` are its optional arguments.
    """

    desc: Described
    post_ops: tuple[PostOp, ...]
    recipe: Recipe
    scratchpad: int = 0
    verify: Callable[[Mapping[int, Memory]], None] | None = None
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True)
class Implementation:
    """An algorithm for an operation in some propagations. ``configure(desc, attr, isa)`` accepts or
    refuses; layouts that follow from others are decided before it is asked. Of tensors with an
    encoding, those are asked that serve the ``encoded``. One that ``fixes`` sizes has a kernel for
    those of each execution where it refuses sizes that only executions know."""

    name: str
    configure: Callable[[Any, PrimitiveAttr, Isa], Plan | Refusal]
    passes: frozenset[PropKind] = frozenset(PropKind)
    encoded: bool = False
    fixes: bool = False


@dataclass(frozen=True)
class Candidate:
    """An implementation that was asked, and what it answered; ``refusal`` is None if it accepts."""

    name: str
    refusal: Refusal | None

    def __str__(self) -> str:
        return f"{self.name}: {self.refusal or 'accepted'}"


_HARMLESS = frozenset({"scratchpad_mode", "deterministic", "fpmath_mode", "accumulation_mode"})


def refuse_attr(attr: PrimitiveAttr, *supported: str) -> Refusal | None:
    """A refusal if an attribute is set that is not in ``supported``.

    Generated kernels are deterministic, and modes which merely allow less than the strictest math
    are taken everywhere, whether a kernel makes use of them or not.
    """
    extra = sorted(attr.non_default() - _HARMLESS - set(supported))
    return Refusal(Reason.ATTRIBUTE, ", ".join(extra)) if extra else None


def laid_out_as(open_desc: MemoryDesc, models: Iterable[MemoryDesc]) -> MemoryDesc:
    """``open_desc`` with the layout of the first model of the same dims, without its gaps, else
    with the order and blocks of the first model of as many dims; row-major if there is none. What
    only an execution knows of a model of the same dims is left to it here too."""
    alike = [model for model in models if model.ndims == open_desc.ndims]
    same = [model for model in alike if model.dims == open_desc.dims]
    for model in (*same, *alike):
        known = model.is_dense(padded=True) and not model.offset0
        if model in same and (known or model.has_runtime_values):
            return model.with_data_type(open_desc.data_type)
        return dense_like(open_desc, model)
    return MemoryDesc(open_desc.dims, open_desc.data_type)


def dense_like(desc: MemoryDesc, model: MemoryDesc) -> MemoryDesc:
    """``desc`` in a dense layout with the blocks and the order of the dimensions of ``model``."""
    if model.tag is not None and model.tag.ndims == desc.ndims:
        return desc.with_tag(model.tag)
    if not desc.ndims:
        return MemoryDesc((), desc.data_type)
    order = sorted(range(desc.ndims), key=lambda dim: -model.strides[dim])
    return desc.with_tag(FormatTag.of(order, model.inner_blocks))


def check_post_ops(post_ops: tuple[PostOp, ...], dst: MemoryDesc, begin: int = 0) -> None:
    """Raise unless every operand of a post-op can be broadcast to dst, and what a sum reads dst as
    has the size of dst's elements. The first of them has the number ``begin``."""
    for number, entry in enumerate(post_ops, begin):
        read = entry.data_type if isinstance(entry, PostOpSum) else None
        if read is not None and read.bits != dst.data_type.bits:
            alike = (kind for kind in DataType if kind.bits == dst.data_type.bits)
            rule = f"dst is {dst.data_type}, which a sum may read as {any_of(tuple(alike))}"
            raise InvalidArguments(f"post_ops[{number}].data_type", read, rule)
        if isinstance(entry, PostOpPrelu) and entry.mask >> dst.ndims:
            rule = f"has a bit for each of the {dst.ndims} dimensions of dst"
            raise InvalidArguments(f"post_ops[{number}].mask", entry.mask, rule)
        condition = entry.src2_desc if isinstance(entry, PostOpBinary) else None
        if condition is not None and condition.dims != dst.dims:
            rule = f"a condition has the dims of dst, which are {dst.dims}"
            raise InvalidArguments(f"post_ops[{number}].src2_desc", condition.dims, rule)
        for place, (_, operand) in enumerate(entry.operands):
            dims = operand.dims
            fits = len(dims) == dst.ndims and all(
                broadcasts(extent, full) for extent, full in zip(dims, dst.dims, strict=True)
            )
            if not fits:
                function = isinstance(entry, PostOpFunction)
                name = f"operand_descs[{place}]" if function else f"src{1 + place}_desc"
                rule = f"each dimension must be 1 or that of dst, which is {dst.dims}"
                raise InvalidArguments(f"post_ops[{number}].{name}", dims, rule)


def resolve_post_ops(post_ops: tuple[PostOp, ...], dst: MemoryDesc) -> tuple[PostOp, ...]:
    """The post-ops with operands of layout 'any' laid out as dst."""

    def resolve(desc: MemoryDesc) -> MemoryDesc:
        if desc.format_kind is not FormatKind.any:
            return desc
        return laid_out_as(desc, [dst] if desc.dims == dst.dims else [])

    return tuple(entry.mapped(resolve) for entry in post_ops)


def check_dropout(dropout: Dropout | None, dst: MemoryDesc) -> None:
    """Raise unless a mask that is to be written has the dims of dst."""
    mask = None if dropout is None else dropout.mask_desc
    if mask is None or mask.is_zero:
        return
    if mask.dims != dst.dims:
        rule = f"the mask of a dropout has the dims of dst, which are {dst.dims}"
        raise InvalidArguments("mask_desc", mask.dims, rule)


def resolve_dropout(dropout: Dropout | None, dst: MemoryDesc) -> Dropout | None:
    """The dropout with a mask of layout 'any' laid out as dst."""
    if dropout is None or dropout.mask_desc.format_kind is not FormatKind.any:
        return dropout
    return replace(dropout, mask_desc=laid_out_as(dropout.mask_desc, [dst]))


def plan_nest(
    desc: Described,
    attr: PrimitiveAttr,
    isa: Isa,
    configure: Callable[[], Conf | Refusal],
    build: Callable[[Conf, Isa], Kernel],
) -> Plan | Refusal:
    """Plan an operation whose layouts are decided, without attributes.

    ``configure()`` gives the kernel's configuration, or a refusal. If it has a field
    ``scratchpad``, that is the bytes of temporary memory.
    """
    return refuse_attr(attr) or _planned(desc, isa, (), configure(), build)


def plan_forward(
    desc: Described,
    attr: PrimitiveAttr,
    isa: Isa,
    configure: Callable[[Attributes], Conf | Refusal],
    build: Callable[[Conf, Isa], Kernel],
    *beyond: str,
) -> Plan | Refusal:
    """Plan a forward operation that is bound by memory: post-ops, scales and zero points are taken
    by all of them, as by `Attributes`, and those ``beyond`` by some.

    ``configure(attributes)`` gives the kernel's configuration, or a refusal, as in `plan_nest`.
    """
    taken = _taken(desc, attr, *beyond)
    if isinstance(taken, Refusal):
        return taken
    return _planned(desc, isa, taken.post_ops, configure(taken), build)


def _taken(desc: Described, attr: PrimitiveAttr, *beyond: str) -> Attributes | Refusal:
    refusal = refuse_attr(attr, "post_ops", "scales", "zero_points", *beyond)
    dst = desc.outputs[0].desc
    return refusal or Attributes(
        resolve_post_ops(tuple(attr.post_ops), dst),
        Quantization.of(attr),
        resolve_dropout(attr.dropout, dst),
    )


def _planned(
    desc: Described,
    isa: Isa,
    post_ops: tuple[PostOp, ...],
    conf: Conf | Refusal,
    build: Callable[[Conf, Isa], Kernel],
) -> Plan | Refusal:
    if isinstance(conf, Refusal):
        return conf
    return Plan(desc, post_ops, Recipe(conf, isa, build), getattr(conf, "scratchpad", 0))
