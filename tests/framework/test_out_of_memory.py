"""What does not fit into memory is said to, wherever it is met."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from dnnl import Memory, MemoryDesc, OutOfMemory
from dnnl.runtime.engine import first_cpu
from dnnl.types.dtype import DataType
from tests.framework.models import make_model, node

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of addresses are Linux's")

# Loads, compiles and runs a model in a process that may have so many MiB more than it has then.
PROGRAM = """
import resource, sys
import numpy as np
import dnnl
import dnnl.framework.building, dnnl.framework.model
path, step, extra = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20
def limit():
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra,) * 2)
if step == "load":
    limit()
try:
    model = dnnl.load(path)
    if step == "compile":
        limit()
    model.compile(num_threads=1)
except dnnl.OutOfMemory as error:
    print("OutOfMemory", error)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A product with weights of 64 MiB."""
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    weights = {"w": np.ones((2048, 8192), np.float32)}
    proto = make_model([node("MatMul", ["x", "w"], "y")], {"x": (1, 2048)}, ["y"], weights)
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize(("step", "extra"), [("load", 32), ("load", 100), ("compile", 32)])
def test_models(model: Path, step: str, extra: int) -> None:
    command = [sys.executable, "-c", PROGRAM, str(model), step, str(extra)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout.startswith("OutOfMemory"), done.stderr


def test_memories() -> None:
    huge = np.broadcast_to(np.zeros(1, np.float32), (2**25, 2**25))
    with pytest.raises(OutOfMemory):
        Memory(MemoryDesc(huge.shape, DataType.f32), first_cpu())
    memory = Memory.from_numpy(huge)
    with pytest.raises(OutOfMemory):
        memory.reorder_to(MemoryDesc(huge.shape, "f32", "ba"))
    with pytest.raises(OutOfMemory):
        np.array(memory, np.float64)
