"""Gather: slices of a tensor in the order that indices say, as the rows of an embedding."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels import gather as kernel
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import ATTRIBUTES, AXIS, DTAG, Driver, sources, tags, types
from dnnl.language.problem import Dims
from dnnl.primitives.checks import check_dims, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_nest
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import Axis
from dnnl.reference.gather import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class GatherDesc(Desc):
    """dst[.., j, ..] = src[.., indices[j], ..] along ``axis``, as ``numpy.take``.

    Arguments SRC, SRC_1 (the indices, in one dimension, s32 or s64), DST; dst may be ``any``. An
    index below zero counts from the end; one that lies outside all the same finds the nearest slice
    that there is. The bits of elements are moved, of any type of whole bytes.
    """

    src_desc: MemoryDesc
    indices_desc: MemoryDesc
    dst_desc: MemoryDesc
    axis: int

    def check(self) -> None:
        """dst has the dims of src, with as many slices along the axis as there are indices."""
        src, indices = self.src_desc.dims, self.indices_desc.dims
        if len(indices) != 1:
            rule = "expected one dimension"
            raise InvalidArguments("indices_desc", indices, rule, "reshape() flattens them")
        if indices[0] and not src[self.axis]:
            rule = f"there is nothing to index along axis {self.axis}"
            raise InvalidArguments("src_desc", src, rule)
        wanted = (*src[: self.axis], indices[0], *src[self.axis + 1 :])
        check_dims("dst_desc", self.dst_desc, wanted, "the dims of src with one slice an index")

    @property
    def problem(self) -> str:
        """The dims of src and of the indices."""
        return f"{spelled(self.src_desc.dims)}:{spelled(self.indices_desc.dims)}"


def _nest(desc: GatherDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    def configure(_: object) -> kernel.Conf | Refusal:
        return kernel.configure(desc.axis, desc.src_desc, desc.indices_desc, desc.dst_desc)

    return plan_nest(desc, attr, isa, configure, kernel.build)


def _indices(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.tensors[1], case.part("sdt", 1), "a")


def _dst(case: CaseValues) -> MemoryDesc:
    dims, axis = list(case.shapes.dims), case["axis"]
    if axis < len(dims):
        dims[axis] = case.shapes.tensors[1][0]
    return tensor(tuple(dims), case.part("sdt", 0), case["dtag"])


GatherDesc.operation = Operation(
    kind="gather",
    summary="gather: slices along one axis in the order that indices say",
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
    parameters=(Parameter("axis", Axis(), lambda case: case["axis"], "axis"),),
    reference=SPECIFICATION,
    examples=(
        "--axis=0,1,2 --stag=abx,axb 13x19x5:7",
        "--sdt=bf16:s64,s8:s32,f64:s64 --axis=0 300x40:33",
        "--stag=aBx8b --dtag=abx,aBx16b --axis=0,1 5x20x7:9",
    ),
    implementations=(Implementation("nest", _nest),),
)  # fmt: skip
