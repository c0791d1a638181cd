"""The ONNX runner: models on primitives, with layouts that propagate from one to the next."""

from dnnl.framework.graph import ModelError
from dnnl.framework.model import Model, load
from dnnl.framework.session import Layer, Session
from dnnl.framework.shaped_buffer import ShapedBuffer, ShapedLayout

__all__ = ["Layer", "Model", "ModelError", "Session", "ShapedBuffer", "ShapedLayout", "load"]
