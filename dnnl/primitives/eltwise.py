"""Elementary functions of one tensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels import eltwise as kernel
from dnnl.language.attributes import ELTWISE
from dnnl.language.case import INVALID, CaseValues, tensor
from dnnl.language.options import (
    ATTRIBUTES,
    DIR,
    DT,
    INPLACE,
    MB,
    TAG,
    Driver,
    auxiliary,
    function,
)
from dnnl.language.problem import Dims
from dnnl.language.values import number
from dnnl.primitives.checks import check_dims, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_nest, resolve_dropout
from dnnl.primitives.operation import FORWARD, Operation, Parameter
from dnnl.primitives.parameters import Algorithm, Real
from dnnl.primitives.roles import data_roles
from dnnl.reference.eltwise import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg, PropKind
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class EltwiseDesc(Desc):
    """dst = alg(src), element by element; oneDNN's guide, "Eltwise", has the functions.

    Arguments SRC, DST; both have the same dims, dst may be ``any`` and may be src's buffer.
    Integers are computed as f32, rounded and saturated, as in oneDNN; `ExactDesc` wraps.
    """

    prop_kind: PropKind
    alg_kind: Alg
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    alpha: float = 0.0
    beta: float = 0.0

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        alpha: float = 0.0,
        beta: float = 0.0,
    ) -> EltwiseDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken."""
        return cls.made(
            prop_kind=prop_kind, alg_kind=alg_kind, src_desc=src_desc, dst_desc=dst_desc,
            alpha=alpha, beta=beta,
        )  # fmt: skip

    def check(self) -> None:
        """dst has the dims of src, and the bounds of a clip are in order."""
        check_dims("dst_desc", self.dst_desc, self.src_desc.dims, "the dims of src")
        if self.alg_kind in (Alg.eltwise_clip, Alg.eltwise_clip_v2) and self.beta < self.alpha:
            raise InvalidArguments("beta", self.beta, f"must not be below alpha = {self.alpha}")

    @property
    def problem(self) -> str:
        """The dims."""
        return spelled(self.src_desc.dims)


def _forward(desc: EltwiseDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    configure = partial(
        kernel.configure, desc.alg_kind, desc.alpha, desc.beta, desc.src_desc, desc.dst_desc,
        resolve_dropout(attr.dropout, desc.dst_desc),
    )  # fmt: skip
    return plan_nest(desc, attr, isa, configure, kernel.build, "post_ops", "dropout")


def _invalid(case: CaseValues) -> str | None:
    """What has no gradient, loses its source, or has parameters out of range."""
    name, alpha = str(case["alg"]), case["alpha"]
    backward = not case.prop_kind.is_forward
    wrong = (
        (case.in_place and backward and not name.endswith("_dst"))
        or (name.startswith("clip") and case["beta"] < alpha)
        or (name in ("elu_dst", "relu_dst") and alpha < 0)
        or (name == "round" and (backward or case["dt"] is not DataType.f32))
    )
    return INVALID if wrong else None


EltwiseDesc.operation = Operation(
    kind="eltwise",
    summary="eltwise: a function of each element",
    driver=Driver(
        "eltwise",
        (
            DIR, DT, TAG, function("relu", ELTWISE).shown(),
            auxiliary("alpha", "0", number).shown(), auxiliary("beta", "0", number).shown(),
            MB, *ATTRIBUTES, INPLACE,
        ),
        Dims(),
    ),
    roles=data_roles(
        lambda case: tensor(case.shapes.dims, case["dt"], case["tag"]),
        lambda case: tensor(case.shapes.dims, case["dt"], "any"),
    ),
    parameters=(
        Parameter("alg_kind", Algorithm("eltwise_"), lambda case: case["alg"].alg, "alg"),
        Parameter("alpha", Real(), lambda case: case["alpha"], "alpha"),
        Parameter("beta", Real(), lambda case: case["beta"], "beta"),
    ),
    in_place=((Arg.DST, Arg.SRC),),
    reference=SPECIFICATION,
    examples=("--alg=tanh --tag=abx,axb 3x19x5", "--alg=linear --alpha=2 --beta=1 3x19"),
    implementations=(Implementation("nest", _forward, FORWARD),),
    invalid=_invalid,
)  # fmt: skip
