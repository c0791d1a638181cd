"""What rounding alone does to a model: ONNX Runtime on the same graph in f32, with every number
between two nodes rounded to bf16."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from ml_dtypes import bfloat16
from onnx import TensorProto, helper, numpy_helper, shape_inference

from dnnl.types.dtype import DataType


def rounded(proto: Any) -> Any:
    """The model with all floats rounded but inputs and what is cast to integers."""
    known = shape_inference.infer_shapes(proto).graph
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*known.value_info, *known.output)}
    cast = {node.input[0] for node in proto.graph.node if node.op_type == "Cast"}
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    for tensor in result.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            near = array.astype(bfloat16).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(near, tensor.name))
    nodes = list(result.graph.node)
    del result.graph.node[:]
    for node in nodes:
        floats = [v for v in node.output if kinds.get(v) == TensorProto.FLOAT and v not in cast]
        for index, value in enumerate(node.output):
            node.output[index] = f"{value} exact" if value in floats else value
        result.graph.node.append(node)
        for value in floats:
            short = f"{value} short"
            steps = (
                (f"{value} exact", short, TensorProto.BFLOAT16),
                (short, value, TensorProto.FLOAT),
            )
            result.graph.node.extend(
                helper.make_node("Cast", [source], [dst], to=to) for source, dst, to in steps
            )
    return result


def beyond_rounding(given: Any, exact: Any, rough: Any) -> float:
    """How often the error of ``given`` holds what rounding did to ``rough`` and one more rounding;
    errors are Euclidean norms of what is between an array and ``exact``."""
    want = np.asarray(exact, np.float64)
    error, allowed = (np.linalg.norm(np.asarray(a, np.float64) - want) for a in (given, rough))
    allowed += 0.25 * DataType.bf16.eps * np.linalg.norm(want)
    return float(error / allowed) if error else 0.0
