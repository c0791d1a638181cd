"""The text of modules is llvmlite's, and what a block computes is written once."""

from __future__ import annotations

import pytest
from llvmlite import binding as llvm
from llvmlite import ir

import dnnl
from dnnl import config
from dnnl.codegen import isa
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I1, I64, PTR, Emitter, Module, i64
from dnnl.codegen.ir.text import module_text
from tests.codegen.cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_kernels_read_as_llvmlite_writes_them(name: str) -> None:
    case = CASES[name]
    with config.override("max_cpu_isa", "avx512_core_bf16"):
        pd = dnnl.PrimitiveDesc(case.desc, dnnl.Engine("null"), case.attr)
    module = pd.plan.recipe.kernel().module.ir
    assert module_text(module) == str(module)


def emitter(*arguments: ir.Type) -> Emitter:
    module = Module("test", isa.find("avx2"))
    return Emitter(module, module.function("test", ir.FunctionType(ir.VoidType(), arguments)))


def test_what_few_kernels_have_reads_as_llvmlite_writes_it() -> None:
    e = emitter(PTR, I64, F32, I1)
    pointer, number, value, flag = e.function.args
    e.function.args[0].name = 'a "quoted" \\ name'
    e.function.args[0].add_attribute("noalias")
    callee = e.module.function("callee", ir.FunctionType(F32, [F32, PTR]), "fastcc")
    called = e.b.call(callee, [value, pointer], name="called")
    e.b.call(callee, [called, pointer], fastmath=("fast",), tail="tail", attrs=("readnone",))
    e.b.call(callee, [called, pointer], arg_attrs={1: ("nonnull",)})
    e.b.call(ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), "nop", "", side_effect=True), [])
    added = e.b.fadd(called, value, flags=("nnan", "nsz"), name="x y")
    chosen = e.b.select(flag, added, value, flags=("ninf",))
    mark = e.module.ir.add_metadata([ir.Constant(ir.IntType(32), 1)])
    e.b.store(chosen, pointer, align=4).set_metadata("nontemporal", mark)
    e.b.load(pointer, typ=F32, align=4).set_metadata("nontemporal", mark)
    e.b.fcmp_ordered("<", chosen, value, flags=("fast",))
    e.b.fence("seq_cst")
    end = e.function.append_basic_block('the "end"')
    e.b.switch(number, end).add_case(i64(3), end)
    e.b.position_at_end(end)
    e.b.ret_void()
    e.module.table(F32, [1.0, 2.0])
    text = module_text(e.module.ir)
    assert text == str(e.module.ir)
    llvm.parse_assembly(text).verify()


def test_a_block_computes_an_address_once() -> None:
    e = emitter(PTR, I64, I1)
    pointer, number, flag = e.function.args

    def address(factor: int = 24) -> ir.Value:
        return e.element(pointer, e.add(e.mul(number, factor), i64(8)), F32)

    first = address()
    assert address() is first
    assert address(25) is not first
    assert e.element(pointer, e.add(e.mul(number, 24), i64(8)), I64) is not first
    found: list[ir.Value] = []

    def branch() -> tuple[ir.Value]:
        found.append(address())
        return (found[-1],)

    (merged,) = e.branch(flag, branch, branch)
    assert len({first, *found}) == 3
    e.b.store(ir.Constant(F32, 0.0), merged)
    e.b.store(ir.Constant(F32, 0.0), address())
    e.b.ret_void()
    llvm.parse_assembly(str(e.module)).verify()


def test_constants_that_are_equal_stay_apart() -> None:
    kind = ir.VectorType(F32, 4)
    spelled = [str(vector.splat_constant(kind, value)) for value in (0.0, -0.0, 0.0, 1, 1.0)]
    assert spelled[0] == spelled[2]
    assert "0x8000000000000000" in spelled[1] != spelled[0]
    assert spelled[3] == spelled[4]
    assert str(vector.splat_constant(ir.VectorType(I64, 4), 1)) != spelled[3]


def test_the_entry_is_written_from_wherever_one_is() -> None:
    """Also from the entry itself, and from a loop around which other values are written."""
    e = emitter(I64)
    (number,) = e.function.args
    cell = e.b.alloca(I64)
    e.sizes.once("used", lambda: e.b.add(number, i64(1)))

    def body(index: ir.Value) -> None:
        with e.b.goto_entry_block():
            with e.b.goto_entry_block():
                e.b.store(number, cell)
            first = e.b.xor(e.mul(number, 3), number)
        e.b.store(e.add(index, e.add(first, number)), cell)

    def branch() -> tuple[ir.Value, ...]:
        e.loop(i64(0), number, body)
        return ()

    e.branch(e.b.icmp_signed(">", number, i64(4)), branch, lambda: ())
    e.b.ret_void()
    llvm.parse_assembly(str(e.module.ir)).verify()
