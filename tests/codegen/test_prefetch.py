"""What a transposition asks for ahead: lines of operands that are not in the caches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from llvmlite import ir
from numpy.typing import NDArray

from dnnl import config
from dnnl.codegen.compile import jit
from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, I64, PTR, Emitter, i64
from dnnl.codegen.ir.kernel import Recipe
from dnnl.codegen.isa import Isa, caches
from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.place import Place
from dnnl.kernels.reorder import reorder
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.engine import Engine
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpSum
from tests.launch import launch
from tests.pairs import every_pair

LINE = 64
EACH_CPU = pytest.mark.parametrize("cpu", ["", "cascadelake"])


class Asked:
    """Instead of fetching lines, kernels count them: those of src in src itself, one for each line,
    and all those of dst together in ``of_dst``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_dst = np.zeros(1, np.int64)
        self._slot = 0
        ask = Place.prefetch
        monkeypatch.setattr(vector, "prefetch", self._count)

        def prefetch(place: Place, operand: Operand, further: ir.Value) -> None:
            self._slot = operand.slot
            ask(place, operand, further)

        monkeypatch.setattr(Place, "prefetch", prefetch)

    def _count(self, e: Emitter, pointer: ir.Value) -> None:
        if self._slot == 0:
            count = e.b.load(pointer, typ=I8, align=1)
            e.b.store(e.b.add(count, ir.Constant(I8, 1)), pointer, align=1)
            return
        counter = e.b.inttoptr(i64(self.of_dst.ctypes.data), PTR)
        e.b.store(e.b.add(e.b.load(counter, typ=I64), i64(1)), counter)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What is asked for."""
    return Asked(monkeypatch)


def _isa(cpu: str) -> Isa:
    """What kernels for this machine would be written for if it had the caches of ``cpu``."""
    return replace(select_isa(Engine("cpu")), caches=caches.of(cpu, Caches()))


def _run(
    src: MemoryDesc, dst: MemoryDesc, folder: str, cpu: str = "", sum_scale: float = 0.0
) -> NDArray[np.int64]:
    """How often a reorder asks for each line of src, where kernels count what they ask for."""
    engine = Engine("cpu")
    post_ops = (PostOpSum(sum_scale),) if sum_scale else ()
    conf = reorder.configure(src, dst, post_ops, Quantization())
    with config.override("cache_dir", folder):
        image, _ = jit.image(Recipe(conf, _isa(cpu), reorder.build))
    margin = src.size // LINE * LINE  # what is asked for need not exist
    room = np.zeros(2 * margin + src.size + LINE, np.uint8)
    first = margin - (room.ctypes.data + margin) % LINE
    source, written = room[first : first + src.size], np.zeros(dst.size + LINE, np.uint8)
    written = written[-written.ctypes.data % LINE :][: dst.size]
    launch(engine.load(image), (source.ctypes.data, written.ctypes.data))
    lines = source[: src.size // LINE * LINE].reshape(-1, LINE)
    return np.asarray(lines.sum(axis=1), np.int64)


@every_pair(
    EACH_CPU,
    pytest.mark.parametrize("data_type", ["f32", "bf16", "u8", "u4"]),
    pytest.mark.parametrize(
        ("channels", "height", "tags"),
        [(192, 64, ("nchw", "nhwc")), (250, 55, ("nchw", "nhwc")), (250, 55, ("nhwc", "nchw"))],
    ),
)
def test_most_lines_of_a_large_source_are_asked_for(
    data_type: str,
    channels: int,
    height: int,
    tags: tuple[str, str],
    cpu: str,
    asked: Asked,
    tmp_path: Path,
) -> None:
    """Also where rows begin anywhere in a line. The first square of a row is not."""
    dims = 13, channels, height, 56
    src, dst = (MemoryDesc(dims, data_type, tag) for tag in tags)
    assert (_run(src, dst, str(tmp_path), cpu) > 0).mean() > 0.75


@EACH_CPU
@pytest.mark.parametrize("data_type", ["f32", "bf16", "u8", "u4"])
def test_squares_take_turns_to_ask_for_a_line(
    data_type: str, cpu: str, asked: Asked, tmp_path: Path
) -> None:
    src, dst = (MemoryDesc((6, 256, 57, 56), data_type, tag) for tag in ("nchw", "nhwc"))
    assert _run(src, dst, str(tmp_path), cpu).mean() < 1.1


def test_images_of_three_channels_are_asked_for(asked: Asked, tmp_path: Path) -> None:
    src, dst = (MemoryDesc((2, 3, 512, 512), "f32", tag) for tag in ("nhwc", "nchw"))
    assert (_run(src, dst, str(tmp_path)) > 0).mean() > 0.75


@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_a_destination_is_asked_for_if_it_is_read(
    scale: float, asked: Asked, tmp_path: Path
) -> None:
    src, dst = (MemoryDesc((6, 192, 64, 56), "f32", tag) for tag in ("nchw", "nhwc"))
    _run(src, dst, str(tmp_path), sum_scale=scale)
    lanes = _isa("").lanes
    past = not scale and 4 * lanes == LINE  # vectors that are whole lines pass the caches
    assert asked.of_dst[0] == (0 if past else dst.nelems() // lanes)


@EACH_CPU
@pytest.mark.parametrize(
    ("dims", "tags", "elements"),
    [
        ((2, 250, 55, 56), ("nchw", "nhwc"), 250),  # of each pixel
        ((2, 252, 55, 56), ("nhwc", "nchw"), 55 * 56),  # of each channel
        ((2, 256, 55, 56), ("nchw", "nChw16c"), 0),  # rows lie side by side
        ((1, 64, 56, 56), ("nchw", "nhwc"), 0),  # in the second cache
    ],
)
def test_a_destination_of_many_rows_is_asked_for(
    dims: tuple[int, ...],
    tags: tuple[str, str],
    elements: int,
    cpu: str,
    asked: Asked,
    tmp_path: Path,
) -> None:
    src, dst = (MemoryDesc(dims, "f32", tag) for tag in tags)
    _run(src, dst, str(tmp_path), cpu)
    rows = dims[0] * (dims[1] if tags[1] == "nchw" else dims[2] * dims[3])
    assert asked.of_dst[0] == rows * -(-elements // _isa(cpu).lanes)


def test_a_source_that_the_cache_holds_is_not_asked_for(asked: Asked, tmp_path: Path) -> None:
    src, dst = (MemoryDesc((1, 64, 16, 16), "f32", tag) for tag in ("nchw", "nhwc"))
    assert not _run(src, dst, str(tmp_path)).any()
