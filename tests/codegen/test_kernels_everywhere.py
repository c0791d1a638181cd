"""Every kernel compiles for every instruction set, is the same each time, and is named by rule."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import dnnl
from dnnl import config
from dnnl.codegen import isa, jit
from dnnl.primitives.desc import Desc

SYMBOL = re.compile(
    r"(?P<primitive>[a-z][a-z0-9]*(_[a-z0-9]+)*)"
    r"__(?P<types>[a-z0-9]+(_[a-z0-9]+)*)"
    r"__(?P<rows>\d+)x(?P<columns>\d+)"
    r"__(?P<isa>[a-z0-9_]+)"
)


def any_desc(*dims: int) -> dnnl.MemoryDesc:
    return dnnl.MemoryDesc(dims, "f32", "any")


def plain(*dims: int) -> dnnl.MemoryDesc:
    return dnnl.MemoryDesc(dims, "f32")


DESCS: dict[str, Desc] = {
    "reorder": dnnl.ReorderDesc(
        dnnl.MemoryDesc((2, 19, 5, 7), "f32", "abcd"),
        dnnl.MemoryDesc((2, 19, 5, 7), "f32", "aBcd16b"),
    ),
    "transposition": dnnl.ReorderDesc(
        dnnl.MemoryDesc((2, 32, 8, 8), "f32", "abcd"), dnnl.MemoryDesc((2, 32, 8, 8), "f32", "acdb")
    ),
    "weights with sums": dnnl.ReorderDesc(
        dnnl.MemoryDesc((24, 20, 3, 3), "f32"),
        dnnl.MemoryDesc(
            (24, 20, 3, 3), "s8", "OIhw4i16o4i", compensation=dnnl.Compensation(1, 1, 0.5)
        ),
    ),
    "eltwise": dnnl.EltwiseDesc.forward(
        "forward_inference", "eltwise_gelu_erf", plain(3, 50), plain(3, 50)
    ),
    "binary": dnnl.BinaryDesc("binary_add", plain(3, 50), plain(3, 1), plain(3, 50)),
    "softmax": dnnl.SoftmaxDesc.forward(
        "forward_inference", "softmax_accurate", plain(4, 50), plain(4, 50), 1
    ),
    "pooling": dnnl.PoolingDesc.forward(
        "forward_inference", "pooling_max", plain(1, 16, 9, 9), any_desc(1, 16, 5, 5),
        (2, 2), (3, 3), (1, 1), (1, 1),
    ),
    "convolution": dnnl.ConvolutionDesc.forward(
        "forward_inference", "convolution_direct", any_desc(1, 32, 14, 14),
        any_desc(48, 32, 3, 3), any_desc(1, 48, 14, 14), (1, 1), (1, 1), bias_desc=any_desc(48),
    ),
    "plain convolution": dnnl.ConvolutionDesc.forward(
        "forward_inference", "convolution_direct", plain(1, 3, 20, 20),
        plain(20, 3, 5, 5), plain(1, 20, 8, 8), (2, 2), (0, 0),
    ),
    "depthwise": dnnl.ConvolutionDesc.forward(
        "forward_inference", "convolution_direct", any_desc(1, 24, 9, 9),
        any_desc(24, 1, 1, 3, 3), any_desc(1, 24, 9, 9), (1, 1), (1, 1),
    ),
    "matmul": dnnl.MatmulDesc(any_desc(2, 30, 40), any_desc(1, 40, 50), any_desc(2, 30, 50)),
    "inner product": dnnl.InnerProductDesc.forward(
        "forward_inference", any_desc(4, 8, 3, 3), any_desc(10, 8, 3, 3), any_desc(4, 10)
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", isa.ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", DESCS)
def test_compiles_without_calls_and_spills(name: str, row: isa.Isa) -> None:
    """The assembly of every kernel stands alone, and register tiles stay in registers."""
    with config.override("max_cpu_isa", row.name):
        pd = dnnl.PrimitiveDesc(DESCS[name], dnnl.Engine("null"))
    assert pd.isa is row
    text = dnnl.Primitive(pd).asm()
    calls = [line for line in text.splitlines() if re.match(r"\s+(call|callq|bl|blr)\s", line)]
    assert [line for line in calls if "mem" not in line] == []
    if pd.impl_info.startswith("brgemm") and row.registers == 32:
        assert "Spill" not in text


@pytest.mark.parametrize("name", DESCS)
def test_symbols_follow_the_grammar(name: str) -> None:
    pd = dnnl.PrimitiveDesc(DESCS[name], dnnl.Engine("cpu"))
    phases = pd.plan.recipe.kernel().phases
    assert len({phase.symbol for phase in phases}) == len(phases)
    for phase in phases:
        match = SYMBOL.fullmatch(phase.symbol)
        assert match, phase.symbol
        assert match["isa"] == pd.isa.name
        assert set(match["types"].split("_")) <= {"f32", "s8", "s32"}
        assert int(match["columns"]) % pd.isa.lanes == 0 or int(match["rows"]) <= pd.isa.lanes


@pytest.mark.parametrize("name", DESCS)
def test_generation_is_deterministic(name: str) -> None:
    pd = dnnl.PrimitiveDesc(DESCS[name], dnnl.Engine("cpu"))
    first, second = (str(pd.plan.recipe.kernel().module) for _ in range(2))
    assert first == second


def test_another_process_generates_the_same_key_and_code() -> None:
    """What the disk cache rests on: hash randomisation and order of work change nothing."""
    program = (
        "import sys, hashlib, dnnl; sys.path.insert(0, '.');"
        "from tests.codegen.test_kernels_everywhere import DESCS;"
        "from dnnl.codegen import jit;"
        "r = dnnl.PrimitiveDesc(DESCS['convolution'], dnnl.Engine('cpu')).plan.recipe;"
        "print(jit.key(r), hashlib.sha256(str(r.kernel().module).encode()).hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(outputs) == 1
    recipe = dnnl.PrimitiveDesc(DESCS["convolution"], dnnl.Engine("cpu")).plan.recipe
    assert outputs.pop().split()[0] == jit.key(recipe)


def test_null_engine_runs_nothing() -> None:
    engine = dnnl.Engine("null")
    md = plain(3, 50)
    desc = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", md, md)
    with config.override("max_cpu_isa", "avx2"):
        primitive = dnnl.Primitive(dnnl.PrimitiveDesc(desc, engine))
    src, dst = dnnl.Memory(md, engine), dnnl.Memory(md, engine)
    dst.data[:] = 7
    primitive.execute(dnnl.Stream(engine), {dnnl.Arg.SRC: src, dnnl.Arg.DST: dst})
    assert (dst.data == 7).all()
