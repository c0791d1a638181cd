"""Cumulative: running sums or products along an axis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.kernels.reduction import cumulative as kernel
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import ATTRIBUTES, AXIS, DT, INPLACE, TAG, Driver, auxiliary
from dnnl.language.problem import Dims
from dnnl.language.values import one_of
from dnnl.primitives.checks import check_dims, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_nest
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import AxisDomain, Name
from dnnl.reference.cumulative import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc

_FUNCTIONS = ("sum", "product")
_TERMS = ("inclusive", "exclusive")
_ORDERS = ("forward", "reverse")


@dataclass(frozen=True)
class CumulativeDesc(Desc):
    """dst[.., k, ..] = sum or product of src[.., 0, ..] to src[.., k, ..] along ``axis``, as
    ``numpy.cumsum`` and ``numpy.cumprod``.

    ``function`` is ``sum`` or ``product``. ``terms`` are ``inclusive``, or ``exclusive``, without
    src[.., k, ..] itself: the first result is then 0 or 1. ``order`` is ``forward``, or
    ``reverse``, from the end of the axis.

    Arguments SRC and DST, of the same dims and type: f32, bf16 and f16 (computed in f32), f64, or
    integers of 8 to 64 bits, which wrap. The layout of dst may be ``any``, and dst may be the
    buffer of src. Blocks of dst must not pad the axis.
    """

    function: str
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    axis: int
    terms: str = "inclusive"
    order: str = "forward"

    def check(self) -> None:
        """Raise InvalidArguments unless dst has the dims of src."""
        check_dims("dst_desc", self.dst_desc, self.src_desc.dims, "the dims of src")

    @property
    def problem(self) -> str:
        """The dims of src."""
        return spelled(self.src_desc.dims)


def _nest(desc: CumulativeDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    configure = partial(
        kernel.configure,
        desc.function == "product",
        desc.axis,
        desc.terms == "exclusive",
        desc.order == "reverse",
        desc.src_desc,
        desc.dst_desc,
    )
    return plan_nest(desc, attr, isa, configure, kernel.build)


def _given(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.dims, case.part("dt", 0), case.tag(0))


def _made(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.dims, case.part("dt", 1), case.tag(1))


CumulativeDesc.operation = Operation(
    kind="cumulative",
    summary="cumulative: running sums or products along an axis",
    driver=Driver(
        "cumulative",
        (
            DT, TAG, AXIS,
            auxiliary("function", "sum", one_of(*_FUNCTIONS), _FUNCTIONS).shown(),
            auxiliary("terms", "inclusive", one_of(*_TERMS), _TERMS),
            auxiliary("order", "forward", one_of(*_ORDERS), _ORDERS), *ATTRIBUTES, INPLACE,
        ),
        Dims(),
    ),
    roles=(
        Role(Arg.SRC, "src", "src_desc", reads=FORWARD, case=_given),
        Role(Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src_desc",), case=_made),
    ),
    parameters=(
        Parameter("function", Name(_FUNCTIONS), lambda case: case["function"], "function"),
        Parameter("axis", AxisDomain(), lambda case: case["axis"], "axis"),
        Parameter("terms", Name(_TERMS), lambda case: case["terms"], "terms"),
        Parameter("order", Name(_ORDERS), lambda case: case["order"], "order"),
    ),
    in_place=((Arg.DST, Arg.SRC),),
    reference=SPECIFICATION,
    examples=(
        "--function=sum,product --tag=abx,axb --axis=0,1,2 13x19x35",
        "--terms=inclusive,exclusive --order=forward,reverse --tag=ab,ba --axis=0,1 300x5 7x300",
        "--dt=bf16,f16,f64,s32,s64,u8 --function=sum,product --axis=0,1 9x70",
        "--tag=aBx16b --axis=0,2 3x19x35",
    ),
    implementations=(Implementation("nest", _nest),),
)  # fmt: skip
