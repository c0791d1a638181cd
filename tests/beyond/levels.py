"""Every row of x86-64, on a processor that lacks some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, wraps
from inspect import signature
from typing import Any

import pytest
from llvmlite import binding as llvm
from llvmlite import ir

from dnnl.codegen import isa
from dnnl.codegen.compile import jit
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import BF16, I1, I16, I32, Emitter, i64
from dnnl.codegen.isa import Isa
from dnnl.primitives import primitive
from dnnl.runtime.engine import Engine
from tests.beyond import instructions, unit

_BODIES = {**instructions.BODIES, **unit.BODIES}
_MASKED = ("llvm.masked.load.", "llvm.masked.store.")
_WIDEST = 256  # bits of registers
_NATIVE = Engine("cpu").features
_ROWS = [row for row in isa.ROWS if row.arch == "x86_64"]
_EXTRA = frozenset(feature for row in _ROWS for feature, _ in row.extra)
_FLAGS = _EXTRA.union(*(row.features for row in _ROWS))


def lacks(row: Isa) -> bool:
    """Whether the processor does not have all of a row."""
    return row.arch == "x86_64" and not _NATIVE.flags.issuperset(row.features)


LACKING = [row.name for row in isa.ROWS if lacks(row)]
"""The rows of x86-64 that are beyond the processor."""


@lru_cache
def _instead(row: Isa) -> llvm.TargetMachine:
    """What compiles code of a row that the processor lacks."""
    strongest = [own for own in isa.ROWS if own.arch == "x86_64" and not lacks(own)][-1]
    return _machine(replace(row, cpu=strongest.cpu, features=strongest.features))


_machine, _intrinsic, _stays = jit._target_machine, Emitter.intrinsic, vector._in_register


def _of_name(e: Emitter, name: str, result: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
    """`Emitter.intrinsic`."""
    if lacks(e.isa) and name.startswith(_MASKED):
        return _in_halves(e, name, result, args)
    if not lacks(e.isa) or name not in _BODIES:
        return _intrinsic(e, name, result, args)
    given = [_plain(e, arg) for arg in args]
    value = e.b.call(_function(e.module.ir, name, _kind(result), given), given)
    return value if _kind(result) is result else e.b.bitcast(value, result)


def _with_flags(choose: Callable[..., Any]) -> Callable[..., Any]:
    """What chooses rows by the features of a processor, those of all x86-64 among them."""
    given = signature(choose)

    @wraps(choose)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        bound = given.bind(*args, **kwargs)
        if bound.arguments["arch"] == "x86_64":
            bound.arguments["flags"] = _FLAGS.union(bound.arguments["flags"])
        return choose(*bound.args, **bound.kwargs)

    return chosen


@contextmanager
def beyond() -> Iterator[None]:
    """Within it, the cpu engine has every row of x86-64. Kernels are kept nowhere, as their code
    holds addresses of this process."""
    if _NATIVE.arch != "x86_64":
        pytest.skip("the processor has no row of x86-64")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("select", "available"):
            patch.setattr(isa, name, _with_flags(getattr(isa, name)))
        patch.setattr(jit, "_target_machine", lambda r: _instead(r) if lacks(r) else _machine(r))
        patch.setattr(jit, "_disk_cache", lambda: None)
        patch.setattr(Emitter, "intrinsic", _of_name)
        patch.setattr(vector, "_in_register", lambda e, v: v if lacks(e.isa) else _stays(e, v))
        jit._builder.cache_clear()
        yield
    jit._builder.cache_clear()
    primitive._cache.clear()


def _in_halves(e: Emitter, name: str, result: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
    """A load or a store under a mask, of registers that the processor has: LLVM 22 does not always
    split wider ones."""
    loads = not isinstance(result, ir.VoidType)
    kind = result if loads else args[0].type
    if vector.bits(kind) * kind.count <= _WIDEST:
        return _intrinsic(e, name, result, args)
    half = vector.vector_type(kind.element, kind.count // 2)
    name = name.replace(vector.suffix(kind), vector.suffix(half))
    parts = []
    for number in range(2):
        own = [_half(e, arg, number, kind) for arg in args]
        parts.append(_in_halves(e, name, half if loads else result, own))
    return vector.join(e, parts) if loads else parts[0]


def _half(e: Emitter, value: ir.Value, number: int, kind: ir.VectorType) -> ir.Value:
    """What belongs to half of the lanes of a ``kind``."""
    half = kind.count // 2
    if isinstance(value.type, ir.PointerType):
        return e.element(value, i64(number * half), kind.element)
    if not isinstance(value.type, ir.VectorType):
        return value
    if value.type.element != I1:
        return vector.split(e, value, half)[number]
    # LLVM 22 loads all of a register of which it finds out that no lane is ever wanted.
    wide = e.b.sext(value, vector.vector_type(I32, kind.count))
    part = vector.split(e, wide, half)[number]
    return e.b.icmp_signed("<", part, vector.splat_constant(part.type, 0))


def _kind(kind: ir.Type) -> ir.Type:
    """What is passed to functions: those of bf16 as integers, since LLVM would convert them, where
    no instruction does, by a function of a library."""
    bfloats = isinstance(kind, ir.VectorType) and kind.element == BF16
    return ir.VectorType(I16, kind.count) if bfloats else kind


def _plain(e: Emitter, value: ir.Value) -> ir.Value:
    kind = _kind(value.type)
    return value if kind is value.type else e.b.bitcast(value, kind)


def _function(module: Any, name: str, result: ir.Type, args: Sequence[ir.Value]) -> Any:
    """The function of a module that stands for an instruction."""
    own = name.replace("llvm.x86", "beyond")
    found = module.globals.get(own)
    if found is None:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        found = ir.Function(module, kind, own)
        found.linkage = "internal"
        b = ir.IRBuilder(found.append_basic_block("entry"))
        value = _BODIES[name](b, *found.args)
        b.ret_void() if isinstance(result, ir.VoidType) else b.ret(value)
    return found
