"""One case during its run: its contents, its memories, and the judgement of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dnnl.primitives.desc import Desc
from dnnl.primitives.limits import PATTERN
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import generator, integers, stored, uniform
from dnnl.reference.rule import Rule, Verdict, compare
from dnnl.runtime.elements import elements_of
from dnnl.runtime.encoded import encode
from dnnl.runtime.memory import Memory
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.chain import chain_inputs, through_chain
from dnnl.tools.bench.compensation import judge_sums
from dnnl.tools.bench.creation import Created
from dnnl.tools.bench.quantization import (
    Parameters,
    add_reductions,
    dequantized,
    fill_parameters,
    finished,
    loosened,
    reads_dst,
    scaled,
)
from dnnl.types.arg import Arg, name_of, owner_of
from dnnl.types.dtype import DataType
from dnnl.types.kinds import ScratchpadMode
from dnnl.types.memory_desc import MemoryDesc

POISON = 0xFF
_WIDE = 64  # bits of what f32 does not hold
_APPLIED = frozenset(("scales", "zero_points", "dropout", "post_ops"))  # in f32, to any type


class Expected(NamedTuple):
    """What a trial should give: every output in float64, from inputs as they are meant; and where
    the first output may be anything, as a rounding decides."""

    outputs: dict[int, Array]
    inputs: dict[int, Array]
    undecided: NDArray[np.bool_]


class Trial:
    """One case during its run: what was created, what its tensors hold.

    ``pd`` has the sizes of the execution. ``earlier`` is what the forward pass alone would read.
    """

    def __init__(self, case: Case, created: Created, pd: PrimitiveDesc) -> None:
        self.case, self.pd = case, pd
        self.asked, self.attr, self.forward = created.desc, created.attr, created.forward
        self.desc: Desc = pd.desc
        self.reference = pd.desc.operation.reference.under(pd.attr)
        self.result = self.desc.outputs[0]
        self.parameters = Parameters()
        self.inputs: dict[int, Array] = {}
        self.earlier: dict[int, Array] = {}
        self.previous: Array | None = None
        self.terms: Array | None = None
        self.spread: Array | None = None
        self.memories: dict[int, Memory] = {}

    def fill(self, *, bitwise: bool) -> None:
        """Decide on the contents of every input and attribute tensor."""
        self.parameters = fill_parameters(self.case, self.pd)
        contents = {**self.reference.fill(self.desc), **chain_inputs(self.desc)}
        for argument, array in contents.items():
            desc = self.pd.arg_desc(argument)
            if desc.is_zero and self.forward is not None:
                kind = self.forward.desc_of(argument).data_type
                self.earlier[argument] = stored(array, kind)
                continue
            anything = bitwise and desc.data_type.is_float
            values = uniform(generator("bitwise", argument), desc.dims) if anything else array
            self.inputs[argument] = stored(values, desc.data_type)
        self.inputs.update(self.desc.operation.contents(self.case))
        add_reductions(self.parameters, self.inputs, self.pd)
        if reads_dst(self.pd.attr):
            self.previous = self._previous()

    def _previous(self) -> Array:
        """What a sum finds in the destination: the input that it replaces, if there is one."""
        for output, source in self._shared():
            if output == self.result.argument and source in self.inputs:
                return self.inputs[source]
        dst = self.result.desc
        low = 0 if dst.data_type.min >= 0 else -4
        return stored(integers(generator("dst", dst.dims), dst.dims, low, 4), dst.data_type)

    def place(self) -> None:
        """Make all memories; a destination is poisoned, or what a sum adds to."""
        for argument, desc in self._tensors().items():
            self.memories[argument] = self._full(argument, desc, POISON)
        for argument, array in self.inputs.items():
            self._put(argument, array)
        self._share()
        if self.previous is not None:
            _store(self.memories[self.result.argument], self.previous)
        for argument, array in self.parameters.values.items():
            self.memories[argument] = Memory(self.parameters.descs[argument], self.pd.engine)
            _store(self.memories[argument], array)
        self._scratchpad()

    def place_pattern(self) -> None:
        """Make all memories without thinking of their contents."""
        self.parameters = fill_parameters(self.case, self.pd)
        for argument, desc in (self._tensors() | self.parameters.descs).items():
            self.memories[argument] = self._full(argument, desc, PATTERN)
        for argument, array in self._of_encodings().items():
            self._put(argument, array)
        self._share()
        self._scratchpad()

    def _full(self, argument: int, desc: MemoryDesc, byte: int) -> Memory:
        """A memory of an argument, each byte of which has the same value."""
        made = Memory(desc, self.pd.engine_of(argument))
        for part in made.parts:
            part.write(np.full(part.desc.size, byte, np.uint8))
        return made

    def _of_encodings(self) -> dict[int, Array]:
        """The contents of inputs in several buffers, which are nothing without their indices."""
        if not self.desc.is_encoded:
            return {}
        filled = self.reference.fill(self.desc).items()
        found = {arg: array for arg, array in filled if self.pd.arg_desc(arg).encoding is not None}
        return found | self.desc.operation.contents(self.case)

    def _put(self, argument: int, array: Array) -> None:
        """Store the elements of a tensor, or of one of its buffers."""
        owner, number = owner_of(argument)
        memory = self.memories[owner]
        _store(memory.parts[number] if number else memory, array)

    def _tensors(self) -> dict[int, MemoryDesc]:
        """Those of the operation, and what attributes write."""
        tensors = (*self.desc.tensors, *self.pd.written)
        return {tensor.argument: tensor.desc for tensor in tensors}

    def _shared(self) -> Sequence[tuple[int, int]]:
        """The outputs that may have the buffers of inputs, if the case says so."""
        return self.desc.operation.in_place if self.case.in_place else ()

    def _share(self) -> None:
        """Give outputs the buffers of the inputs that they replace."""
        for output, source in self._shared():
            if output in self.memories and source in self.memories:
                self.memories[output] = self.memories[source]

    def _scratchpad(self) -> None:
        desc = self.pd.scratchpad_desc
        if self.pd.attr.scratchpad_mode is ScratchpadMode.user and not desc.is_zero:
            self.memories[Arg.SCRATCHPAD] = Memory(desc, self.pd.engine)

    def expect(self) -> Expected:
        """Every output before it is rounded, and the inputs as they are meant."""
        meant = {
            argument: dequantized(array, argument, self.pd, self.parameters)
            for argument, array in self.inputs.items()
        }
        outputs = self.reference.compute(self.desc, meant)
        first, core = self.result.argument, self.core(self.result.desc.data_type)
        if not self.reference.direct and any(
            tensor.desc.data_type is DataType.f64 for tensor in self.desc.tensors
        ):
            core = DataType.f64  # also where dst is smaller
        rule = self.reference.rule(self.desc, first, meant, tuple(self.pd.attr.post_ops))
        exact = not (rule.threshold or rule.slack)
        chained = through_chain(outputs[first], meant, self.pd, self.parameters, exact=exact)
        exact &= chained.exact
        made, undecided = self._finished(chained.result, core, exact=exact)
        self.terms = chained.size
        if rule.before:
            ends = (chained.result + sign * rule.before for sign in (-1, 1))
            moved = [self._finished(end, core, exact=exact)[0][first] for end in ends]
            with np.errstate(all="ignore"):
                self.spread = np.max([np.abs(end - made[first]) for end in moved], axis=0)
        return Expected(outputs | made, meant, undecided | chained.open)

    def _finished(
        self, result: Array, core: DataType, *, exact: bool
    ) -> tuple[dict[int, Array], NDArray[np.bool_]]:
        return finished(result, self.pd, self.parameters, self.previous, core, exact=exact)

    def rule(self, argument: int, meant: Mapping[int, Array]) -> Rule:
        """What is accepted of an output."""
        if argument == Arg.DROPOUT_MASK:
            return Rule(0.0, zeros=100)
        if argument & Arg.SCALES:  # the next one, where post-ops make results inexact
            return Rule(0.0, zeros=100, relative=float(bool(self.pd.attr.post_ops)))
        post_ops = tuple(self.pd.attr.post_ops)
        rule = self.reference.rule(self.desc, argument, meant, post_ops)
        if argument != self.result.argument:
            return rule
        rule = scaled(rule, self.pd, self.parameters)
        if self.terms is not None:
            rule = replace(rule, size=self.terms)
        if self.spread is not None:
            known = np.isfinite(self.spread)
            size = np.where(known, self.spread, 0.0) / rule.threshold
            rule = replace(rule, size=size, anything_at=~known)
        if self.previous is not None and Arg.DST not in self.pd.attr.scales:
            size = np.abs(self.previous)  # what is added may cancel the result
            rule = replace(rule, size=size if rule.size is None else np.maximum(size, rule.size))
        return loosened(rule, self.pd.attr, self.result.desc.data_type)

    def judge(self, expected: Expected) -> Verdict:
        """Compare every output, its padding and its compensation included."""
        verdict = Verdict(0, 0, False)
        for tensor in self.pd.written:
            verdict = verdict.and_also(self._judge(tensor.argument, expected))
        return verdict

    def _judge(self, argument: int, expected: Expected) -> Verdict:
        memory, name = self.memories[argument], name_of(argument)
        kind = memory.desc.data_type
        rule = self.rule(argument, expected.inputs)
        if argument == self.result.argument and expected.undecided.any():
            known = False if rule.anything_at is None else rule.anything_at
            rule = replace(rule, anything_at=expected.undecided | known)
        got, want = f64(memory.numpy()), expected.outputs[argument]
        verdict = compare(name, got, want, kind, self.core(kind), rule)
        for sums in judge_sums(memory):
            verdict = verdict.with_errors(sums.errors, sums.lines)
        for part, desc in _parts(name, memory.desc).items():
            stray = _stray_padding(desc, memory.parts[0])
            line = f"[{part}]: {stray} elements of the padding are not zero"
            verdict = verdict.with_errors(stray, (line,) if stray else ())
        return verdict

    def core(self, kind: DataType) -> DataType:
        """The type of the computation behind an output of a type."""
        if not self.reference.direct:
            return kind if kind is DataType.f64 else DataType.f32
        wide = _WIDE in (self.pd.src_desc.data_type.bits, kind.bits)
        computed = self.pd.attr.non_default() & _APPLIED
        return DataType.f32 if computed and not wide else DataType.f64


def _store(memory: Memory, values: Array) -> None:
    """Write the elements, and zero to all that is none."""
    with np.errstate(all="ignore"):
        array = values.astype(memory.desc.data_type.numpy)
    pieces = [array] if memory.desc.encoding is None else encode(memory.desc, array)
    for part, piece in zip(memory.parts, pieces, strict=True):
        part.fill(piece)


def _parts(name: str, desc: MemoryDesc) -> dict[str, MemoryDesc]:
    """The tensor, and the sums behind it where it has any."""
    kinds = desc.compensation.masks if desc.compensation is not None else ()
    return {name: desc, **{f"{name} {kind}": desc.compensation_desc(kind) for kind in kinds}}


def _stray_padding(desc: MemoryDesc, memory: Memory) -> int:
    """How many elements between the dims and the padded dims are not zero."""
    if desc.padded_dims == desc.dims or desc.has_zero_dim:
        return 0
    whole = MemoryDesc(
        desc.padded_dims,
        desc.data_type,
        desc.strides,
        inner_blocks=desc.inner_blocks,
        offset0=desc.offset0,
    )
    if desc.data_type is DataType.e8m0:  # all bits zero is the least number, as there is no zero
        whole = whole.with_data_type(DataType.u8)
    values = f64(elements_of(whole, memory.read()[: whole.size]))
    values[tuple(slice(size) for size in desc.dims)] = 0
    return int(np.count_nonzero(values))
