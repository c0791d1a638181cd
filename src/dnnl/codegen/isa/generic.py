"""The row for processors that LLVM supports and no other row describes."""

from __future__ import annotations

from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.isa.row import Isa

ROWS = (
    Isa("generic", "any", "", "", (),
        vector_bits=128, registers=16, fma=False, masked=False, rounding=False, half=False,
        caches=Caches(l2=512 * 2**10, near=512 * 2**10)),
)  # fmt: skip
