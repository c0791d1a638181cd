"""Functions of elements that are computed in their own types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.functions.own_types import FUNCTIONS
from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.pointwise import exact as kernel
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import (
    ATTRIBUTES,
    DDT,
    DTAG,
    EACH_STAG,
    INPLACE,
    Driver,
    auxiliary,
    sources,
    types,
)
from dnnl.language.problem import Dims
from dnnl.language.values import MANY, one_of
from dnnl.primitives.checks import read_sources, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_nest
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import Name
from dnnl.reference.exact import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True, init=False)
class ExactDesc(Desc):
    """dst = function(srcs), element by element, without f32 between as `BinaryDesc` has it.

    Integers of 8 to 64 bits wrap, ``div`` goes towards zero and is 0 by zero, ``mod`` has the sign
    of the divisor and ``remainder`` that of the dividend; comparisons give a boolean, ``where``
    chooses by one, and ``cast`` makes any type of any other one: integers keep their lower bits,
    floats lose what stands behind the point and become the nearest integer that there is.

    Arguments MULTIPLE_SRC + i, DST. All have the same rank; a source of size 1 in a dimension is
    broadcast along that of dst. dst may be ``any``, and may be the buffer of the first source.
    """

    function: str
    src_descs: tuple[MemoryDesc, ...]
    dst_desc: MemoryDesc

    def __init__(
        self, function: str, src_descs: Sequence[MemoryDesc], dst_desc: MemoryDesc
    ) -> None:
        self._fill(function=function, src_descs=read_sources(src_descs), dst_desc=dst_desc)

    def check(self) -> None:
        """As many sources as the function has, whose types and dims go together."""
        signature, given = FUNCTIONS[self.function].signature, self.src_descs
        if len(given) != signature.sources:
            rule = f"{self.function} takes {signature.sources} sources, not {len(given)}"
            raise InvalidArguments("src_descs", _listed(given), rule)
        kinds = [desc.data_type for desc in (self.dst_desc, *given)]
        if not signature.fits(*kinds):
            rule = f"{self.function}: {signature.rule}; src_descs have {_listed(kinds[1:])}"
            raise InvalidArguments("dst_desc", str(kinds[0]), rule)
        dims = self.dst_desc.dims
        for number, desc in enumerate(given):
            fits = len(desc.dims) == len(dims) and all(
                extent in (1, full) for extent, full in zip(desc.dims, dims, strict=True)
            )
            if not fits:
                rule = f"each dimension must be 1 or that of dst, which is {dims}"
                raise InvalidArguments(f"src_descs[{number}]", desc.dims, rule)

    @property
    def problem(self) -> str:
        """The dims of the sources."""
        return ":".join(spelled(source.dims) for source in self.src_descs)


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))


def _nest(desc: ExactDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    configure = partial(kernel.configure, desc.function, desc.src_descs, desc.dst_desc)
    return plan_nest(desc, attr, isa, configure, kernel.build)


def _sources(case: CaseValues) -> tuple[MemoryDesc, ...]:
    dims = case.shapes.padded
    kinds, tags = case.spread("sdt", len(dims)), case.spread("stag", len(dims))
    return tuple(map(tensor, dims, kinds, tags))


ExactDesc.operation = Operation(
    kind="exact",
    summary="exact: a function of elements in their own types",
    driver=Driver(
        "exact",
        (
            types("sdt", "s32", sources, MANY), DDT.but("s32"), EACH_STAG, DTAG,
            auxiliary("alg", "add", one_of(*FUNCTIONS), FUNCTIONS).shown(), *ATTRIBUTES, INPLACE,
        ),
        Dims(1, 3),
    ),
    roles=(
        Role(Arg.MULTIPLE_SRC, "src", "src_descs", reads=FORWARD, many=True, case=_sources),
        Role(
            Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src_descs",),
            case=lambda case: tensor(case.shapes.result, case["ddt"], case["dtag"]),
        ),
    ),
    parameters=(Parameter("function", Name(tuple(FUNCTIONS)), lambda case: case["alg"], "alg"),),
    in_place=((Arg.DST, Arg.MULTIPLE_SRC),),
    reference=SPECIFICATION,
    examples=(
        "--sdt=s64 --ddt=s64 --stag=axb --alg=mul 3x19x5:1x19x5",
        "--sdt=s8 --ddt=s8 --alg=div 3x19x5:3x19x5",
        "--sdt=u16 --ddt=boolean --alg=less 3x19:3x19",
        "--sdt=boolean:s16:s16 --ddt=s16 --alg=where 3x1:3x19:1x19",
        "--sdt=f32 --ddt=u64,s32,s8,boolean --alg=cast 3x19",
    ),
    implementations=(Implementation("nest", _nest),),
)  # fmt: skip
