"""The definition of the gradient of a convolution's weights, and of its bias."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.kernels.convolution.direct.compute import Space
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc


def exchanged(weights: MemoryDesc, first: int) -> MemoryDesc:
    """The weights with output and input channels, dimension ``first`` and the next, exchanged."""
    axes = list(range(weights.ndims))
    axes[first], axes[first + 1] = first + 1, first
    return weights.permute_axes(axes)


@dataclass(frozen=True, kw_only=True)
class WeightsGradient:
    """diff_weights[o, i, k] = sum over images n and outputs p of
    src[n, i, p * stride + k * dilation - padding] * diff_dst[n, o, p].

    The tensors and ``space`` are those of a *convolution*; any layout may be ``any``.
    ``diff_bias`` sums ``diff_dst``, or ``src`` if ``of_src``, as the bias of a deconvolution does;
    it may be the zero descriptor. f32 operands may be multiplied as ``narrow``. ``arguments`` have
    src, diff_dst and diff_weights.
    """

    src: MemoryDesc
    diff_weights: MemoryDesc
    diff_bias: MemoryDesc
    diff_dst: MemoryDesc
    space: Space
    narrow: DataType = DataType.f32
    arguments: tuple[int, int, int] = (int(Arg.SRC), int(Arg.DIFF_DST), int(Arg.DIFF_WEIGHTS))
    of_src: bool = False

    @property
    def grouped(self) -> bool:
        """Whether the weights have a dimension of groups."""
        return self.diff_weights.ndims > self.diff_dst.ndims

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self.diff_weights.dims[0] if self.grouped else 1

    @property
    def outputs(self) -> int:
        """The channels of diff_dst in a group."""
        return self.diff_weights.dims[1 if self.grouped else 0]

    @property
    def channels(self) -> int:
        """The channels of src in a group."""
        return self.diff_weights.dims[2 if self.grouped else 1]
