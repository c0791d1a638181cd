"""Softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.kernels.reduction import softmax as kernel
from dnnl.kernels.reduction import softmax_backward as gradient
from dnnl.language.case import CaseValues, tensor
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
    auxiliary,
)
from dnnl.language.problem import Dims
from dnnl.language.values import one_of
from dnnl.primitives.checks import check_dims, check_forward, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    plan_forward,
    plan_nest,
)
from dnnl.primitives.operation import BACKWARD_DATA, FORWARD, Operation, Parameter
from dnnl.primitives.parameters import Algorithm, AxisDomain, Name
from dnnl.primitives.roles import data_roles, gradient_roles
from dnnl.reference.softmax import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import Alg, PropKind
from dnnl.types.memory_desc import MemoryDesc

_MASKED_ROWS = "zero", "nan"  # what becomes of rows of -inf, the usual one first


@dataclass(frozen=True)
class SoftmaxDesc(Desc):
    """dst = exp(src - max) / sum(exp(src - max)) along ``axis``, or src - max - log(sum).

    Arguments SRC, DST; both have the same dims, dst may be ``any`` and may be src's buffer. Where
    all of a row is -inf the result is 0 (-inf for the logarithm), or NaN if ``masked_rows`` is
    "nan" in place of "zero". Dims, strides and offsets of plain layouts may be RUNTIME_DIM, in
    either direction: one primitive serves all of them.

    Backward diff_src = dst * (diff_dst - sum(diff_dst * dst)), or of the logarithm
    diff_dst - exp(dst) * sum(diff_dst). Arguments DST, DIFF_DST, DIFF_SRC; gradients may be
    ``any``, and diff_src may be the buffer of diff_dst.
    """

    prop_kind: PropKind
    alg_kind: Alg
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    axis: int
    diff_src_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_dst_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    masked_rows: str = _MASKED_ROWS[0]

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        axis: int,
        masked_rows: str = _MASKED_ROWS[0],
    ) -> SoftmaxDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken."""
        check_forward(prop_kind)
        return cls.made(
            prop_kind=prop_kind,
            alg_kind=alg_kind,
            src_desc=src_desc,
            dst_desc=dst_desc,
            axis=axis,
            masked_rows=masked_rows,
        )

    @classmethod
    def backward(
        cls,
        alg_kind: Alg | str,
        diff_src_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        axis: int,
    ) -> SoftmaxDesc:
        """Describe the gradient of a forward computation with the result ``dst_desc``; raises
        InvalidArguments where the rules are broken."""
        return cls.made(
            prop_kind="backward_data",
            alg_kind=alg_kind,
            diff_src_desc=diff_src_desc,
            diff_dst_desc=diff_dst_desc,
            dst_desc=dst_desc,
            axis=axis,
        )

    def check(self) -> None:
        """All tensors have the same dims."""
        (first, model), *others = self._given()
        for name, desc in others:
            check_dims(name, desc, model.dims, f"the dims of {first.removesuffix('_desc')}")

    @property
    def problem(self) -> str:
        """The dims."""
        return spelled(self.dst_desc.dims)


class _OneDescriptor:
    """A former spelling, in which one descriptor stood for src and dst."""

    _alg: ClassVar[Alg]

    @classmethod
    def forward(cls, prop_kind: PropKind | str, data_desc: MemoryDesc, axis: int) -> SoftmaxDesc:
        """Describe a forward computation of src and dst alike; raises InvalidArguments where the
        rules are broken."""
        return SoftmaxDesc.forward(prop_kind, cls._alg, data_desc, data_desc, axis)

    @classmethod
    def backward(cls, diff_data_desc: MemoryDesc, data_desc: MemoryDesc, axis: int) -> SoftmaxDesc:
        """Describe the gradient of a forward computation with the result ``data_desc``, diff_src
        and diff_dst being alike; raises InvalidArguments where the rules are broken."""
        return SoftmaxDesc.backward(cls._alg, diff_data_desc, diff_data_desc, data_desc, axis)


class SoftmaxV1Desc(_OneDescriptor):
    """Deprecated: use :class:`SoftmaxDesc` with ``softmax_accurate``, which these functions return.
    Nothing warns."""

    _alg = Alg.softmax_accurate


class LogSoftmaxDesc(_OneDescriptor):
    """Deprecated: use :class:`SoftmaxDesc` with ``softmax_log``, which these functions return.
    Nothing warns."""

    _alg = Alg.softmax_log


def _forward(desc: SoftmaxDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    return plan_forward(desc, attr, isa, _configure(desc), kernel.build, "dropout")


def _configure(desc: SoftmaxDesc) -> Callable[[Attributes], kernel.SoftmaxConf | Refusal]:
    return partial(
        kernel.configure,
        desc.alg_kind,
        desc.axis,
        desc.masked_rows == "nan",
        desc.src_desc,
        desc.dst_desc,
    )


def _backward(desc: SoftmaxDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    return plan_nest(desc, attr, isa, _gradient(desc), gradient.build)


def _gradient(desc: SoftmaxDesc) -> Callable[[], gradient.SoftmaxBackwardConf | Refusal]:
    tensors = desc.diff_src_desc, desc.diff_dst_desc, desc.dst_desc
    return partial(gradient.configure, desc.alg_kind, desc.axis, *tensors)


def _src(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.dims, case["sdt"], case["stag"])


def _dst(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.dims, case["ddt"], case["dtag"])


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
            AXIS, auxiliary("masked_rows", _MASKED_ROWS[0], one_of(*_MASKED_ROWS), _MASKED_ROWS),
            MB, *ATTRIBUTES, INPLACE,
        ),
        Dims(),
    ),
    roles=(
        *data_roles(_src, _dst, dst_reads=BACKWARD_DATA),
        *gradient_roles(_src, _dst, like=("dst_desc",)),
    ),
    parameters=(
        Parameter("alg_kind", Algorithm("softmax_"), lambda case: case["alg"].alg, "alg"),
        Parameter("axis", AxisDomain(), lambda case: case["axis"], "axis"),
        Parameter(
            "masked_rows", Name(_MASKED_ROWS), lambda case: case["masked_rows"], "masked_rows",
            usual=_MASKED_ROWS[0],
        ),
    ),
    in_place=((Arg.DST, Arg.SRC), (Arg.DIFF_SRC, Arg.DIFF_DST)),
    formerly={"softmax": "softmax_accurate", "logsoftmax": "softmax_log"},
    operands=(0, 16),
    reference=SPECIFICATION,
    examples=(
        "--axis=1 --stag=abx,aBx16b --alg=SOFTMAX,LOGSOFTMAX 3x19x5",
        "--axis=2 --masked_rows=nan --alg=SOFTMAX,LOGSOFTMAX 3x5x19",
    ),
    implementations=(
        Implementation("nest", _forward, FORWARD),
        Implementation("nest", _backward, BACKWARD_DATA),
    ),
)  # fmt: skip
