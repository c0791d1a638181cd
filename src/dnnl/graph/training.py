"""The names of operators that only graphs of PyTorch have, most of them for training."""

from __future__ import annotations

DOMAIN = "dnnl"
"""The domain of operators that ONNX does not have."""

CONV_DATA = "ConvDataGradient"
"""Of the gradient of the result, the weights, and the source for its shape: that of the source."""
CONV_WEIGHTS = "ConvWeightsGradient"
"""Of the gradient of the result and the source: those of the weights and the bias."""
MAX_POOL = "MaxPoolGradient"
AVERAGE_POOL = "AveragePoolGradient"
"""Of the gradient of the result and the source: that of the source."""
RESIZE = "ResizeByRule"
"""Of a source [N, C, ...] and its new shape: the result, by a rule whose fields are attributes
(``function``, ``coordinates``, ``rounding``, ``cubic``), and ``scales``, one for each spatial axis
or none."""
RESIZE_DATA = "ResizeGradient"
"""Of the gradient of that result and the shape of the source, with the same attributes: that of the
source."""
SOFTMAX = "SoftmaxGradient"
"""Of the gradient of the result and the result: that of the source."""


def training(kind: str) -> str:
    """The operator that normalizes by "Batch", "Layer" or "Group": of a source, an optional scale
    and an optional shift it gives the result, the mean and the variance."""
    return f"{kind}NormalizationTraining"


def gradient(kind: str) -> str:
    """The operator of its gradient: of the gradient of the result, the source, the mean, the
    variance and an optional scale it gives the gradients of the source, the scale and the shift.

    With the attribute ``given`` the statistics are constants.
    """
    return f"{kind}NormalizationGradient"
