"""The row of devices that take SPIR-V, as OpenCL and SYCL do."""

from __future__ import annotations

from llvmlite import ir

from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.isa.row import Device, Isa


def _item(b: ir.IRBuilder) -> ir.Value:
    """get_global_id(0), under the name that LLVM mangles it to."""
    i32, i64 = ir.IntType(32), ir.IntType(64)
    name = "_Z13get_global_idj"
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(i64, [i32]), name)
        function.calling_convention = "spir_func"
    return b.call(function, [ir.Constant(i32, 0)], cconv="spir_func")


# SPIR-V 1.2 is supported by OpenCL 2.2 and everything later; half precision is optional in it. LLVM
# 22 reuses block numbers across modules (LLVM issue 160613), so a process must write no more than
# one.
ROWS = (
    Isa("spirv64", "spirv64", "spirv64v1.2-unknown-unknown", "", (),
        vector_bits=32, registers=32, fma=True, masked=False, half=False,
        caches=Caches(l2=0, near=0, cache_hints=False),
        device=Device("spirv", "spir_kernel", _item, own_process=True)),
)  # fmt: skip
