"""The table of instruction sets, and the choice of a row for a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

from dnnl import config
from dnnl.codegen.isa import aarch64, generic, nvptx, spirv, x86
from dnnl.codegen.isa import caches as behaviour
from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.isa.row import Dot, Instruction, Isa
from dnnl.errors import InvalidArguments
from dnnl.types.kinds import nearest

__all__ = ["DEVICES", "GENERIC", "ROWS", "Dot", "Instruction", "Isa", "available", "find", "select"]

GENERIC = generic.ROWS[0]
ROWS = (*generic.ROWS, *aarch64.ROWS, *x86.ROWS)
DEVICES = (*nvptx.ROWS, *spirv.ROWS)


def find(name: str, argument: str = "isa") -> Isa:
    """The row of processors called ``name``, in any case. Raises InvalidArguments with the nearest
    name."""
    lower, names = name.lower(), [row.name for row in ROWS]
    if lower in names:
        return ROWS[names.index(lower)]
    if lower in x86.WITHOUT_ROW:
        rule = "oneDNN knows this instruction set, dnnl has no kernels of its own for it"
        hint = f"the next lower one is {x86.WITHOUT_ROW[lower]!r}"
        raise InvalidArguments(argument, name, rule, hint)
    raise InvalidArguments(argument, name, "is not a known instruction set", nearest(lower, names))


def check_limit(source: str, name: str) -> None:
    """Raise InvalidArguments unless ``name`` is a value of ``max_cpu_isa``."""
    if name != "default":
        find(name, source)


def available(arch: str, flags: Iterable[str], universal: bool = False) -> tuple[Isa, ...]:
    """The rows that a machine of ``arch`` with the LLVM features ``flags`` supports, weakest first;
    all rows of processors if it is ``universal``."""
    if universal:
        return ROWS
    have = frozenset(flags)
    rows = [row for row in DEVICES if row.arch == arch]
    rows = rows or [row for row in ROWS if row.arch in (arch, "any")]
    return tuple(row for row in rows if have.issuperset(row.features))


def select(
    arch: str,
    cpu: str,
    flags: Iterable[str],
    universal: bool = False,
    caches: tuple[int, int, int, int] | None = None,
) -> Isa:
    """The strongest row that a machine supports, limited by ``DNNL_MAX_CPU_ISA`` for processors.

    ``caches`` are the sizes of the first-level cache in bytes, its associativity, and the sizes of
    the second and third levels in bytes, if known. Other cache behaviour is looked up for the
    processor ``cpu``.
    """
    limit, behave = config.get("max_cpu_isa"), behaviour.of
    return _select(arch, cpu, frozenset(flags), universal, caches, limit, behave)


@lru_cache(maxsize=64)
def _select(
    arch: str,
    cpu: str,
    flags: frozenset[str],
    universal: bool,
    caches: tuple[int, int, int, int] | None,
    limit: str,
    behave: Callable[[str, Caches], Caches],
) -> Isa:
    row = _strongest(arch, flags, universal, limit).with_extra(flags)
    sized = row.caches
    if caches is not None:
        sized = sized.of_sizes(*caches)
    return replace(row, caches=behave(cpu, sized))


def _strongest(arch: str, flags: frozenset[str], universal: bool, limit: str) -> Isa:
    rows = available(arch, flags, universal)
    if limit == "default" or rows[-1].device is not None:
        return rows[-1]
    bound = find(limit)
    below = [row for row in rows if ROWS.index(row) <= ROWS.index(bound)]
    return below[-1]
