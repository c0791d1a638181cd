"""Conversions stand alone on every instruction set: no library function is left to be called."""

from __future__ import annotations

import re

import pytest

from dnnl import DataType, Engine, MemoryDesc, Primitive, PrimitiveDesc, ReorderDesc, config
from dnnl.codegen import isa

TYPES = [data_type for data_type in DataType if data_type.bits]


@pytest.mark.parametrize("row", isa.ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_no_conversion_calls(data_type: DataType, row: isa.Isa) -> None:
    narrow, wide, half = (MemoryDesc((3, 70), dt, "ab") for dt in (data_type, "f32", "bf16"))
    descs = [ReorderDesc(narrow, wide), ReorderDesc(wide, narrow)]
    descs += [ReorderDesc(narrow, half), ReorderDesc(half, narrow)]
    if data_type in (DataType.s32, DataType.f64):
        descs += [ReorderDesc(narrow, narrow.with_data_type(dt)) for dt in ("s32", "f64")]
    for desc in descs:
        with config.override("max_cpu_isa", row.name):
            pd = PrimitiveDesc(desc, Engine("null"))
        assert pd.isa == row
        text = Primitive(pd).asm()
        calls = [line for line in text.splitlines() if re.match(r"\s+(call|callq|bl|blr)\s", line)]
        assert calls == []


def test_rows_without_half_precision_convert_by_integers() -> None:
    half, single = MemoryDesc((64,), "f16"), MemoryDesc((64,), "f32")
    for name, native in (("avx2", True), ("sse41", False)):
        with config.override("max_cpu_isa", name):
            pd = PrimitiveDesc(ReorderDesc(half, single), Engine("null"))
        assert ("vcvtph2ps" in Primitive(pd).asm()) is native


@pytest.mark.parametrize(
    ("types", "instruction", "first"),
    [
        (("f32", "bf16"), "vcvtne2ps2bf16", "avx512_core_bf16"),
        (("s4", "bf16"), "vpermw", "avx512_core"),
        (("f4_e2m1", "f32"), "vpermd", "avx512_core"),
    ],
)
def test_the_shortest_way_is_taken(types: tuple[str, str], instruction: str, first: str) -> None:
    """From the row on that has the instruction."""
    src, dst = (MemoryDesc((256,), data_type) for data_type in types)
    names = [row.name for row in isa.ROWS if row.arch == "x86_64"]
    for name in names:
        with config.override("max_cpu_isa", name):
            text = Primitive(PrimitiveDesc(ReorderDesc(src, dst), Engine("null"))).asm()
        assert (instruction in text) is (names.index(name) >= names.index(first))
