"""Tiles are used only where the system lets this process use them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dnnl import Engine
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.engines import cpu_permission

AMX = frozenset({"amx-tile", "amx-int8", "amx-bf16"})
OTHERS = frozenset({"avx512f", "avx512fp16"})
TILES = select_isa(Engine("cpu")).matrix is not None

REFUSED = """
import ctypes, sys
import numpy as np

class Stack(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

if sys.argv[1] == "small":
    room = ctypes.create_string_buffer(4096)  # less than a frame that has tiles in it
    stack = Stack(ctypes.addressof(room), 0, 4096)
    assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0

import dnnl
from dnnl.primitives.primitive_desc import select_isa

engine = dnnl.Engine("cpu")
types = ((40, 64), "u8"), ((64, 32), "s8"), ((40, 32), "s32")
descs = [dnnl.MemoryDesc(*each) for each in types]
pd = dnnl.PrimitiveDesc(dnnl.MatmulDesc(*descs), engine)
src, weights, dst = (dnnl.Memory(desc, engine) for desc in descs)
src.data[:], weights.data[:] = 255, 128
dnnl.Primitive(pd).execute(dnnl.Stream(engine, 2), {1: src, 33: weights, 17: dst})
assert (dst.data.view(np.int32) == 255 * -128 * 64).all()
print(select_isa(engine).name, *sorted(f for f in engine.features.flags if f.startswith("amx-")))
"""


def test_nothing_is_asked_for_without_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_permission, "_request_tiles", lambda: pytest.fail("asked"))
    assert cpu_permission.permitted(OTHERS) == OTHERS


@pytest.mark.parametrize("answer", [True, False])
def test_what_is_refused_is_no_feature(answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_permission, "_request_tiles", lambda: answer)
    assert cpu_permission.permitted(OTHERS | AMX) == OTHERS | (AMX if answer else set())


@pytest.mark.skipif(not TILES, reason="the machine has no matrix unit")
def test_a_process_that_is_refused_takes_the_next_row(tmp_path: Path) -> None:
    """Linux refuses where a stack for signals is too small. Both share what is kept on disk."""
    found = {}
    for stack in ("large", "small"):
        run = subprocess.run(
            [sys.executable, "-c", REFUSED, stack],
            capture_output=True,
            text=True,
            check=False,
            env={"DNNL_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        )
        assert run.returncode == 0, run.stderr
        found[stack] = run.stdout.split()
    assert found["large"] == ["avx512_core_amx", *sorted(AMX)]
    assert found["small"] == ["avx512_core_fp16"]
