"""What gradients of the differentiable functions have in common."""

from __future__ import annotations

from typing import Any

from torch.library import CustomOpDef

from dnnl.errors import Unimplemented


def only_once(operator: CustomOpDef) -> CustomOpDef:
    """Refuse the gradient of an operator that computes a gradient."""

    def backward(ctx: Any, *_gradients: Any) -> None:
        name = str(operator._opoverload)
        raise Unimplemented(
            f"the gradient of {name}: functions of dnnl.torch have first derivatives; "
            "those of torch.nn.functional have second ones"
        )

    operator.register_autograd(backward)
    return operator
