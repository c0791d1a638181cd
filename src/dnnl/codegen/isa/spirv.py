"""The rows of devices that take SPIR-V, as OpenCL and SYCL do.

A work item of a GPU computes scalars: the device makes vectors of neighbouring items. A work item
of a processor computes vectors, of 4, 8 or 16 f32.
"""

from __future__ import annotations

from dataclasses import replace

from llvmlite import ir

from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.isa.row import Device, Groups, Isa

_DEVICE = 1  # scope
_WORKGROUP = 2  # scope
_ORDERED_MEMORY = 0x210  # semantics: sequentially consistent, of CrossWorkgroup memory
_ORDERED_SHARED = 0x110  # semantics: sequentially consistent, of Workgroup memory


def _builtin(b: ir.IRBuilder, name: str, result: ir.Type, *arguments: int) -> ir.Value:
    """A function that LLVM knows by its mangled name, as an instruction of SPIR-V."""
    i32 = ir.IntType(32)
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(result, [i32] * len(arguments)), name)
        function.calling_convention = "spir_func"
    return b.call(function, [i32(argument) for argument in arguments], cconv="spir_func")


def _item(b: ir.IRBuilder) -> ir.Value:
    return _builtin(b, "_Z13get_global_idj", ir.IntType(64), 0)


def _items(b: ir.IRBuilder) -> ir.Value:
    return _builtin(b, "_Z15get_global_sizej", ir.IntType(64), 0)


def _fence(b: ir.IRBuilder) -> None:
    """LLVM's own fence names no memory in SPIR-V, and drivers drop it."""
    _builtin(b, "_Z21__spirv_MemoryBarrierjj", ir.VoidType(), _DEVICE, _ORDERED_MEMORY)


def _group(b: ir.IRBuilder) -> ir.Value:
    return _builtin(b, "_Z12get_group_idj", ir.IntType(64), 0)


def _member(b: ir.IRBuilder) -> ir.Value:
    return _builtin(b, "_Z12get_local_idj", ir.IntType(64), 0)


def _barrier(b: ir.IRBuilder) -> None:
    scopes = _WORKGROUP, _WORKGROUP
    call = _builtin(b, "_Z22__spirv_ControlBarrierjjj", ir.VoidType(), *scopes, _ORDERED_SHARED)
    call.callee.attributes.add("convergent")  # neither copied nor made conditional


def _require(function: ir.Function, size: int) -> None:
    """OpenCL's ``reqd_work_group_size``."""
    sizes = [ir.Constant(ir.IntType(32), extent) for extent in (size, 1, 1)]
    function.set_metadata("reqd_work_group_size", function.module.add_metadata(sizes))


def _hint(function: ir.Function, lanes: int) -> None:
    """OpenCL's ``vec_type_hint``: the driver then leaves vectors as they are. Otherwise Intel's
    makes vectors of work items a second time, in 15 times the time, with gathers."""
    vector = ir.Constant(ir.VectorType(ir.FloatType(), lanes), ir.Undefined)
    signed = ir.Constant(ir.IntType(32), 1)
    function.set_metadata("vec_type_hint", function.module.add_metadata([vector, signed]))


# SPIR-V 1.2 is supported by OpenCL 2.2 and everything later; half precision is optional in it, and
# vectors have at most 16 elements. LLVM 22 reuses block numbers across modules (LLVM issue 160613),
# so a process must write no more than one.
_DRIVER = Device("spirv", "spir_kernel", _item, _items, own_process=True)
_SCALARS = Isa(
    "spirv64",
    "spirv64",
    "spirv64v1.2-unknown-unknown",
    "",
    (),
    vector_bits=32,
    registers=32,
    fma=True,
    masked=False,
    half=False,
    caches=Caches(l2=0, near=0, prefetches=False, non_temporal=False),
    most_lanes=16,
    mask_registers=False,
    many_items=True,
    thread_memory=False,
    carried_addresses=False,
    device=replace(_DRIVER, groups=Groups(_group, _member, _barrier, _require)),
)


def _vectors(lanes: int, registers: int) -> Isa:
    """The row of processors with ``registers`` registers of ``lanes`` f32."""
    name = f"spirv64x{lanes}"
    return replace(
        _SCALARS,
        name=name,
        arch=name,
        vector_bits=32 * lanes,
        registers=registers,
        caches=Caches(prefetches=False),
        many_items=False,
        device=replace(_DRIVER, annotate=_hint, fence=_fence),
    )


ROWS = (_SCALARS, _vectors(4, 16), _vectors(8, 16), _vectors(16, 32))
