"""x86-64 rows, weakest first. Names are the ones that users know from oneDNN."""

from __future__ import annotations

from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.isa.row import Isa

_TRIPLE = "x86_64-unknown-linux-gnu"
_AVX2 = ("avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "popcnt")
_SMALL = Caches(l2=256 * 2**10)
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


def _avx512(name: str, extra: tuple[str, ...], dot: tuple[str, ...]) -> Isa:
    return Isa(
        name, "x86_64", _TRIPLE, "x86-64-v4", (*_AVX512, *extra),
        vector_bits=512, registers=32, fma=True, masked=True, masked_bytes=True,
        exponents=True, bfloat="bf16" in dot, lookup=True, dot=dot,
    )  # fmt: skip


ROWS = (
    Isa("sse41", "x86_64", _TRIPLE, "x86-64", ("sse4.1", "ssse3"),
        vector_bits=128, registers=16, fma=False, masked=False, half=False, caches=_SMALL),
    Isa("avx2", "x86_64", _TRIPLE, "x86-64-v3", _AVX2,
        vector_bits=256, registers=16, fma=True, masked=True, caches=_SMALL),
    _avx512("avx512_core", (), ()),
    _avx512("avx512_core_vnni", ("avx512vnni",), ("u8s8",)),
    _avx512("avx512_core_bf16", ("avx512vnni", "avx512bf16"), ("u8s8", "bf16")),
)  # fmt: skip
