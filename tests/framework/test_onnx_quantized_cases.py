"""The node cases of ONNX's own test suite for quantized values, with constant and with computed
scales: bit for bit."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dnnl.errors import Unimplemented
from dnnl.runtime.engine import Engine
from tests.framework.test_onnx_cases import array, cases, prepared

FEWEST = {
    "ConvInteger": 2,
    "DequantizeLinear": 2,
    "DynamicQuantizeLinear": 3,
    "MatMulInteger": 1,
    "QLinearConv": 1,
    "QLinearMatMul": 8,
    "QuantizeLinear": 2,
}
"""The cases of bytes; there are others of 16 and 4 bits, of 8-bit floats and of blocks."""


@pytest.mark.parametrize("constant", [True, False])
def test_cases_are_exact_or_refused(constant: bool) -> None:
    counts: Counter[str] = Counter()
    for case in cases(exact=True):
        op = case.model.graph.node[0].op_type
        if op not in FEWEST:
            continue
        for sources, results in case.data_sets:
            given = [array(source) for source in sources]
            try:
                model, feeds = prepared(case, given, exact=True, constant=constant)
                session = model.compile(Engine("cpu"), num_threads=1)
            except Unimplemented:
                continue
            outputs = session.run(feeds)
            for name, result in zip(session.outputs, results, strict=True):
                want = array(result)
                assert outputs[name].dtype == want.dtype, case.name
                np.testing.assert_array_equal(outputs[name], want, case.name)
            counts[op] += 1
    assert all(counts[op] >= least for op, least in FEWEST.items()), counts
