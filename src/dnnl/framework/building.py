"""What makes a model out of an ONNX file, changes its graph and compiles it.

`framework.model` imports this module when one of these is first asked for.
"""

from __future__ import annotations

import os
from pathlib import Path

from dnnl.framework.compiler import compiled
from dnnl.framework.parts import divided
from dnnl.framework.program import OpenSession, with_sizes
from dnnl.framework.random_weights import with_random_weights
from dnnl.framework.summary import page_of
from dnnl.graph.graph import Graph, ModelError
from dnnl.graph.input_sizes import ones_for_open
from dnnl.onnx.check import refusal
from dnnl.onnx.read import graph_from_proto, read_model
from dnnl.onnx.write import graph_to_proto
from dnnl.passes.specialize import check_operators, rebatched, specialize

__all__ = [
    "OpenSession",
    "compiled",
    "divided",
    "graph_to_proto",
    "page_of",
    "read",
    "rebatched",
    "specialize",
    "with_random_weights",
    "with_sizes",
]


def read(path: str | os.PathLike[str]) -> Graph:
    """The graph in an ONNX file.

    Raises ModelError, with the reason, for a file that is no usable model, and Unimplemented for
    operators or operator sets that are not known. What depends on sizes, or is refused of an
    operator that is known, shows when the model is compiled.
    """
    proto = read_model(Path(path))
    try:
        graph = graph_from_proto(proto, str(path))
        check_operators(graph)
        reason = refusal(proto)
        if reason:
            if ones_for_open(graph.inputs) == {n: kind.shape for n, kind in graph.inputs.items()}:
                specialize(graph)  # tells more where it fails as well
            raise ModelError(f"{path}: no valid ONNX model: {reason}")
    except UnicodeDecodeError as error:  # protobuf looks at a text when it is asked for
        raise ModelError(f"{path} is damaged: a text in it is no UTF-8: {error}") from None
    return graph
