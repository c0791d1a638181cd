"""The choice of a row for a machine, and of what its caches are like."""

from __future__ import annotations

import pytest

from dnnl import MemoryDesc, config
from dnnl.codegen import isa
from dnnl.codegen.isa import Isa, x86
from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.nest import Nest
from dnnl.errors import InvalidArguments

CASCADE_LAKE = "cascadelake"


def select(cpu: str, *without: str) -> Isa:
    """The row for a machine with all features of x86-64 but these."""
    flags = {flag for row in isa.ROWS if row.arch == "x86_64" for flag in row.features}
    return isa.select("x86_64", cpu, flags - set(without))


def test_the_strongest_row_is_taken() -> None:
    assert select("sapphirerapids").name == "avx512_core_amx"
    assert select("sapphirerapids", "amx-tile").name == "avx512_core_fp16"
    assert select("znver5", "avx512fp16").name == "avx512_core_bf16"
    assert select(CASCADE_LAKE, "avx512fp16", "avx512bf16").name == "avx512_core_vnni"
    assert select("alderlake", "avx512f").name == "avx2_vnni"
    assert select("haswell", "avx512f", "avxvnni").name == "avx2"


def test_processors_that_were_measured_have_caches_of_their_own() -> None:
    assert select(CASCADE_LAKE).caches != Caches()
    assert select("skylake-avx512").caches == select(CASCADE_LAKE).caches
    assert select("znver5", "avx512fp16") == isa.find("avx512_core_bf16")


def test_what_some_processors_of_a_level_have_besides() -> None:
    row = isa.find("avx512_core_vnni")
    flags = (*row.features, "avx512vbmi2")
    with_it = isa.select("x86_64", "icelake-server", flags)
    assert with_it.name == row.name
    assert with_it.features == flags
    assert with_it.instruction("expand", "u8", 64)
    assert isa.select("x86_64", CASCADE_LAKE, row.features).instruction("expand", "u8", 64) is None
    with config.override("max_cpu_isa", "avx2"):
        assert isa.select("x86_64", "icelake-server", flags).features == isa.find("avx2").features


@pytest.mark.parametrize("name", ["sse41", "avx2", "avx512_core"])
def test_a_limit_to_the_instructions_leaves_the_caches(name: str) -> None:
    with config.override("max_cpu_isa", name):
        assert select(CASCADE_LAKE).name == name
        assert select(CASCADE_LAKE).caches.prefetches_all_rows
        assert select("znver5") == isa.find(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("avx1024", "not a known instruction set; did you mean 'avx"),
        ("AVX2_VNNI_2", "oneDNN knows .*the next lower one is 'avx2_vnni'"),
        ("avx10_1_512_amx", "oneDNN knows .*the next lower one is 'avx512_core_amx'"),
    ],
)
def test_a_limit_that_is_none_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, name: str, hint: str
) -> None:
    with pytest.raises(InvalidArguments, match=f"max_cpu_isa = '{name.lower()}': .*{hint}"):
        config.set("max_cpu_isa", name)
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", name)
    with pytest.raises(InvalidArguments, match=f"DNNL_MAX_CPU_ISA = .*{hint}"):
        select(CASCADE_LAKE)
    config.set("max_cpu_isa", "Default")
    assert select(CASCADE_LAKE).name
    config.set("max_cpu_isa", None)


def test_levels_without_a_row_name_one_that_there_is() -> None:
    rows = {row.name for row in isa.ROWS}
    assert rows.issuperset(x86.WITHOUT_ROW.values())
    assert rows.isdisjoint(x86.WITHOUT_ROW)


@pytest.mark.parametrize("row", isa.DEVICES, ids=lambda row: row.name)
def test_code_for_devices_does_not_prefetch(row: Isa) -> None:
    assert isa.select(row.arch, "", row.features) == row
    assert not row.caches.prefetches
    assert not (row.many_items and row.caches.non_temporal)


def test_sizes_of_caches_are_those_of_the_machine() -> None:
    flags = {flag for row in isa.ROWS for flag in row.features}
    row = isa.select("x86_64", CASCADE_LAKE, flags, caches=(48 * 2**10, 12, 2**21, 36 * 2**20))
    assert (row.caches.l1, row.caches.l1_ways, row.caches.l2) == (48 * 2**10, 12, 2**21)
    assert row.caches.prefetches_all_rows


@pytest.mark.parametrize(("l3", "streamed"), [(0, 16), (32, 16), (36, 16), (105, 16), (480, 30)])
def test_a_large_last_level_keeps_more(l3: int, streamed: int) -> None:
    assert Caches().of_sizes(2**15, 8, 2**20, l3 * 2**20).streamed == streamed * 2**20


@pytest.mark.parametrize(
    ("cpu", "mib", "streamed"),
    [
        ("znver4", 24, False),
        ("znver4", 40, True),
        ("sapphirerapids", 24, True),
        (CASCADE_LAKE, 24, False),
        (CASCADE_LAKE, 400, False),
    ],
)
def test_what_the_last_level_keeps_is_not_written_past_it(
    cpu: str, mib: int, *, streamed: bool
) -> None:
    """Two tensors of so many MiB together, and a last level of 32 MiB."""
    flags = {flag for row in isa.ROWS for flag in row.features}
    row = isa.select("x86_64", cpu, flags, caches=(2**15, 8, 2**20, 32 * 2**20))
    axis = Axis(mib * 2**17, "n")
    desc = MemoryDesc((axis.extent,), "f32")
    src, dst = (Operand(slot, desc, (Affine.of(axis),)) for slot in range(2))
    nest = Nest((axis,), (), (src,), (dst,), lambda point: point.store(dst, point.load(src)))
    assert bool(nest.planned(row).streamed) == streamed
