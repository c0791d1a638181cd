"""What gradients of the differentiable functions have in common."""

from __future__ import annotations

from typing import Any

from dnnl.errors import Unimplemented
from dnnl.torch.functions.operators import Operator


def only_once(operator: Operator, name: str) -> None:
    """Refuse the gradient of an operator that computes that of ``name``."""

    def backward(ctx: Any, *_gradients: Any) -> None:
        raise Unimplemented(
            f"the second derivative of {name}: functions of dnnl.torch have first derivatives; "
            "those of torch.nn.functional have second ones"
        )

    operator.register_autograd(backward)
