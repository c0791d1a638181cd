"""Models quantized by ONNX Runtime's quantizer, calibrated on random data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from dnnl.framework.model import Model, load
from tests.framework.models import Array, feeds_for, graph_of

SAMPLES = 2
BYTES = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, proto: Any) -> None:
        graph = graph_of(proto)
        self._samples: Iterator[dict[str, Array]] = (feeds_for(graph, n) for n in range(SAMPLES))

    def get_next(self) -> dict[str, Array] | None:
        return next(self._samples, None)


def statically(
    proto: Any,
    folder: Path,
    form: str = "QDQ",
    src: str = "u8",
    weights: str = "s8",
    *,
    per_channel: bool = False,
) -> Model:
    """The model with constant scales: in the form "QDQ" or "QOperator"."""
    before, after = folder / "before.onnx", folder / "after.onnx"
    onnx.save(proto, before)
    quantize_static(
        str(before),
        str(after),
        _Samples(proto),
        quant_format=QuantFormat[form],
        activation_type=BYTES[src],
        weight_type=BYTES[weights],
        per_channel=per_channel,
    )
    return _known(after)


def dynamically(
    proto: Any, folder: Path, weights: str = "s8", *, per_channel: bool = False
) -> Model:
    """The model with scales that it finds while it runs."""
    before, after = folder / "before.onnx", folder / "after.onnx"
    onnx.save(proto, before)
    quantize_dynamic(str(before), str(after), weight_type=BYTES[weights], per_channel=per_channel)
    return _known(after)


def _known(path: Path) -> Model:
    model = load(path)
    return model.with_shapes({name: kind.sizes for name, kind in model.inputs.items()})


def random_feeds(model: Model) -> dict[str, Array]:
    """Normal floats, others than those of the calibration."""
    rng = np.random.default_rng(99)
    return {
        name: rng.standard_normal(kind.sizes).astype(kind.dtype)
        for name, kind in model.inputs.items()
    }
