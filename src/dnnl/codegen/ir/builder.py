"""A thin layer over llvmlite's IRBuilder: functions, loops, branches and scalar arithmetic.

It knows the target's :class:`Isa` and nothing of tensors. Loop bodies are Python functions, so
that the order of the Python code is the order of the generated code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, reduce
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numpy.typing import ArrayLike

from dnnl.codegen.ir.sizes import Numbers
from dnnl.codegen.ir.text import module_text
from dnnl.codegen.isa import Isa
from dnnl.types.size import Size


class BFloatType(ir.Type):  # type: ignore[misc]
    """LLVM's ``bfloat``, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloatType)

    def __hash__(self) -> int:
        return hash(BFloatType)


I1 = ir.IntType(1)
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
F32 = ir.FloatType()
F64 = ir.DoubleType()
BF16 = BFloatType()
PTR = ir.PointerType()

Type: TypeAlias = ir.Type
Value: TypeAlias = ir.Value
Constant: TypeAlias = ir.Constant
Values = tuple[ir.Value, ...]

OPAQUE = "llvm.launder.invariant.group"
"""The intrinsic that hides from LLVM how a pointer was computed."""

_TABLE_ALIGNMENT = 64  # bytes, a cache line


def i64(value: int) -> ir.Constant:
    """A 64-bit constant."""
    return _constant(int(value))


