"""The features of x86-64 processors as Linux tells them, without LLVM."""

from __future__ import annotations

import platform
import sys
from functools import cache
from pathlib import Path

_NAMES = {
    "abm": "lzcnt",
    "amx_bf16": "amx-bf16",
    "amx_complex": "amx-complex",
    "amx_fp16": "amx-fp16",
    "amx_int8": "amx-int8",
    "amx_tile": "amx-tile",
    "avx_vnni": "avxvnni",
    "bmi1": "bmi",
    "pni": "sse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
}
"""What Linux calls features that LLVM calls otherwise; those of AVX-512 differ by an underscore."""


@cache
def features_by_system() -> frozenset[str] | None:
    """The features that this machine has and that Linux has switched on, by LLVM's names, as far as
    kernels ask for them; None where the system does not tell."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    rows = [line.partition(":")[2].split() for line in text.splitlines() if line[:5] == "flags"]
    if not rows:
        return None
    return frozenset(map(_named, set(rows[0]).intersection(*rows)))


def _named(flag: str) -> str:
    return _NAMES.get(flag, flag.replace("_", "") if flag.startswith("avx512") else flag)
