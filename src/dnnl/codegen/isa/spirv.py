"""The row for devices that take SPIR-V, as OpenCL and SYCL have them."""

from __future__ import annotations

from llvmlite import ir

from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.isa.row import Device, Isa


def _item(b: ir.IRBuilder) -> ir.Value:
    """get_global_id(0), by the name that LLVM knows it under."""
    i32, i64 = ir.IntType(32), ir.IntType(64)
    name = "_Z13get_global_idj"
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(i64, [i32]), name)
        function.calling_convention = "spir_func"
    return b.call(function, [ir.Constant(i32, 0)], cconv="spir_func")


# Version 1.2 is what OpenCL 2.2 and everything later takes; half precision is optional there.
# LLVM 22 remembers numbers of blocks from one module to the next (issue 160613 of LLVM) and then
# gives them twice, so no process may write two.
ROWS = (
    Isa("spirv64", "spirv64", "spirv64v1.2-unknown-unknown", "", (),
        vector_bits=32, registers=32, fma=True, masked=False, half=False,
        caches=Caches(l2=0, near=0, cache_hints=False),
        device=Device("spirv", "spir_kernel", _item, own_process=True)),
)  # fmt: skip
