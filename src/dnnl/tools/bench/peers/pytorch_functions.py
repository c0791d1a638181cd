"""Elementary functions of PyTorch, which write into a given tensor, and chains of post-ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dnnl.errors import Unimplemented
from dnnl.tools.bench.peers.pytorch_tensors import Tensor, Torch
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import Alg
from dnnl.types.post_ops import PostOpBinary, PostOpEltwise, PostOpPrelu, PostOpSum

Step = Callable[[Tensor], Tensor]
Into = Callable[[Tensor, Tensor], Tensor]
"""A function of a source and of the tensor for the result, which it returns."""

_ONE_SIXTH = 1 / 6
_CHANNELS = 2
_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "max": "maximum", "min": "minimum",
    "ge": "ge", "gt": "gt", "le": "le", "lt": "lt", "eq": "eq", "ne": "ne",
}  # fmt: skip
_PLAIN = {
    "tanh": "tanh", "square": "square", "abs": "abs", "sqrt": "sqrt", "logistic": "sigmoid",
    "exp": "exp", "log": "log", "round": "round",
}  # fmt: skip
_ATEN = {"mish": "mish", "swish": "silu", "hardswish": "hardswish", "hardsigmoid": "hardsigmoid"}
_GELU = {"gelu_tanh": "tanh", "gelu_erf": "none"}


def eltwise(torch: Torch, alg: Alg, alpha: float, beta: float) -> Into:
    """The elementary function; raises Unimplemented for parameters that PyTorch has not."""
    name, aten = alg.name.removeprefix("eltwise_"), torch.ops.aten
    if name in _PLAIN:
        call = getattr(torch, _PLAIN[name])
        return lambda x, out: call(x, out=out)
    if name in _GELU:
        return lambda x, out: aten.gelu.out(x, approximate=_GELU[name], out=out)
    if name in _ATEN:
        fits = alpha == 1 if name == "swish" else is_hard(alpha, beta) or name == "mish"
        if not fits:
            raise Unimplemented(f"PyTorch has no {name} with alpha {alpha:g}, beta {beta:g}")
        operator = getattr(aten, _ATEN[name]).out
        return lambda x, out: operator(x, out=out)
    return _with_parameters(torch, name, alpha, beta)


def is_hard(alpha: float, beta: float) -> bool:
    """Whether these are the slope and the middle that PyTorch's hard functions have."""
    return abs(alpha - _ONE_SIXTH) < 1e-6 and beta == 1 / 2


def _with_parameters(torch: Torch, name: str, a: float, b: float) -> Into:
    aten = torch.ops.aten
    match name:
        case "relu" if a == 0:
            return lambda x, out: aten.relu.out(x, out=out)
        case "relu":
            return lambda x, out: aten.leaky_relu.out(x, a, out=out)
        case "elu":
            return lambda x, out: aten.elu.out(x, a, out=out)
        case "soft_relu":
            return lambda x, out: aten.softplus.out(x, a, out=out)
        case "clip" | "clip_v2":
            return lambda x, out: torch.clamp(x, a, b, out=out)
        case "linear":
            return lambda x, out: torch.add(torch.scalar_tensor(b), x, alpha=a, out=out)
        case "pow" if a == 1:
            return lambda x, out: torch.pow(x, b, out=out)
    raise Unimplemented(f"PyTorch has no {name} with alpha {a:g}, beta {b:g}")


def binary(torch: Torch, alg: Alg) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The function of two tensors and of the one for the result."""
    name = alg.name.removeprefix("binary_")
    if name not in _BINARY:
        raise Unimplemented(f"PyTorch has no {name} of this form")
    call = getattr(torch, _BINARY[name])
    return lambda x, y, out: call(x, y, out=out)


def follow(torch: Torch, attr: PrimitiveAttr, tensors: Mapping[int, Tensor]) -> list[Step]:
    """What the post-ops do to a result, each in place; a sum leaves it in the destination."""
    return [_step(torch, number, entry, tensors) for number, entry in enumerate(attr.post_ops)]


def _step(torch: Torch, number: int, entry: object, tensors: Mapping[int, Tensor]) -> Step:
    flag = Arg.post_op(number)
    match entry:
        case PostOpEltwise():
            function = eltwise(torch, entry.alg, entry.alpha, entry.beta)
            return lambda x: function(x, x)
        case PostOpBinary() if entry.src2_desc is None:
            operand, combine = tensors[flag | Arg.SRC_1], binary(torch, entry.alg)
            return lambda x: combine(x, operand, x)
        case PostOpPrelu():
            weights = tensors[flag | Arg.WEIGHTS]
            return lambda x: torch.ops.aten._prelu_kernel(x, weights)
        case PostOpSum() if not entry.zero_point and entry.data_type is None:
            dst, scale = tensors[Arg.DST], entry.scale
            return lambda x: torch.add(x, dst, alpha=scale, out=dst)
    raise Unimplemented(f"PyTorch has no equal of the post-op {entry}")
