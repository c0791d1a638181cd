"""Fourier transforms, windows, mel weights and determinants, beside NumPy and ONNX's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.graph.graph import ModelError
from tests.framework.models import Array, model_of
from tests.framework.one_operator import check, model_with
from tests.pairs import every_pair

TOLERANCE = 1e-4


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def complex_of(x: Array) -> Array:
    return x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)


def parts(x: Array) -> dict[str, Array]:
    return {"y": np.stack([x.real, x.imag], -1).astype(np.float32)}


@every_pair(length=[None, 5, 16], count=[1, 2], axis=[0, 1, -2])
def test_transforms(axis: int, count: int, length: int | None) -> None:
    """Forward and back, of cut and padded numbers."""
    every = [normal(*shape, count) for shape in ((3, 7, 9), (2, 12, 5), (8, 3, 4))]
    own = {"axis": np.array(axis)} if length is None else {
        "n": np.array(length), "axis": np.array(axis)}  # fmt: skip
    names = ["x", "" if length is None else "n", "axis"]
    place = axis + (axis < 0)
    for inverse in (0, 1):
        function = np.fft.ifft if inverse else np.fft.fft
        want = [parts(function(complex_of(x), length, place)) for x in every]
        feeds = [{"x": x} for x in every]
        check("DFT", {"y": np.float32}, *feeds, wanted=want, tolerance=TOLERANCE, opset=20,
              constants=own, inputs=names, attrs={"inverse": inverse})  # fmt: skip


@pytest.mark.parametrize("size", [7, 8])
def test_one_side_of_frequencies(size: int) -> None:
    x = normal(3, size, 1)
    want = [parts(np.fft.rfft(x[..., 0]))]
    check("DFT", {"y": np.float32}, {"x": x}, wanted=want, tolerance=TOLERANCE, opset=17,
          attrs={"onesided": 1})  # fmt: skip
    spectrum = normal(3, size // 2 + 1, 2)
    want = [{"y": np.fft.irfft(complex_of(spectrum), size)[..., None].astype(np.float32)}]
    check("DFT", {"y": np.float32}, {"x": spectrum}, wanted=want, tolerance=TOLERANCE, opset=20,
          constants={"n": np.array(size)}, attrs={"onesided": 1, "inverse": 1})  # fmt: skip


@pytest.mark.parametrize("size", [1024, 1155, 1031, 4096])
@pytest.mark.parametrize("count", [1, 2])
def test_long_transforms(count: int, size: int) -> None:
    """As two products, or as one of a prime length."""
    x = normal(2, size, count)
    for inverse, function in enumerate((np.fft.fft, np.fft.ifft)):
        want = [parts(function(complex_of(x)))]
        check("DFT", {"y": np.float32}, {"x": x}, wanted=want, tolerance=TOLERANCE, opset=17,
              attrs={"inverse": inverse})  # fmt: skip
    if count == 1:
        want = [parts(np.fft.rfft(x[..., 0]))]
        check("DFT", {"y": np.float32}, {"x": x}, wanted=want, tolerance=TOLERANCE, opset=17,
              attrs={"onesided": 1})  # fmt: skip


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("known", [False, True])
def test_frames(known: bool, half: int) -> None:
    """Signals of any length, with a window that is a constant or an input."""
    every, want = [], []
    window = np.hanning(8).astype(np.float32)
    for batch, length in ((2, 30), (3, 51), (1, 64)):
        x = normal(batch, length, 1)
        starts = range(0, length - 7, 3)
        frames = np.stack([x[:, s : s + 8, 0] * window for s in starts], 1)
        want.append(parts(np.fft.rfft(frames) if half else np.fft.fft(frames)))
        every.append({"x": x} if known else {"x": x, "w": window})
    constants = {"step": np.array(3), **({"w": window} if known else {})}
    check("STFT", {"y": np.float32}, *every, wanted=want, tolerance=TOLERANCE,
          constants=constants, inputs=["x", "step", "w"], attrs={"onesided": half})  # fmt: skip


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("op", ["BlackmanWindow", "HammingWindow", "HannWindow"])
def test_windows(op: str, periodic: int) -> None:
    every = [{"n": np.array(size)} for size in (10, 7, 16)]
    check(op, {"y": np.float32}, *every, tolerance=1e-5, attrs={"periodic": periodic})


def test_mel_weights() -> None:
    every = [
        {"bins": np.array(bins), "length": np.array(length), "rate": np.array(8192),
         "low": np.array(0, np.float32), "high": np.array(4096, np.float32)}
        for bins, length in ((8, 16), (10, 64))
    ]  # fmt: skip
    check("MelWeightMatrix", {"y": np.float32}, *every, tolerance=1e-5)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_determinants(kind: Any) -> None:
    every = [{"x": normal(*shape, size, size).astype(kind)} for shape, size in
             (((2, 3), 4), ((5, 1), 2), ((2, 2), 7))]  # fmt: skip
    want = [{"y": np.linalg.det(own["x"].astype(np.float64)).astype(kind)} for own in every]
    check("Det", {"y": kind}, *every, wanted=want, tolerance=1e-6, opset=22)


def test_wrong_sources() -> None:
    feeds = {"x": normal(2, 3, 3)}
    with pytest.raises(ModelError, match="one or two parts"):
        model_of(model_with("DFT", feeds, {"y": np.float32}, opset=20))(feeds)
    feeds = {"x": normal(2, 3, 1), "step": np.array(0), "w": normal(2)}
    with pytest.raises(ModelError, match="frame_step 0"):
        model_of(model_with("STFT", feeds, {"y": np.float32}))(feeds)
    feeds = {"x": normal(2, 3, 4)}
    with pytest.raises(ModelError, match="no square matrices"):
        model_of(model_with("Det", feeds, {"y": np.float32}))(feeds)
