"""The table of operators, joined from the files of their families."""

from __future__ import annotations

import pkgutil
from collections import Counter
from importlib import import_module

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import dnnl.operators
from dnnl.onnx.read import graph_from_proto
from dnnl.onnx.write import graph_to_proto
from dnnl.operators import table
from tests.framework.models import make_model, node

FAMILIES = [
    import_module(f"dnnl.operators.{found.name}")
    for found in pkgutil.iter_modules(dnnl.operators.__path__)
    if found.name != "table"
]


@pytest.mark.parametrize("rows", ["OPERATORS", "MADE"])
def test_each_row_is_in_one_family(rows: str) -> None:
    found = Counter(name for family in FAMILIES for name in getattr(family, rows, {}))
    assert set(found.values()) == {1}
    assert found.keys() == getattr(table, rows).keys()


def test_no_file_can_hold_what_passes_write() -> None:
    assert table.MADE.keys().isdisjoint(table.OPERATORS)


@pytest.mark.parametrize("code", ["FLOAT16", "BFLOAT16", "BOOL", "STRING", "FLOAT8E4M3FN", "INT4"])
def test_element_types_of_attributes_are_numpys(code: str) -> None:
    number = TensorProto.DataType.Value(code)
    proto = make_model([node("Cast", ["x"], "y", to=number)], {"x": (2,)}, ["y"])
    graph = graph_from_proto(proto)
    assert isinstance(graph.nodes[0].attrs["to"], np.dtype)
    (written,) = graph_to_proto(graph).graph.node
    assert onnx.helper.get_node_attr_value(written, "to") == number
