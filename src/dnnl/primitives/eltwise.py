"""Elementary functions of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.pointwise import eltwise as kernel
from dnnl.kernels.pointwise import eltwise_backward as gradient
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
from dnnl.primitives.checks import check_dims, check_forward, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    plan_forward,
    plan_nest,
)
from dnnl.primitives.operation import BACKWARD_DATA, FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import Algorithm, Real, Traced
from dnnl.primitives.roles import data_roles, gradient_roles
from dnnl.reference.eltwise import SPECIFICATION
from dnnl.types import algorithms
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.derivative import gradient_of
from dnnl.types.dtype import DataType
from dnnl.types.expression import Expression, Function
from dnnl.types.kinds import Alg, PropKind
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class EltwiseDesc(Desc):
    """dst = alg(src), element by element; oneDNN's guide, "Eltwise", has the functions.

    Arguments SRC, DST; both have the same dims, dst may be ``any`` and may be src's buffer.
    Integers are computed as f32, rounded and saturated, as in oneDNN; `ExactDesc` wraps. Dims,
    strides and offsets of plain layouts may be RUNTIME_DIM, in either direction: one primitive
    serves all of them.

    Backward diff_src = diff_dst * alg'(data). Arguments DIFF_DST, DIFF_SRC and data: SRC, or DST
    for the algorithms ``_use_dst_for_bwd``. Gradients may be ``any``, and diff_src may be the
    buffer of diff_dst. ``eltwise_round`` has none.

    ``eltwise_function`` is a Python function of one traced scalar, ``fn``, with operators and the
    functions of `dnnl.math`. It is called once, when it is described; descriptions are equal if
    theirs compute the same. Its gradient is that of what it computes, of one side where it jumps or
    has a corner.

    >>> import dnnl.math
    >>> md = MemoryDesc((2, 3), "f32")
    >>> desc = EltwiseDesc.forward(
    ...     "forward_training", "eltwise_function", md, md, fn=lambda x: x * dnnl.math.tanh(x))
    >>> print(desc.function.expression)
    mul(x, tanh(x))
    """

    prop_kind: PropKind
    alg_kind: Alg
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    alpha: float = 0.0
    beta: float = 0.0
    diff_src_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_dst_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    function: Function | None = None

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        alpha: float = 0.0,
        beta: float = 0.0,
        fn: Callable[..., object] | None = None,
    ) -> EltwiseDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken."""
        check_forward(prop_kind)
        return cls.made(
            prop_kind=prop_kind,
            alg_kind=alg_kind,
            src_desc=src_desc,
            dst_desc=dst_desc,
            alpha=alpha,
            beta=beta,
            function=fn,
        )

    @classmethod
    def backward(
        cls,
        alg_kind: Alg | str,
        diff_src_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        data_desc: MemoryDesc,
        alpha: float = 0.0,
        beta: float = 0.0,
        fn: Callable[..., object] | None = None,
    ) -> EltwiseDesc:
        """Describe the gradient of a forward computation, of which ``data_desc`` is src, or dst
        for an algorithm ``_use_dst_for_bwd``; raises InvalidArguments where the rules are
        broken."""
        data = "dst_desc" if _uses_dst(alg_kind) else "src_desc"
        return cls.made(
            prop_kind="backward_data",
            alg_kind=alg_kind,
            diff_src_desc=diff_src_desc,
            diff_dst_desc=diff_dst_desc,
            alpha=alpha,
            beta=beta,
            function=fn,
            **{data: data_desc},
        )

    def check(self) -> None:
        """All tensors have the same dims, the bounds of a clip are in order, the sign of a result
        is that of its source where the gradient asks for it, and a gradient is no step's."""
        (first, model), *others = self._given()
        for name, desc in others:
            check_dims(name, desc, model.dims, f"the dims of {first.removesuffix('_desc')}")
        self._check_function()
        if self.function is None:
            self._check_numbers(algorithms.ELTWISE[self.alg_kind])

    def _check_numbers(self, row: algorithms.Algorithm) -> None:
        if row.bounds and self.beta < self.alpha:
            raise InvalidArguments("beta", self.beta, f"must not be below alpha = {self.alpha}")
        if row.signed and self.alpha < 0:
            hint = f"{str(self.alg_kind).removesuffix(_FROM_DST)} takes any"
            raise InvalidArguments("alpha", self.alpha, "must not be negative", hint)
        if row.steps and not self.propagation.is_forward:
            raise InvalidArguments("alg_kind", str(self.alg_kind), "a step has no gradient")

    def _check_function(self) -> None:
        """A function is there where it is the algorithm, and has its numbers within itself."""
        if (self.alg_kind is Alg.eltwise_function) != (self.function is not None):
            rule = "eltwise_function takes one, the other algorithms take none"
            raise InvalidArguments("fn", self.function and str(self.function), rule)
        for name in ("alpha", "beta"):
            if self.function is not None and getattr(self, name):
                rule = "eltwise_function takes no numbers"
                raise InvalidArguments(name, getattr(self, name), rule, "fn can hold them")

    @property
    def problem(self) -> str:
        """The dims."""
        return spelled(self.outputs[0].desc.dims)

    @property
    def data_desc(self) -> MemoryDesc:
        """What a backward pass reads of the forward one."""
        return self.dst_desc if self.alg_kind.uses_dst else self.src_desc


