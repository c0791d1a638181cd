"""Loaded code: both loaders, lifetimes, and objects that are damaged."""

from __future__ import annotations

import ctypes
import gc
import platform
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dnnl.errors import Error
from dnnl.runtime.engine import Engine
from dnnl.runtime.engines import cpu, cpu_pages
from dnnl.runtime.engines.cpu_code import Code
from dnnl.runtime.engines.cpu_elf import Object
from dnnl.runtime.engines.cpu_jit import Linked
from dnnl.runtime.engines.cpu_pages import Pages
from dnnl.runtime.image import Image, Phase
from tests.launch import bind, launch
from tests.runtime import kernels

LOADERS = [loader for loader in (Pages, Linked) if loader.supported()]
needs_pages = pytest.mark.skipif(not Pages.supported(), reason="pages are for Linux on x86-64")

# Constants of several alignments, a table of addresses, and functions of the C library.
VARIED = """
@wide = private constant <16 x float> <float 1.0, float 2.0, float 3.0, float 4.0, float 5.0,
  float 6.0, float 7.0, float 8.0, float 9.0, float 10.0, float 11.0, float 12.0, float 13.0,
  float 14.0, float 15.0, float 16.0>, align 64
@byte = private constant i8 5
@shared = constant i64 1000
@table = private constant [2 x ptr] [ptr @wide, ptr @shared]
declare ptr @memcpy(ptr, ptr, i64)
declare i32 @abs(i32)

define i64 @other(i64 %x) noinline {
  %y = load i64, ptr @shared
  %sum = add i64 %x, %y
  ret i64 %sum
}

define i64 @varied(ptr %to, i64 %which) {
  %entry = getelementptr [2 x ptr], ptr @table, i64 0, i64 %which
  %from = load ptr, ptr %entry
  call ptr @memcpy(ptr %to, ptr %from, i64 64)
  %byte = load i8, ptr @byte
  %wide = sext i8 %byte to i32
  %negative = sub i32 0, %wide
  %absolute = call i32 @abs(i32 %negative)
  %long = sext i32 %absolute to i64
  %result = call i64 @other(i64 %long)
  ret i64 %result
}
"""


def mappings() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


def code_of(number: int) -> bytes:
    """Code of its own for each number."""
    name = f"@k{number}(ptr %args, i64 %b, i64 %e, i64 %t)"
    return kernels.assembled(f"define void {name} {{ ret void }}")


@pytest.mark.parametrize("loader", LOADERS)
def test_code_finds_its_constants_and_the_c_library(loader: type[Code]) -> None:
    loaded = loader(kernels.assembled(VARIED), ("varied", "other"))
    varied, other = loaded.addresses
    assert varied != other
    place = np.zeros(16, np.float32)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(varied)
    assert call(place.ctypes.data, 0) == 1005
    assert place.tolist() == list(range(1, 17))
    assert call(place.ctypes.data, 1) == 1005
    assert place.view(np.int64)[0] == 1000


@pytest.mark.parametrize("loader", LOADERS)
def test_what_cannot_be_loaded(loader: type[Code]) -> None:
    good = kernels.assembled(VARIED)
    with pytest.raises(Error, match="nobody"):
        loader(good, ("varied", "nobody"))
    text = "declare void @no_such_function()\ndefine void @f() {\n"
    text += " call void @no_such_function()\n ret void\n}"
    foreign = kernels.assembled(text)
    with pytest.raises(Error, match="cannot load object code"):
        loader(foreign, ("f",))


@needs_pages
def test_code_without_variables_only() -> None:
    text = "@counter = global i64 1\ndefine ptr @f() {\n ret ptr @counter\n}"
    with pytest.raises(Error, match=r"section \.data holds variables"):
        Pages(kernels.assembled(text), ("f",))


@needs_pages
def test_no_page_is_writable_and_executable() -> None:
    for number in range(4):
        (address,) = (kept := Pages(code_of(number), (f"k{number}",))).addresses
        for line in mappings():
            start, end = (int(bound, 16) for bound in line.split()[0].split("-"))
            if start <= address < end:
                assert line.split()[1] == "r-xp"
                break
        else:
            raise AssertionError(f"no mapping has {address:#x} of {kept}")


