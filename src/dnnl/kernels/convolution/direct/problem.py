"""The definition of a convolution: tensors, window, groups; and the quantization that it takes."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.kernels.convolution.direct.compute import (
    Piece,
    Space,
)
from dnnl.kernels.product.base import problem as product_problem
from dnnl.types.arg import Arg, name_of


@dataclass(frozen=True, kw_only=True)
class ConvolutionProblem(product_problem.ProductProblem):
    """A forward convolution. The layout of src, weights and dst may be ``any``."""

    space: Space

    @property
    def grouped(self) -> bool:
        """Whether the weights have a dimension of groups."""
        return self.weights.ndims > self.dst.ndims

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self.weights.dims[0] if self.grouped else 1

    @property
    def outputs(self) -> int:
        """The output channels of a group."""
        return self.weights.dims[1 if self.grouped else 0]

    @property
    def channels(self) -> int:
        """The channels of src in a group."""
        return self.weights.dims[2 if self.grouped else 1]

    @property
    def transposed(self) -> bool:
        """Whether it is a deconvolution, whose strides and dilations are distances in dst."""
        return False

    @property
    def step(self) -> tuple[int, int]:
        """The distance of consecutive rows of a tile in pixels of src, and of dst."""
        return self.space[2].stride, 1

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The convolutions that dst consists of."""
        return (Piece(self.space),)

    @property
    def borders(self) -> bool:
        """Whether some outputs have fewer taps inside src than others."""
        return any(s.padded for s in self.space)


def refuse_quantization(problem: ConvolutionProblem) -> Refusal | None:
    """Why scales and zero points cannot be generated, or None.

    What changes along K must be applied before the sum, except zero points of src, which are
    compensated. A group of one channel has a single scale along K.
    """
    given = problem.quantization
    tensors = {
        int(Arg.SRC): problem.src,
        int(Arg.WEIGHTS): problem.weights,
        int(Arg.DST): problem.dst,
    }
    per_output = 0b11 if problem.grouped else 0b1
    refusal = given.refuse(tensors)
    alone = 2 if problem.grouped and problem.channels == 1 else 0
    kinds = ("scales", given.scales, alone), ("zero points", given.zero_points, 2)
    for what, specs, of_src in kinds:
        allowed = {int(Arg.SRC): of_src, int(Arg.WEIGHTS): per_output}
        for arg, spec in specs:
            if refusal is None and arg in allowed and spec.mask & ~allowed[arg]:
                rule = f"it takes 0 or {allowed[arg]}" if allowed[arg] else "it takes 0"
                detail = f"{what} of {name_of(arg)} with mask {spec.mask}; {rule}"
                refusal = Refusal(Reason.ATTRIBUTE, detail)
    return refusal
