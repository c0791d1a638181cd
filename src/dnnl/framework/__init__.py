"""The model runner: graphs on primitives, with layouts that propagate from one to the next."""

import dnnl.onnx  # noqa: F401 - says what to install where onnx is missing
from dnnl.framework.model import Model, load
from dnnl.framework.session import Layer, Session
from dnnl.graph.graph import ModelError

__all__ = ["Layer", "Model", "ModelError", "Session", "load"]
