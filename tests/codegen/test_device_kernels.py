"""Every kernel compiles for every device, and the device's own tools accept it.

`spirv-val` is in Debian's package spirv-tools, `ptxas` in CUDA and in the extra `ptx`. Without them
kernels are compiled and the test is skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import dnnl
from dnnl import config
from dnnl.codegen import isa
from dnnl.codegen.compile import emit_apart, jit
from dnnl.codegen.compile.spirv_text import writable
from dnnl.runtime.backend import Features
from dnnl.runtime.image import Image
from tests.codegen.cases import FOR_DEVICES, plain
from tests.ptx.assembler import ARCHITECTURES, ptxas

EACH_DEVICE = pytest.mark.parametrize("row", isa.DEVICES, ids=lambda row: row.name)
TOOLS = {
    "spirv": [["spirv-val", "--target-env", "opencl2.2"]],
    "ptx": [
        [str(ptxas() or "ptxas"), f"--gpu-name={architecture}", "--output-file=/dev/null"]
        for architecture in (*ARCHITECTURES, "sm_100")
    ],
}
UNKNOWN_TO_SPIRV = """
declare void @llvm.prefetch.p1(ptr addrspace(1), i32, i32, i32)
define spir_kernel void @fetch(ptr addrspace(1) %line) {
  call void @llvm.prefetch.p1(ptr addrspace(1) %line, i32 0, i32 3, i32 1)
  ret void
}
"""
THREE_BITS = """
define spir_kernel void @sum(ptr addrspace(1) %from, ptr addrspace(1) %to, i64 %item) {
entry:
  br label %loop
loop:
  %step = phi i64 [ 0, %entry ], [ %next, %loop ]
  %total = phi i32 [ 0, %entry ], [ %more, %loop ]
  %twice = shl nuw nsw i64 %item, 1
  %column = and i64 %twice, 14
  %row = shl nuw nsw i64 %step, 8
  %line = getelementptr i8, ptr addrspace(1) %from, i64 %column
  %place = getelementptr i8, ptr addrspace(1) %line, i64 %row
  %value = load i8, ptr addrspace(1) %place
  %wide = sext i8 %value to i32
  %more = add i32 %total, %wide
  %next = add nuw nsw i64 %step, 1
  %again = icmp ult i64 %step, 8
  br i1 %again, label %loop, label %done
done:
  store i32 %more, ptr addrspace(1) %to
  ret void
}
"""


ONE_CONDITION = """
define spir_kernel void @choose(ptr addrspace(1) %from, ptr addrspace(1) %to, i64 %item) {
  %small = icmp slt i64 %item, 7
  %"a b" = load <16 x float>, ptr addrspace(1) %from
  %"the chosen" = select nnan i1 %small, <16 x float> %"a b", <16 x float> zeroinitializer
  store <16 x float> %"the chosen", ptr addrspace(1) %to
  ret void
}
"""


CONDITIONS = """
define spir_kernel void @convert(ptr addrspace(1) %from, ptr addrspace(1) %to) {{
  %x = load <{lanes} x i32>, ptr addrspace(1) %from
  %less = icmp slt <{lanes} x i32> %x, zeroinitializer
  %number = {conversion} <{lanes} x i1> %less to {kind}
  store {kind} %number, ptr addrspace(1) %to
  ret void
}}
"""


def pretend(row: isa.Isa) -> dnnl.Engine:
    """An engine that takes code for the device."""
    return dnnl.Engine("null", features=Features(row.arch, row.cpu, frozenset(row.features)))


def description(name: str, row: isa.Isa) -> dnnl.PrimitiveDesc:
    pd = dnnl.PrimitiveDesc(FOR_DEVICES[name].desc, pretend(row), FOR_DEVICES[name].attr)
    assert pd.isa == row
    return pd


def compiled(name: str, row: isa.Isa) -> Image:
    image, _ = jit.image(description(name, row).plan.recipe)
    assert image.target == row.target
    return image


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (row, name)
        for row in isa.DEVICES
        # Every third kernel for the shorter of the vectors that a processor's driver takes.
        for name in (list(FOR_DEVICES)[:: 3 if row.lanes in (4, 8) else 1])
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_tools_accept_it(name: str, row: isa.Isa, tmp_path: Path) -> None:
    image = compiled(name, row)
    file = tmp_path / "kernel"
    file.write_bytes(image.code)
    tools = [command for command in TOOLS[image.target] if shutil.which(command[0])]
    for command in tools:
        done = subprocess.run([*command, file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
    if not tools:
        pytest.skip(f"compiled, but {TOOLS[image.target][0][0]} is not there to judge it")


@EACH_DEVICE
@pytest.mark.parametrize("name", ["reorder to s8", "softmax", "convolution", "matmul with all"])
def test_phases_are_entry_points_that_take_pointers_to_global_memory(
    name: str, row: isa.Isa
) -> None:
    pd = description(name, row)
    text, phases = dnnl.Primitive(pd).asm(), pd.plan.recipe.kernel().phases
    for phase in phases:
        assert phase.count > 0
        assert phase.slots == tuple(sorted(set(phase.slots)))
        assert parameters(row.target, text, phase.symbol) == ["global"] * len(phase.slots)
    touched = {slot for phase in phases for slot in phase.slots}
    assert touched == set(range(len(compiled(name, row).arguments)))


def parameters(target: str, text: str, symbol: str) -> list[str]:
    """The address spaces of an entry point's parameters, from the text of a kernel."""
    if target == "ptx":
        entry = re.search(rf"\.visible \.entry {symbol}\((.*?)\)", text, re.DOTALL)
        assert entry, text
        return re.findall(r"\.param \.u64 \.ptr \.(\w+)", entry[1])
    function = re.search(rf'OpEntryPoint Kernel (%\d+) "{symbol}"', text)
    assert function, text
    body = text.split(f"{function[1]} = OpFunction ")[1]
    kinds = re.findall(r"OpFunctionParameter (%\d+)", body.split("OpLabel")[0])
    spaces = {"CrossWorkgroup": "global"}
    classes = [re.search(rf"{kind} = OpTypePointer (\w+)", text) for kind in kinds]
    return [spaces[found[1]] for found in classes if found]


