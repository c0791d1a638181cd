"""Transposed convolution: every element of src adds its weighted value to several elements of dst.

It is computed in gather form, each element of dst from the elements of src that contribute to it
(`residues`), so that it shares the layouts, copies and tiles of convolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from dnnl.codegen.ir.kernel import Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Bound
from dnnl.codegen.nest.windows import Window, containing
from dnnl.kernels.convolution.depthwise import depthwise
from dnnl.kernels.convolution.depthwise.depthwise import Walk
from dnnl.kernels.convolution.depthwise.rows import DepthwiseRowsConf, build_rows
from dnnl.kernels.convolution.direct import convolution, open_transposed
from dnnl.kernels.convolution.direct.compute import ConvolutionConf, products
from dnnl.kernels.convolution.direct.open_transposed import OpenTransposedConf
from dnnl.kernels.convolution.direct.pieces import Piece
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.convolution.direct.residues import parts
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.kernels.product.loops import phases


@dataclass(frozen=True, kw_only=True)
class DeconvolutionProblem(ConvolutionProblem):
    """A forward deconvolution: in ``space``, strides and dilations are distances in dst."""

    @property
    def transposed(self) -> bool:
        """Strides and dilations are distances in dst."""
        return True

    @property
    def step(self) -> tuple[int, int]:
        """The pixels of a residue are consecutive in src, and a stride apart in dst."""
        return 1, self.space[2].stride

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """One convolution for all residues of the same sizes."""
        found = []
        for chosen in product(*(parts(space) for space in self.space)):
            (d, h, w), (in_d, in_h, in_w) = zip(*chosen, strict=True)
            found.append(Piece((d, h, w), (in_d, in_h, in_w)))
        return tuple(found)

    @property
    def borders(self) -> bool:
        """Residues have taps of their own."""
        return True


def resolve(problem: DeconvolutionProblem, isa: Isa) -> DeconvolutionProblem:
    """Decide the layouts that are ``any`` as a convolution does."""
    return convolution.resolve(problem, isa)


def configure(
    problem: DeconvolutionProblem, isa: Isa
) -> ConvolutionConf | OpenTransposedConf | Refusal:
    """Plan the convolutions of all residues, whose layouts are all decided."""
    if not open_transposed.serves(problem):
        return convolution.configure(problem, isa)
    return convolution.refused(problem) or open_transposed.configure(problem, isa)


def build(conf: ConvolutionConf | OpenTransposedConf, isa: Isa) -> Kernel:
    """A product for each piece of dst, with the sums that compensate them."""
    name = "convolution_transposed"
    if isinstance(conf, OpenTransposedConf):
        return open_transposed.build(name, conf, isa)
    return phases.build(name, conf, isa, products)


def build_depthwise(conf: depthwise.DepthwiseConf | DepthwiseRowsConf, isa: Isa) -> Kernel:
    """Rows of dst, or one nest over its elements that sums the elements of src that contribute to
    each."""
    if isinstance(conf, DepthwiseRowsConf):
        return build_rows("depthwise_transposed", conf, isa)
    problem = conf.problem
    spatial = problem.dst.padded_dims[2:]
    sizes = (*(1,) * (3 - len(spatial)), *spatial)
    given = zip(problem.space, sizes, "dhw", strict=True)
    walks = [_walk(space, size, name) for space, size, name in given]
    return depthwise.build_walk("depthwise_transposed", problem, walks, isa)


def _walk(space: Spatial, size: int, name: str) -> Walk:
    """One dimension of dst, of ``size`` elements with its padding."""
    dim = Window(size, space.src, space.kernel, space.stride, space.dilation, space.padding)
    each = containing(dim, name)
    inside = Bound(each.element, space.dst)
    return Walk(
        each.parallel,
        each.reduced,
        each.window,
        each.tap,
        each.element,
        each.pairs,
        each.where,
        filled=(inside,) if space.dst < size else (),
    )
