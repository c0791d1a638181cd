"""What goes wrong on a device is an error of the library, and its context stays usable."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dnnl
from dnnl import Arg, Engine, Error, InvalidArguments, Memory, MemoryDesc, OutOfMemory, Stream
from dnnl.codegen.compile import emit_apart, jit
from dnnl.runtime.image import Image, Phase

DESC = MemoryDesc((64,), "f32")
VALUES = np.random.default_rng(1).standard_normal(64).astype(np.float32)

#: A kernel that calls what no driver has.
UNDEFINED = """
declare float @no_such_function(float)
define spir_kernel void @kernel(ptr addrspace(1) %data) {
  %x = load float, ptr addrspace(1) %data
  %y = call float @no_such_function(float %x)
  store float %y, ptr addrspace(1) %data
  ret void
}
"""

#: A kernel with more local memory than any device has, which each item uses.
LARGE = """
@local = internal addrspace(3) global [100000000 x float] undef
declare i64 @_Z13get_global_idj(i32)
declare void @_Z7barrierj(i32)
define spir_kernel void @kernel(ptr addrspace(1) %data) {
  %item = call i64 @_Z13get_global_idj(i32 0)
  %place = getelementptr float, ptr addrspace(3) @local, i64 %item
  store float 1.0, ptr addrspace(3) %place
  call void @_Z7barrierj(i32 1)
  %first = load float, ptr addrspace(3) @local
  store float %first, ptr addrspace(1) %data
  ret void
}
"""


def image(ir: str) -> Image:
    """The image of a kernel of one argument."""
    text = f'target triple = "spirv64-unknown-unknown"\n{ir}'
    code = emit_apart.run(text, "spirv64-unknown-unknown", "", "", text=False)
    return Image("spirv", code, (Phase("kernel", 64, (0,)),), (int(Arg.SRC),))


def primitive() -> dnnl.Primitive:
    desc = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_square", DESC, DESC)
    return dnnl.Primitive(dnnl.PrimitiveDesc(desc, Engine("sycl")))


def own_image() -> Image:
    """The image of a primitive of the library."""
    return jit.image(primitive().pd.plan.recipe)[0]


def check_usable(stream: Stream) -> None:
    """The engine still builds and executes."""
    memory = Memory.from_numpy(VALUES, engine=stream.engine)
    primitive().execute(stream, {Arg.SRC: memory, Arg.DST: memory}).wait()
    assert (memory.numpy() == VALUES * VALUES).all()


@pytest.mark.parametrize("kind", ["text", "empty", "odd", "cut", "zeros", "short"])
def test_damaged_modules(kind: str) -> None:
    """Of some drivers, these would end the process."""
    engine, good = Engine("sycl"), own_image()
    words = np.frombuffer(good.code, np.uint32).copy()
    if kind == "zeros":
        words[60:90] = 0
    elif kind == "short":
        words[5] += 1 << 16
    code = {
        "text": b"no SPIR-V at all" * 8,
        "empty": b"",
        "odd": good.code[:-3],
        "cut": good.code[: len(good.code) // 2],
    }.get(kind, words.tobytes())
    with pytest.raises(InvalidArguments, match=r"image.code = '\d+ bytes': no SPIR-V module: "):
        engine.load(replace(good, code=code))
    check_usable(Stream(engine))


def test_a_kernel_that_is_not_there() -> None:
    engine, good = Engine("sycl"), own_image()
    phase = replace(good.phases[0], symbol="nothing")
    with pytest.raises(InvalidArguments, match=r"image.phases = 'nothing': it has the kernels elt"):
        engine.load(replace(good, phases=(phase,)))
    check_usable(Stream(engine))


def test_the_log_of_a_build() -> None:
    engine = Engine("sycl")
    with pytest.raises(Error, match=r"(?s)building a program failed on .*driver.*no_such_function"):
        engine.load(image(UNDEFINED))
    check_usable(Stream(engine))


def test_versions_that_a_driver_does_not_know() -> None:
    engine, good = Engine("sycl"), own_image()
    words = np.frombuffer(good.code, np.uint32).copy()
    words[1] = 0x00FF0000
    with pytest.raises(Error, match=r"building a program failed on .*driver"):
        engine.load(replace(good, code=words.tobytes()))
    check_usable(Stream(engine))


@pytest.mark.parametrize("in_order", [True, False])
def test_a_kernel_that_is_too_large(in_order: bool) -> None:
    engine = Engine("sycl")
    stream = Stream(engine, in_order=in_order)
    memory = Memory.from_numpy(VALUES, engine=engine)
    failure = r"a launch of kernel \(64 items by .*\) failed on .*driver.*bytes of local memory"
    event = stream.queue.submit(engine.load(image(LARGE)), [memory.argument], 1)
    with pytest.raises(Error, match=failure):
        event.wait()
    args = {Arg.SRC: memory, Arg.DST: memory}
    later = primitive().execute(Stream(engine), args, after=[event])
    with pytest.raises(Error, match=failure):
        later.wait()
    with pytest.raises(Error, match=failure):
        stream.wait()
    stream.wait()
    assert (memory.numpy() == VALUES).all()
    check_usable(stream)


def test_memory_that_a_device_has_not() -> None:
    engine = Engine("sycl")
    with pytest.raises(OutOfMemory, match="allocates at most"):
        Memory(MemoryDesc((1 << 45,), "u8"), engine)
    check_usable(Stream(engine))


def test_several_failures_are_raised_once() -> None:
    """A wait forgets all launches that are done, whatever failed before."""
    engine = Engine("sycl")
    stream, large = Stream(engine), engine.load(image(LARGE))
    memory = Memory.from_numpy(VALUES, engine=engine)
    events = [stream.queue.submit(large, [memory.argument], 1) for _ in range(3)]
    primitive().execute(stream, {Arg.SRC: memory, Arg.DST: memory})
    with pytest.raises(Error, match="a launch of kernel"):
        stream.wait()
    stream.wait()
    assert all(event.done and event.failed for event in events)
    assert (memory.numpy() == VALUES * VALUES).all()
