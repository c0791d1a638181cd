"""One case on its way: its contents, its memories, and the judgement of its result."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.reference.arrays import Array, f64
from dnnl.reference.conversions import core_type
from dnnl.runtime.gather import gather, scatter
from dnnl.runtime.memory import Memory
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.compare import Rule, Verdict, compare
from dnnl.tools.bench.compensation import judge_sums
from dnnl.tools.bench.fill import generator, integers, stored, uniform
from dnnl.tools.bench.operations.base import Operation
from dnnl.tools.bench.quantization import (
    Parameters,
    dequantized,
    fill_parameters,
    finished,
    loosened,
    reads_dst,
)
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import ScratchpadMode
from dnnl.types.memory_desc import MemoryDesc

POISON = 0xFF
PATTERN = 0x3F
"""A byte that makes ordinary numbers in every type."""


class Trial:
    """One case on its way: what was created, what its tensors hold."""

    def __init__(
        self, case: Case, operation: Operation, asked: Desc, attr: PrimitiveAttr, pd: PrimitiveDesc
    ) -> None:
        self.case, self.operation, self.pd = case, operation, pd
        self.asked, self.attr = asked, attr
        self.desc: Desc = pd.desc
        self.parameters = Parameters()
        self.inputs: dict[int, Array] = {}
        self.previous: Array | None = None
        self.memories: dict[int, Memory] = {}

    def fill(self, *, bitwise: bool) -> None:
        """Decide on the contents of every input and attribute tensor."""
        self.parameters = fill_parameters(self.case, self.pd)
        for argument, array in self.operation.fill(self.case, self.desc).items():
            desc = self.pd.arg_desc(argument)
            anything = bitwise and desc.data_type.is_float
            values = uniform(generator("bitwise", argument), desc.dims) if anything else array
            self.inputs[argument] = stored(values, desc.data_type)
        if reads_dst(self.pd.attr):
            dst = self.pd.dst_desc
            low = 0 if dst.data_type.min >= 0 else -4
            self.previous = integers(generator("dst", dst.dims), dst.dims, low, 4)

    def place(self) -> None:
        """Make all memories; a destination is poisoned, or what a sum adds to."""
        engine = self.pd.engine
        for tensor in self.desc.tensors:
            memory = Memory(tensor.desc, engine)
            memory.data[:] = POISON
            self.memories[tensor.argument] = memory
        for argument, array in self.inputs.items():
            _store(self.memories[argument], array)
        if bool(self.case.values.get("inplace", False)):
            self.memories[Arg.DST] = self.memories[self.operation.in_place]
        if self.previous is not None:
            _store(self.memories[Arg.DST], self.previous)
        for argument, array in self.parameters.values.items():
            self.memories[argument] = Memory(self.parameters.descs[argument], engine)
            _store(self.memories[argument], array)
        self._scratchpad()

    def place_pattern(self) -> None:
        """Make all memories without thinking of their contents."""
        for tensor in self.desc.tensors:
            self.memories[tensor.argument] = Memory(tensor.desc, self.pd.engine)
        self.parameters = fill_parameters(self.case, self.pd)
        for argument, desc in self.parameters.descs.items():
            self.memories[argument] = Memory(desc, self.pd.engine)
        for memory in self.memories.values():
            memory.data[:] = PATTERN
        if bool(self.case.values.get("inplace", False)):
            self.memories[Arg.DST] = self.memories[self.operation.in_place]
        self._scratchpad()

    def _scratchpad(self) -> None:
        desc = self.pd.scratchpad_desc
        if self.pd.attr.scratchpad_mode is ScratchpadMode.user and not desc.is_zero:
            self.memories[Arg.SCRATCHPAD] = Memory(desc, self.pd.engine)

    def expect(self) -> tuple[Array, dict[int, Array]]:
        """The reference before it is rounded, and the inputs as they are meant."""
        meant = {
            argument: dequantized(array, argument, self.pd, self.parameters)
            for argument, array in self.inputs.items()
        }
        result = self.operation.compute(self.case, self.desc, meant)
        return finished(result, self.pd, self.parameters, self.previous), meant

    def rule(self, meant: Mapping[int, Array]) -> Rule:
        """What is accepted of the destination."""
        rule = self.operation.rule(self.case, self.desc, meant)
        return loosened(rule, self.pd.attr, self.pd.dst_desc.data_type)

    def judge(self, want: Array, meant: Mapping[int, Array]) -> Verdict:
        """Compare the destination, its padding and its compensation included."""
        memory = self.memories[Arg.DST]
        kind = memory.desc.data_type
        source = self.pd.src_desc.data_type
        plain = not self.pd.attr.non_default() and self.desc.kind == "reorder"
        core = core_type(source, kind) if plain else DataType.f32
        core = DataType.f64 if kind is DataType.f64 else core
        verdict = compare("DST", f64(memory.numpy()), want, kind, core, self.rule(meant))
        for sums in judge_sums(memory):
            verdict = verdict.with_errors(sums.errors, sums.lines)
        for name, desc in _parts(memory.desc).items():
            stray = _stray_padding(desc, memory.data)
            line = f"[{name}]: {stray} elements of the padding are not zero"
            verdict = verdict.with_errors(stray, (line,) if stray else ())
        return verdict


def _store(memory: Memory, values: Array) -> None:
    """Write the elements, and zero to all that is none."""
    with np.errstate(all="ignore"):
        scatter(memory.desc, memory.data, values.astype(memory.desc.data_type.numpy))


def _parts(desc: MemoryDesc) -> dict[str, MemoryDesc]:
    """The tensor, and the sums behind it where it has any."""
    kinds = desc.compensation.masks if desc.compensation is not None else ()
    return {"DST": desc, **{f"DST {kind}": desc.compensation_desc(kind) for kind in kinds}}


def _stray_padding(desc: MemoryDesc, data: NDArray[np.uint8]) -> int:
    """How many elements between the dims and the padded dims are not zero."""
    if desc.padded_dims == desc.dims or desc.has_zero_dim:
        return 0
    whole = MemoryDesc(
        desc.padded_dims, desc.data_type, desc.strides,
        inner_blocks=desc.inner_blocks, offset0=desc.offset0,
    )  # fmt: skip
    values = f64(gather(whole, data[: whole.size]))
    values[tuple(slice(size) for size in desc.dims)] = 0
    return int(np.count_nonzero(values))
