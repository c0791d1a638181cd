"""Networks in bytes on images of any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.framework.models import Array, model_of, plans_of, run_peer
from tests.framework.quantizing import statically
from tests.framework.test_quantized import convolutional

SIZES = ((2, 17, 15), (3, 20, 31), (2, 9, 40), (4, 33, 14), (2, 21, 21))


@pytest.mark.parametrize("src", ["u8", "s8"])
def test_images_of_any_size_share_a_plan(src: str, tmp_path: Path) -> None:
    """The first size has a plan, all later ones another, whose kernels serve them all but for the
    mean of few pixels."""
    statically(convolutional(), tmp_path, src=src)
    proto = onnx.load(tmp_path / "after.onnx")
    del proto.graph.value_info[:]
    for dim, name in zip(proto.graph.input[0].type.tensor_type.shape.dim, "ncyx", strict=True):
        if name != "c":
            dim.dim_param = name
    model, rng, kernels = model_of(proto), np.random.default_rng(3), list[int]()
    for batch, height, width in SIZES:
        x: Array = rng.standard_normal((batch, 3, height, width)).astype(np.float32)
        found, wanted = model(x), run_peer(proto, {"x": x})["y"]
        # One step of the bytes that the results were.
        assert np.abs(found - wanted).max() <= 0.02 * np.abs(wanted).max()
        opened = [session for _, _, session in plans_of(model)._open]
        kernels.append(sum(len(own.codes()) for one in opened for own in one.compiled.kernels))
    assert (len(plans_of(model)._special.sessions), len(opened)) == (1, 1)
    assert kernels[-1] <= kernels[1] + 1
