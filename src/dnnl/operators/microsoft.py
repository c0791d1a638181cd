"""What the contrib operators of ONNX Runtime have in common."""

from __future__ import annotations

from dnnl.errors import Unimplemented
from dnnl.graph.scope import Scope

MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's contrib operators."""


def check_known(scope: Scope, *names: str) -> None:
    """Raise Unimplemented for an attribute that is none of ``names``. ONNX's checker does not know
    these operators, so nothing else checks them."""
    for name in scope.node.attrs:
        if name not in names:
            given = scope.attr(name)
            rule = f"attribute {name!r} = {given!r} is not computed; known are {', '.join(names)}"
            raise Unimplemented(f"{scope.node}: {rule}")


def refuse(scope: Scope, what: str, rule: str) -> None:
    """Raise Unimplemented: form ``what`` of the operator breaks ``rule``."""
    raise Unimplemented(f"{scope.node}: {what}: {rule}")
