"""Why a product cannot be generated."""

from __future__ import annotations

from dnnl.codegen.epilogue.post_ops import refuse
from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels.product.base.types import multiplies_integers, refuse_tensors
from dnnl.kernels.product.plan.computed_scales import refuse_computed
from dnnl.kernels.product.plan.contraction import Contraction
from dnnl.types.arg import Arg


def refuse_problem(problem: Contraction) -> Refusal | None:
    """Why a convolution cannot be generated, or None."""
    refusal = refuse_tensors(problem.src, problem.weights, problem.bias, problem.dst)
    return refusal or refuse(problem.post_ops, problem.dst, (problem.src,))


def refuse_matrices(problem: Contraction) -> Refusal | None:
    """Why a product of matrices cannot be generated, or None."""
    tensors = {
        int(Arg.SRC): problem.src,
        int(Arg.WEIGHTS): problem.weights,
        int(Arg.DST): problem.dst,
    }
    refusal = refuse_tensors(problem.src, problem.weights, problem.bias, problem.dst)
    refusal = refusal or problem.quantization.refuse(tensors, computes=True)
    refusal = refusal or refuse(problem.post_ops, problem.dst, (problem.src,))
    refusal = refusal or _refuse_reductions(problem)
    computed = problem.quantization.computed
    if refusal is None and computed is not None:
        refusal = refuse_computed(computed, problem)
    return refusal


def _refuse_reductions(problem: Contraction) -> Refusal | None:
    """Why given sums of src cannot be used, or None.

    Raises InvalidArguments if they do not vary along all dimensions, or span several scales or zero
    points.
    """
    given, src = problem.reductions, problem.src
    if given is None:
        return None
    every = (1 << src.ndims) - 1
    if given.mask != every:
        rule = f"sums of the rows of src vary along every dimension: {every}"
        raise InvalidArguments("mask", given.mask, rule)
    sizes = given.group_sizes(src.ndims)
    given.shape(src.dims)
    if sizes[-2] != 1:
        raise InvalidArguments("groups", given.groups, "a sum belongs to one row", "(1, K)")
    quantization = problem.quantization
    for specs in (quantization.scales, quantization.zero_points):
        for argument, spec in specs:
            depth = {Arg.SRC: src.ndims - 1, Arg.WEIGHTS: src.ndims - 2}.get(Arg(argument))
            if depth is None or not spec.mask >> depth & 1:
                continue
            if spec.group_sizes(src.ndims)[depth] % sizes[-1]:
                rule = f"{sizes[-1]} neighbours do not share all scales and zero points: {spec}"
                raise InvalidArguments("groups", given.groups, rule)
    integers = multiplies_integers(src.data_type, problem.weights.data_type)
    if not (integers and Arg.WEIGHTS in dict(quantization.zero_points)):
        rule = "precomputed reductions without zero points of weights and a src of u8 or s8"
        return Refusal(Reason.ATTRIBUTE, rule)
    return None
