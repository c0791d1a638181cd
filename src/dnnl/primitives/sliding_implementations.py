"""The implementations of convolution and deconvolution: each is the other's gradient by data."""

from __future__ import annotations

from functools import partial

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.kernels.convolution import by_weights, grouped, planes
from dnnl.kernels.convolution import transposed as transposed_kernel
from dnnl.kernels.convolution.depthwise import by_weights as depthwise_by_weights
from dnnl.kernels.convolution.depthwise import depthwise
from dnnl.kernels.convolution.direct import convolution
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.convolution.transposed import DeconvolutionProblem
from dnnl.primitives.implementation import Implementation, Plan
from dnnl.primitives.operation import BY_DATA, BY_WEIGHTS, FORWARD
from dnnl.primitives.sliding import SlidingDesc
from dnnl.primitives.sliding_plans import plan, plan_weights
from dnnl.primitives.winograd import refuse_slower, winograd_implementations
from dnnl.types.attr import PrimitiveAttr


def sliding_implementations(*, transposed: bool) -> tuple[Implementation, ...]:
    """Those of a convolution, or of a deconvolution if ``transposed``."""
    passes = (FORWARD, transposed), (BY_DATA, not transposed)
    made = partial(Implementation, fixes=True)
    of_weights = ("depthwise", depthwise_by_weights), ("brgemm", by_weights)
    return (
        *(made("depthwise", partial(_depthwise, transposed=t), p) for p, t in passes),
        *(Implementation("grouped", partial(_grouped, transposed=t), p) for p, t in passes),
        Implementation("planes", _planes, FORWARD | BY_DATA),
        *(made("brgemm", partial(_brgemm, transposed=t), p) for p, t in passes),
        *winograd_implementations(*(_problem(transposed=t) for _, t in passes)),
        *(
            made(name, partial(plan_weights, kernel=kernel, transposed=transposed), BY_WEIGHTS)
            for name, kernel in of_weights
        ),
    )


def _problem(*, transposed: bool) -> type[ConvolutionProblem]:
    return DeconvolutionProblem if transposed else ConvolutionProblem


def _planes(desc: SlidingDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    known = planes.resolve, planes.configure, planes.build, partial(planes.refuse, isa)
    return plan(desc, attr, isa, ConvolutionProblem, *known)


def _brgemm(
    desc: SlidingDesc, attr: PrimitiveAttr, isa: Isa, *, transposed: bool
) -> Plan | Refusal:
    kernel = transposed_kernel if transposed else convolution
    known = kernel.resolve, kernel.configure, kernel.build, refuse_slower(desc, attr, isa)
    return plan(desc, attr, isa, _problem(transposed=transposed), *known, opens=convolution.opens)


def _depthwise(
    desc: SlidingDesc, attr: PrimitiveAttr, isa: Isa, *, transposed: bool
) -> Plan | Refusal:
    build = transposed_kernel.build_depthwise if transposed else depthwise.build
    known = depthwise.resolve, depthwise.configure, build, depthwise.refuse
    kind = _problem(transposed=transposed)
    return plan(desc, attr, isa, kind, *known, opens=depthwise.opens)


def _grouped(
    desc: SlidingDesc, attr: PrimitiveAttr, isa: Isa, *, transposed: bool
) -> Plan | Refusal:
    build = grouped.build_transposed if transposed else grouped.build
    known = grouped.resolve, grouped.configure, build, partial(grouped.refuse, isa)
    kind = _problem(transposed=transposed)
    return plan(desc, attr, isa, kind, *known, opens=grouped.opens)
