"""aarch64 rows."""

from __future__ import annotations

from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.isa.row import Instruction, Isa

ROWS = (
    Isa("neon", "aarch64", "aarch64-unknown-linux-gnu", "generic", ("neon",),
        vector_bits=128, registers=32, fma=True, masked=False,
        instructions=(Instruction("pick bytes", "u8", 16, "llvm.aarch64.neon.tbl1.v16i8"),),
        caches=Caches(l2=512 * 2**10, near=512 * 2**10)),
)  # fmt: skip
