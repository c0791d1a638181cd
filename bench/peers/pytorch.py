"""PyTorch as a peer, at its fastest: weights packed beforehand, relu fused, channels last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.descriptor import ConvolutionCase


class PyTorch:
    """Raises ImportError where it is not installed."""

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch
        self.version = str(torch.__version__)

    def set_num_threads(self, num_threads: int) -> None:
        """The threads of everything that runs from now on."""
        self._torch.set_num_threads(num_threads)

    def convolution(
        self,
        case: ConvolutionCase,
        src: NDArray[np.float32],
        weights: NDArray[np.float32],
        bias: NDArray[np.float32],
    ) -> Callable[[], Any]:
        """A convolution with bias and relu; a call returns the tensor.

        It is the operator that PyTorch's own compiler takes. The padding at the ends follows from
        the sizes, which must be those of equal padding on both sides, rounded down.
        """
        torch = self._torch
        x = torch.from_numpy(src).contiguous(memory_format=torch.channels_last)
        w, b = torch.from_numpy(weights), torch.from_numpy(bias)
        padding, strides = list(case.padding_l), list(case.strides)
        dilations = [value + 1 for value in case.dilations]
        geometry = (padding, strides, dilations, case.groups)
        packed = torch._C._nn.mkldnn_reorder_conv2d_weight(
            w.to_mkldnn(), *geometry, list(src.shape)
        )
        fused = torch.ops.mkldnn._convolution_pointwise

        def run() -> Any:
            return fused(x, packed, b, *geometry, "relu", [], "")

        return self._inference(run)

    def matmul(self, src: NDArray[np.float32], weights: NDArray[np.float32]) -> Callable[[], Any]:
        """A product of row-major matrices into memory that is there; returns the tensor."""
        torch = self._torch
        a, b = torch.from_numpy(src), torch.from_numpy(weights)
        dst = torch.empty(a.shape[0], b.shape[1])

        def run() -> Any:
            return torch.mm(a, b, out=dst)

        return self._inference(run)

    def _inference(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """``run`` without the book-keeping for gradients."""
        guarded: Callable[[], Any] = self._torch.inference_mode()(run)
        return guarded
