"""The model runner: graphs on primitives, with layouts that propagate from one to the next.

A name is imported when it is first asked for: what runs a saved model needs little of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dnnl import lazy

if TYPE_CHECKING:
    from dnnl.framework.model import Model as Model
    from dnnl.framework.model import load as load
    from dnnl.framework.plan import Layer as Layer
    from dnnl.framework.session import Session as Session
    from dnnl.graph.graph import ModelError as ModelError

__all__ = ["Layer", "Model", "ModelError", "Session", "load"]

__getattr__, __dir__ = lazy.names(
    __name__,
    {
        "Layer": "plan",
        "Model": "model",
        "ModelError": "loading",
        "Session": "session",
        "load": "model",
    },
)
