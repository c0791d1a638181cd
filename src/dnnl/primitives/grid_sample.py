"""Grid sample: images sampled at the positions of a grid, as in spatial transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.windows import grid_sample as kernel
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import (
    ATTRIBUTES,
    DTAG,
    Driver,
    auxiliary,
    sources,
    tags,
    types,
)
from dnnl.language.problem import Dims
from dnnl.language.values import one_of
from dnnl.primitives.checks import check_dims, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_nest
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import Name
from dnnl.reference.grid_sample import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.memory_desc import MemoryDesc

_FUNCTIONS = ("nearest", "linear", "cubic")
_PADDINGS = ("zeros", "border", "reflection")
_COORDINATES = ("edges", "corners", "pixels")


@dataclass(frozen=True)
class GridSampleDesc(Desc):
    """dst[n, c, o..] = src[n, c, ..] at the position grid[n, o.., :], interpolated.

    src is [N, C, ...] with one to three spatial dimensions, grid is [N, o.., space], dst is
    [N, C, o..]. The last dimension of grid has the coordinate of the last spatial dimension first,
    (x, y) for images.

    - ``function``: ``nearest`` (ties to even), ``linear`` or ``cubic`` (Keys' convolution,
      a = -0.75);
    - ``coordinates``: from -1 to 1 between the outer ``edges`` of the image or between the centers
      of its ``corners``; or ``pixels``, where 0 is the center of the first;
    - ``padding``: outside the image are ``zeros``, the nearest pixel of its ``border``, or its
      ``reflection``. A NaN coordinate is a position before the image.

    Arguments SRC, SRC_1 (the grid) and DST, whose layout may be ``any``: f32, bf16, f16 and f64 in
    any combination, computed in f64 if src or dst has it, else in f32.
    """

    function: str
    padding: str
    coordinates: str
    src_desc: MemoryDesc
    grid_desc: MemoryDesc
    dst_desc: MemoryDesc

    def check(self) -> None:
        """Raise InvalidArguments unless dst has N and C of src and the positions of the grid."""
        src, grid = self.src_desc.dims, self.grid_desc.dims
        space = len(src) - 2
        if not 1 <= space <= 3:
            raise InvalidArguments("src_desc", src, "expected batch, channels, 1 to 3 of space")
        if len(grid) != len(src) or grid[0] != src[0] or grid[-1] not in (space, RUNTIME_DIM):
            rule = f"expected {len(src)} dimensions, the first of {src[0]} and the last of {space}"
            raise InvalidArguments("grid_desc", grid, rule)
        rule = "batch and channels of src, and the places of the grid"
        check_dims("dst_desc", self.dst_desc, (*src[:2], *grid[1:-1]), rule)
        if prod(self.dst_desc.dims) and not prod(src[2:]):
            raise InvalidArguments("src_desc", src, "there is nothing to sample")

    def size_name(self, argument: int, dim: int, letter: str) -> str:
        """grid and dst share the sizes of positions; the spatial sizes of src have other names."""
        if argument == Arg.SRC:
            return letter if dim < 2 else f"{argument}{letter}"
        if argument == Arg.SRC_1 and dim:
            return chr(ord(letter) + 1)
        return letter

    def derived_size(
        self, argument: int, dim: int, dims: Mapping[int, Sequence[int]]
    ) -> int | None:
        """The last size of the grid is the number of spatial dimensions."""
        space = self.src_desc.ndims - 2
        return space if argument == Arg.SRC_1 and dim == space + 1 else None

    @property
    def problem(self) -> str:
        """The dims of src and of the grid."""
        return f"{spelled(self.src_desc.dims)}:{spelled(self.grid_desc.dims)}"


def _nest(desc: GridSampleDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    options = desc.function, desc.padding, desc.coordinates
    tensors = desc.src_desc, desc.grid_desc, desc.dst_desc
    configure = partial(kernel.configure, *options, *tensors)
    return plan_nest(desc, attr, isa, configure, kernel.build)


def _grid(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.tensors[1], case.part("sdt", 1), "abx")


def _dst(case: CaseValues) -> MemoryDesc:
    dims, grid = case.shapes.dims, case.shapes.tensors[1]
    return tensor((*dims[:2], *grid[1:-1]), case.part("sdt", 0), case["dtag"])


GridSampleDesc.operation = Operation(
    kind="grid_sample",
    summary="grid sample: images sampled at the positions of a grid",
    driver=Driver(
        "grid_sample",
        (
            types("sdt", "f32:f32", sources, (2,)), tags("stag", "abx", lambda line: [line.source]),
            DTAG, auxiliary("function", "linear", one_of(*_FUNCTIONS), _FUNCTIONS).shown(),
            auxiliary("padding", "zeros", one_of(*_PADDINGS), _PADDINGS),
            auxiliary("coordinates", "edges", one_of(*_COORDINATES), _COORDINATES), *ATTRIBUTES,
        ),
        Dims(2, 2, " by "),
    ),
    roles=(
        Role(
            Arg.SRC, "src", "src_desc", reads=FORWARD,
            case=lambda case: tensor(case.shapes.dims, case.part("sdt", 0), case["stag"]),
        ),
        Role(Arg.SRC_1, "src", "grid_desc", reads=FORWARD, case=_grid),
        Role(Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src_desc",), case=_dst),
    ),
    parameters=(
        Parameter("function", Name(_FUNCTIONS), lambda case: case["function"], "function"),
        Parameter("padding", Name(_PADDINGS), lambda case: case["padding"], "padding"),
        Parameter("coordinates", Name(_COORDINATES), lambda case: case["coordinates"],
                  "coordinates"),
    ),
    reference=SPECIFICATION,
    examples=(
        "--function=nearest,linear,cubic --padding=zeros,border,reflection 2x3x9x7:2x5x19x2",
        "--function=linear,cubic --coordinates=corners,pixels --stag=axb 2x3x9x7:2x5x19x2",
        "--function=nearest,linear --stag=abx,aBx16b 1x20x5x6x7:1x3x4x9x3 2x19x40:2x33x1",
        "--sdt=bf16:f32,f64:f64,f16:f16 --function=linear,cubic 2x5x8x9:2x7x5x2",
    ),
    implementations=(Implementation("nest", _nest),),
)  # fmt: skip