@lru_cache(maxsize=4096)
def _constant(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def _numpy_type(element: ir.Type) -> np.dtype[Any]:
    """The type of an element of a table, as targets store it. Bytes may have a sign or none."""
    if isinstance(element, ir.IntType):
        return np.dtype(f"<i{element.width // 8}")
    return np.dtype("<f8" if element == F64 else "<f4")


class _LoopMark:
    """Metadata of a loop that LLVM must not unroll.

    Such a node refers to itself, which llvmlite's metadata cannot say, so the module writes it.
    """

    _OPTION = 1_000_000  # above any number that llvmlite gives to its own nodes

    def __init__(self, number: int) -> None:
        self.number = self._OPTION + number

    def get_reference(self) -> str:
        """How an instruction refers to this node."""
        return f"!{self.number}"

    def definition(self) -> str:
        """The node itself."""
        return f"!{self.number} = distinct !{{!{self.number}, !{self._OPTION}}}"

    @classmethod
    def option(cls) -> str:
        """The node that all marks share: what LLVM shall do with their loops."""
        return f'!{cls._OPTION} = !{{!"llvm.loop.unroll.disable"}}'


class Module:
    """One LLVM module for one target; functions are added to it in order."""

    def __init__(self, name: str, isa: Isa) -> None:
        self.isa = isa
        self.ir = ir.Module(name=name)
        self.ir.triple = isa.triple
        self._marks: list[_LoopMark] = []
        self._sizes_slot: ir.GlobalVariable | None = None

    def function(self, name: str, signature: ir.FunctionType, convention: str = "") -> ir.Function:
        """Declare a function whose body the caller then writes."""
        function = ir.Function(self.ir, signature, name)
        function.calling_convention = convention
        function.attributes.add("nounwind")
        return function

    def table(self, element: ir.Type, values: ArrayLike) -> ir.Value:
        """The address of constants in the code: of integers, f32 or f64.

        They are one array of bytes, since LLVM and llvmlite make an object of each element of
        another type.
        """
        contents = np.asarray(values).astype(_numpy_type(element)).tobytes()
        kind = ir.ArrayType(I8, len(contents))
        name = self.ir.get_unique_name("table")
        made = ir.GlobalVariable(self.ir, kind, name, addrspace=self.isa.address_space)
        made.linkage, made.global_constant, made.align = "internal", True, _TABLE_ALIGNMENT
        text = contents.hex("\\")
        made.initializer = ir.FormattedConstant(kind, f'c"\\{text}"' if text else 'c""')
        return made

    def sizes_slot(self) -> ir.Value:
        """The slot of the sizes that only an execution knows, an i64."""
        if self._sizes_slot is None:
            made = ir.GlobalVariable(self.ir, I64, self.ir.get_unique_name("sizes_slot"))
            made.linkage, made.global_constant = "internal", True
            self._sizes_slot = made
        return self._sizes_slot

    def settle_sizes(self, slot: int) -> None:
        """Decide on the slot of the sizes, once all arguments of the kernel are known."""
        if self._sizes_slot is not None:
            self._sizes_slot.initializer = _constant(slot)

    def keep_rolled(self, branch: ir.Instruction) -> None:
        """Mark the loop that ``branch`` closes: LLVM leaves it as it is."""
        self._marks.append(_LoopMark(len(self._marks) + 1))
        branch.set_metadata("llvm.loop", self._marks[-1])

    def discard(self) -> None:
        """Free the instructions, which refer to each other in circles: to find these takes Python's
        collector of garbage as long as a third of the writing."""
        for function in self.ir.functions:
            for block in function.blocks:
                for instruction in block.instructions:
                    instruction.operands = instruction.parent = None
                    if isinstance(instruction, ir.PhiInstr):
                        instruction.incomings = None
                block.instructions = block.parent = None
            function.blocks = function.args = None
        self.ir.globals.clear()

    def __str__(self) -> str:
        if not self._marks:
            return module_text(self.ir)
        marks = [mark.definition() for mark in self._marks]
        return "\n".join([module_text(self.ir), _LoopMark.option(), *marks, ""])


class _Builder(ir.IRBuilder):  # type: ignore[misc]
    """A builder that returns from another block to the end of its own, before its terminator.
    llvmlite's returns behind it, which is wrong in a block that has one, such as the entry."""

    @contextmanager
    def goto_block(self, block: ir.Block) -> Iterator[None]:
        with super().goto_block(block):
            yield
        if self.block.is_terminated:
            self.position_before(self.block.terminator)


class Emitter:
    """Writes one function. ``b`` is the llvmlite builder at the current position."""

    def __init__(self, module: Module, function: ir.Function) -> None:
        self.module = module
        self.isa = module.isa
        self.function = function
        self.b = _Builder(function.append_basic_block("entry"))
        self._computed: dict[tuple[object, ...], ir.Value] = {}
        #: The numbers that only an execution knows.
        self.sizes = Numbers(self.b)
        self._before_loops: list[ir.Block] = []  # of those that are being written
        self._block_numbers: dict[ir.Block, int] = {}

    def number(self, value: int) -> ir.Value:
        """An i64 for a number of the plan: a constant, or what an execution knows."""
        return self.sizes.value(value) if isinstance(value, Size) else _constant(value)

    def intrinsic(self, name: str, result: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
        """Call an LLVM intrinsic by its full name, declared on first use."""
        functions = self.module.ir.globals
        callee = functions.get(name)
        if callee is None:
            signature = ir.FunctionType(result, [arg.type for arg in args])
            callee = ir.Function(self.module.ir, signature, name)
        return self.b.call(callee, args)

    def fence(self) -> None:
        """Order non-temporal stores before all that follows: locks do not order them."""
        device = self.isa.device
        if device is None or device.fence is None:
            self.b.fence("seq_cst")
        else:
            device.fence(self.b)

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a + b on i64, folding the constants zero."""
        if isinstance(a, ir.Constant) and isinstance(b, ir.Constant):
            return i64(a.constant + b.constant)
        if isinstance(b, ir.Constant) and b.constant == 0:
            return a
        if isinstance(a, ir.Constant) and a.constant == 0:
            return b
        return self._once(("add", a, b), lambda: self.b.add(a, b, flags=("nsw",)))

    def _once(self, key: tuple[object, ...], write: Callable[[], ir.Value]) -> ir.Value:
        """The value of ``write()``, which is written once in each block; ``key`` has the operation
        and its operands. LLVM would remove repetitions too, but first they are printed and parsed.
        Beside numbers that only an execution knows it is written before loops that do not change
        it: processors add constants to addresses, but do not multiply.
        """
        block = self._invariant_in(key[1:]) if self.sizes.used else self.b.block
        own = (block, *key)
        found = self._computed.get(own)
        if found is None and block is not self.b.block:
            with self.b.goto_block(block):
                found = self._computed[own] = write()
        elif found is None:
            found = self._computed[own] = write()
        return found

    def _invariant_in(self, operands: Iterable[object]) -> ir.Block:
        """The outermost block before a loop around here that all operands reach, or this one."""
        made, here = max(map(self.depth, operands)), self._number_of(self.b.block)
        blocks = (b for b in self._before_loops if made <= self._number_of(b) < here)
        return next(blocks, self.b.block)

    def depth(self, value: object) -> int:
        """How far inside a value is defined: values that reach one place are so in the order of
        their blocks."""
        return self._number_of(value.parent) if isinstance(value, ir.Instruction) else -1

    def _number_of(self, block: ir.Block) -> int:
        blocks, numbers = self.function.blocks, self._block_numbers
        for number in range(len(numbers), len(blocks)):
            numbers[blocks[number]] = number
        return numbers[block]

    def mul(self, a: ir.Value, factor: int | ir.Value) -> ir.Value:
        """a * factor on i64, folding constants."""
        if isinstance(factor, Size):
            factor = self.number(factor)
        if not isinstance(factor, int):
            one = isinstance(a, ir.Constant) and a.constant == 1
            if one:
                return factor
            return self._once(("mul", a, factor), lambda: self.b.mul(a, factor, flags=("nsw",)))
        if isinstance(a, ir.Constant):
            return i64(a.constant * factor)
        if factor == 1:
            return a
        if factor == 0:
            return i64(0)
        return self._once(("mul", a, factor), lambda: self.b.mul(a, i64(factor), flags=("nsw",)))

    def total(self, number: int, terms: Iterable[ir.Value]) -> ir.Value:
        """The sum of a number of the plan and i64s. Beside numbers that only an execution knows
        terms are added from outer loops to inner ones, and a constant at last."""
        first = self.number(number)
        if not self.sizes.used:
            return reduce(self.add, terms, first)
        if isinstance(first, ir.Constant):
            return self.add(reduce(self.add, sorted(terms, key=self.depth), i64(0)), first)
        return reduce(self.add, sorted(terms, key=self.depth), first)

    def divmod(self, a: ir.Value, divisor: int) -> tuple[ir.Value, ir.Value]:
        """(a // divisor, a % divisor) of an i64 that is not negative, folding constants."""
        if isinstance(divisor, Size):
            by = self.number(divisor)
            return self.b.udiv(a, by), self.b.urem(a, by)
        if isinstance(a, ir.Constant):
            quotient, rest = divmod(a.constant, divisor)
            return i64(quotient), i64(rest)
        if divisor == 1:
            return a, i64(0)
        return self.b.udiv(a, i64(divisor)), self.b.urem(a, i64(divisor))

    def smaller(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """min(a, b) of signed integers, folding constants."""
        if isinstance(a, ir.Constant) and isinstance(b, ir.Constant):
            return min(a, b, key=lambda value: int(value.constant))
        return self.b.select(self.b.icmp_signed("<", a, b), a, b)

    def larger(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """max(a, b) of signed integers, folding constants."""
        if isinstance(a, ir.Constant) and isinstance(b, ir.Constant):
            return max(a, b, key=lambda value: int(value.constant))
        return self.b.select(self.b.icmp_signed(">", a, b), a, b)

    def element(self, pointer: ir.Value, offset: ir.Value, element: ir.Type) -> ir.Value:
        """The address ``offset`` elements of type ``element`` behind ``pointer``."""
        if isinstance(offset, ir.Constant) and offset.constant == 0:
            return pointer
        return self._once(
            ("element", pointer, offset, str(element)),
            lambda: self.b.gep(pointer, [offset], source_etype=element),
        )

    def opaque(self, pointer: ir.Value) -> ir.Value:
        """``pointer`` as a value of which LLVM knows nothing.

        Without it, LLVM's loop strength reduction sees every address of a deep loop nest as one
        big expression and takes most of the compile time to find better ones, in vain. A module
        with such pointers is compiled without it (`dnnl.codegen.compile.jit`).
        """
        name = f"{OPAQUE}.p{pointer.type.addrspace}"
        return self.intrinsic(name, pointer.type, [pointer])

    def loop(
        self,
        begin: ir.Value,
        end: ir.Value,
        body: Callable[..., Values | None],
        carried: Values = (),
        *,
        step: int = 1,
        unroll: bool = True,
        name: str = "i",
    ) -> Values:
        """Run ``body(index, *carried)`` for begin <= index < end; it returns the next carried.

        The trip count is tested before the first iteration unless both bounds are constants. A
        loop of exactly one iteration is written without a loop. ``unroll=False`` tells LLVM to
        leave the loop alone: register tiles are already unrolled and more of it only spills.
        """
        static = isinstance(begin, ir.Constant) and isinstance(end, ir.Constant)
        if static:
            trips = -(-(end.constant - begin.constant) // step)
            if trips <= 0:
                return carried
            if trips == 1:
                return body(begin, *carried) or ()
            end = i64(begin.constant + trips * step)
        before = self.b.block
        head = self.function.append_basic_block(f"{name}.loop")
        after = self.function.append_basic_block(f"{name}.done")
        if static:
            self.b.branch(head)
        else:
            self.b.cbranch(self.b.icmp_signed("<", begin, end), head, after)
        self.b.position_at_end(head)
        index = self.b.phi(I64, name)
        index.add_incoming(begin, before)
        phis = []
        for value in carried:
            phi = self.b.phi(value.type)
            phi.add_incoming(value, before)
            phis.append(phi)
        self._before_loops.append(before)
        results = body(index, *phis) or ()
        self._before_loops.pop()
        last = self.b.block
        following = self.b.add(index, i64(step), flags=("nsw",))
        index.add_incoming(following, last)
        for phi, value in zip(phis, results, strict=True):
            phi.add_incoming(value, last)
        # LLVM rewrites "<" as a comparison of ``index``, which comes before the addition, so that
        # processors cannot fuse it with the jump.
        order = "!=" if static or step == 1 else "<"
        branch = self.b.cbranch(self.b.icmp_signed(order, following, end), head, after)
        if not unroll:
            self.module.keep_rolled(branch)
        self.b.position_at_end(after)
        return tuple(
            self._merge(a, c, last, before, static) for a, c in zip(results, carried, strict=True)
        )

    def _merge(
        self, looped: ir.Value, skipped: ir.Value, last: ir.Block, before: ir.Block, static: bool
    ) -> ir.Value:
        if static:
            return looped
        phi = self.b.phi(looped.type)
        phi.add_incoming(looped, last)
        phi.add_incoming(skipped, before)
        return phi

    def branch(
        self, condition: ir.Value, then: Callable[[], Values], otherwise: Callable[[], Values]
    ) -> Values:
        """if condition: then() else: otherwise(); both return the same number of values."""
        yes = self.function.append_basic_block("then")
        no = self.function.append_basic_block("else")
        join = self.function.append_basic_block("join")
        self.b.cbranch(condition, yes, no)
        self.b.position_at_end(yes)
        yes_values = then()
        yes_end = self.b.block
        self.b.branch(join)
        self.b.position_at_end(no)
        no_values = otherwise()
        no_end = self.b.block
        self.b.branch(join)
        self.b.position_at_end(join)
        merged = []
        for a, c in zip(yes_values, no_values, strict=True):
            phi = self.b.phi(a.type)
            phi.add_incoming(a, yes_end)
            phi.add_incoming(c, no_end)
            merged.append(phi)
        return tuple(merged)
