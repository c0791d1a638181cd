"""The ONNX runner: models on primitives, with layouts that propagate from one to the next."""

try:
    import onnx  # noqa: F401 - what all modules here need, and dnnl alone does not
except ModuleNotFoundError as error:
    hint = "pip install 'dnnl[onnx]' brings it"
    raise ModuleNotFoundError(f"models need the package onnx: {hint}", name=error.name) from error

from dnnl.framework.graph import ModelError
from dnnl.framework.model import Model, load
from dnnl.framework.session import Layer, Session

__all__ = ["Layer", "Model", "ModelError", "Session", "load"]
