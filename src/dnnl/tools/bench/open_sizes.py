"""Cases whose description leaves sizes open, which executions decide on: the option ``open``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dnnl.errors import Unimplemented
from dnnl.language.errors import BadValue
from dnnl.primitives.desc import Desc
from dnnl.primitives.open_desc import dimension_names, laid_out
from dnnl.primitives.operation import Role
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.tools.bench.cases import Case
from dnnl.types.arg import GRADIENT, Arg
from dnnl.types.kinds import RUNTIME_DIM, FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

_MASKS = ("runtime-dim-mask", "runtime_dims_masks")
_PARAMETERS = (Arg.WEIGHTS, Arg.BIAS)
_EVERY = -1


def check_open(case: Case) -> bool:
    """Whether a case leaves sizes open; raises BadValue where its options do not agree."""
    mask = case.values["open"].mask if "open" in case.values else 0
    if not mask and case.values.get("sizes", 1) > 1:
        raise BadValue(f"--sizes={case['sizes']}: only with --open are there other sizes")
    for name in _MASKS if mask else ():
        if str(case.values.get(name, "0")).strip("0:"):
            raise BadValue(f"--{name}={case[name]} with --open={case['open']}: one says it all")
    return bool(mask)


def open_desc(case: Case, asked: Desc, known: Desc) -> Desc:
    """The description ``asked`` with the sizes open that the case says. ``known`` is the same with
    all layouts decided: no layout is chosen for sizes that are not known."""
    making = _Opening(case["open"].mask, known)
    roles = [role for role in asked.operation.roles if role.field]
    # Tensors that take no part have no sizes either.
    fields: dict[str, object] = {role.field: MemoryDesc.zero() for role in roles if not role.many}
    for role in roles:
        if not asked.has(role):
            continue
        value, decided = getattr(asked, role.field), getattr(known, role.field)
        pairs = zip(value, decided, strict=True) if role.many else [(value, decided)]
        made = [making.tensor(role, n, *pair) for n, pair in enumerate(pairs)]
        fields[role.field] = tuple(made) if role.many else made[0]
    return replace(asked, **fields)


def open_operands(case: Case, known: Desc, post_ops: Sequence[PostOp]) -> list[PostOp]:
    """The post-ops with the sizes of their operands open that the case says."""
    making = _Opening(case["open"].mask, known)
    return [entry.mapped(making.operand) for entry in post_ops]


class _Opening:
    """Which dims of the tensors of a description become open."""

    def __init__(self, mask: int, known: Desc) -> None:
        self._every = mask == _EVERY
        tensors = {t.argument: t.desc for t in known.tensors if not t.desc.is_zero}
        self._names = dimension_names(known, tensors)
        self._result = known.outputs[0].argument
        self._varying = {
            name
            for argument, desc in tensors.items()
            for name, size in zip(self._names[argument], desc.dims, strict=True)
            if size != 1
        }
        ndims = max(desc.ndims for desc in tensors.values())
        self._open = {
            name
            for argument in tensors
            if argument % GRADIENT not in _PARAMETERS and tensors[argument].ndims == ndims
            for dim, name in enumerate(self._names[argument])
            if mask >> dim & 1
        }

    def tensor(self, role: Role, number: int, asked: MemoryDesc, known: MemoryDesc) -> MemoryDesc:
        """The tensor ``number`` of a role. What is broadcast stays so, and the sizes of weights
        that are 1."""
        argument = role.argument + number
        if asked.is_zero:
            return asked
        weights = role.argument % GRADIENT == Arg.WEIGHTS and role.letters != "*"
        broadcasts, names = role.letters.startswith("*"), self._names[argument]
        return self._tensor(names, asked, known, weights=weights, broadcasts=broadcasts)

    def operand(self, desc: MemoryDesc) -> MemoryDesc:
        """The operand of a post-op."""
        names = self._names[self._result]
        return self._tensor(names, desc, desc, weights=True, broadcasts=True)

    def _tensor(
        self,
        names: Sequence[str],
        asked: MemoryDesc,
        known: MemoryDesc,
        *,
        weights: bool,
        broadcasts: bool,
    ) -> MemoryDesc:
        if asked.encoding is not None or asked.compensation is not None:
            raise Unimplemented(f"no sizes of {asked} are left to the execution")
        if known.format_kind is not FormatKind.blocked:
            known = MemoryDesc(known.dims, known.data_type)

        def is_open(name: str, size: int) -> bool:
            if size == 1 and (weights or (broadcasts and name in self._varying)):
                return False
            return self._every or name in self._open

        mask = [is_open(name, size) for name, size in zip(names, known.dims, strict=True)]
        return opened(known, mask) if any(mask) else known


def opened(desc: MemoryDesc, mask: Sequence[bool]) -> MemoryDesc:
    """The descriptor with the dims open that the mask says; where no tag spells the layout, with
    all strides open."""

    def some(sizes: Sequence[int]) -> list[int]:
        return [RUNTIME_DIM if own else size for own, size in zip(mask, sizes, strict=True)]

    if desc.tag is not None:
        return MemoryDesc(some(desc.dims), desc.data_type, desc.tag, offset0=desc.offset0)
    # As f32, since elements of 4 bits are refused in odd strides.
    return MemoryDesc(
        some(desc.dims),
        "f32",
        [RUNTIME_DIM] * desc.ndims,
        inner_blocks=desc.inner_blocks,
        padded_dims=some(desc.padded_dims),
        offset0=desc.offset0,
    ).with_data_type(desc.data_type)


def tensors_of(
    pd: PrimitiveDesc, desc: Desc, post_ops: Sequence[PostOp]
) -> Iterator[tuple[int, MemoryDesc]]:
    """The tensors of ``desc``, and the operands of ``post_ops``, that the description ``pd`` leaves
    open, by argument."""
    operands: Mapping[int, MemoryDesc] = {
        Arg.post_op(number) | argument: own
        for number, entry in enumerate(post_ops)
        for argument, own in entry.operands
    }
    for argument, pattern in pd.patterns.items():
        if pattern.has_runtime_values:
            own = operands[argument] if argument in operands else desc.desc_of(argument)
            yield argument, own


def laid_out_tensors(
    pd: PrimitiveDesc, desc: Desc, post_ops: Sequence[PostOp]
) -> dict[int, MemoryDesc]:
    """These tensors in the layouts of ``pd``."""
    found = tensors_of(pd, desc, post_ops)
    return {argument: laid_out(pd.patterns[argument], own.dims) for argument, own in found}
