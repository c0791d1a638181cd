"""What gradients of the differentiable functions have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dnnl.errors import Unimplemented


class Operator(Protocol):
    """What `torch.library.custom_op` makes."""

    def register_autograd(self, backward: Callable[..., Any], /) -> None:
        """Say how gradients are computed."""


def only_once(operator: Operator, name: str) -> None:
    """Refuse the gradient of an operator that computes that of ``name``."""

    def backward(ctx: Any, *_gradients: Any) -> None:
        raise Unimplemented(
            f"the second derivative of {name}: functions of dnnl.torch have first derivatives; "
            "those of torch.nn.functional have second ones"
        )

    operator.register_autograd(backward)