@needs_pages
def test_a_signal_handler_may_load_code_while_its_thread_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take, nested = cpu_pages._Arena.take, list[Any]()

    def interrupted(arena: Any, first: int, count: int) -> None:
        if not nested:
            nested.append(None)
            nested[0] = Pages(code_of(1), ("k1",))
        take(arena, first, count)

    monkeypatch.setattr(cpu_pages._Arena, "take", interrupted)
    code = Pages(code_of(2), ("k2",))
    assert nested[0].addresses != code.addresses


@needs_pages
def test_many_share_few_mappings_and_pages_are_given_back() -> None:
    before = len(mappings())
    kept = [Pages(code_of(number), (f"k{number}",)) for number in range(100)]
    assert len(mappings()) <= before + 4
    addresses = {code.addresses[0] for code in kept}
    assert len(addresses) == 100
    del kept
    for number in range(100):
        code = Pages(code_of(number), (f"k{number}",))
        assert code.addresses[0] in addresses


@needs_pages
def test_large_objects_have_mappings_of_their_own_which_go() -> None:
    pages = cpu_pages._ARENA + 1
    text = f"@big = private constant [{4096 * pages} x i8] zeroinitializer\n"
    text += "define i8 @f(i64 %i) {\n %at = getelementptr i8, ptr @big, i64 %i\n"
    text += " %x = load i8, ptr %at\n ret i8 %x\n}"
    code = kernels.assembled(text)
    arenas = len(cpu_pages._arenas)
    for _ in range(3):
        large = Pages(code, ("f",))
        read = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_int64)(large.addresses[0])
        assert read(4096 * pages - 1) == 0
        assert len(cpu_pages._arenas) == arenas + 1
        del large
    Pages(code_of(1), ("k1",))
    assert len(cpu_pages._arenas) == arenas


def test_code_goes_with_its_last_user() -> None:
    image = Image("cpu", code_of(77), (Phase("k77", 3),), ())
    loaded = len(cpu._loaded)
    first = Engine("cpu").load(image)
    second = Engine("cpu").load(image)
    assert len(cpu._loaded) == loaded + 1
    bound: Callable[[], object] | None = bind(first, (), 2)
    del first, second
    gc.collect()
    assert len(cpu._loaded) == loaded + 1
    assert bound is not None
    bound()
    del bound
    gc.collect()
    assert len(cpu._loaded) == loaded


@needs_pages
def test_threads_load_execute_and_forget_at_the_same_time() -> None:
    errors: list[BaseException] = []
    codes = [code_of(number) for number in range(10)]

    def work(seed: int) -> None:
        order = np.random.default_rng(seed).permutation(np.repeat(np.arange(10), 20))
        try:
            for number in order.tolist():
                image = Image("cpu", codes[number], (Phase(f"k{number}", 3),), ())
                launch(Engine("cpu").load(image), (), 2)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


GOOD = kernels.assembled(VARIED) if Pages.supported() else b""


@needs_pages
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_damaged_objects_are_placed_or_refused(data: st.DataObject) -> None:
    damaged = bytearray(GOOD[: data.draw(st.integers(0, len(GOOD)) | st.just(len(GOOD)))])
    for _ in range(data.draw(st.integers(0, 4)) if damaged else 0):
        at = data.draw(st.integers(0, len(damaged) - 1))
        value = data.draw(st.binary(min_size=1, max_size=8))
        damaged[at : at + len(value)] = value
    with suppress(Error):
        found = Object(bytes(damaged))
        assert len(found.at(1 << 20)) == found.size < 1 << 20


@needs_pages
def test_an_unknown_relocation_is_refused() -> None:
    code = bytearray(GOOD)
    record = struct.Struct("<QQq")
    for at in range(0, len(code) - record.size, 8):  # the first R_X86_64_PLT32 with addend -4
        _, info, addend = record.unpack_from(code, at)
        if info & 0xFFFFFFFF == 4 and addend == -4:
            struct.pack_into("<I", code, at + 8, 99)
            break
    with pytest.raises(Error, match="relocation 99 is unknown"):
        Pages(bytes(code), ("varied",))


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="others link with LLVM"
)
def test_this_system_uses_the_pages() -> None:
    assert cpu._loader() is Pages
