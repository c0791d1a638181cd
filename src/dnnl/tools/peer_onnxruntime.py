"""ONNX Runtime as a peer: the same model on the same input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dnnl.errors import Error
from dnnl.graph.graph import Array

NAME = "onnxruntime"


class OnnxRuntime:
    """A session of ONNX Runtime on the CPU.

    ``model`` is a path or the bytes of a model. If not ``fused``, each operator is computed as its
    definition says, one after the other. Raises Error where the package is missing or
    refuses the model.
    """

    def __init__(self, model: str | bytes, num_threads: int, *, fused: bool = True) -> None:
        try:
            import onnxruntime
        except ModuleNotFoundError as error:
            raise Error("onnxruntime is not installed: pip install 'dnnl[compare]'") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if not fused:
            level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.graph_optimization_level = level
        try:
            self._session: Any = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its exceptions have no common base
            raise Error(f"onnxruntime refuses the model: {error}") from error
        self.version: str = onnxruntime.__version__

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name."""
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, dict(feeds)), strict=True))
