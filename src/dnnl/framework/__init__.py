"""The model runner: graphs on primitives, with layouts that propagate from one to the next.

A name is imported when it is first asked for: `dnnl.operators` reads `lowering` of this package,
and sessions read `dnnl.operators`.
"""

from typing import TYPE_CHECKING

import dnnl.onnx  # noqa: F401 - says what to install where onnx is missing
from dnnl import lazy

if TYPE_CHECKING:
    from dnnl.framework.model import Model as Model
    from dnnl.framework.model import load as load
    from dnnl.framework.session import Layer as Layer
    from dnnl.framework.session import Session as Session
    from dnnl.graph.graph import ModelError as ModelError

_HOMES = {
    "Layer": "session",
    "Model": "model",
    "ModelError": "model",
    "Session": "session",
    "load": "model",
}

__getattr__, __dir__ = lazy.names(__name__, _HOMES)
