"""Sizes that only an execution knows: descriptions are patterns which its memories must match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dnnl.errors import InvalidArguments
from dnnl.primitives.desc import Desc, check_outputs
from dnnl.types.arg import Arg, name_of
from dnnl.types.kinds import RUNTIME_DIM, sizes_text
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp
from dnnl.types.runtime_dim import RuntimeDim


def known(desc: Desc, given: Mapping[int, MemoryDesc]) -> Desc:
    """The operation ``desc`` with the descriptors ``given`` of its tensors, by argument.

    Raises InvalidArguments unless each matches that of ``desc``, and for what breaks the rules of
    the operation itself.
    """
    patterns = {tensor.argument: tensor.desc for tensor in desc.tensors}
    for argument, found in given.items():
        if argument not in patterns:
            rule = f"a {desc.kind} has no such tensor whose sizes an execution decides on"
            raise InvalidArguments(f"given[{name_of(argument)}]", str(found), rule)
        check_match(argument, patterns[argument], found)
    return check_rules(desc.laid_out(**fields_of(desc, given)), desc)


def check_rules(sized: Desc, pattern: Desc) -> Desc:
    """The description ``sized`` of an execution of ``pattern``; raises InvalidArguments where it
    breaks the rules of the operation."""
    made = replace(sized)
    check_outputs(made.tensors)
    made.check_execution(pattern)
    return made


def fields_of(desc: Desc, given: Mapping[int, MemoryDesc]) -> dict[str, Any]:
    """The fields of the description that hold the descriptors ``given``; those that follow from
    others have none, and what no argument is anyway is left out."""
    fields: dict[str, Any] = {}
    for role in desc.operation.roles:
        value = getattr(desc, role.field) if role.field else ()
        if role.field and desc.has(role):
            descs = value if role.many else (value,)
            found = tuple(given.get(role.argument + n, own) for n, own in enumerate(descs))
            fields[role.field] = found if role.many else found[0]
        elif isinstance(value, MemoryDesc) and RUNTIME_DIM in value.dims:
            fields.setdefault(role.field, MemoryDesc.zero())
    return fields


def open_operands(post_ops: Iterable[PostOp]) -> dict[int, MemoryDesc]:
    """The operands of post-ops, by argument, of which an execution decides on the sizes."""
    return {
        Arg.post_op(number) | argument: desc
        for number, entry in enumerate(post_ops)
        for argument, desc in entry.operands
        if desc.has_runtime_values
    }


def known_post_ops(
    post_ops: Iterable[PostOp], given: Mapping[int, MemoryDesc]
) -> tuple[PostOp, ...]:
    """The post-ops with the descriptors ``given`` of their operands, by argument.

    Raises InvalidArguments unless each matches that of the post-op.
    """
    made: list[PostOp] = []
    for number, entry in enumerate(post_ops):
        ids = (Arg.post_op(number) | argument for argument, _ in entry.operands)

        def found(desc: MemoryDesc, ids: Iterator[int] = ids) -> MemoryDesc:
            argument = next(ids)
            own = given.get(argument, desc)
            check_match(argument, desc, own)
            return own

        made.append(entry.mapped(found))
    return tuple(made)


def check_match(argument: int, pattern: MemoryDesc, given: MemoryDesc) -> None:
    """Raise unless ``given`` is ``pattern`` with a number for each RUNTIME_DIM."""
    where = f"args[{name_of(argument)}]"
    if pattern == given:
        return
    if pattern.encoding is not None:
        raise InvalidArguments(where, str(given), f"must be {pattern}, as in the description")
    for name in ("ndims", "data_type", "format_kind", "inner_blocks", "compensation"):
        wanted, found = getattr(pattern, name), getattr(given, name)
        if wanted != found:
            rule = f"{name} must be {wanted}, as in the description, and is {found}"
            raise InvalidArguments(where, str(given), rule)
    _check_numbers(f"{where}.dims", pattern.dims, given.dims)
    for dim, (wanted, size) in enumerate(zip(pattern.dims, given.dims, strict=True)):
        if isinstance(wanted, RuntimeDim) and not wanted.allows(size):
            rule = f"dimension {dim} must be {wanted.rule}, as in the description"
            near = f"the nearest size is {wanted.near(size)}"
            raise InvalidArguments(f"{where}.dims", given.dims, rule, near)
    _check_numbers(f"{where}.padded_dims", pattern.padded_dims, given.padded_dims)
    # The stride of a dimension with one position is never used.
    strides = [
        wanted if count == 1 else stride
        for wanted, stride, count in zip(
            pattern.strides, given.strides, given.outer_dims, strict=True
        )
    ]
    _check_numbers(f"{where}.strides", pattern.strides, tuple(strides))
    _check_numbers(f"{where}.offset0", (pattern.offset0,), (given.offset0,))


def _check_numbers(where: str, pattern: tuple[int, ...], given: tuple[int, ...]) -> None:
    """Raise unless each number is that of the pattern or replaces a RUNTIME_DIM."""
    if any(a not in (b, RUNTIME_DIM) for a, b in zip(pattern, given, strict=True)):
        rule = f"must be {sizes_text(pattern)}, as in the description"
        raise InvalidArguments(where, given, rule, "RUNTIME_DIM there leaves a number open")
