"""Local response normalization."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.windows import lrn as kernel
from dnnl.kernels.windows import lrn_backward as gradient
from dnnl.language.case import CaseValues, tensor
from dnnl.language.descriptor import Grammar
from dnnl.language.options import ATTRIBUTES, DIR, DT, MB, TAG, Driver, algorithm
from dnnl.primitives.checks import check_dims, check_forward, image_problem
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    laid_out_as,
    plan_forward,
    plan_nest,
)
from dnnl.primitives.operation import (
    BACKWARD_DATA,
    FORWARD,
    TRAINING,
    Operation,
    Parameter,
    Role,
)
from dnnl.primitives.parameters import Algorithm, Real, Whole
from dnnl.primitives.roles import data_roles, gradient_roles
from dnnl.reference.lrn import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg, PropKind, float_text
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class LrnDesc(Desc):
    """dst = src * w^-beta with w = k + alpha / n * sum of src^2 over the window around an element.

    Tensors are [batch, channels, spatial...] with up to three spatial dimensions. Windows are along
    the channels (``lrn_across_channels``, n is ``local_size``) or along all spatial dimensions
    (``lrn_within_channel``, n is ``local_size`` to the number of these). They reach
    (local_size - 1) / 2 elements, in whole numbers, to either side and are clipped at the borders.

    Arguments SRC, DST, and in training WORKSPACE, which the gradient reads: src * w^(-beta - 1),
    laid out as src, in f32, of an f64 src in f64. Backward arguments SRC, DIFF_DST, WORKSPACE,
    DIFF_SRC. dst and the gradients may be ``any``. Dims, strides and offsets may be RUNTIME_DIM.
    """

    prop_kind: PropKind
    alg_kind: Alg
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    local_size: int
    alpha: float
    beta: float
    k: float
    diff_src_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_dst_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        local_size: int,
        alpha: float,
        beta: float,
        k: float = 1.0,
    ) -> LrnDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken."""
        check_forward(prop_kind)
        return cls.made(
            prop_kind=prop_kind,
            alg_kind=alg_kind,
            src_desc=src_desc,
            dst_desc=dst_desc,
            local_size=local_size,
            alpha=alpha,
            beta=beta,
            k=k,
        )

    @classmethod
    def backward(
        cls,
        alg_kind: Alg | str,
        diff_src_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        src_desc: MemoryDesc,
        local_size: int,
        alpha: float,
        beta: float,
        k: float = 1.0,
    ) -> LrnDesc:
        """Describe the gradient of a forward computation of ``src_desc``; raises InvalidArguments
        where the rules are broken."""
        return cls.made(
            prop_kind="backward_data",
            alg_kind=alg_kind,
            diff_src_desc=diff_src_desc,
            diff_dst_desc=diff_dst_desc,
            src_desc=src_desc,
            local_size=local_size,
            alpha=alpha,
            beta=beta,
            k=k,
        )

    def check(self) -> None:
        """There are batch, channels and space, and all tensors have the dims of src."""
        if not 2 <= self.src_desc.ndims <= 5:
            rule = "expected 2 to 5 dimensions: batch, channels and up to 3 spatial ones"
            raise InvalidArguments("src_desc", self.src_desc.dims, rule)
        for name, desc in self._given():
            check_dims(name, desc, self.src_desc.dims, "the dims of src")

    @property
    def problem(self) -> str:
        """The sizes as ``mb16ic64ih56iw56ls5alpha0.0001beta0.75k1``."""
        numbers = {"alpha": self.alpha, "beta": self.beta, "k": self.k}
        tail = "".join(f"{name}{float_text(value)}" for name, value in numbers.items())
        return f"{image_problem(self.src_desc.dims)}ls{self.local_size}{tail}"


def _statement(desc: LrnDesc) -> kernel.Statement:
    numbers = desc.local_size, desc.alpha, desc.beta, desc.k
    return kernel.Statement(desc.alg_kind, *numbers)


def _forward(desc: LrnDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    training = desc.propagation is PropKind.forward_training
    workspace = _workspace(desc) if training else None
    configure = partial(kernel.configure, _statement(desc), desc.src_desc, desc.dst_desc, workspace)
    return plan_forward(desc, attr, isa, configure, kernel.build)


def _backward(desc: LrnDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    tensors = desc.src_desc, desc.diff_dst_desc, _workspace(desc), desc.diff_src_desc
    configure = partial(gradient.configure, _statement(desc), *tensors)
    return plan_nest(desc, attr, isa, configure, gradient.build)


def _workspace(desc: LrnDesc) -> MemoryDesc:
    own = desc.src_desc.data_type
    kind = own if own is DataType.f64 else DataType.f32
    return laid_out_as(desc.src_desc.undecided(kind), [desc.src_desc])


def _src(case: CaseValues) -> MemoryDesc:
    return tensor(case.sizes.src_dims, case.part("dt", 0), case.tag(0))


def _dst(case: CaseValues) -> MemoryDesc:
    return tensor(case.sizes.src_dims, case.part("dt", 1), case.tag(1))


def _diff_src(case: CaseValues) -> MemoryDesc:
    return tensor(case.sizes.src_dims, case.part("dt", 0), "any")


LrnDesc.operation = Operation(
    kind="lrn",
    summary="local response normalization: each element by its neighbours",
    driver=Driver(
        "lrn",
        (
            DIR, DT, TAG,
            algorithm("ACROSS", {"ACROSS": "lrn_across_channels", "WITHIN": "lrn_within_channel"}),
            MB, *ATTRIBUTES,
        ),
        Grammar(
            ("mb", "ic"), tail=("ls", "alpha", "beta", "k"),
            defaults={"ls": 5, "alpha": 1 / 8192, "beta": 0.75, "k": 1},
        ),
    ),
    roles=(
        *data_roles(_src, _dst, "nc*", src_reads=FORWARD | BACKWARD_DATA),
        Role(
            Arg.WORKSPACE, "ws", writes=TRAINING, reads=BACKWARD_DATA, derived=_workspace,
            letters="nc*",
        ),
        *gradient_roles(_diff_src, _dst, "nc*"),
    ),
    parameters=(
        Parameter("alg_kind", Algorithm("lrn_"), lambda case: case["alg"].alg, "alg"),
        Parameter("local_size", Whole(1), lambda case: case.sizes["ls"]),
        Parameter("alpha", Real(), lambda case: case.sizes.numbers["alpha"]),
        Parameter("beta", Real(), lambda case: case.sizes.numbers["beta"]),
        Parameter("k", Real(), lambda case: case.sizes.numbers["k"]),
    ),
    reference=SPECIFICATION,
    examples=(
        "--alg=ACROSS,WITHIN --tag=abx,axb,aBx16b ic19ih5iw7",
        "--alg=ACROSS,WITHIN mb3ic40 ic20iw9ls7beta0.5k2 ic5id4ih3iw6ls3beta0.6",
    ),
    implementations=(
        Implementation("nest", _forward, FORWARD),
        Implementation("nest", _backward, BACKWARD_DATA),
    ),
)  # fmt: skip
