"""Networks in bytes on images and texts of any size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.framework.models import Array, model_of, plans_of, run_peer
from tests.framework.quantizing import statically
from tests.framework.test_quantized import attention, convolutional

SIZES = ((2, 17, 15), (3, 20, 31), (2, 9, 40), (4, 33, 14), (2, 21, 21))


def opened(path: Path, names: str) -> Any:
    """The model in a file, with a name for each size of its input; that of channels is known."""
    proto = onnx.load(path)
    del proto.graph.value_info[:]
    for dim, name in zip(proto.graph.input[0].type.tensor_type.shape.dim, names, strict=True):
        if name != "c":
            dim.dim_param = name
    return proto


def check(proto: Any, shapes: Sequence[Sequence[int]]) -> list[int]:
    """Call a model with these shapes, of which all but the first one share a plan; returns how many
    kernels that has after each."""
    model, rng, kernels = model_of(proto), np.random.default_rng(3), list[int]()
    for shape in shapes:
        x: Array = rng.standard_normal(shape).astype(np.float32)
        found, wanted = model(x), run_peer(proto, {"x": x})["y"]
        # One step of the bytes that the results were.
        assert np.abs(found - wanted).max() <= 0.02 * np.abs(wanted).max()
        sessions = [session for _, _, session in plans_of(model)._open]
        kernels.append(sum(len(own.codes()) for one in sessions for own in one.compiled.kernels))
    assert (len(plans_of(model)._special.sessions), len(sessions)) == (1, 1)
    return kernels


@pytest.mark.parametrize("src", ["u8", "s8"])
def test_images(src: str, tmp_path: Path) -> None:
    """Only the mean of few pixels has a kernel of its own."""
    statically(convolutional(), tmp_path, src=src)
    proto = opened(tmp_path / "after.onnx", "ncyx")
    kernels = check(proto, [(n, 3, height, width) for n, height, width in SIZES])
    assert kernels[-1] <= kernels[1] + 1


def test_texts(tmp_path: Path) -> None:
    """Products of two computed factors, in batches of any size."""
    statically(attention(), tmp_path)
    check(
        opened(tmp_path / "after.onnx", "nlc"), [(2, 9, 36), (3, 12, 36), (5, 7, 36), (4, 20, 36)]
    )
