"""Networks with real weights, as packages ship them, beside ONNX Runtime over changing sizes.

The extra ``real`` installs the packages, whose model files are all that is used of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl.framework.model import Model

onnxruntime = pytest.importorskip("onnxruntime")

Array = np.ndarray
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Real:
    """A file of a package, and feeds of changing sizes for it. ``tolerance`` is relative to the
    largest element of an output, which is a probability: of nothing below a hundredth."""

    package: str
    file: str
    feeds: Callable[[np.random.Generator], Iterator[Feeds]]
    tolerance: float = 1e-3

    def __str__(self) -> str:
        return Path(self.file).stem

    @property
    def path(self) -> Path:
        found = find_spec(self.package)
        if found is None or not found.submodule_search_locations:
            pytest.skip(f"{self.package} is not installed: pip install 'dnnl[real]'")
        return Path(found.submodule_search_locations[0]) / self.file


def images(*sizes: tuple[int, int, int]) -> Callable[[np.random.Generator], Iterator[Feeds]]:
    def feeds(rng: np.random.Generator) -> Iterator[Feeds]:
        for batch, height, width in sizes:
            x = np.ones((batch, 3, height, width), np.float32)
            for image in x:  # strokes on paper
                for top, left in rng.integers(0, (height - 8, width - 16), (24, 2)):
                    image[:, top : top + 8, left : left + rng.integers(2, 16)] = -1
            yield {"x": x + 0.05 * rng.standard_normal(x.shape, dtype=np.float32)}

    return feeds


def contents_of_files(rng: np.random.Generator) -> Iterator[Feeds]:
    """Bytes, with 256 for what is behind the end of a short file."""
    for count in (1, 3, 8, 2):
        own = rng.integers(0, 257, (count, 2048)).astype(np.int32)
        own[0, 700:] = 256
        yield {"bytes": own}


def frames(rate: int | None, samples: int) -> Callable[[np.random.Generator], Iterator[Feeds]]:
    def feeds(rng: np.random.Generator) -> Iterator[Feeds]:
        for batch in (1, 3, 1):
            sound = 0.1 * rng.standard_normal((batch, samples), dtype=np.float32)
            state = 0.1 * rng.standard_normal((2, batch, 128), dtype=np.float32)
            own = {} if rate is None else {"sr": np.array(rate, np.int64)}
            yield {"input": sound, "state": state, **own}

    return feeds


REAL = (
    Real(
        "rapidocr_onnxruntime",
        "models/ch_PP-OCRv4_det_infer.onnx",
        images((1, 64, 96), (1, 96, 160), (1, 160, 64), (2, 64, 64)),
    ),
    Real(
        "rapidocr_onnxruntime",
        "models/ch_PP-OCRv4_rec_infer.onnx",
        images((1, 48, 80), (6, 48, 320), (3, 48, 161), (1, 48, 97)),
    ),
    Real(
        "rapidocr_onnxruntime",
        "models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        images((1, 48, 192), (6, 48, 192), (2, 48, 100)),
    ),
    Real("magika", "models/standard_v3_3/model.onnx", contents_of_files),
    Real("silero_vad", "data/silero_vad.onnx", frames(16000, 576)),
    Real("silero_vad", "data/silero_vad_16k_op15.onnx", frames(16000, 576)),
    Real("silero_vad", "data/silero_vad_half.onnx", frames(None, 576)),
    Real("silero_vad", "data/silero_vad_op18_ifless.onnx", frames(16000, 576)),
    Real("silero_vad", "data/silero_vad_op18_ifless.onnx", frames(8000, 288)),
)


@cache
def peer_of(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def assert_as_peer(model: Model, path: Path, feeds: Feeds, tolerance: float) -> None:
    got, peer = model(feeds), peer_of(path)
    results = got if isinstance(got, dict) else {model.outputs[0]: got}
    names = [output.name for output in peer.get_outputs()]
    for name, want in zip(names, peer.run(names, feeds), strict=True):
        own = results[name]
        assert (own.dtype, own.shape) == (want.dtype, want.shape), name
        scale = float(np.abs(want).max(initial=0.01))
        np.testing.assert_allclose(own, want, rtol=0, atol=tolerance * scale, err_msg=name)


@pytest.mark.parametrize("real", REAL, ids=str)
def test_results_are_those_of_onnxruntime(real: Real) -> None:
    path, rng = real.path, np.random.default_rng(37)
    model = dnnl.load(path)
    for feeds in real.feeds(rng):
        assert_as_peer(model, path, feeds, real.tolerance)


@pytest.mark.parametrize("real", REAL[:4], ids=str)
def test_saved_models_give_the_same(real: Real, tmp_path: Path) -> None:
    path, rng = real.path, np.random.default_rng(38)
    model = dnnl.load(path)
    sizes = list(real.feeds(rng))
    for feeds in sizes:
        model(feeds)
    model.save(tmp_path / "model.dnnl")
    saved = dnnl.load(tmp_path / "model.dnnl", compile=False)
    for feeds in sizes:
        assert_as_peer(saved, path, feeds, real.tolerance)
