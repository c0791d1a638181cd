"""From a case to the objects of the library."""

from __future__ import annotations

from typing import NamedTuple

from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.runtime.engine import Engine
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.operations.base import Operation
from dnnl.tools.bench.quantization import make_attr
from dnnl.types.attr import PrimitiveAttr


class Created(NamedTuple):
    """The operation and the attribute as they were asked for, and what was made of them."""

    desc: Desc
    attr: PrimitiveAttr
    pd: PrimitiveDesc


def create(case: Case, operation: Operation) -> Created:
    """The first implementation that takes a case.

    Raises Unimplemented where none does and InvalidArguments where the case breaks a rule.
    """
    desc = operation.describe(case)
    attr = make_attr(case, {t.argument: t.desc.ndims for t in desc.tensors}, desc.dst)
    return Created(desc, attr, PrimitiveDesc(desc, engine_of(case), attr))


def engine_of(case: Case) -> Engine:
    """The engine that a case names."""
    kind, _, index = case.settings.engine.partition(":")
    return Engine(kind, int(index or 0))
