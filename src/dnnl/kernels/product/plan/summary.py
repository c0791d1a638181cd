"""What a kernel of products has decided, for people who look inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.blocking import Blocking
from dnnl.kernels.shared.scratchpad import Relayout
from dnnl.types.dtype import DataType


@dataclass(frozen=True)
class PlanSummary:
    """How factors are multiplied, what is kept in registers and in caches (None where loops decide
    that), and what is copied before and after the products. Panels of small weights may be
    multiplied by ``pairs`` of bytes; threads make them of weights of the type ``packed_from``."""

    multiply: Multiply
    blocking: Blocking | None = None
    copies_in: tuple[Relayout, ...] = ()
    copy_out: Relayout | None = None
    pairs: bool = False
    packed_from: DataType | None = None


@runtime_checkable
class Inspectable(Protocol):
    """The configuration of a kernel that lets people look inside."""

    @property
    def summary(self) -> PlanSummary:
        """What was decided."""
