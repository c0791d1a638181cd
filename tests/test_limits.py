"""docs/notes.md says what is refused. Whoever mends one of these deletes its entry, and its row
here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl import Arg, MemoryDesc, ops
from dnnl.math import sin

LIMITS = Path(__file__).resolve().parents[1] / "docs" / "notes.md"
ANY = dnnl.RUNTIME_DIM
ROWS = MemoryDesc((ANY, ANY), "f32", (ANY, 1))
INFERENCE = "forward_inference"


def desc(*dims: int, dtype: str = "f32", tag: str = "any") -> MemoryDesc:
    return MemoryDesc(dims, dtype, tag)


def rows(dtype: str = "f32") -> MemoryDesc:
    return desc(8, 64, dtype=dtype, tag="ab")


def plan(operation: Any, attr: dnnl.PrimitiveAttr | None = None) -> None:
    dnnl.PrimitiveDesc(operation, dnnl.Engine("cpu"), attr)


def dropout(md: MemoryDesc) -> dnnl.PrimitiveAttr:
    attr = dnnl.PrimitiveAttr()
    attr.set_dropout(MemoryDesc(md.dims, "u8", "ab"))
    return attr


def rounding() -> dnnl.PrimitiveAttr:
    attr = dnnl.PrimitiveAttr()
    attr.set_rounding_mode(Arg.DST, "stochastic")
    return attr


def computed_scales() -> dnnl.PrimitiveAttr:
    attr = dnnl.PrimitiveAttr()
    attr.set_scales(Arg.DST, 3, groups=(1, 32), data_type="e8m0", quantization_mode="dynamic_mx")
    return attr


def relu_behind() -> dnnl.PrimitiveAttr:
    attr = dnnl.PrimitiveAttr()
    attr.post_ops.append_eltwise("eltwise_relu")
    return attr


def of_f64() -> dnnl.PrimitiveAttr:
    attr = dnnl.PrimitiveAttr()
    attr.post_ops.append_function(sin)
    return attr


def relu(md: MemoryDesc) -> Any:
    return dnnl.EltwiseDesc.forward(INFERENCE, "eltwise_relu", md, md)


def matmul(src: str, weights: str, dst: str) -> Any:
    shapes = desc(64, 256, dtype=src), desc(256, 128, dtype=weights), desc(64, 128, dtype=dst)
    return dnnl.MatmulDesc(*shapes)


def ints(*shape: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 9, shape).astype(dtype)


REFUSED: tuple[tuple[str, Callable[[], Any]], ...] = (
    (
        "Dropout** is limited",
        lambda: plan(dnnl.BinaryDesc("binary_add", *[rows()] * 3), dropout(rows())),
    ),
    ("stochastic rounding** to", lambda: plan(relu(rows("bf16")), rounding())),
    (
        "Backward operations take no post-ops",
        lambda: plan(
            dnnl.EltwiseDesc.backward("eltwise_relu", rows(), rows(), rows()), relu_behind()
        ),
    ),
    (
        "Computed scales** (`dynamic_mx`",
        lambda: plan(dnnl.ReorderDesc(rows(), rows("f8_e4m3")), computed_scales()),
    ),
    ("f64 is multiplied by f64 only", lambda: plan(matmul("f64", "f32", "f32"))),
    ("integers of 16 bits not at all", lambda: plan(matmul("s16", "s16", "s32"))),
    (
        "Sparse matmul takes floats only",
        lambda: plan(
            dnnl.MatmulDesc(
                MemoryDesc.csr((64, 256), "s8", 100),
                desc(256, 128, dtype="s8"),
                desc(64, 128, dtype="s32"),
            )
        ),
    ),
    (
        "elements along an axis or 2^22 taps are refused",
        lambda: plan(
            dnnl.ResamplingDesc.forward(
                INFERENCE,
                "resampling_linear",
                desc(1, 1, 1 << 20, tag="abc"),
                desc(1, 1, 1 << 21, tag="abc"),
            )
        ),
    ),
    (
        "Sparse and grouped tensors are of known sizes",
        lambda: MemoryDesc.csr((ANY, 256), "f32", 100),
    ),
    ("masks of dropout", lambda: plan(relu(ROWS), dropout(ROWS))),
    (
        "post-ops with them are refused where a tensor is f64",
        lambda: plan(relu(rows("f64")), of_f64()),
    ),
    (
        "Integers**: convolutions take 8 bits only",
        lambda: ops.conv2d(ints(1, 4, 8, 8, dtype="i2"), ints(4, 4, 3, 3, dtype="i2")),
    ),
    ("max pooling up to 32", lambda: ops.max_pool2d(ints(1, 4, 8, 8, dtype="i8"), 2)),
    (
        "`interpolate` s8, u8 and s32",
        lambda: ops.interpolate(ints(1, 4, 8, 8, dtype="i2"), scale_factor=2, mode="bilinear"),
    ),
)


@pytest.mark.parametrize(("entry", "call"), REFUSED, ids=[entry for entry, _ in REFUSED])
def test_what_limits_say_is_refused(entry: str, call: Callable[[], Any]) -> None:
    text = re.sub(r"\s+", " ", LIMITS.read_text(encoding="utf-8"))
    assert entry in text
    with pytest.raises((dnnl.Unimplemented, dnnl.InvalidArguments)):
        call()
