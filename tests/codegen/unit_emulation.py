"""Running kernels for a matrix unit (AMX) on a processor without one.

The instructions of the unit are calls of Python, which has the tiles of each thread in NumPy
arrays. All others are the processor's, which needs AVX-512.
"""

from __future__ import annotations

import ctypes
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import get_ident

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from dnnl import Engine, config
from dnnl.codegen import isa as isas
from dnnl.codegen.compile import jit
from dnnl.codegen.isa import Isa
from dnnl.primitives import primitive, primitive_desc

Tile = npt.NDArray[np.uint8]

NEEDS_VECTORS = pytest.mark.skipif(
    not Engine("cpu").features.has("avx512bf16"),
    reason="the processor has no vectors of bf16, which multiply what a matrix unit leaves",
)
"""A mark of tests that use `emulated_unit`."""

_TYPES = {"bf16": ml_dtypes.bfloat16, "u8": np.uint8, "s8": np.int8}


@dataclass
class _Unit:
    """The tiles of one thread: 16 rows of 64 bytes each, of which the shapes say how many count."""

    shapes: list[tuple[int, int]] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)

    def configure(self, table: int) -> None:
        content = _bytes(table, 64)
        widths = content[16:32].view(np.uint16)
        self.shapes = [(int(content[48 + n]), int(widths[n])) for n in range(8)]
        self.tiles = [np.zeros((16, 64), np.uint8) for _ in range(8)]

    def release(self) -> None:
        self.shapes, self.tiles = [], []

    def write_shapes(self, table: int) -> None:
        """What `configure` has set: zeros before it, and once it is released."""
        content = _bytes(table, 64)
        content[:] = 0
        for number, (rows, width) in enumerate(self.shapes):
            content[48 + number] = rows
            content[16 + 2 * number :][:2] = np.array([width], np.uint16).view(np.uint8)
        content[0] = bool(self.shapes)

    def zero(self, number: int) -> None:
        self.tiles[number][:] = 0

    def load(self, number: int, pointer: int, stride: int) -> None:
        rows, width = self.shapes[number]
        self.tiles[number][:] = 0
        for row in range(rows):
            self.tiles[number][row, :width] = _bytes(pointer + row * stride, width)

    def store(self, number: int, pointer: int, stride: int) -> None:
        rows, width = self.shapes[number]
        for row in range(rows):
            _bytes(pointer + row * stride, width)[:] = self.tiles[number][row, :width]

    def multiply(self, types: tuple[str, str], sums: int, a: int, b: int) -> None:
        """Add the product of two tiles, whose rows are groups of 4 bytes."""
        (rows, width), (groups, columns) = self.shapes[a], self.shapes[b]
        assert self.shapes[sums] == (rows, columns)
        assert width == 4 * groups, "the unit raises an exception"
        left, right = (_TYPES[name] for name in types)
        floats = types[0] == "bf16"
        kind, wide = (np.float32, np.float64) if floats else (np.int32, np.int64)
        first = self.tiles[a][:rows, :width].copy().view(left).astype(wide)
        second = self.tiles[b][:groups, :columns].copy().view(right).astype(wide)
        size = 2 if floats else 4
        first = first.reshape(rows, groups, size)
        second = second.reshape(groups, columns // 4, size)
        total = np.einsum("mgp,gnp->mn", first, second)
        own = self.tiles[sums][:rows, :columns].copy().view(kind).astype(wide) + total
        with np.errstate(over="ignore"):
            self.tiles[sums][:rows, :columns] = own.astype(kind).view(np.uint8)


def _bytes(address: int, count: int) -> Tile:
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))


@contextmanager
def emulated_unit() -> Iterator[None]:
    """Within it, primitives of the cpu engine are those of a processor with a matrix unit."""
    row, own = isas.find("avx512_core_amx"), Engine("cpu").features
    here = tuple(name for name in row.features if own.has(name))
    selected, matrix = primitive_desc.select_isa, row.matrix
    assert matrix is not None

    def local(engine: Engine) -> Isa:
        return replace(row, features=here, caches=selected(engine).caches)

    units: defaultdict[int, _Unit] = defaultdict(_Unit)
    failures: list[BaseException] = []

    def calling(name: str, *types: str) -> Callable[..., None]:
        def call(*arguments: int) -> None:
            try:
                given = (types, *arguments) if types else arguments
                getattr(units[get_ident()], name)(*given)
            except BaseException as error:  # which ctypes would print and forget
                failures.append(error)

        return call

    number, pointer, step = ctypes.c_uint8, ctypes.c_size_t, ctypes.c_int64
    functions = {
        matrix.configure: ctypes.CFUNCTYPE(None, pointer)(calling("configure")),
        matrix.release: ctypes.CFUNCTYPE(None)(calling("release")),
        "llvm.x86.sttilecfg": ctypes.CFUNCTYPE(None, pointer)(calling("write_shapes")),
        matrix.zero: ctypes.CFUNCTYPE(None, number)(calling("zero")),
        matrix.load: ctypes.CFUNCTYPE(None, number, pointer, step)(calling("load")),
        matrix.store: ctypes.CFUNCTYPE(None, number, pointer, step)(calling("store")),
    }
    for dot in matrix.dots:
        call = calling("multiply", dot.a, dot.b)
        functions[dot.instruction] = ctypes.CFUNCTYPE(None, number, number, number)(call)
    addresses = {name: ctypes.cast(call, ctypes.c_void_p).value for name, call in functions.items()}
    compiled = jit._code

    def code(isa: Isa, text: str) -> bytes:
        for name, address in addresses.items():
            text = re.sub(rf'declare [^\n]*@"?{re.escape(name)}"?\([^\n]*', "", text)
            text = re.sub(rf'@"?{re.escape(name)}"?\(', f"inttoptr (i64 {address} to ptr)(", text)
        return compiled(isa, text)

    primitive._cache.clear()
    with pytest.MonkeyPatch.context() as patch, config.override("cache_limit", 0):
        patch.setattr(primitive_desc, "select_isa", local)
        patch.setattr(jit, "_code", code)
        yield
    primitive._cache.clear()
    if failures:
        raise failures[0]
