"""Arg reduction: the index of the largest or the smallest element along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.reduction import arg_reduction as kernel
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import (
    ATTRIBUTES,
    AXIS,
    DDT,
    DTAG,
    SDT,
    STAG,
    Driver,
    auxiliary,
)
from dnnl.language.problem import Dims
from dnnl.language.values import one_of
from dnnl.primitives.checks import check_dims, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_nest
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import AxisDomain, Name
from dnnl.reference.arg_reduction import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc

_FUNCTIONS = ("max", "min")
_TIES = ("first", "last")


@dataclass(frozen=True)
class ArgReductionDesc(Desc):
    """dst = argmax or argmin of src along ``axis``, as ``numpy.argmax`` with ``keepdims``.

    ``function`` is ``max`` or ``min``. Among equal elements ``tie`` chooses the ``first`` or the
    ``last``. NaN is chosen before any number, as in NumPy; 0 and -0 are equal.

    Arguments SRC and DST. src has floats, integers of 8 to 64 bits, or booleans. dst has the dims
    of src with 1 along ``axis``, in s32 or s64; its layout may be ``any``.

    Raises InvalidArguments for a wrong dst, and where src is empty along ``axis``.
    """

    function: str
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    axis: int
    tie: str = "first"

    def check(self) -> None:
        """Raise InvalidArguments unless dst has the dims of src with 1 along the axis."""
        src = self.src_desc.dims
        if not src[self.axis]:
            rule = f"there is nothing to compare along axis {self.axis}"
            raise InvalidArguments("src_desc", src, rule)
        rule = f"the dims of src with 1 along axis {self.axis}"
        check_dims("dst_desc", self.dst_desc, _reduced(src, self.axis), rule)

    @property
    def problem(self) -> str:
        """The dims of src."""
        return spelled(self.src_desc.dims)


def _reduced(dims: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*dims[:axis], 1, *dims[axis + 1 :])


def _nest(desc: ArgReductionDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    largest, last = desc.function == "max", desc.tie == "last"
    configure = partial(kernel.configure, largest, last, desc.axis, desc.src_desc, desc.dst_desc)
    return plan_nest(desc, attr, isa, configure, kernel.build)


def _dst(case: CaseValues) -> MemoryDesc:
    dims, axis = case.shapes.dims, case["axis"]
    dims = _reduced(dims, axis) if axis < len(dims) else dims
    return tensor(dims, case["ddt"], case["dtag"])


ArgReductionDesc.operation = Operation(
    kind="arg_reduction",
    summary="arg reduction: the index of the largest or the smallest element along an axis",
    driver=Driver(
        "arg_reduction",
        (
            SDT, DDT.but("s64"), STAG, DTAG, AXIS,
            auxiliary("function", "max", one_of(*_FUNCTIONS), _FUNCTIONS).shown(),
            auxiliary("tie", "first", one_of(*_TIES), _TIES), *ATTRIBUTES,
        ),
        Dims(),
    ),
    roles=(
        Role(
            Arg.SRC, "src", "src_desc", reads=FORWARD,
            case=lambda case: tensor(case.shapes.dims, case["sdt"], case["stag"]),
        ),
        Role(Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src_desc",), case=_dst),
    ),
    parameters=(
        Parameter("function", Name(_FUNCTIONS), lambda case: case["function"], "function"),
        Parameter("axis", AxisDomain(), lambda case: case["axis"], "axis"),
        Parameter("tie", Name(_TIES), lambda case: case["tie"], "tie"),
    ),
    reference=SPECIFICATION,
    examples=(
        "--function=max,min --axis=0,1,2 --stag=abx,axb,aBx16b 13x19x35",
        "--function=max,min --tie=first,last --axis=0,1 --stag=ab,ba 300x5 7x400",
        "--sdt=bf16,f16,f64,s8,u8,s32,s64,u64 --ddt=s32,s64 --axis=0,1 9x70",
    ),
    implementations=(Implementation("nest", _nest),),
)  # fmt: skip
