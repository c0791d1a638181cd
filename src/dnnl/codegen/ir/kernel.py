"""A kernel: its arguments, its phases and their LLVM IR, or the reason for a refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.isa import Isa
from dnnl.runtime.image import Phase, Repeat
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.symbols import Symbols


class Reason(Enum):
    """Why an implementation refuses a problem."""

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
    """A refusal: the reason, and what in the problem caused it."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


SIZES = -1
"""The id of the argument with the numbers of sizes that only executions know: the last one of
kernels that have such, which the library fills for each execution."""


class Arguments:
    """Assigns a slot to each execution argument of a kernel, in the order of first use."""

    def __init__(self) -> None:
        self._ids: list[int] = []

    def slot(self, argument: int) -> int:
        """The slot of an argument, assigned by the first call."""
        if argument not in self._ids:
            self._ids.append(int(argument))
        return self._ids.index(argument)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the arguments, ordered by slot."""
        return tuple(self._ids)


def symbol(primitive: str, descs: Sequence[MemoryDesc], isa: Isa) -> str:
    """The symbol of a phase: ``primitive__types__WxH__isa``, where W is the lanes of a vector."""
    types = "_".join(dict.fromkeys(str(desc.data_type) for desc in descs))
    return f"{primitive}__{types}__{isa.lanes}x1__{isa.name}"


@dataclass(frozen=True, eq=False)
class Kernel:
    """A generated module. ``arguments`` are the ids of the pointers that its phases take, by
    slot."""

    module: Module
    phases: tuple[Phase, ...]
    arguments: tuple[int, ...]
    repeats: tuple[Repeat, ...] = ()


@cache
def _spelled(isa: Isa) -> str:
    return repr(isa)


@dataclass(frozen=True)
class Recipe:
    """Everything needed to build a kernel, in this process or in another.

    ``conf`` is a frozen dataclass whose repr contains everything that the generated code depends
    on. ``build(conf, isa)`` is deterministic: equal recipes give equal code.
    """

    conf: object
    isa: Isa
    build: Callable[[Any, Isa], Kernel]
    symbols: Symbols | None = None
    """Those of the sizes in ``conf`` that only an execution knows, if there are any."""

    @cached_property
    def spelled(self) -> str:
        """All that the code depends on but the generator's source."""
        build = f"{self.build.__module__}.{self.build.__qualname__}"
        known = [] if self.symbols is None else [repr(self.symbols.ranges)]
        return "\n".join([build, repr(self.conf), _spelled(self.isa), *known])

    def kernel(self) -> Kernel:
        """Generate the IR."""
        kernel = self.build(self.conf, self.isa)
        if self.symbols is None:
            return kernel
        # The sizes are the last argument, whose slot no phase knew.
        slot = len(kernel.arguments)
        kernel.module.settle_sizes(slot)
        phases = tuple(phase.with_sizes(slot) for phase in kernel.phases)
        return Kernel(kernel.module, phases, (*kernel.arguments, SIZES), kernel.repeats)
