"""Arguments of an execution that a primitive does not need: optional hints are looked at, and what
it does not take is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from dnnl.errors import InvalidArguments
from dnnl.primitives.implementation import Hint
from dnnl.primitives.primitive_desc import PrimitiveDesc, describe
from dnnl.runtime.memory import Memory
from dnnl.types.arg import Arg, name_of, owner_of
from dnnl.types.dropout import SCALARS
from dnnl.types.kinds import ScratchpadMode
from dnnl.types.memory_desc import MemoryDesc


def check_surplus(pd: PrimitiveDesc, needed: Iterable[int], args: Mapping[int, Memory]) -> None:
    """Raise for an argument that an execution does not take; all keys are integers.

    ``needed`` are those that its kernel gets. None and memories of the zero descriptor say that
    there is no such argument.
    """
    known = frozenset(needed)
    for key in args:
        memory = None if key in known else args[key]
        if memory is None:
            continue
        argument = key.__index__()
        is_memory = memory.__class__ is Memory
        if is_memory and memory.desc.is_zero:
            continue
        hint = next((own for own in pd.plan.hints if own.argument == argument), None)
        if hint is not None:
            _check_scalar(hint, memory)
            hint.check(args)
        elif not _takes(pd, argument):
            own = f"{memory.desc}, dims {memory.desc.dims}" if is_memory else type(memory).__name__
            taken = _listed(dict.fromkeys(owner_of(own)[0] for own in needed))
            rule = f"this {pd.desc.kind} takes no such argument; it takes {taken}"
            where = f"args[{name_of(argument)}]"
            raise InvalidArguments(where, own, rule, _remedy(pd, argument))


def _check_scalar(hint: Hint, memory: object) -> None:
    """Raise unless an optional argument is one number of its type."""
    argument, wanted = hint.argument, hint.desc
    own = memory.desc if isinstance(memory, Memory) else None
    if own is None or own.data_type is not wanted.data_type or prod(own.dims) != 1:
        given = type(memory).__name__ if own is None else f"{own}, dims {own.dims}"
        raise InvalidArguments(f"args[{name_of(argument)}]", given, describe(argument, wanted))


def _takes(pd: PrimitiveDesc, argument: int) -> bool:
    """Whether an argument belongs to a primitive, though its kernel may not need it: that of an
    operation without elements needs none."""
    if argument == Arg.SCRATCHPAD:
        return pd.attr.scratchpad_mode is ScratchpadMode.user
    if argument <= 0:
        return False
    owner, buffer = owner_of(argument)
    desc = pd.arg_desc(owner) if owner else MemoryDesc.zero()
    return not desc.is_zero and buffer < len(desc.buffers)


def _listed(arguments: Iterable[int]) -> str:
    *names, last = map(name_of, arguments)
    return f"{', '.join(names)} and {last}" if names else last


def _remedy(pd: PrimitiveDesc, argument: int) -> str:
    """What makes a primitive take an argument."""
    for flag, method in (
        (Arg.SCALES, "set_scales"),
        (Arg.ZERO_POINTS, "set_zero_points"),
        (Arg.PRECOMPUTED_REDUCTIONS, "set_precomputed_reductions"),
    ):
        if argument & flag and argument != flag:
            return f"attr.{method}({name_of(argument - flag)!r}, ...) asks for it"
    if argument >= Arg.post_op(0):
        count = len(pd.attr.post_ops)
        return f"there are {count} post-ops, {pd.attr.post_ops}" if count else "there is no post-op"
    if argument in {*SCALARS, Arg.DROPOUT_MASK}:
        return "attr.set_dropout(...) asks for it"
    role = next((role for role in pd.desc.operation.roles if role.argument == argument), None)
    if role is not None and role.optional:
        return f"a description with {role.field} does"
    return _REMEDIES.get(argument, "")


_REMEDIES: dict[int, str] = {
    Arg.SCRATCHPAD: "PrimitiveAttr(scratchpad_mode='user') asks for it",
    Arg.ROUNDING_SEED: "attr.set_rounding_mode(Arg.DST, 'stochastic') asks for it",
    Arg.HINT_MAX_GROUP_SIZE: "a matmul of grouped tensors does",
    Arg.SEQUENCE_LENGTHS: "a recurrent network with lengths_desc does",
}
