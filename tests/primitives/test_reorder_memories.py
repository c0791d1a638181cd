"""`dnnl.reorder`: two memories in one call."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dnnl
from dnnl import Arg, InvalidArguments, Memory, MemoryDesc, PrimitiveAttr, ShapedBuffer, Stream
from tests.device import FAR
from tests.primitives.harness import ENGINE

VALUES = np.random.default_rng(1).standard_normal((3, 19, 5)).astype(np.float32)


@pytest.mark.parametrize("tag", ["acb", "aBc16b", "cba"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "s64", "boolean"])
def test_another_layout_and_type(kind: str, tag: str) -> None:
    src, dst = Memory.from_numpy(VALUES), Memory(MemoryDesc(VALUES.shape, kind, tag), ENGINE)
    assert dnnl.reorder(src, dst).done
    peer = {"bf16": torch.bfloat16, "s64": torch.int64, "boolean": torch.bool, "f32": torch.float32}
    given = torch.from_numpy(VALUES)
    want = (given.round() if kind == "s64" else given).to(peer[kind]).to(torch.float32)
    assert (dst.numpy().astype(np.float32) == want.numpy()).all()


def test_a_stream_and_attributes() -> None:
    attr = PrimitiveAttr()
    attr.set_scales(Arg.DST, 2)
    attr.set_zero_points(Arg.DST, 0)
    scales = np.linspace(0.1, 2, 19).astype(np.float32)
    args = {
        Arg.SCALES | Arg.DST: Memory.from_numpy(scales),
        Arg.ZERO_POINTS | Arg.DST: Memory.from_numpy(np.array([3], np.int32)),
    }
    dst = Memory(MemoryDesc(VALUES.shape, "u8"), ENGINE)
    dnnl.reorder(Memory.from_numpy(VALUES), dst, Stream(ENGINE, 1), attr, args).wait()
    want = np.clip(np.rint(VALUES / scales[:, None] + np.float32(3)), 0, 255)
    assert np.abs(dst.numpy() - want).max() <= 1
    assert (dst.numpy() == want).mean() > 0.99
    attr.set_zero_points(Arg.DST, 1)  # another problem: the description has its own copy
    with pytest.raises(InvalidArguments, match="ZERO_POINTS"):
        dnnl.reorder(Memory.from_numpy(VALUES), dst, attr=attr, args=args)


def test_other_engines() -> None:
    far = Memory(MemoryDesc(VALUES.shape, "f16", "cab"), FAR)
    dnnl.reorder(Memory.from_numpy(VALUES), far)
    back = Memory(MemoryDesc(VALUES.shape, "f32", "bac"), ENGINE)
    dnnl.reorder(far, back)
    assert (back.numpy() == VALUES.astype(np.float16)).all()
    there = far.reorder_to("abc", "f32")
    assert there.engine is FAR
    assert (there.numpy() == VALUES.astype(np.float16)).all()


def test_wrong_arguments() -> None:
    src = Memory.from_numpy(VALUES)
    with pytest.raises(InvalidArguments, match="src = 'ndarray': expected a dnnl"):
        dnnl.reorder(VALUES, src)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="dst = 'MemoryDesc'"):
        dnnl.reorder(src, src.desc)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="dst_desc"):
        dnnl.reorder(src, Memory(MemoryDesc((3, 5, 19), "f32"), ENGINE))
    with pytest.raises(InvalidArguments, match="attr"):
        dnnl.reorder(src, src.reorder_to("cba"), attr={})  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="stream"):
        dnnl.reorder(src, src.reorder_to("cba"), Stream(FAR))


def test_shaped_buffers_change_their_type() -> None:
    buffer = ShapedBuffer.from_numpy(VALUES)
    for shape in ((57, 5), (3, 95)):
        for given in (buffer, buffer.transpose((2, 1, 0)).transpose((2, 1, 0))):
            result = given.reshape(shape, data_type="f64")
            assert result.numpy().dtype == np.float64
            assert (result.numpy() == VALUES.reshape(shape)).all()
    assert (
        buffer.transpose((1, 0, 2)).reshape(57, 5, data_type="s32").numpy()
        == np.rint(VALUES.transpose(1, 0, 2).reshape(57, 5))
    ).all()
    same = buffer.reshape(57, 5, data_type="f32")
    assert np.shares_memory(same.numpy(), VALUES)
