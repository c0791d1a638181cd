"""Gradients of elementary functions by PyTorch, which read what ours read: src or dst."""

from __future__ import annotations

from collections.abc import Callable

from dnnl.errors import Unimplemented
from dnnl.tools.bench.peers.pytorch_functions import is_hard
from dnnl.tools.bench.peers.pytorch_tensors import Tensor, Torch
from dnnl.types.kinds import Alg

Gradient = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A function of diff_dst, of src or dst, and of the tensor for diff_src, which it returns."""

_BY_DST = frozenset({"tanh", "logistic", "exp", "sqrt"})
_LINEAR_BEYOND = 20
"""Where PyTorch takes the soft relu for a straight line; its gradient there is 1 in f32."""


def eltwise_backward(torch: Torch, alg: Alg, alpha: float, beta: float) -> Gradient:
    """The gradient of an elementary function.

    Raises Unimplemented for parameters that PyTorch has not, and where its gradient reads dst and
    ours src or vice versa.
    """
    name = alg.name.removeprefix("eltwise_")
    function = name.removesuffix("_use_dst_for_bwd")
    if alg.uses_dst:
        found = _of_dst(torch, function, alpha, beta)
    elif function in _BY_DST:
        raise Unimplemented(f"PyTorch has the gradient of {name} by dst: see --alg={name}_dst")
    else:
        found = _of_src(torch, function, alpha, beta)
    if found is None:
        numbers = f"alpha {alpha:g}, beta {beta:g}"
        raise Unimplemented(f"PyTorch has no gradient of {name} with {numbers}")
    return found


def _of_dst(torch: Torch, name: str, a: float, b: float) -> Gradient | None:
    aten = torch.ops.aten
    match name:
        case "tanh":
            return lambda dd, d, out: aten.tanh_backward.grad_input(dd, d, grad_input=out)
        case "logistic":
            return lambda dd, d, out: aten.sigmoid_backward.grad_input(dd, d, grad_input=out)
        case "exp":
            return lambda dd, d, out: torch.mul(dd, d, out=out)
        case "sqrt":
            return lambda dd, d, out: torch.div(dd, 2 * d, out=out)
        case "elu":
            return _elu(aten, a, of_dst=True)
        case "relu" | "clip_v2":
            return _piecewise(aten, name, a, b)
    return None


def _of_src(torch: Torch, name: str, a: float, b: float) -> Gradient | None:
    aten = torch.ops.aten
    match name:
        case "relu" | "clip_v2":
            return _piecewise(aten, name, a, b)
        case "elu":
            return _elu(aten, a, of_dst=False)
        case "gelu_erf" | "gelu_tanh":
            kind = "tanh" if name == "gelu_tanh" else "none"
            gelu = aten.gelu_backward.grad_input
            return lambda dd, s, out: gelu(dd, s, approximate=kind, grad_input=out)
        case "swish" if a == 1:
            return lambda dd, s, out: aten.silu_backward.grad_input(dd, s, grad_input=out)
        case "mish":
            return lambda dd, s, _: aten.mish_backward(dd, s)
        case "hardsigmoid" if is_hard(a, b):
            return lambda dd, s, out: aten.hardsigmoid_backward.grad_input(dd, s, grad_input=out)
        case "hardswish" if is_hard(a, b):
            return lambda dd, s, out: aten.hardswish_backward.out(dd, s, out=out)
        case "soft_relu":
            soft = aten.softplus_backward.grad_input
            return lambda dd, s, out: soft(dd, s, a, _LINEAR_BEYOND, grad_input=out)
    return _with_products(torch, name, a, b)


def _with_products(torch: Torch, name: str, a: float, b: float) -> Gradient | None:
    """The gradients that PyTorch makes of products and quotients, step by step."""
    match name:
        case "log":
            return lambda dd, s, out: torch.div(dd, s, out=out)
        case "abs":
            return lambda dd, s, out: torch.mul(dd, s.sgn(), out=out)
        case "square":
            return lambda dd, s, out: torch.mul(dd, 2 * s, out=out)
        case "linear":
            return lambda dd, _, out: torch.mul(dd, a, out=out)
        case "pow" if a == 1:
            return lambda dd, s, out: torch.mul(dd, b * s.pow(b - 1), out=out)
    return None


def _piecewise(aten: Torch, name: str, a: float, b: float) -> Gradient:
    """What lets a gradient through or not, and finds src and dst on the same side."""
    if name == "clip_v2":
        clip = aten.hardtanh_backward.grad_input
        return lambda dd, x, out: clip(dd, x, a, b, grad_input=out)
    if a == 0:
        relu = aten.threshold_backward.grad_input
        return lambda dd, x, out: relu(dd, x, 0, grad_input=out)
    leaky = aten.leaky_relu_backward.grad_input
    return lambda dd, x, out: leaky(dd, x, a, False, grad_input=out)


def _elu(aten: Torch, a: float, *, of_dst: bool) -> Gradient:
    elu = aten.elu_backward.grad_input
    return lambda dd, x, out: elu(dd, a, 1, 1, of_dst, x, grad_input=out)
