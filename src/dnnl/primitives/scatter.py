"""Scatter: slices or elements written to indexed positions, as entries of a cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.kernels.data import scatter as kernel
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import (
    ATTRIBUTES,
    AXIS,
    DTAG,
    INPLACE,
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
from dnnl.primitives.indexed import check_indices, indexed_dims
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import AxisDomain, Name
from dnnl.reference.scatter import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc

_FUNCTIONS = ("none", "add", "mul", "max", "min")


@dataclass(frozen=True)
class ScatterDesc(Desc):
    """dst = src; then dst[.., indices[j], ..] = updates[.., j, ..] along ``axis``, in order of j.

    ``function`` is ``none`` (the last update wins), or combines the element with the update:
    ``add``, ``mul``, ``max`` or ``min``, rounded after each update.

    Indices with one dimension choose slices. Indices with as many dimensions as src choose single
    elements: dst[i, indices[i, j, ..], ..] = updates[i, j, ..] for ``axis`` 1.

    Arguments SRC, SRC_1 (the indices, s32 or s64), SRC_2 (the updates) and DST. The layout of dst
    may be ``any``, and dst may be the buffer of src, but the copy is made all the same. A negative
    index counts from the end; an index out of range is clamped. Integers wrap; floats are combined
    in f32, f64 in f64. A maximum or minimum with a NaN is NaN.

    Raises InvalidArguments for dims that do not fit.
    """

    function: str
    src_desc: MemoryDesc
    indices_desc: MemoryDesc
    updates_desc: MemoryDesc
    dst_desc: MemoryDesc
    axis: int

    def check(self) -> None:
        """Raise InvalidArguments unless dst has the dims of src, and updates have those of the
        indices of elements, or those of src with one slice for each index."""
        src, indices = self.src_desc.dims, self.indices_desc.dims
        check_dims("dst_desc", self.dst_desc, src, "the dims of src")
        check_indices(src, indices, self.axis)
        rule = "the dims of src with one slice an index, or those of indices of elements"
        check_dims("updates_desc", self.updates_desc, indexed_dims(src, indices, self.axis), rule)

    def size_name(self, argument: int, dim: int, letter: str) -> str:
        """Indices and updates share sizes; those of elements are none of src."""
        if argument in (Arg.SRC, Arg.DST):
            return letter
        slices = self.indices_desc.ndims == 1
        if slices and argument == Arg.SRC_2 and dim != self.axis:
            return letter
        return f"{Arg.SRC_1}{chr(ord('A') + self.axis) if slices else letter}"

    @property
    def problem(self) -> str:
        """The dims of src and of the indices."""
        return f"{spelled(self.src_desc.dims)}:{spelled(self.indices_desc.dims)}"


def _nest(desc: ScatterDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    tensors = desc.src_desc, desc.indices_desc, desc.updates_desc, desc.dst_desc
    configure = partial(kernel.configure, desc.function, desc.axis, *tensors)
    return plan_nest(desc, attr, isa, configure, kernel.build)


def _src(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.dims, case.part("sdt", 0), case["stag"])


def _dst(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.dims, case.part("sdt", 0), case["dtag"])


def _indices(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.tensors[1], case.part("sdt", 1), "abx")


def _updates(case: CaseValues) -> MemoryDesc:
    dims, axis = case.shapes.dims, case["axis"]
    if axis < len(dims):
        dims = indexed_dims(dims, case.shapes.tensors[1], axis)
    return tensor(dims, case.part("sdt", 0), "abx")


ScatterDesc.operation = Operation(
    kind="scatter",
    summary="scatter: slices or elements written to indices along one axis",
    driver=Driver(
        "scatter",
        (
            types("sdt", "f32:s32", lambda line: sources(line)[:2], (2,)),
            tags("stag", "abx", lambda line: [line.source]), DTAG, AXIS,
            auxiliary("function", "none", one_of(*_FUNCTIONS), _FUNCTIONS).shown(),
            *ATTRIBUTES, INPLACE,
        ),
        Dims(2, 2, " by "),
    ),
    roles=(
        Role(Arg.SRC, "src", "src_desc", reads=FORWARD, case=_src),
        Role(Arg.SRC_1, "src", "indices_desc", reads=FORWARD, case=_indices),
        Role(Arg.SRC_2, "src", "updates_desc", reads=FORWARD, case=_updates),
        Role(Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("",), case=_dst),
    ),
    parameters=(
        Parameter("function", Name(_FUNCTIONS), lambda case: case["function"], "function"),
        Parameter("axis", AxisDomain(), lambda case: case["axis"], "axis"),
    ),
    in_place=((Arg.DST, Arg.SRC),),
    reference=SPECIFICATION,
    examples=(
        "--function=none,add,mul,max,min --axis=0,1,2 13x19x5:7 13x19x5:9x12x4",
        "--sdt=bf16:s64,s8:s32,f64:s64,s64:s32 --function=none,add --axis=0 300x40:33",
        "--stag=axb,aBx8b --dtag=abx,axb --function=none,max --axis=0,1 5x20x7:9 5x20x7:4x20x6",
    ),
    implementations=(Implementation("nest", _nest),),
)  # fmt: skip
