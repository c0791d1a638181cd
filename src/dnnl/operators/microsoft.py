"""What operators of ONNX Runtime's domain have in common."""

from __future__ import annotations

from dnnl.errors import Unimplemented
from dnnl.graph.scope import Scope

MICROSOFT = "com.microsoft"
"""The domain of the operators that ONNX Runtime's optimizer and exporters for it write."""


def check_known(scope: Scope, *names: str) -> None:
    """Raise Unimplemented for an attribute that is none of ``names``: ONNX does not know these
    operators, so that nothing else looks at them."""
    for name in scope.node.attrs:
        if name not in names:
            given = scope.attr(name)
            rule = f"attribute {name!r} = {given!r} is not computed; known are {', '.join(names)}"
            raise Unimplemented(f"{scope.node}: {rule}")


def refuse(scope: Scope, what: str, rule: str) -> None:
    """Raise Unimplemented for a form of an operator."""
    raise Unimplemented(f"{scope.node}: {what}: {rule}")
