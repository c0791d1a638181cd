"""The engine that runs code for aarch64 does what it says, and our code is what it runs."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import Arg, EltwiseDesc, Error, Memory, MemoryDesc, Primitive, PrimitiveDesc, Stream
from dnnl.reference.conversions import convert
from dnnl.runtime.backend import Buffer
from dnnl.runtime.image import Image, Phase
from tests.check import check, logical
from tests.primitives.harness import ENGINE, describe, typed_source
from tests.primitives.test_reorder_runtime import SIZES, reordered
from tests.qemu.driver import assembled
from tests.qemu.engine import QEMU, QemuBackend, missing
from tests.qemu.instead import instead

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

_ADD = """
define void @add(ptr %args, i64 %begin, i64 %end, i64 %thread) {{
entry:
  %scratch.at = getelementptr ptr, ptr %args, i64 -1
  %scratch = load ptr, ptr %scratch.at
  %before = mul i64 %thread, 64
  %there = add i64 %before, {offset}
  %own = getelementptr i8, ptr %scratch, i64 %there
  %a = load ptr, ptr %args
  %b.at = getelementptr ptr, ptr %args, i64 1
  %b = load ptr, ptr %b.at
  br label %test
test:
  %i = phi i64 [ %begin, %entry ], [ %next, %more ]
  %some = icmp slt i64 %i, %end
  br i1 %some, label %more, label %done
more:
  %a.i = getelementptr i64, ptr %a, i64 %i
  %b.i = getelementptr i64, ptr %b, i64 %i
  %here = load i64, ptr %a.i
  store i64 %here, ptr %own
  %held = load i64, ptr %b.i
  %kept = load i64, ptr %own
  %sum = add i64 %held, %kept
  store i64 %sum, ptr %b.i
  %next = add i64 %i, 1
  br label %test
done:
  ret void
}}
"""


def add(items: int, phases: int = 1, offset: int = 0) -> Image:
    """b[i] += a[i], as often as there are phases, by way of the scratch of a thread."""
    phase = Phase("add", items, (0, 1), 64)
    return Image("cpu", assembled(_ADD.format(offset=offset)), (phase,) * phases, (1, 17))


def run(image: Image, arguments: list[Buffer], threads: int) -> None:
    QEMU.make_queue(in_order=True).submit(QEMU.load(image), arguments, threads)


def numbers(values: np.ndarray, before: int = 0) -> Buffer:
    """A buffer that begins somewhere in memory of the device."""
    buffer = QEMU.allocate(before + values.nbytes)._replace(offset=before)
    QEMU.write(buffer, values.view(np.uint8))
    return buffer


def read(buffer: Buffer, items: int) -> np.ndarray:
    return QEMU.read(buffer, 8 * items).view(np.int64)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("items", [0, 1, 5, 1000])
def test_every_item_is_done_once_in_each_phase(items: int, threads: int) -> None:
    rng = np.random.default_rng(items)
    a, b = rng.integers(-9, 9, (2, items))
    first, second = numbers(a), numbers(b, before=24)
    run(add(items, phases=3), [first, second], threads)
    assert (read(first, items) == a).all()
    assert (read(second, items) == b + 3 * a).all()


def test_two_arguments_may_be_the_same_memory() -> None:
    a = np.arange(20)
    buffer = numbers(a)
    run(add(20), [buffer, buffer], 2)
    assert (read(buffer, 20) == 2 * a).all()


@pytest.mark.parametrize("offset", [-4096, 4096])
def test_who_leaves_a_buffer_is_seen(offset: int) -> None:
    values = numbers(np.arange(3))
    with pytest.raises(Error, match="add under qemu-aarch64 ended with -11"):
        run(add(3, offset=offset), [values, values], 1)


def test_what_is_executed_within_it_runs_there() -> None:
    backend = QEMU._backend
    assert isinstance(backend, QemuBackend)
    before = backend.launches
    desc = MemoryDesc((3, 50), "f32")
    with instead(QEMU):
        pd = PrimitiveDesc(
            EltwiseDesc.forward("forward_inference", "eltwise_relu", desc, desc), ENGINE
        )
        src = Memory.from_numpy(np.float32(np.random.default_rng(1).normal(size=(3, 50))))
        dst = Memory(desc, ENGINE)
        Primitive(pd).execute(Stream(ENGINE, 2), {Arg.SRC: src, Arg.DST: dst})
    assert pd.impl_info == "nest:neon"
    assert (dst.numpy() == np.maximum(src.numpy(), 0)).all()
    assert backend.launches == before + 1


@pytest.mark.parametrize("types", [("f32", "f32"), ("f16", "s8"), ("u8", "s4")], ids=">".join)
@pytest.mark.parametrize("layouts", [("nchw", "nhwc"), ("part", "nChw16c")], ids=">".join)
def test_reorder_of_any_sizes(layouts: tuple[str, str], types: tuple[str, str]) -> None:
    with instead(QEMU):
        for dims in SIZES:
            memory = typed_source(dims, layouts[0], types[0])
            dst = describe(dims, layouts[1]).with_data_type(types[1])
            check(reordered(memory, dst), convert(logical(memory), types[1]), 0.0)
