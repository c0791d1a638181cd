"""ONNX files as graphs, and graphs as ONNX."""

try:
    import onnx  # noqa: F401 - what all modules here need, and dnnl alone does not
except ModuleNotFoundError as error:
    hint = "pip install 'dnnl[onnx]' brings it"
    raise ModuleNotFoundError(f"models need the package onnx: {hint}", name=error.name) from error
