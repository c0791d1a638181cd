"""Functions of two tensors, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.pointwise import binary as kernel
from dnnl.language.attributes import BINARY, Sum
from dnnl.language.case import INVALID, CaseValues, tensor
from dnnl.language.options import (
    ATTRIBUTES,
    DDT,
    DTAG,
    INPLACE,
    PAIR_STAG,
    Driver,
    function,
    pair,
    pair_and_target,
    strides,
    types,
)
from dnnl.language.problem import Dims
from dnnl.primitives.checks import check_dims, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_forward
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import Algorithm
from dnnl.reference.binary import SPECIFICATION
from dnnl.types import algorithms
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import broadcasts, is_one


@dataclass(frozen=True, init=False)
class BinaryDesc(Desc):
    """dst = src0 alg src1; a comparison gives 1 or 0, ``binary_select`` src2 ? src0 : src1.

    Arguments SRC_0, SRC_1, DST, and SRC_2 for ``binary_select``: the condition, of s8 and with the
    dims of src0. All have the same rank; a source of size 1 in a dimension is broadcast along it.
    src1, src2 and dst may be ``any``, and dst may be src0's buffer. SRC_0 and SRC_1 may have
    scales. Integers are computed as f32, rounded and saturated, as in oneDNN; `ExactDesc` wraps.
    Dims, strides and offsets of plain layouts may be RUNTIME_DIM: one primitive serves all of them.
    """

    shortest_row = 5

    alg_kind: Alg
    src0_desc: MemoryDesc
    src1_desc: MemoryDesc
    dst_desc: MemoryDesc
    src2_desc: MemoryDesc

    def __init__(
        self,
        alg_kind: Alg | str,
        src0_desc: MemoryDesc,
        src1_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        src2_desc: MemoryDesc | None = None,
    ) -> None:
        self._fill(
            alg_kind=alg_kind,
            src0_desc=src0_desc,
            src1_desc=src1_desc,
            dst_desc=dst_desc,
            src2_desc=MemoryDesc.zero() if src2_desc is None else src2_desc,
        )

    def check(self) -> None:
        """The sources can be broadcast to each other, dst has the dims of the result, and a
        condition is there where it is asked for."""
        left, right = self.src0_desc.dims, self.src1_desc.dims
        fits = len(left) == len(right) and all(
            is_one(b) or broadcasts(a, b) for a, b in zip(left, right, strict=True)
        )
        if not fits:
            rule = f"each dimension must be 1 or that of src0, which is {left}"
            raise InvalidArguments("src1_desc", right, rule)
        dims = [b if is_one(a) else a for a, b in zip(left, right, strict=True)]
        check_dims("dst_desc", self.dst_desc, dims, "what src0 and src1 are broadcast to")
        self._check_condition()

    def _check_condition(self) -> None:
        condition = self.src2_desc
        if self.alg_kind is Alg.binary_select:
            check_dims("src2_desc", condition, self.src0_desc.dims, "the dims of src0")
            if condition.data_type is not DataType.s8:
                raise InvalidArguments("src2_desc", str(condition), "a condition is of type s8")
        elif not condition.is_zero:
            rule = "binary_select takes a src2_desc, the other functions take none"
            raise InvalidArguments("src2_desc", str(condition), rule)

    @property
    def problem(self) -> str:
        """The dims of both sources."""
        return f"{spelled(self.src0_desc.dims)}:{spelled(self.src1_desc.dims)}"


def _configure(desc: BinaryDesc) -> partial[kernel.BinaryConf | Refusal]:
    return partial(
        kernel.configure,
        algorithms.binary(desc.alg_kind),
        desc.src0_desc,
        desc.src1_desc,
        desc.src2_desc,
        desc.dst_desc,
    )


def _nest(desc: BinaryDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    return plan_forward(desc, attr, isa, _configure(desc), kernel.build)


def _invalid(case: CaseValues) -> str | None:
    """In place there must be one tensor of the result's form that nothing else reads."""
    sums = any(isinstance(entry, Sum) for entry in case["attr-post-ops"].items)
    broadcast = case.shapes.dims != case.shapes.result
    return INVALID if case.in_place and (broadcast or sums) else None


def _selects(desc: BinaryDesc) -> bool:
    return str(desc.alg_kind) == Alg.binary_select.name


def _condition(case: CaseValues) -> MemoryDesc | None:
    if case["alg"].alg != Alg.binary_select.name:
        return None
    return MemoryDesc(case.shapes.padded[0], "s8", "any")


def _source(case: CaseValues, number: int) -> MemoryDesc:
    strides = case.strides(number, "stag")
    dims = case.shapes.padded[number]
    return tensor(dims, case["sdt"][number], case["stag"][number], strides)


BinaryDesc.operation = Operation(
    kind="binary",
    summary="binary: a function of two tensors, element by element",
    driver=Driver(
        "binary",
        (
            types("sdt", "f32:f32", pair, (2,)), DDT, PAIR_STAG, DTAG,
            strides(pair_and_target, 3), function("ADD", BINARY), *ATTRIBUTES, INPLACE,
        ),
        Dims(2, 2, " with "),
    ),
    roles=(
        Role(
            Arg.SRC_0, "src", "src0_desc", reads=FORWARD, case=lambda case: _source(case, 0)
        ),
        Role(
            Arg.SRC_1, "src", "src1_desc", reads=FORWARD, like=("src0_desc",),
            case=lambda case: _source(case, 1),
        ),
        Role(
            Arg.SRC_2, "src", "src2_desc", reads=FORWARD, when=_selects, like=("src0_desc",),
            case=_condition,
        ),
        Role(
            Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src0_desc", "src1_desc"),
            case=lambda case: tensor(
                case.shapes.result, case["ddt"], case["dtag"], case.strides(2, "dtag")
            ),
        ),
    ),
    parameters=(
        Parameter("alg_kind", Algorithm("binary_"), lambda case: case["alg"].alg, "alg"),
    ),
    in_place=((Arg.DST, Arg.SRC_0),),
    sums=True,
    reference=SPECIFICATION,
    examples=("--alg=MUL,SELECT --stag=axb:any 3x19x5:1x19x5", "--alg=SELECT 1x19x5:3x19x1"),
    implementations=(
        Implementation("nest", _nest),
    ),
    invalid=_invalid,
)  # fmt: skip
