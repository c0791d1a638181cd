"""Amounts with units, as people read them."""

from __future__ import annotations


def size(nbytes: float) -> str:
    """Bytes in a handy unit."""
    return scaled(nbytes, "B")


def scaled(number: float, unit: str) -> str:
    """A number with the prefix that leaves one to three digits before the point."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(number) < 1000 or prefix == "T":
            return f"{number:.3g} {prefix}{unit}"
        number /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    """A time in a handy unit."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