_FROM_DST = "_use_dst_for_bwd"


def _uses_dst(alg_kind: object) -> bool:
    """Whether the gradient of an algorithm, given as the member or its name, reads dst."""
    return str(alg_kind).endswith(_FROM_DST)


def _forward_function(desc: EltwiseDesc) -> Expression:
    if desc.function is not None:
        return desc.function.expression
    return algorithms.eltwise(desc.alg_kind, desc.alpha, desc.beta)


def _gradient_function(desc: EltwiseDesc) -> Expression:
    if desc.function is not None:
        return gradient_of(desc.function.expression)
    return algorithms.eltwise_gradient(desc.alg_kind, desc.alpha, desc.beta)


def _forward(desc: EltwiseDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    return plan_forward(desc, attr, isa, _configure(desc), kernel.build, "dropout")


def _configure(desc: EltwiseDesc) -> Callable[[Attributes], kernel.EltwiseConf | Refusal]:
    return partial(kernel.configure, _forward_function(desc), desc.src_desc, desc.dst_desc)


def _backward(desc: EltwiseDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    return plan_nest(desc, attr, isa, _gradient(desc), gradient.build)


def _gradient(desc: EltwiseDesc) -> Callable[[], gradient.EltwiseBackwardConf | Refusal]:
    return partial(
        gradient.configure,
        _gradient_function(desc),
        desc.diff_src_desc,
        desc.diff_dst_desc,
        desc.src_desc,
        desc.dst_desc,
    )


def _data(role: Role, *, of_dst: bool) -> Role:
    """src or dst, which a backward pass reads if the gradient is made of it."""

    def takes_part(desc: EltwiseDesc) -> bool:
        return desc.propagation.is_forward or _uses_dst(desc.alg_kind) == of_dst

    return replace(role, when=takes_part)


def _src(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.dims, case.part("dt", 0), case.tag(0))


def _dst(case: CaseValues) -> MemoryDesc:
    """Its layout is given where a gradient is made of it."""
    given = case.part("tag", 1) if _uses_dst(case["alg"].alg) else case.tag(1)
    return tensor(case.shapes.dims, case.part("dt", 1), given)


def _gradient_of(number: int) -> Callable[[CaseValues], MemoryDesc]:
    return lambda case: tensor(case.shapes.dims, case.part("dt", number), "any")


_SRC, _DST = data_roles(
    _src, _dst, src_reads=FORWARD | BACKWARD_DATA, dst_reads=BACKWARD_DATA
)  # fmt: skip


def _invalid(case: CaseValues) -> str | None:
    """What has no gradient, loses its source, or has parameters out of range."""
    name, alpha = str(case["alg"]), case["alpha"]
    backward = not case.prop_kind.is_forward
    wrong = (
        (case.in_place and backward and not name.endswith("_dst"))
        or (name.startswith("clip") and case["beta"] < alpha)
        or (name in ("elu_dst", "relu_dst") and alpha < 0)
        or (name == "round" and (backward or case.part("dt", 0) is not DataType.f32))
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
    roles=(
        _data(_SRC, of_dst=False),
        _data(_DST, of_dst=True),
        *gradient_roles(_gradient_of(0), _gradient_of(1), like=("src_desc", "dst_desc")),
    ),
    parameters=(
        Parameter("alg_kind", Algorithm("eltwise_"), lambda case: case["alg"].alg, "alg"),
        Parameter("alpha", Real(), lambda case: case["alpha"], "alpha"),
        Parameter("beta", Real(), lambda case: case["beta"], "beta"),
        Parameter("function", Traced(), lambda _: None, "function"),
    ),
    in_place=((Arg.DST, Arg.SRC), (Arg.DIFF_SRC, Arg.DIFF_DST)),
    reference=SPECIFICATION,
    examples=(
        "--alg=tanh,mish,exp_dst --tag=abx,axb,aBx16b 3x19x5",
        "--alg=linear --alpha=2 --beta=1 3x19",
    ),
    implementations=(
        Implementation("nest", _forward, FORWARD),
        Implementation("nest", _backward, BACKWARD_DATA),
    ),
    invalid=_invalid,
)  # fmt: skip
