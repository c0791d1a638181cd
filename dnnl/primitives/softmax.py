"""Softmax and its logarithm."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Refusal
from dnnl.kernels import softmax as kernel
from dnnl.language.case import tensor
from dnnl.language.options import (
    ATTRIBUTES,
    AXIS,
    DDT,
    DIR,
    DTAG,
    INPLACE,
    MB,
    SDT,
    STAG,
    Driver,
    algorithm,
)
from dnnl.language.problem import Dims
from dnnl.primitives.checks import check_dims, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_nest
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import Algorithm, Axis
from dnnl.reference.softmax import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import Alg, PropKind
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class SoftmaxDesc(Desc):
    """dst = exp(src - max) / sum(exp(src - max)) along ``axis``, or src - max - log(sum).

    Arguments SRC, DST; both have the same dims, dst may be ``any`` and may be src's buffer. Where
    all of a row is -inf the result is 0 (-inf for the logarithm).
    """

    prop_kind: PropKind
    alg_kind: Alg
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    axis: int

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        axis: int,
    ) -> SoftmaxDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken."""
        return cls.made(
            prop_kind=prop_kind, alg_kind=alg_kind, src_desc=src_desc, dst_desc=dst_desc, axis=axis
        )

    def check(self) -> None:
        """dst has the dims of src."""
        check_dims("dst_desc", self.dst_desc, self.src_desc.dims, "the dims of src")

    @property
    def problem(self) -> str:
        """The dims."""
        return spelled(self.src_desc.dims)


def _forward(desc: SoftmaxDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    configure = partial(kernel.configure, desc.alg_kind, desc.axis, desc.src_desc, desc.dst_desc)
    return plan_nest(desc, attr, isa, configure, kernel.build, "post_ops")


SoftmaxDesc.operation = Operation(
    kind="softmax",
    summary="softmax along one axis",
    driver=Driver(
        "softmax",
        (
            DIR, SDT, DDT, STAG, DTAG,
            algorithm(
                "SOFTMAX",
                {
                    "softmax_accurate": "softmax_accurate", "softmax_log": "softmax_log",
                    "SOFTMAX": "softmax_accurate", "LOGSOFTMAX": "softmax_log",
                },
            ),
            AXIS, MB, *ATTRIBUTES, INPLACE,
        ),
        Dims(),
    ),
    roles=(
        Role(
            Arg.SRC, "src", "src_desc", reads=FORWARD,
            case=lambda case: tensor(case.shapes.dims, case["sdt"], case["stag"]),
        ),
        Role(
            Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src_desc",),
            case=lambda case: tensor(case.shapes.dims, case["ddt"], case["dtag"]),
        ),
    ),
    parameters=(
        Parameter("alg_kind", Algorithm("softmax_"), lambda case: case["alg"].alg, "alg"),
        Parameter("axis", Axis(), lambda case: case["axis"], "axis"),
    ),
    in_place=((Arg.DST, Arg.SRC),),
    formerly={"softmax": "softmax_accurate", "logsoftmax": "softmax_log"},
    operands=(0, 16),
    reference=SPECIFICATION,
    examples=("--axis=1 --stag=abx,aBx16b 3x19x5",),
    implementations=(Implementation("nest", _forward, FORWARD),),
)  # fmt: skip