@EACH_DEVICE
def test_an_item_is_small_where_starting_one_is_free(row: isa.Isa) -> None:
    desc = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", plain(7), plain(7))
    pd = dnnl.PrimitiveDesc(desc, pretend(row))
    (phase,) = pd.plan.recipe.kernel().phases
    assert phase.count == (7 if row.many_items else 1)
    assert phase.slots == (0, 1)


@EACH_DEVICE
def test_an_item_knows_its_number(row: isa.Isa) -> None:
    wide = plain(7, 2**16)
    desc = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", wide, wide)
    pd = dnnl.PrimitiveDesc(desc, pretend(row))
    (phase,) = pd.plan.recipe.kernel().phases
    text = dnnl.Primitive(pd).asm()
    for word in {"ptx": ["%ctaid.x", "%ntid.x", "%tid.x"], "spirv": ["GlobalInvocationId"]}[
        row.target
    ]:
        assert word in text
    compared = rf"setp\.gt\.u64 .*, {phase.count - 1};"
    assert re.search(compared if row.target == "ptx" else r"OpULessThan", text)


def transposition(dims: tuple[int, int], row: isa.Isa) -> dnnl.PrimitiveDesc:
    desc = dnnl.ReorderDesc(plain(*dims), dnnl.MemoryDesc(dims, "f32", "ba"))
    return dnnl.PrimitiveDesc(desc, pretend(row))


def test_neighbours_in_memory_belong_to_neighbouring_items() -> None:
    """A device reads together what its neighbouring items ask for."""
    (phase,) = transposition((300, 7), isa.DEVICES[0]).plan.recipe.kernel().phases
    assert (phase.count, phase.group) == (2100, 1)


@EACH_DEVICE
def test_groups_transpose_squares_with_wide_accesses(row: isa.Isa) -> None:
    pd = transposition((40, 96), row)
    (phase,) = pd.plan.recipe.kernel().phases
    assert row.device is not None
    if row.device.groups is None:
        assert phase.group == 1
        return
    assert (phase.count, phase.group) == (2 * 3, 256)
    text = dnnl.Primitive(pd).asm()
    barrier, load, store = {
        "ptx": ("bar.sync", r"ld\.global\.v4", r"st\.global\.v4"),
        "spirv": ("OpControlBarrier", r"OpLoad .* Aligned 16", r"OpStore .* Aligned 16"),
    }[row.target]
    assert barrier in text
    for access in (load, store):
        assert len(re.findall(access, text)) == 1  # of four elements for each of 256 items


