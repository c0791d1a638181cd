"""Gather: slices or elements of a tensor in the order that indices say, as rows of an embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.kernels.data import gather as kernel
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import ATTRIBUTES, AXIS, DTAG, Driver, sources, tags, types
from dnnl.language.problem import Dims
from dnnl.primitives.checks import check_dims, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_nest
from dnnl.primitives.indexed import check_indices, indexed_dims
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import AxisDomain
from dnnl.reference.gather import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class GatherDesc(Desc):
    """dst[.., j, ..] = src[.., indices[j], ..] along ``axis``, as ``numpy.take``.

    Indices with as many dimensions as src choose single elements, as ``numpy.take_along_axis``:
    dst[i, j, ..] = src[i, indices[i, j, ..], ..], where ``axis`` is 1.

    Arguments SRC, SRC_1 (the indices, s32 or s64), DST; dst may be ``any``. An index below zero
    counts from the end; an index out of range is clamped to the nearest slice.
    The bits of elements are moved, of any type of whole bytes.
    """

    src_desc: MemoryDesc
    indices_desc: MemoryDesc
    dst_desc: MemoryDesc
    axis: int

    def check(self) -> None:
        """dst has the dims of src, with as many slices along the axis as there are indices, or
        those of the indices of elements, which reach no further than src along the other axes."""
        src, indices = self.src_desc.dims, self.indices_desc.dims
        check_indices(src, indices, self.axis)
        rule = "the dims of src with one slice an index, or those of indices of elements"
        check_dims("dst_desc", self.dst_desc, indexed_dims(src, indices, self.axis), rule)

    def size_name(self, argument: int, dim: int, letter: str) -> str:
        """Indices are as many as they are. Those of elements leave parts of src out."""
        slices = self.indices_desc.ndims == 1
        apart = argument == (Arg.SRC_1 if slices else Arg.SRC) or dim == self.axis
        return f"{argument}{letter}" if apart else letter

    def derived_size(
        self, argument: int, dim: int, dims: Mapping[int, Sequence[int]]
    ) -> int | None:
        """Those of dst are those of src and the indices."""
        if argument != Arg.DST:
            return None
        return indexed_dims(dims[Arg.SRC], dims[Arg.SRC_1], self.axis)[dim]

    @property
    def problem(self) -> str:
        """The dims of src and of the indices."""
        return f"{spelled(self.src_desc.dims)}:{spelled(self.indices_desc.dims)}"


def _nest(desc: GatherDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    tensors = desc.src_desc, desc.indices_desc, desc.dst_desc
    configure = partial(kernel.configure, desc.axis, *tensors)
    return plan_nest(desc, attr, isa, configure, kernel.build)


def _indices(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.tensors[1], case.part("sdt", 1), "abx")


def _dst(case: CaseValues) -> MemoryDesc:
    dims, axis = case.shapes.dims, case["axis"]
    if axis < len(dims):
        dims = indexed_dims(dims, case.shapes.tensors[1], axis)
    return tensor(dims, case.part("sdt", 0), case["dtag"])


GatherDesc.operation = Operation(
    kind="gather",
    reads_indexed=True,
    summary="gather: slices or elements along one axis in the order that indices say",
    driver=Driver(
        "gather",
        (
            types("sdt", "f32:s32", sources, (2,)), tags("stag", "abx", lambda line: [line.source]),
            DTAG, AXIS, *ATTRIBUTES,
        ),
        Dims(2, 2, " by "),
    ),
    roles=(
        Role(
            Arg.SRC, "src", "src_desc", reads=FORWARD,
            case=lambda case: tensor(case.shapes.dims, case.part("sdt", 0), case["stag"]),
        ),
        Role(Arg.SRC_1, "src", "indices_desc", reads=FORWARD, case=_indices),
        Role(Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src_desc",), case=_dst),
    ),
    parameters=(Parameter("axis", AxisDomain(), lambda case: case["axis"], "axis"),),
    reference=SPECIFICATION,
    examples=(
        "--axis=0,1,2 --stag=abx,axb 13x19x5:7",
        "--sdt=bf16:s64,s8:s32,f64:s64 --axis=0 300x40:33",
        "--stag=aBx8b --dtag=abx,aBx16b --axis=0,1 5x20x7:9",
        "--sdt=f32:s64,s8:s32 --stag=abx,axb,aBx16b --dtag=any --axis=0,1,2 5x20x7:4x20x6",
    ),
    implementations=(Implementation("nest", _nest),),
)  # fmt: skip
