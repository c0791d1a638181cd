"""Winograd's algorithm as an implementation of convolutions, deconvolutions and gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import multiply
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.convolution.winograd import winograd
from dnnl.kernels.convolution.winograd.cost import pays_off
from dnnl.kernels.product.base.types import narrowed
from dnnl.primitives.implementation import Implementation, Plan
from dnnl.primitives.operation import BY_DATA, FORWARD
from dnnl.primitives.sliding import SlidingDesc
from dnnl.primitives.sliding_plans import is_open, plan
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg


def winograd_implementations(
    forward: type[ConvolutionProblem], by_data: type[ConvolutionProblem]
) -> tuple[Implementation, ...]:
    """Those of an operation whose forward pass is the problem ``forward``, and its gradient of data
    ``by_data``, for plain weights and for transformed ones."""

    return tuple(
        Implementation(
            "winograd", partial(_plan, problem_type=kind), passes, encoded=encoded, fixes=True
        )
        for kind, passes in ((forward, FORWARD), (by_data, BY_DATA))
        for encoded in (False, True)
    )


def _plan(
    desc: SlidingDesc, attr: PrimitiveAttr, isa: Isa, problem_type: type[ConvolutionProblem]
) -> Plan | Refusal:
    return plan(
        desc,
        attr,
        isa,
        problem_type,
        winograd.resolve,
        winograd.configure,
        winograd.build,
        winograd.refuse,
        method="winograd",
        opens=winograd.opens,
    )


def refuse_slower(
    desc: SlidingDesc, attr: PrimitiveAttr, isa: Isa
) -> Callable[[ConvolutionProblem], Refusal | None]:
    """What the direct algorithm refuses besides: where it may be chosen, problems that it would
    multiply in f32 as well, and for which Winograd's takes less on a processor."""

    def refuse(problem: ConvolutionProblem) -> Refusal | None:
        if (
            isa.thread_memory
            and not winograd.refuse(problem)
            and not _multiplies_narrow(problem, attr, isa)
            and pays_off(problem, isa)
        ):
            detail = f"{desc.alg_kind}; Winograd's algorithm takes fewer operations and bytes"
            return Refusal(Reason.PARAMETER, detail)
        return None

    chosen = desc.alg_kind is Alg.convolution_auto and not is_open(desc)
    return refuse if chosen else lambda _: None


def _multiplies_narrow(problem: ConvolutionProblem, attr: PrimitiveAttr, isa: Isa) -> bool:
    """Whether an instruction of the direct algorithm does several products of narrow floats."""
    types = problem.src.data_type, problem.weights.data_type
    found = multiply(isa, *types)
    several = found is not None and found.group > 1
    return several or narrowed(attr, isa, *types) is not DataType.f32
