"""The text of a module, as llvmlite writes it, in a fraction of the time.

llvmlite formats each operand anew wherever it is used. Here the names of types and values are
looked up by identity, and the instructions that kernels are full of have functions of their own;
everything else is llvmlite's text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir
from llvmlite.ir import instructions


def module_text(module: ir.Module) -> str:
    """The same as ``str(module)``."""
    lines = [
        f'; ModuleID = "{module.name}"',
        f'target triple = "{module.triple}"',
        f'target datalayout = "{module.data_layout}"',
        "",
        *(kind.get_declaration() for kind in module.get_identified_types().values()),
    ]
    for value in module.globals.values():
        has_body = isinstance(value, ir.Function) and value.blocks
        lines.append(_FunctionText(value).text() if has_body else str(value))
    return "\n".join([*lines, *module._get_metadata_lines()])


class _FunctionText:
    """Writes one function. Names of types and values are those of the objects, which the function
    keeps alive, by their identity."""

    def __init__(self, function: ir.Function) -> None:
        self._function = function
        self._types: dict[int, str] = {}
        self._values = {
            id(value): value.get_reference() for value in (*function.args, *function.blocks)
        }
        for block in function.blocks:
            for value in block.instructions:
                self._values[id(value)] = f'%"{value.name}"'

    def text(self) -> str:
        """Its prototype and its blocks."""
        parts: list[str] = []
        self._function.descr_prototype(parts)
        parts.append("{\n")
        for block in self._function.blocks:
            parts.append(f"{block._format_name()}:\n")
            parts += [f"  {self._line(each)}\n" for each in block.instructions]
        parts.append("}\n")
        return "".join(parts)

    def _line(self, own: ir.Instruction) -> str:
        write = _WRITERS.get(type(own))
        if write is None or own.metadata:
            return str(own)
        text = write(self, own)
        return text if isinstance(own.type, ir.VoidType) else f"{self._values[id(own)]} = {text}"

    def _type(self, kind: ir.Type) -> str:
        found = self._types.get(id(kind))
        if found is None:
            found = self._types[id(kind)] = str(kind)
        return found

    def _name(self, value: ir.Value) -> str:
        return self._values.get(id(value)) or str(value.get_reference())

    def _typed(self, values: Sequence[ir.Value]) -> str:
        """Operands, each behind its type."""
        return ", ".join([f"{self._type(value.type)} {self._name(value)}" for value in values])

    def arithmetic(self, own: ir.Instruction) -> str:
        name = " ".join([own.opname, *own.flags])
        return f"{name} {self._type(own.type)} {', '.join(map(self._name, own.operands))}"

    def call(self, own: instructions.CallInstr) -> str:
        callee, *given = own.operands
        kind = callee.function_type
        plain = not (own.arg_attributes or own.attributes or own.fastmath or own.tail)
        if not plain or kind.var_arg:
            text = str(own)
            return text if isinstance(own.type, ir.VoidType) else text.partition(" = ")[2]
        convention = f" {own.cconv}" if own.cconv else ""
        name = f"{self._type(kind.return_type)} {self._name(callee)}"
        return f"call{convention} {name}({self._typed(given)})"

    def compare(self, own: instructions.CompareInstr) -> str:
        a, b = own.operands
        name = " ".join([own.opname, *own.flags, own.op])
        return f"{name} {self._type(a.type)} {self._name(a)}, {self._name(b)}"

    def cast(self, own: instructions.CastInstr) -> str:
        return f"{own.opname} {self._typed(own.operands)} to {self._type(own.type)}"

    def load(self, own: instructions.LoadInstr) -> str:
        align = "" if own.align is None else f", align {own.align}"
        return f"load {self._type(own.type)}, {self._typed(own.operands)}{align}"

    def store(self, own: instructions.StoreInstr) -> str:
        align = "" if own.align is None else f", align {own.align}"
        return f"store {self._typed(own.operands)}{align}"

    def address(self, own: instructions.GEPInstr) -> str:
        name = "getelementptr inbounds" if own.inbounds else "getelementptr"
        return f"{name} {self._type(own.source_etype)}, {self._typed(own.operands)}"

    def phi(self, own: instructions.PhiInstr) -> str:
        pairs = ", ".join(
            f"[{self._name(value)}, {self._name(block)}]" for value, block in own.incomings
        )
        return f"phi {' '.join(own.flags)} {self._type(own.type)} {pairs}"

    def select(self, own: instructions.SelectInstr) -> str:
        return f"select {' '.join(own.flags)} {self._typed(own.operands)}"

    def lanes(self, own: ir.Instruction) -> str:
        return f"{own.opname} {self._typed(own.operands)}"


_WRITERS: dict[type, Callable[[_FunctionText, ir.Instruction], str]] = {
    instructions.Instruction: _FunctionText.arithmetic,
    instructions.CallInstr: _FunctionText.call,
    instructions.ICMPInstr: _FunctionText.compare,
    instructions.FCMPInstr: _FunctionText.compare,
    instructions.CastInstr: _FunctionText.cast,
    instructions.LoadInstr: _FunctionText.load,
    instructions.StoreInstr: _FunctionText.store,
    instructions.GEPInstr: _FunctionText.address,
    instructions.PhiInstr: _FunctionText.phi,
    instructions.SelectInstr: _FunctionText.select,
    instructions.ExtractElement: _FunctionText.lanes,
    instructions.InsertElement: _FunctionText.lanes,
    instructions.ShuffleVector: _FunctionText.lanes,
}
