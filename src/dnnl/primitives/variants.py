"""The kernels of a description with open sizes.

A kernel is planned and generated for symbols in the place of sizes (`dnnl.types.size`), and serves
all executions that satisfy the conditions that were found on the way. Most descriptions have one,
some another one for each class of sizes (`Desc.other_sizes`). A further one is made for the first
execution that none of those there are serves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from dnnl import forks
from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.errors import Unimplemented
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Candidate, Plan
from dnnl.primitives.open_desc import Opened, numbers_of, opened, typical_tensors
from dnnl.primitives.sizes import check_rules
from dnnl.runtime.image import Unknowns
from dnnl.runtime.size_class import Execution, Serve, SizeClass
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import text

Configure = Callable[[Desc, PrimitiveAttr], Plan | Refusal]

T = TypeVar("T")

# The kernels of one description at a time. Where code depends on each size, processes that live
# long meet any number of them.
_MOST = 32


def recent(every: tuple[T, ...], latest: T, typical: int = 1) -> tuple[T, ...]:
    """``every`` plus the ``latest``; if there are too many, without the oldest one that is not
    among the first ``typical`` ones."""
    first, others = (*every, latest)[:typical], (*every, latest)[typical:]
    return first + others[-_MOST + typical :]


class Variant:
    """One kernel: its plan, and which executions it serves once it is built."""

    def __init__(self, made: Opened, plan: Plan) -> None:
        self.plan = replace(plan, recipe=replace(plan.recipe, symbols=made.symbols))
        self._made = made
        self._class: SizeClass | None = None
        self._serve: Serve | None = None

    def settle(self, unknowns: Unknowns) -> None:
        """Take over what the kernel found out about sizes while it was generated."""
        self._class = self._of_conditions(unknowns.conditions, unknowns.counts)
        self._serve = self._class.serve()

    def _of_conditions(self, found: Sequence[str], counts: tuple[str, ...]) -> SizeClass:
        made = self._made
        same = f"n==({''.join(f'{number},' for number in made.numbers)})"
        # Those of this plan, and those of its code, which may come from the disk.
        guards = dict.fromkeys((*map(str, made.symbols.guards), *found))
        conditions = (same, *made.ranges, *guards)
        return SizeClass(made.sources, conditions, counts, text(self.plan.scratchpad))

    def may_serve(self, numbers: tuple[int, ...]) -> bool:
        """Whether the plan allows tensors with these numbers; the code may need further
        conditions."""
        return self._of_conditions((), ()).serve()(numbers) is not None

    @property
    def settled(self) -> bool:
        """Whether it is known which executions the kernel serves."""
        return self._serve is not None

    @property
    def size_class(self) -> SizeClass | None:
        """Which executions the kernel serves, once that is known."""
        return self._class

    def serve(self, numbers: tuple[int, ...]) -> Execution | None:
        """What an execution on tensors of these numbers takes; None if it is not served."""
        assert self._serve is not None
        return self._serve(numbers)


class Variants:
    """The kernels of a description, for one implementation. ``configure(desc, attr)`` plans one,
    ``instead(desc, attr)`` where that refuses the sizes of an execution; ``patterns`` are the
    tensors that executions must match, by argument. With ``fixes``, what cannot be planned for open
    sizes is planned for those of each execution."""

    def __init__(
        self,
        desc: Desc,
        attr: PrimitiveAttr,
        implementation: str,
        configure: Configure,
        instead: Configure,
        patterns: Mapping[int, MemoryDesc],
        *,
        fixes: bool = False,
    ) -> None:
        self._desc, self._attr, self._patterns = desc, attr, patterns
        self._fixes = fixes
        self._implementation, self._configure = implementation, configure
        self._instead, self._lock = instead, forks.Lock()
        self._every: tuple[Variant, ...] = ()
        self._typical = 0

    def first(self) -> Plan | Refusal:
        """The plan for typical sizes, or why there is none."""
        found = self._made(typical_tensors(self._desc, self._attr, self._patterns))
        if isinstance(found, Refusal):
            return found
        assert isinstance(found.plan.desc, Desc)
        desc = _decided(self._desc, found.plan.desc)
        if desc is not self._desc:
            self._desc = desc
            self._patterns = {
                argument: desc.desc_of(argument) if own.format_kind is FormatKind.any else own
                for argument, own in self._patterns.items()
            }
            return self.first()
        self._every = (found,)
        for sizes in desc.other_sizes():
            self._every += self._of_class(sizes)
        self._typical = len(self._every)
        return replace(found.plan, desc=desc)

    def _of_class(self, sizes: Mapping[str, int]) -> tuple[Variant, ...]:
        """The kernel for a further class of sizes; empty if it would serve these sizes alone, or
        if they leave no result, as rows that padding takes away from a transposed convolution."""
        descs = typical_tensors(self._desc, self._attr, self._patterns, sizes)
        if any(own.has_zero_dim for own in descs.values()):
            return ()
        if any(own.may_serve(numbers_of(tuple(descs.values()))) for own in self._every):
            return ()
        made, plan = self._planned(descs, ())
        return () if isinstance(plan, Refusal) or made.settled else (Variant(made, plan),)

    @property
    def typical(self) -> Sequence[Variant]:
        """The kernels that are built with the primitive."""
        return self._every[: self._typical]

    @property
    def every(self) -> Sequence[Variant]:
        """Those made so far."""
        return self._every

    def find(
        self, descs: Mapping[int, MemoryDesc], build: Callable[[Variant], Unknowns]
    ) -> tuple[Variant, Execution]:
        """The kernel that serves an execution on these tensors, by argument; ``build(variant)``
        makes it."""
        numbers = numbers_of(tuple(descs.values()))
        with self._lock.own:  # others who ask meanwhile wait for the same kernel
            for variant in self._every:
                if not variant.settled:
                    variant.settle(build(variant))
                found = variant.serve(numbers)
                if found is not None:
                    return variant, found
            made = self._made(descs)
            if isinstance(made, Refusal):
                message = f"nothing does {self._desc} on these sizes"
                raise Unimplemented(message, [Candidate(self._implementation, made)])
            made.settle(build(made))
            found = made.serve(numbers)
            assert found is not None, "a kernel serves the sizes that it was made for"
            self._every = recent(self._every, made, self._typical)
            return made, found

    def _made(self, descs: Mapping[int, MemoryDesc]) -> Variant | Refusal:
        made, plan = self._planned(descs, ())
        constants: tuple[str, ...] = ()
        while made.settled:  # a plan that takes one number has shorter code for a constant
            constants += made.settled
            made, plan = self._planned(descs, constants)
        if self._fixes and isinstance(plan, Refusal) and plan.reason is Reason.RUNTIME_DIM:
            made = opened(self._desc, self._attr, self._patterns, descs, fixed=True)
            plan = self._configure(made.desc, made.attr)
        if isinstance(plan, Refusal) and self._every:
            plan = self._instead(made.desc, made.attr)
        return plan if isinstance(plan, Refusal) else Variant(made, plan)

    def _planned(
        self, descs: Mapping[int, MemoryDesc], constants: Collection[str]
    ) -> tuple[Opened, Plan | Refusal]:
        made = opened(self._desc, self._attr, self._patterns, descs, constants=constants)
        check_rules(made.desc, self._desc)  # which so become conditions
        return made, self._configure(made.desc, made.attr)


def _decided(desc: Desc, planned: Desc) -> Desc:
    """``desc`` with those layouts decided that are ``any``, as they are in the ``planned`` one."""
    fields: dict[str, MemoryDesc] = {}
    for role in desc.operation.roles:
        if not role.field or role.many or not desc.has(role):
            continue
        own, found = getattr(desc, role.field), getattr(planned, role.field)
        if own.format_kind is FormatKind.any:
            fields[role.field] = found
    return desc.laid_out(**fields) if fields else desc
