"""The rows of x86-64, weakest first, under oneDNN's names."""

from __future__ import annotations

from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.isa.row import FLOATS, INTEGERS, Dot, Instruction, Isa, Matrix

_TRIPLE = "x86_64-unknown-linux-gnu"
_AVX2 = ("avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "popcnt")
_SMALL = Caches(l2=256 * 2**10, near=256 * 2**10)
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


def _s16_pairs(name: str) -> Dot:
    """Pairs of 16-bit integers, summed in 32 bits. Exact unless all four operands are -2**15."""
    return Dot("s16", "s16", "s32", 2, name, add=False)


def _bytes(bits: int) -> Dot:
    """Groups of four bytes; sums wrap and do not saturate."""
    return Dot("u8", "s8", "s32", 4, f"llvm.x86.avx512.vpdpbusd.{bits}")


def _to_bytes(lanes: int, rounding: str, packing: str) -> tuple[Instruction, ...]:
    """The instructions that convert registers of ``lanes`` f32 to bytes."""
    packs = [("to s16", "s32", lanes, "packssdw")]
    packs += [("to s8", "s16", 2 * lanes, "packsswb"), ("to u8", "s16", 2 * lanes, "packuswb")]
    return (
        Instruction("to integers", "f32", lanes, f"llvm.x86.{rounding}"),
        *(
            Instruction(operation, element, count, f"llvm.x86.{packing.format(name)}")
            for operation, element, count, name in packs
        ),
    )


_BYTES = _bytes(512)
_BFLOATS = Dot("bf16", "bf16", "f32", 2, "llvm.x86.avx512bf16.dpbf16ps.512")
_TILES = (
    Dot("u8", "s8", "s32", 4, "llvm.x86.tdpbusd"),
    Dot("s8", "s8", "s32", 4, "llvm.x86.tdpbssd"),
    Dot("s8", "u8", "s32", 4, "llvm.x86.tdpbsud"),
    Dot("u8", "u8", "s32", 4, "llvm.x86.tdpbuud"),
    Dot("bf16", "bf16", "f32", 2, "llvm.x86.tdpbf16ps"),
)
_PAIRS = tuple(
    Instruction("add pairs of bytes", "u8", lanes, f"llvm.x86.{name}")
    for lanes, name in (
        (16, "ssse3.pmadd.ub.sw.128"), (32, "avx2.pmadd.ub.sw"), (64, "avx512.pmaddubs.w.512"),
    )
)  # fmt: skip
_PICK = Instruction("pick bytes", "u8", 16, "llvm.x86.ssse3.pshuf.b.128")
_EXPAND = (("avx512vbmi2", Instruction("expand", "u8", 64, "llvm.x86.avx512.mask.expand.v64i8")),)
_EXPONENTS = tuple(
    Instruction(operation, "f32", bits // 32, f"llvm.x86.avx512.mask.{name}.ps.{bits}")
    for operation, name in (("scale", "scalef"), ("mantissa", "getmant"), ("exponent", "getexp"))
    for bits in (128, 256, 512)
)
_LOOKUP = (
    Instruction("pick", "f32", 16, "llvm.x86.avx512.permvar.sf.512"),
    Instruction("pick", "i16", 32, "llvm.x86.avx512.permvar.hi.512"),
)
_TO_BYTES_128 = _to_bytes(4, "sse2.cvtps2dq", "sse2.{}.128")
_TO_BYTES_256 = (*_TO_BYTES_128, *_to_bytes(8, "avx.cvt.ps2dq.256", "avx2.{}"))
_TO_BYTES_512 = (*_TO_BYTES_256, *_to_bytes(16, "avx512.mask.cvtps2dq.512", "avx512.{}.512"))
_PERMUTE_256 = (Instruction("permute", "f32", 8, "llvm.x86.avx2.permps"),)
_PERMUTE = (
    *_PERMUTE_256,
    Instruction("permute", "f32", 16, "llvm.x86.avx512.permvar.sf.512"),
    Instruction("permute two", "f32", 8, "llvm.x86.avx512.vpermi2var.ps.256"),
    Instruction("permute two", "f32", 16, "llvm.x86.avx512.vpermi2var.ps.512"),
)
_NARROW = (
    Instruction("narrow to bf16", "f32", 16, "llvm.x86.avx512bf16.cvtneps2bf16.512"),
    Instruction("narrow to bf16", "f32", 32, "llvm.x86.avx512bf16.cvtne2ps2bf16.512"),
    Instruction("classify", "f32", 16, "llvm.x86.avx512.fpclass.ps.512"),
)


def _avx2(name: str, extra: tuple[str, ...] = (), dots: tuple[Dot, ...] = ()) -> Isa:
    return Isa(
        name,
        "x86_64",
        _TRIPLE,
        "x86-64-v3",
        (*_AVX2, *extra),
        vector_bits=256,
        registers=16,
        fma=True,
        masked=True,
        caches=_SMALL,
        instructions=(*_TO_BYTES_256, *_PAIRS, *_PERMUTE_256, _PICK),
        dots=(*dots, FLOATS, _s16_pairs("llvm.x86.avx2.pmadd.wd"), INTEGERS),
    )


def _avx512(
    name: str,
    extra: tuple[str, ...] = (),
    dots: tuple[Dot, ...] = (),
    instructions: tuple[Instruction, ...] = (),
    matrix: Matrix | None = None,
) -> Isa:
    return Isa(
        name,
        "x86_64",
        _TRIPLE,
        "x86-64-v4",
        (*_AVX512, *extra),
        vector_bits=512,
        registers=32,
        fma=True,
        masked=True,
        masked_bytes=True,
        merging="v",
        instructions=(
            *_EXPONENTS,
            *_LOOKUP,
            *_PERMUTE,
            *_TO_BYTES_512,
            *_PAIRS,
            _PICK,
            *instructions,
        ),
        dots=(*dots, FLOATS, _s16_pairs("llvm.x86.avx512.pmaddw.d.512"), INTEGERS),
        matrix=matrix,
        extra=_EXPAND if "avx512vnni" in extra else (),
    )


_HALVES = ("avx512vnni", "avx512bf16", "avx512fp16")
_AMX = (*_HALVES, "amx-tile", "amx-int8", "amx-bf16")

ROWS = (
    Isa("sse41", "x86_64", _TRIPLE, "x86-64", ("sse4.1", "ssse3"),
        vector_bits=128, registers=16, fma=False, masked=False, half=False, caches=_SMALL,
        instructions=(*_TO_BYTES_128, *_PAIRS, _PICK),
        dots=(FLOATS, _s16_pairs("llvm.x86.sse2.pmadd.wd"), INTEGERS)),
    _avx2("avx2"),
    _avx2("avx2_vnni", ("avxvnni",), (_bytes(256),)),
    _avx512("avx512_core"),
    _avx512("avx512_core_vnni", ("avx512vnni",), (_BYTES,)),
    _avx512("avx512_core_bf16", ("avx512vnni", "avx512bf16"), (_BYTES, _BFLOATS), _NARROW),
    # Cores with f16 arithmetic need the time of four f32 multiply-adds for a bf16 dot, which is
    # only twice the products. bf16 is up-converted to f32 there.
    _avx512("avx512_core_fp16", _HALVES, (_BYTES,), _NARROW),
    # Tiles multiply pairs of bf16, so vectors, which do the remainders, take pairs as well.
    _avx512("avx512_core_amx", _AMX, (_BYTES, _BFLOATS), _NARROW, Matrix(_TILES)),
)  # fmt: skip

#: The other levels of oneDNN, and the strongest row that each includes.
WITHOUT_ROW = {
    "avx": "sse41",
    "avx2_vnni_2": "avx2_vnni",
    "avx512_core_amx_fp16": "avx512_core_amx",
    "avx10_1_512": "avx512_core_fp16",
    "avx10_1_512_amx": "avx512_core_amx",
    "avx10_1_512_amx_fp16": "avx512_core_amx",
    "avx10_2": "avx512_core_fp16",
    "avx10_2_amx_2": "avx512_core_amx",
    "avx10_2_ace": "avx512_core_fp16",
}
