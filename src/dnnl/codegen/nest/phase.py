"""The function of a phase: its signature, its arguments and its loop over work items.

On a processor it takes the kernel's argument list, a range of work items and the thread's number::

    void symbol(void **args, int64_t begin, int64_t end, int64_t thread)

On a device it is an entry point that takes the arguments that it uses as pointers to global memory,
and is invoked once for each item::

    kernel void symbol(global void *first, global void *second, ...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from llvmlite import ir

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir.builder import I8, I64, PTR, Emitter, Module, Values, i64
from dnnl.codegen.ir.work_group import WorkGroup
from dnnl.codegen.memory.access import Operand
from dnnl.runtime.image import Phase

_RANGE = ir.FunctionType(ir.VoidType(), [PTR, I64, I64, I64])
_SCRATCH_UNIT = 64  # bytes: a cache line, which avoids false sharing


class PhaseFunction:
    """A phase while it is emitted. ``e`` emits its code; ``arguments`` maps the slots that it uses
    to addresses."""

    def __init__(self, module: Module, symbol: str, slots: Iterable[int], group: int = 1) -> None:
        self._symbol, self._slots = symbol, tuple(sorted(set(slots)))
        self._scratch = 0
        device = module.isa.device
        if device is None:
            self.e = Emitter(module, module.function(symbol, _RANGE))
            self.arguments = dict(zip(self._slots, self._loaded(), strict=True))
        else:
            pointer = ir.PointerType(addrspace=module.isa.address_space)
            signature = ir.FunctionType(ir.VoidType(), [pointer] * len(self._slots))
            self.e = Emitter(module, module.function(symbol, signature, device.convention))
            if device.annotate is not None:
                device.annotate(self.e.function, module.isa.lanes)
            self.arguments = dict(zip(self._slots, self.e.function.args, strict=True))
        self._uses_sizes = False
        self.e.sizes.pointer = self._sizes
        self.group = WorkGroup(self.e, group) if group > 1 else None

    def _sizes(self) -> ir.Value:
        """The address of the sizes that only an execution knows."""
        self._uses_sizes = True

        def write() -> ir.Value:
            e = self.e
            if e.isa.device is not None:
                return _further_parameter(e.function)
            slot = e.b.load(e.module.sizes_slot(), typ=I64)
            place = e.b.gep(e.function.args[0], [slot], source_etype=PTR)
            return e.b.load(place, typ=PTR)

        return self.e.sizes.once("pointer", write)

    @staticmethod
    def of(
        module: Module, symbol: str, operands: Iterable[Operand], group: int = 1
    ) -> PhaseFunction:
        """A phase that uses ``operands``, with work-groups of so many invocations if ``group`` is
        above 1: each does one item together."""
        held = (operand.slot for operand in operands if operand.contents is None)
        return PhaseFunction(module, symbol, held, group)

    def pointers(self, operands: Iterable[Operand]) -> dict[Operand, ir.Value]:
        """The address of each operand."""
        return {operand: self._pointer(operand) for operand in operands}

    def _pointer(self, operand: Operand) -> ir.Value:
        if operand.contents is None:
            return self.arguments[operand.slot]
        return self.e.module.table(storage(operand.data_type).element, operand.contents)

    def _loaded(self) -> Iterator[ir.Value]:
        """Load the addresses from the argument list."""
        b, given = self.e.b, self.e.function.args[0]
        for slot in self._slots:
            yield b.load(b.gep(given, [i64(slot)], source_etype=PTR), typ=PTR)

    def each_item(self, count: int, item: Callable[[ir.Value], None]) -> None:
        """Emit ``item(number)`` for each of the ``count`` work items that an invocation does."""
        e, device = self.e, self.e.isa.device
        if device is None:
            _, begin, end, _ = e.function.args
            e.loop(begin, end, item, unroll=False, name="item")
            return
        number = device.item(e.b) if self.group is None else self.group.number

        def one() -> Values:
            item(number)
            return ()

        # Devices start whole groups, so there may be more invocations than items. The condition is
        # the same for all invocations of a group that does one item.
        e.branch(e.b.icmp_unsigned("<", number, e.number(count)), one, lambda: ())

    def share(self, units: ir.Value, items: int) -> tuple[ir.Value, ir.Value]:
        """The first of ``units`` units of work that an invocation does, and the one behind its
        last. They are shared among the ``items`` of the phase, on a device among all that are
        started."""
        b, device = self.e.b, self.e.isa.device
        if device is None:
            _, begin, end, _ = self.e.function.args
            count: ir.Value = i64(items)
        else:
            begin, count = device.item(b), device.items(b)
            end = b.add(begin, i64(1))
        first, last = (b.udiv(b.mul(units, item), count) for item in (begin, end))
        return first, last

    @property
    def thread(self) -> ir.Value:
        """The number of the thread, unique among running threads; processors only."""
        assert self.e.isa.thread_memory, "only processors number their threads"
        return self.e.function.args[3]

    def scratch(self, nbytes: int) -> ir.Value:
        """The address of ``nbytes`` bytes of scratch memory of the thread, aligned to 64; on a
        device of the invocation, in an address space of its own.

        Call it once, at the start of the function. The contents are undefined at each call of the
        phase.
        """
        e = self.e
        if e.isa.device is not None:
            memory = e.b.alloca(ir.ArrayType(I8, nbytes))
            memory.align = _SCRATCH_UNIT
            memory.type = PTR  # llvmlite gives it the type of the bytes
            return memory
        self._scratch = -(-nbytes // _SCRATCH_UNIT) * _SCRATCH_UNIT
        place = e.b.gep(e.function.args[0], [i64(-1)], source_etype=PTR)
        own = e.b.mul(self.thread, i64(self._scratch))
        return e.b.gep(e.b.load(place, typ=PTR), [own], source_etype=I8)

    def end(self, count: int) -> Phase:
        """Finish the function, which has ``count`` work items."""
        self.e.b.ret_void()
        group = 1 if self.group is None else self.group.size
        slots = (*self._slots, -1) if self._uses_sizes else self._slots
        return Phase(self._symbol, count, slots, self._scratch, group)


def _further_parameter(function: ir.Function) -> ir.Value:
    """Add a parameter to an entry point, like the ones that it has."""
    kinds = (*function.ftype.args, function.args[0].type)
    function.ftype = ir.FunctionType(function.ftype.return_type, kinds)
    function.args = (*function.args, ir.Argument(function, kinds[-1]))
    return function.args[-1]
