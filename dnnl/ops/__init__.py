"""Operations on arrays in one call, for NumPy and whatever exports DLPack.

Names and arguments are those of NumPy, SciPy and ``torch.nn.functional``. Arrays may have any
strides; the result is a new row-major array of the first one's kind, or is written to ``out``. The
primitive of each set of shapes, strides, types and parameters is made once and kept. Lists and
numbers are f32.
"""

from dnnl.ops.attention import attention
from dnnl.ops.elementwise import (
    absolute,
    add,
    clip,
    divide,
    elu,
    exp,
    gelu,
    hardsigmoid,
    hardswish,
    leaky_relu,
    log,
    maximum,
    minimum,
    mish,
    multiply,
    prelu,
    relu,
    sigmoid,
    silu,
    softplus,
    sqrt,
    square,
    subtract,
    tanh,
)
from dnnl.ops.joining import concatenate
from dnnl.ops.normalization import (
    batch_norm,
    group_norm,
    layer_norm,
    local_response_norm,
    log_softmax,
    rms_norm,
    softmax,
)
from dnnl.ops.products import linear, matmul
from dnnl.ops.reduction import amax, amin, mean, prod, sum
from dnnl.ops.resampling import interpolate
from dnnl.ops.windows import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    conv1d,
    conv2d,
    conv3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)

__all__ = [
    "absolute",
    "add",
    "amax",
    "amin",
    "attention",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "clip",
    "concatenate",
    "conv1d",
    "conv2d",
    "conv3d",
    "divide",
    "elu",
    "exp",
    "gelu",
    "group_norm",
    "hardsigmoid",
    "hardswish",
    "interpolate",
    "layer_norm",
    "leaky_relu",
    "linear",
    "local_response_norm",
    "log",
    "log_softmax",
    "matmul",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "maximum",
    "mean",
    "minimum",
    "mish",
    "multiply",
    "prelu",
    "prod",
    "relu",
    "rms_norm",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "sqrt",
    "square",
    "subtract",
    "sum",
    "tanh",
]
