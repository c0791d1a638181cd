"""Every kernel compiles, is the same each time, and is named by rule."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import dnnl
from dnnl import config
from dnnl.codegen import isa
from dnnl.codegen.compile import jit
from tests.codegen.cases import CASES, plain

SYMBOL = re.compile(
    r"(?P<primitive>[a-z][a-z0-9]*(_[a-z0-9]+)*)"
    r"__(?P<types>[a-z0-9]+(_[a-z0-9]+)*)"
    r"__(?P<rows>\d+)x(?P<columns>\d+)"
    r"__(?P<isa>[a-z0-9_]+)"
)


def description(name: str, engine: dnnl.Engine) -> dnnl.PrimitiveDesc:
    case = CASES[name]
    return dnnl.PrimitiveDesc(case.desc, engine, case.attr)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        pytest.param(name, row, id=f"{name}-{row.name}")
        for place, name in enumerate(CASES)
        for row in isa.ROWS[place % 3 :: 3]
    ],
)
def test_compiles_without_calls_and_spills(name: str, row: isa.Isa) -> None:
    """The assembly of every kernel stands alone, and register tiles stay in registers: for a third
    of the instruction sets each, in turn."""
    with config.override("max_cpu_isa", row.name):
        pd = description(name, dnnl.Engine("null"))
    assert pd.isa == row
    text = dnnl.Primitive(pd).asm()
    calls = [line for line in text.splitlines() if re.match(r"\s+(call|callq|bl|blr)\s", line)]
    assert [line for line in calls if "mem" not in line] == []
    if pd.impl_info.startswith("brgemm") and row.registers == 32:
        assert "Spill" not in text


@pytest.mark.parametrize("name", CASES)
def test_symbols_follow_the_grammar(name: str) -> None:
    pd = description(name, dnnl.Engine("cpu"))
    phases = pd.plan.recipe.kernel().phases
    assert len({phase.symbol for phase in phases}) == len(phases)
    name = "|".join(sorted(map(str, dnnl.DataType), key=len, reverse=True))
    for phase in phases:
        match = SYMBOL.fullmatch(phase.symbol)
        assert match, phase.symbol
        assert match["isa"] == pd.isa.name
        assert re.fullmatch(f"(?:{name})(?:_(?:{name}))*", match["types"])
        assert int(match["columns"]) % pd.isa.lanes == 0 or int(match["rows"]) <= pd.isa.lanes


@pytest.mark.parametrize("name", CASES)
def test_generation_is_deterministic(name: str) -> None:
    pd = description(name, dnnl.Engine("cpu"))
    first, second = (str(pd.plan.recipe.kernel().module) for _ in range(2))
    assert first == second


def test_another_process_generates_the_same_key_and_code() -> None:
    """What the disk cache rests on: hash randomisation and order of work change nothing."""
    program = (
        "import sys, hashlib, dnnl; sys.path.insert(0, '.');"
        "from tests.codegen.cases import CASES;"
        "from dnnl.codegen.compile import jit;"
        "r = dnnl.PrimitiveDesc(CASES['convolution'].desc, dnnl.Engine('cpu')).plan.recipe;"
        "print(jit.key(r), hashlib.sha256(str(r.kernel().module).encode()).hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    recipe = description("convolution", dnnl.Engine("cpu")).plan.recipe
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
