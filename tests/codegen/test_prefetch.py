"""What a transposition asks for ahead: the lines of a source that is not in the caches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from llvmlite import ir
from numpy.typing import NDArray

from dnnl import config
from dnnl.codegen import jit, vector
from dnnl.codegen.builder import I8, Emitter
from dnnl.codegen.isa import Isa, caches
from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.kernel import Recipe
from dnnl.codegen.quantization import Quantization
from dnnl.kernels import reorder
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.engine import Engine
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpSum

LINE = 64
EACH_CPU = pytest.mark.parametrize("cpu", ["", "cascadelake"])


def _mark(e: Emitter, pointer: ir.Value) -> None:
    """Count in the line that would be fetched."""
    count = e.b.load(pointer, typ=I8, align=1)
    e.b.store(e.b.add(count, ir.Constant(I8, 1)), pointer, align=1)


def _isa(cpu: str) -> Isa:
    """What kernels for this machine would be written for if it had the caches of ``cpu``."""
    return replace(select_isa(Engine("cpu")), caches=caches.of(cpu, Caches()))


def _asked(src: MemoryDesc, dst: MemoryDesc, folder: str, cpu: str = "") -> NDArray[np.int64]:
    """How often a reorder asks for each line of src."""
    engine = Engine("cpu")
    conf = reorder.configure(src, dst, (), Quantization())
    with config.override("cache_dir", folder):
        image, _ = jit.image(Recipe(conf, _isa(cpu), reorder.build))
    margin = src.size // LINE * LINE  # what is asked for need not exist
    room = np.zeros(2 * margin + src.size + LINE, np.uint8)
    first = margin - (room.ctypes.data + margin) % LINE
    source, written = room[first : first + src.size], np.zeros(dst.size, np.uint8)
    engine.load(image).launch((source.ctypes.data, written.ctypes.data), 1)
    lines = source[: src.size // LINE * LINE].reshape(-1, LINE)
    return np.asarray(lines.sum(axis=1), np.int64)


@EACH_CPU
@pytest.mark.parametrize("data_type", ["f32", "bf16", "u8", "u4"])
@pytest.mark.parametrize(
    ("channels", "height", "tags"),
    [(192, 64, ("nchw", "nhwc")), (250, 55, ("nchw", "nhwc")), (250, 55, ("nhwc", "nchw"))],
)
def test_most_lines_of_a_large_source_are_asked_for(
    data_type: str,
    channels: int,
    height: int,
    tags: tuple[str, str],
    cpu: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Also where rows begin anywhere in a line. The first square of a row is not."""
    monkeypatch.setattr(vector, "prefetch", _mark)
    dims = 13, channels, height, 56
    src, dst = (MemoryDesc(dims, data_type, tag) for tag in tags)
    assert (_asked(src, dst, str(tmp_path), cpu) > 0).mean() > 0.75


@EACH_CPU
@pytest.mark.parametrize("data_type", ["f32", "bf16", "u8", "u4"])
def test_squares_take_turns_to_ask_for_a_line(
    data_type: str, cpu: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(vector, "prefetch", _mark)
    src, dst = (MemoryDesc((6, 256, 57, 56), data_type, tag) for tag in ("nchw", "nhwc"))
    assert _asked(src, dst, str(tmp_path), cpu).mean() < 1.1


def test_images_of_three_channels_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(vector, "prefetch", _mark)
    src, dst = (MemoryDesc((2, 3, 512, 512), "f32", tag) for tag in ("nhwc", "nchw"))
    assert (_asked(src, dst, str(tmp_path)) > 0).mean() > 0.75


@pytest.mark.parametrize(("scale", "both"), [(0.0, False), (0.5, True)])
def test_a_destination_is_asked_for_if_it_is_read(
    scale: float, both: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = set()
    monkeypatch.setattr(vector, "prefetch", lambda _, pointer: asked.add(pointer.operands[0]))
    src, dst = (MemoryDesc((6, 192, 64, 56), "f32", tag) for tag in ("nchw", "nhwc"))
    post_ops = (PostOpSum(scale),) if scale else ()
    conf = reorder.configure(src, dst, post_ops, Quantization())
    with config.override("cache_dir", str(tmp_path)):
        jit.image(Recipe(conf, _isa(""), reorder.build))
    assert len(asked) == 1 + both


def test_a_source_that_the_cache_holds_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(vector, "prefetch", _mark)
    src, dst = (MemoryDesc((1, 64, 16, 16), "f32", tag) for tag in ("nchw", "nhwc"))
    assert not _asked(src, dst, str(tmp_path)).any()
