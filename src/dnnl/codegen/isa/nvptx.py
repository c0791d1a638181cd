"""Rows of NVIDIA devices. The image is PTX, which the driver compiles for the installed device.

A device runs the PTX of its own and of every earlier generation.
"""

from __future__ import annotations

from llvmlite import ir

from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.isa.row import Device, Groups, Isa


def _register(b: ir.IRBuilder, name: str) -> ir.Value:
    i32, i64 = ir.IntType(32), ir.IntType(64)
    name = f"llvm.nvvm.read.ptx.sreg.{name}"
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(i32, []), name)
    return b.zext(b.call(function, []), i64)


def _item(b: ir.IRBuilder) -> ir.Value:
    """The index of the thread in the grid: block index * block size + thread index."""
    block, size, thread = (_register(b, name) for name in ("ctaid.x", "ntid.x", "tid.x"))
    return b.add(b.mul(block, size), thread)


def _items(b: ir.IRBuilder) -> ir.Value:
    """The threads of the grid."""
    return b.mul(_register(b, "nctaid.x"), _register(b, "ntid.x"))


def _block(b: ir.IRBuilder) -> ir.Value:
    return _register(b, "ctaid.x")


def _thread(b: ir.IRBuilder) -> ir.Value:
    return _register(b, "tid.x")


def _barrier(b: ir.IRBuilder) -> None:
    name = "llvm.nvvm.barrier0"
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(ir.VoidType(), []), name)
    b.call(function, [])


# CUDA reserves the local memory of a kernel for all threads that fit on the device: 1 KiB takes 220
# MB of an A100.
ROWS = (
    Isa("sm_80", "nvptx64", "nvptx64-nvidia-cuda", "sm_80", (),
        vector_bits=32, registers=32, fma=True, masked=False,
        caches=Caches(l2=0, near=0, prefetches=False, non_temporal=False),
        most_lanes=1, mask_registers=False, many_items=True, thread_memory=False,
        carried_addresses=False,
        device=Device("ptx", "ptx_kernel", _item, _items, text=True,
                      groups=Groups(_block, _thread, _barrier))),
)  # fmt: skip
