"""From a case to the objects of the library."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.language.case import INVALID, NOT_SUPPORTED, CaseValues
from dnnl.language.errors import BadValue
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import laid_out_as
from dnnl.primitives.open_desc import laid_out
from dnnl.primitives.operation import Operation
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.runtime.engine import Engine, first_cpu
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.open_sizes import check_open, open_desc, open_operands, tensors_of
from dnnl.tools.bench.quantization import make_attr
from dnnl.tools.engines import named
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import FormatKind, PropKind
from dnnl.types.memory_desc import MemoryDesc


class Created(NamedTuple):
    """The operation and the attribute as they were asked for, what was made of them, and the
    forward operation that a backward one belongs to. ``known`` is the same for the sizes of the
    case, where the description leaves some open."""

    desc: Desc
    attr: PrimitiveAttr
    pd: PrimitiveDesc
    forward: Desc | None
    known: PrimitiveDesc | None = None


def create(case: Case, kind: type[Desc], engine: Engine | None = None) -> Created:
    """The first implementation that takes a case, on the engines that it names unless one is given.

    A backward one is created with the description of its forward pass as a hint. Raises
    Unimplemented where none takes it and InvalidArguments where the case breaks a rule.
    """
    is_open = check_open(case)
    source, own = (engine, engine) if engine else engines_of(case)
    desc = describe(case, kind)
    attr = make_attr(case, kind.operation, desc)
    forward = hint = None
    if not desc.propagation.is_forward:
        forward = describe(case, kind, PropKind.forward_training)
        hint = PrimitiveDesc(forward, own)
    pd = PrimitiveDesc(desc, own, attr, hint, src_engine=source)
    created = Created(desc, attr, pd, forward)
    return with_open_sizes(case, created) if is_open else created


def with_open_sizes(case: Case, created: Created) -> Created:
    """What was created for the sizes of a case, with those open that the case says."""
    known = created.pd
    desc = open_desc(case, created.desc, known.desc)
    post_ops = open_operands(case, known.desc, known.attr.post_ops)
    dropout = known.attr.dropout
    if dropout is not None and not dropout.mask_desc.is_zero:
        raise Unimplemented("no mask of a dropout has sizes that only the execution knows")
    attr = created.attr.with_layouts(post_ops, created.attr.dropout)
    pd = PrimitiveDesc(desc, known.dst_engine, attr, src_engine=known.src_engine)
    return Created(desc, attr, pd, created.forward, known)


def describe(case: CaseValues, kind: type[Desc], prop_kind: PropKind | None = None) -> Desc:
    """The operation of a case, or its counterpart in another propagation."""
    operation = kind.operation
    described: Desc = operation.complete(_stated(case, kind, prop_kind), case)
    roles = [role for role in operation.roles if role.field]
    absent = {role.field: MemoryDesc.zero() for role in roles if not described.has(role)}
    return replace(described, **absent) if absent else described


def _stated(case: CaseValues, kind: type[Desc], prop_kind: PropKind | None = None) -> Desc:
    """The operation of a case with all sizes, those included that only the execution knows."""
    operation = kind.operation
    fields: dict[str, Any] = {}
    passes = operation.passes
    if case.driver.propagation is not None:
        passes = frozenset({prop_kind or case.prop_kind})
        fields["prop_kind"] = prop_kind or case.prop_kind
    if not passes & operation.passes:
        raise operation.lacks(fields["prop_kind"])
    for role in operation.roles:
        if role.field and passes & (role.reads | role.writes):
            fields[role.field] = role.case(case)
    for parameter in operation.parameters:
        fields[parameter.field] = parameter.case(case)
    return kind.made(**fields)


def at_execution(case: Case, kind: type[Desc], created: Created) -> PrimitiveDesc:
    """The description with the sizes that only an execution knows, which the case has."""
    pd = created.pd
    if not any(tensor.desc.has_runtime_values for tensor in pd.desc.tensors):
        return pd
    if created.known is not None:
        known = created.known
        found = dict(tensors_of(pd, known.desc, known.attr.post_ops))
        for argument, own in found.items():
            if own.format_kind is not FormatKind.blocked:
                found[argument] = laid_out(pd.patterns[argument], own.dims)
        return pd.with_sizes(found)
    stated = _stated(case, kind)
    attr = make_attr(case, kind.operation, stated)
    return pd.with_sizes(
        {
            argument: laid_out_as(own, ()) if own.format_kind is FormatKind.any else own
            for argument, own in tensors_of(pd, stated, attr.post_ops)
        }
    )


def skipped(case: Case, operation: Operation) -> str | None:
    """Why a case makes no sense or cannot be run here, None if it can.

    Raises Unimplemented for one that asks for what only oneDNN has.
    """
    if case.lacking:
        raise Unimplemented("; ".join(case.lacking))
    if case.in_place and any(_differ(case, operation, *pair) for pair in operation.in_place):
        return INVALID
    if case.cross_engine and engine_of(case) == first_cpu():
        return NOT_SUPPORTED
    return operation.invalid(case)


def _differ(case: CaseValues, operation: Operation, output: int, source: int) -> bool:
    """Whether a case describes two tensors in two layouts that are to share one buffer."""
    roles = {role.argument: role for role in operation.roles if role.field}
    first, second = (roles[argument].case(case) for argument in (output, source))
    own: MemoryDesc = second[0] if roles[source].many else second
    if first.data_type is not own.data_type:
        return True
    return FormatKind.any not in (first.format_kind, own.format_kind) and first != own


def engine_of(case: Case) -> Engine:
    """The engine that a case names; raises BadValue where there is none."""
    try:
        return named(case.settings.engine)
    except InvalidArguments as error:
        raise BadValue(str(error)) from None


def engines_of(case: Case) -> tuple[Engine, Engine]:
    """The engine of src, and that of all else."""
    engine = engine_of(case)
    if case.cross_engine == "cpu2gpu":
        return first_cpu(), engine
    return engine, first_cpu() if case.cross_engine == "gpu2cpu" else engine
