"""The drivers whose primitives the library has; the others are counted as unimplemented."""

from __future__ import annotations

from dnnl.tools.bench.operations.base import Operation
from dnnl.tools.bench.operations.binary import Binary
from dnnl.tools.bench.operations.bnorm import BatchNormalization
from dnnl.tools.bench.operations.concat import Concat
from dnnl.tools.bench.operations.eltwise import Eltwise
from dnnl.tools.bench.operations.pool import Pooling
from dnnl.tools.bench.operations.products import Convolution, InnerProduct, Matmul
from dnnl.tools.bench.operations.reorder import Reorder
from dnnl.tools.bench.operations.softmax import Softmax
from dnnl.tools.bench.operations.sum import Sum

OPERATIONS: dict[str, Operation] = {
    "reorder": Reorder(),
    "softmax": Softmax(),
    "eltwise": Eltwise(),
    "binary": Binary(),
    "sum": Sum(),
    "concat": Concat(),
    "bnorm": BatchNormalization(),
    "pool": Pooling(),
    "conv": Convolution(),
    "ip": InnerProduct(),
    "matmul": Matmul(),
}
