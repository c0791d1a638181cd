"""Descriptors of which only the execution decides on the sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dnnl import (
    RUNTIME_DIM,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Stream,
)
from dnnl.primitives.desc import Desc
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.trial import Trial
from dnnl.types.kinds import FormatKind
from dnnl.types.post_ops import PostOpBinary, PostOpFunction
from dnnl.types.tag import MAX_NDIMS
from tests import test_records as records
from tests.guard import RUNS, near
from tests.primitives import late

ALL = 2**MAX_NDIMS - 1
"""The mask of all dimensions."""


def opened(desc: MemoryDesc, dims: int = ALL, strides: int = ALL) -> MemoryDesc:
    """The descriptor with RUNTIME_DIM for the dims and strides of which the masks have the bits,
    and for the offset if all are open."""

    def some(mask: int, values: Sequence[int]) -> list[int]:
        return [RUNTIME_DIM if mask >> dim & 1 else value for dim, value in enumerate(values)]

    # As f32, since elements of 4 bits are refused in odd strides, which regions have as well.
    return MemoryDesc(
        some(dims, desc.dims),
        "f32",
        some(strides, desc.strides),
        inner_blocks=desc.inner_blocks,
        padded_dims=some(dims, desc.padded_dims),
        offset0=RUNTIME_DIM if dims == strides == ALL else desc.offset0,
    ).with_data_type(desc.data_type)


def open_desc(desc: Desc) -> Desc:
    """The description with all open that is not broadcast."""
    fields: dict[str, object] = {}
    for role in desc.operation.roles:
        if role.field:
            value = getattr(desc, role.field)
            fields[role.field] = tuple(map(some, value)) if role.many else some(value)
    return replace(desc, **fields)


def some(tensor: MemoryDesc) -> MemoryDesc:
    """The descriptor with all open along which it is not broadcast."""
    if tensor.format_kind is not FormatKind.blocked:
        return MemoryDesc.zero()  # there is none, or nobody asks for its layout
    return opened(tensor, sum(1 << dim for dim, size in enumerate(tensor.dims) if size != 1))


def open_attr(attr: PrimitiveAttr) -> PrimitiveAttr:
    """The attribute with the operands of post-ops open in the same way."""
    entries = [
        entry.mapped(some) if isinstance(entry, PostOpBinary | PostOpFunction) else entry
        for entry in attr.post_ops
    ]
    return attr.with_layouts(entries, attr.dropout)


def trials(line: str) -> Iterator[Trial]:
    """The cases of a line of `dnnl bench`."""
    for case in Interpreter().cases(line.split()):
        kind = next(k for k, made in OPERATIONS.items() if made.operation.driver is case.driver)
        yield records.trial(case, OPERATIONS[kind])


def judged(primitive: Primitive, made: Trial, *others: Mapping[int, Memory]) -> None:
    """Execute a case between guard pages, on one thread and on several, and judge the results, and
    those of ``others``."""
    results: list[Mapping[int, Memory]] = []
    for threads, at in RUNS:
        placed = {argument: near(memory, at) for argument, memory in made.memories.items()}
        primitive.execute(Stream(primitive.pd.engine, threads), placed)
        results.append(placed)
    records.judge(made, [*results, *others])
    made.place()


def run_open(made: Trial, desc: Desc | None = None) -> None:
    """Execute a case on a primitive that knows no sizes, or those of ``desc``, and judge that."""
    opened = open_desc(made.desc) if desc is None else desc
    pd = PrimitiveDesc(opened, made.pd.engine, open_attr(made.pd.attr))
    assert pd.variants is not None
    late_results = [late.execute(pd.desc, pd.attr, made.memories)] if late.drawn() else []
    judged(Primitive(pd), made, *late_results)
