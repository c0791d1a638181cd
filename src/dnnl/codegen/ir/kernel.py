"""What a kernel file returns: code in LLVM IR with its phases, or the reason why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.isa import Isa
from dnnl.runtime.image import Phase


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
