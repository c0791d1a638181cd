"""What a kernel is: its arguments, its phases and their code in LLVM IR, or the reason why there is
none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.isa import Isa
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc


class Reason(Enum):
    """The vocabulary of refusals."""

    DATA_TYPE = "unsupported data type"
    LAYOUT = "unsupported layout"
    COMPENSATION = "unsupported compensation"
    ATTRIBUTE = "unsupported attribute"
    POST_OP = "unsupported post-op"
    PARAMETER = "unsupported parameter"
    SHAPE = "unsupported shape"
    RUNTIME_DIM = "unsupported run-time dimension"
    ISA = "unsupported instruction set"
    PROP_KIND = "unsupported propagation kind"


@dataclass(frozen=True)
class Refusal:
    """Why an implementation does not take a problem."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


SIZES = -1
"""The id of the argument with the sizes of an execution, for kernels that serve all sizes. It is
the last one, and the library's own."""


@dataclass(frozen=True)
class Sizes:
    """The contents of the argument `SIZES`, and the most threads for which there is work."""

    data: bytes
    threads: int


class Arguments:
    """The execution arguments of a kernel in the order in which its phases receive them."""

    def __init__(self) -> None:
        self._ids: list[int] = []

    def slot(self, argument: int) -> int:
        """The place of an argument, new at its first mention."""
        if argument not in self._ids:
            self._ids.append(int(argument))
        return self._ids.index(argument)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids by place."""
        return tuple(self._ids)


def symbol(primitive: str, descs: Sequence[MemoryDesc], isa: Isa) -> str:
    """The name of a phase: ``primitive__types__WxH__isa``, W being the lanes of a vector."""
    types = "_".join(dict.fromkeys(str(desc.data_type) for desc in descs))
    return f"{primitive}__{types}__{isa.lanes}x1__{isa.name}"


@dataclass(frozen=True, eq=False)
class Kernel:
    """A generated module. ``arguments`` are the ids of the pointers that its phases take."""

    module: Module
    phases: tuple[Phase, ...]
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class Recipe:
    """All that is needed to build a kernel, now or in another process.

    ``conf`` is a frozen dataclass whose repr tells everything that generation depends on, and
    ``build(conf, isa)`` is deterministic: equal recipes make equal code.
    """

    conf: object
    isa: Isa
    build: Callable[[Any, Isa], Kernel]

    def kernel(self) -> Kernel:
        """Generate the IR."""
        return self.build(self.conf, self.isa)