@pytest.mark.parametrize(("length", "size", "waits"), [(4096, 256, 4), (256, 32, 3)])
@EACH_DEVICE
def test_reductions_of_groups_wait_a_few_times(
    length: int, size: int, waits: int, row: isa.Isa
) -> None:
    desc = dnnl.ReductionDesc("reduction_max", plain(1000, length), plain(1000, 1))
    pd = dnnl.PrimitiveDesc(desc, pretend(row))
    (phase,) = pd.plan.recipe.kernel().phases
    assert row.device is not None
    if row.device.groups is None:
        assert phase.group == 1
        return
    assert phase.group == size
    barrier = {"ptx": "bar.sync", "spirv": "OpControlBarrier"}[row.target]
    assert dnnl.Primitive(pd).asm().count(barrier) == waits


@EACH_DEVICE
def test_a_limit_for_processors_is_none_for_devices(row: isa.Isa) -> None:
    with config.override("max_cpu_isa", "sse41"):
        assert description("eltwise", row).isa == row


@EACH_DEVICE
def test_the_disk_cache_keeps_what_a_launch_needs(row: isa.Isa, tmp_path: Path) -> None:
    recipe = description("matmul with all", row).plan.recipe
    with config.override("cache_dir", tmp_path):
        built, again = (jit.image(recipe) for _ in range(2))
    assert (built[1], again[1]) == (False, True)
    assert built[0] == again[0]
    assert len({phase.slots for phase in again[0].phases}) > 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [("nonsense", "expected top-level entity"), (UNKNOWN_TO_SPIRV, "unable to legalize")],
)
def test_what_llvm_cannot_write_ends_another_process(body: str, reason: str) -> None:
    with pytest.raises(RuntimeError, match=f"(?s)no code for spirv64.*{reason}"):
        emit_apart.run(body, "spirv64-unknown-unknown", "", "", text=False)


def test_no_loop_makes_addresses_of_a_few_bits() -> None:
    """LLVM 22 takes ``x & 7`` for three bits in the address of a loop, and writes eight."""
    text = emit_apart.run(THREE_BITS, "spirv64-unknown-unknown", "", "", text=True).decode()
    assert re.search(r"OpConstant %\d+ (7|14)$", text, re.MULTILINE)
    assert not re.search(r"OpConstant %\d+ 255$", text, re.MULTILINE)


def test_a_condition_between_vectors_has_a_lane_for_each() -> None:
    """LLVM 22 writes a selection between vectors by one condition, which SPIR-V does not have."""
    vectors = next(row for row in isa.DEVICES if row.lanes == 16)
    text = emit_apart.run(writable(ONE_CONDITION), vectors.triple, "", "", text=True)
    found = re.search(r"= OpSelect %\d+ (%\d+)", text.decode())
    assert found
    assert re.search(rf"{found[1]} = OpVectorShuffle", text.decode())


@pytest.mark.parametrize(("conversion", "one"), [("uitofp", "1"), ("sitofp", "-1")])
@pytest.mark.parametrize("kind", ["<16 x float>", "<8 x double>"])
def test_conditions_become_floats_by_a_selection(conversion: str, one: str, kind: str) -> None:
    """LLVM 22 writes no conversion of vectors of conditions to 256 bits and more."""
    ir = CONDITIONS.format(lanes=kind[1:].split(maxsplit=1)[0], kind=kind, conversion=conversion)
    with pytest.raises(RuntimeError, match="different sizes"):
        emit_apart.run(ir, "spirv64-unknown-unknown", "", "", text=True)
    text = emit_apart.run(writable(ir), "spirv64-unknown-unknown", "", "", text=True).decode()
    assert "OpSelect" in text
    assert re.search(rf"OpConstant %\d+ {one}$", text, re.MULTILINE)


def test_nontemporal_stores_are_ordered_by_a_fence_of_global_memory() -> None:
    """LLVM's own fence names no memory in SPIR-V, and Intel's driver drops it."""
    wide = plain(2048, 4096)
    desc = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", wide, wide)
    vectors = next(row for row in isa.DEVICES if row.lanes == 16)
    text = dnnl.Primitive(dnnl.PrimitiveDesc(desc, pretend(vectors))).asm()
    assert "Nontemporal" in text
    semantics = re.search(r"OpMemoryBarrier %\d+ (%\d+)", text)
    assert semantics
    bits = re.search(rf"{semantics[1]} = OpConstant %\d+ (\d+)$", text, re.MULTILINE)
    assert bits
    assert int(bits[1]) & 0x200  # CrossWorkgroupMemory


@EACH_DEVICE
def test_generation_is_deterministic(row: isa.Isa) -> None:
    recipe = description("softmax", row).plan.recipe
    assert str(recipe.kernel().module) == str(recipe.kernel().module)
