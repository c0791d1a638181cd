"""Kernels out of a file: loaded when a run first needs them, and never more than there are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from dnnl.errors import Unimplemented
from dnnl.framework.plan import PlannedStep
from dnnl.graph.expressions import Values, picked
from dnnl.runtime.backend import Executable
from dnnl.runtime.engine import Engine
from dnnl.runtime.launch import KernelCode, Launch, numbers_at
from dnnl.runtime.size_class import Serve

_MOST_LAUNCHES = 256
"""Sizes whose launches are prepared at a time."""


class StoredKernels:
    """The kernels of one step."""

    def __init__(self, engine: Engine, step: PlannedStep, codes: Sequence[KernelCode]) -> None:
        self._name, self._codes = step.name, tuple(codes)
        self._kernels = [_Kernel(engine, code) for code in codes]
        self._numbers = picked(step.numbers)
        self._launches: dict[Values, Launch] = {}

    def launch(self, values: Values) -> Launch:
        """The execution in a run of these values.

        Raises Unimplemented where no kernel serves them.
        """
        numbers = self._numbers(values)
        found = self._launches.get(numbers)
        if found is None:
            found = self._made(numbers)
            if len(self._launches) >= _MOST_LAUNCHES:
                self._launches = {}
            self._launches[numbers] = found
        return found

    def codes(self) -> Sequence[KernelCode]:
        """All of them, for another file."""
        return self._codes

    def _made(self, numbers: Values) -> Launch:
        for kernel in self._kernels:
            found = kernel.launch(numbers)
            if found is not None:
                return found
        what = self._codes[0].kind if self._codes else "a step"
        rule = f"none of {len(self._codes)} kernels of {what} serves these sizes"
        raise Unimplemented(f"{self._name}: {rule}")


class _Kernel:
    """One kernel; equal code is loaded once by the engine."""

    def __init__(self, engine: Engine, code: KernelCode) -> None:
        self._engine, self._code = engine, code

    @cached_property
    def _executable(self) -> Executable:
        return self._engine.load(self._code.image)

    @cached_property
    def _serve(self) -> Serve:
        assert self._code.size_class is not None
        return self._code.size_class.serve()

    def launch(self, numbers: Values) -> Launch | None:
        """The execution on tensors of these numbers; None where the kernel does not serve them."""
        code, engine = self._code, self._engine
        if code.size_class is None:
            return Launch(
                self._executable, code.order, None, code.scratchpad, code.kind, self._fields
            )
        found = self._serve(numbers)
        if found is None:
            return None
        symbols, counts, scratchpad = found
        executable, sizes = engine.sized(self._executable, counts), numbers_at(engine, symbols)
        return Launch(executable, code.order, sizes, scratchpad, code.kind, self._fields)

    def _fields(self) -> str:
        return self._code.fields
