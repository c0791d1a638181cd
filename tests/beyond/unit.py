"""A matrix unit in Python: tiles of each thread, which generated code reaches through pointers."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from llvmlite import ir

from dnnl.codegen.ir.builder import I64, PTR

_TILES, _ROWS, _ROW = 8, 16, 64
_COLUMNS, _HEIGHTS = 16, 48  # where ldtilecfg reads the shapes
_BYTE, _ADDRESS, _SIZE = ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64

Array = npt.NDArray[Any]


class _Tiles:
    """The tiles of a thread, and the 64 bytes that say how many rows of how many bytes each has."""

    def __init__(self) -> None:
        self.contents = np.zeros((_TILES, _ROWS, _ROW), np.uint8)
        self.shapes = np.zeros(_ROW, np.uint8)

    def used(self, tile: int) -> Array:
        """What counts of a tile."""
        rows = self.shapes[_HEIGHTS + tile]
        (size,) = self.shapes[_COLUMNS + 2 * tile :][:2].view(np.uint16)
        assert 0 < rows <= _ROWS, "the tile has no shape"
        assert 0 < size <= _ROW, "the tile has no shape"
        return self.contents[tile, :rows, :size]


_threads: defaultdict[int, _Tiles] = defaultdict(_Tiles)


def _here() -> _Tiles:
    """Those of the calling thread, which Python knows by its number only."""
    return _threads[threading.get_native_id()]


def _configure(address: int) -> None:
    here = _here()
    here.shapes[:] = np.frombuffer(ctypes.string_at(address, _ROW), np.uint8)
    assert here.shapes[0] == 1, "the only palette with tiles"
    here.contents[:] = 0


def _tell(address: int) -> None:
    ctypes.memmove(address, _here().shapes.tobytes(), _ROW)


def _release() -> None:
    _here().shapes[:] = 0


def _zero(tile: int) -> None:
    _here().contents[tile] = 0


def _load(tile: int, address: int, stride: int) -> None:
    _zero(tile)
    for number, row in enumerate(_here().used(tile)):
        row[:] = np.frombuffer(ctypes.string_at(address + number * stride, row.size), np.uint8)


def _store(tile: int, address: int, stride: int) -> None:
    for number, row in enumerate(_here().used(tile)):
        ctypes.memmove(address + number * stride, row.tobytes(), row.size)


def _product(a: Any, b: Any, total: Any) -> Callable[[int, int, int], None]:
    """What adds products of words up, of elements of types ``a`` and ``b``."""

    def multiply(dst: int, first: int, second: int) -> None:
        group = 4 // np.dtype(a).itemsize
        wide = np.float32 if total is np.float32 else np.int64
        rows = np.ascontiguousarray(_here().used(first)).view(a).astype(wide)
        words = np.ascontiguousarray(_here().used(second)).view(b).astype(wide)
        k = rows.shape[1] // group
        assert words.shape[0] == k, "B has a row for each word of A"
        sums = np.ascontiguousarray(_here().used(dst)).view(total)
        assert sums.shape == (rows.shape[0], words.shape[1] // group)
        factors = rows.reshape(-1, k, group), words.reshape(k, -1, group)
        added = np.einsum("mkg,kng->mn", *factors)
        result = (sums.astype(wide) + added).astype(total)
        _here().used(dst)[:] = result.view(np.uint8)

    return multiply


_BYTES = {"u": np.uint8, "s": np.int8}
_FUNCTIONS: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
    "ldtilecfg": (_configure, (_ADDRESS,)),
    "sttilecfg": (_tell, (_ADDRESS,)),
    "tilerelease": (_release, ()),
    "tilezero": (_zero, (_BYTE,)),
    "tileloadd64": (_load, (_BYTE, _ADDRESS, _SIZE)),
    "tilestored64": (_store, (_BYTE, _ADDRESS, _SIZE)),
    "tdpbf16ps": (
        _product(ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32), (_BYTE, _BYTE, _BYTE),
    ),
    **{
        f"tdpb{one}{other}d": (_product(a, b, np.int32), (_BYTE, _BYTE, _BYTE))
        for one, a in _BYTES.items()
        for other, b in _BYTES.items()
    },
}  # fmt: skip

_POINTERS = {
    name: ctypes.CFUNCTYPE(None, *kinds)(function) for name, (function, kinds) in _FUNCTIONS.items()
}


class _Callee:
    """A pointer that leads to a function of some type, as llvmlite wants to know."""

    def __init__(self, pointer: ir.Value, kind: ir.FunctionType) -> None:
        self.type, self.function_type = pointer.type, kind
        self.get_reference = pointer.get_reference


def _body(pointer: Any) -> Callable[..., None]:
    address = ctypes.cast(pointer, ctypes.c_void_p).value

    def write(b: Any, *args: ir.Value) -> None:
        kind = ir.FunctionType(ir.VoidType(), [arg.type for arg in args])
        b.call(_Callee(b.inttoptr(ir.Constant(I64, address), PTR), kind), args)

    return write


BODIES = {f"llvm.x86.{name}": _body(pointer) for name, pointer in _POINTERS.items()}
"""What writes the body of each instruction, by LLVM's name of it."""
