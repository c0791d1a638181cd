"""Operations on arrays in one call, for NumPy and whatever exports DLPack.

Names and arguments are those of NumPy, SciPy and ``torch.nn.functional``; an argument that NumPy
and PyTorch call differently, such as axis and dim, has both names. Arrays may have any strides; the
result is a new row-major array of the first one's kind, or is written to ``out``. The primitive of
each set of shapes, strides, types and parameters is created once and cached. Gradients of tensors
of PyTorch are recorded where these are switched on.

Arrays in the memory of a device, as those of dpnp and memories of its engine, are computed there,
in order with the work in their queues; all of a call are on one device.

Types of results are those of NumPy 2, or of PyTorch where its tensors come first: integers wrap,
quotients, means and elementary functions of integers are floats, a Python number with an array has
the array's type where that holds it. Lists, and numbers by themselves, are f32. What NumPy and
PyTorch have for floats alone refuses integers. Integers in a wider type come by ``dtype``, where a
function has it, or by an ``out`` of that type; floats are rounded to an ``out`` of integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dnnl import lazy
from dnnl.ops.recorded import recorded

if TYPE_CHECKING:
    from dnnl.ops.adaptive import adaptive_avg_pool1d as adaptive_avg_pool1d
    from dnnl.ops.adaptive import adaptive_avg_pool2d as adaptive_avg_pool2d
    from dnnl.ops.adaptive import adaptive_avg_pool3d as adaptive_avg_pool3d
    from dnnl.ops.adaptive import adaptive_max_pool1d as adaptive_max_pool1d
    from dnnl.ops.adaptive import adaptive_max_pool2d as adaptive_max_pool2d
    from dnnl.ops.adaptive import adaptive_max_pool3d as adaptive_max_pool3d
    from dnnl.ops.clipping import clip as clip
    from dnnl.ops.clipping import hardtanh as hardtanh
    from dnnl.ops.clipping import relu6 as relu6
    from dnnl.ops.convolution import conv1d as conv1d
    from dnnl.ops.convolution import conv2d as conv2d
    from dnnl.ops.convolution import conv3d as conv3d
    from dnnl.ops.convolution import conv_transpose1d as conv_transpose1d
    from dnnl.ops.convolution import conv_transpose2d as conv_transpose2d
    from dnnl.ops.convolution import conv_transpose3d as conv_transpose3d
    from dnnl.ops.dot_product import attention as attention
    from dnnl.ops.dot_product import scaled_dot_product_attention as scaled_dot_product_attention
    from dnnl.ops.elementwise import absolute as absolute
    from dnnl.ops.elementwise import add as add
    from dnnl.ops.elementwise import divide as divide
    from dnnl.ops.elementwise import elu as elu
    from dnnl.ops.elementwise import exp as exp
    from dnnl.ops.elementwise import gelu as gelu
    from dnnl.ops.elementwise import hardsigmoid as hardsigmoid
    from dnnl.ops.elementwise import hardswish as hardswish
    from dnnl.ops.elementwise import leaky_relu as leaky_relu
    from dnnl.ops.elementwise import log as log
    from dnnl.ops.elementwise import logsigmoid as logsigmoid
    from dnnl.ops.elementwise import maximum as maximum
    from dnnl.ops.elementwise import minimum as minimum
    from dnnl.ops.elementwise import mish as mish
    from dnnl.ops.elementwise import multiply as multiply
    from dnnl.ops.elementwise import prelu as prelu
    from dnnl.ops.elementwise import relu as relu
    from dnnl.ops.elementwise import sigmoid as sigmoid
    from dnnl.ops.elementwise import silu as silu
    from dnnl.ops.elementwise import softplus as softplus
    from dnnl.ops.elementwise import sqrt as sqrt
    from dnnl.ops.elementwise import square as square
    from dnnl.ops.elementwise import subtract as subtract
    from dnnl.ops.elementwise import tanh as tanh
    from dnnl.ops.elementwise import where as where
    from dnnl.ops.gathering import embedding as embedding
    from dnnl.ops.joining import concatenate as concatenate
    from dnnl.ops.normalization import batch_norm as batch_norm
    from dnnl.ops.normalization import group_norm as group_norm
    from dnnl.ops.normalization import layer_norm as layer_norm
    from dnnl.ops.normalization import local_response_norm as local_response_norm
    from dnnl.ops.normalization import log_softmax as log_softmax
    from dnnl.ops.normalization import normalize as normalize
    from dnnl.ops.normalization import rms_norm as rms_norm
    from dnnl.ops.normalization import softmax as softmax
    from dnnl.ops.padding import pad as pad
    from dnnl.ops.pooling import avg_pool1d as avg_pool1d
    from dnnl.ops.pooling import avg_pool2d as avg_pool2d
    from dnnl.ops.pooling import avg_pool3d as avg_pool3d
    from dnnl.ops.pooling import max_pool1d as max_pool1d
    from dnnl.ops.pooling import max_pool2d as max_pool2d
    from dnnl.ops.pooling import max_pool3d as max_pool3d
    from dnnl.ops.products import linear as linear
    from dnnl.ops.products import matmul as matmul
    from dnnl.ops.recurrent import gru as gru
    from dnnl.ops.recurrent import lstm as lstm
    from dnnl.ops.recurrent import rnn as rnn
    from dnnl.ops.reduction import amax as amax
    from dnnl.ops.reduction import amin as amin
    from dnnl.ops.reduction import cumprod as cumprod
    from dnnl.ops.reduction import cumsum as cumsum
    from dnnl.ops.reduction import mean as mean
    from dnnl.ops.reduction import prod as prod
    from dnnl.ops.reduction import sum as sum
    from dnnl.ops.resampling import interpolate as interpolate

_HOMES = {
    "adaptive_avg_pool1d": "adaptive",
    "adaptive_avg_pool2d": "adaptive",
    "adaptive_avg_pool3d": "adaptive",
    "adaptive_max_pool1d": "adaptive",
    "adaptive_max_pool2d": "adaptive",
    "adaptive_max_pool3d": "adaptive",
    "clip": "clipping",
    "hardtanh": "clipping",
    "relu6": "clipping",
    "conv1d": "convolution",
    "conv2d": "convolution",
    "conv3d": "convolution",
    "conv_transpose1d": "convolution",
    "conv_transpose2d": "convolution",
    "conv_transpose3d": "convolution",
    "attention": "dot_product",
    "scaled_dot_product_attention": "dot_product",
    "absolute": "elementwise",
    "add": "elementwise",
    "divide": "elementwise",
    "elu": "elementwise",
    "exp": "elementwise",
    "gelu": "elementwise",
    "hardsigmoid": "elementwise",
    "hardswish": "elementwise",
    "leaky_relu": "elementwise",
    "log": "elementwise",
    "logsigmoid": "elementwise",
    "maximum": "elementwise",
    "minimum": "elementwise",
    "mish": "elementwise",
    "multiply": "elementwise",
    "prelu": "elementwise",
    "relu": "elementwise",
    "sigmoid": "elementwise",
    "silu": "elementwise",
    "softplus": "elementwise",
    "sqrt": "elementwise",
    "square": "elementwise",
    "subtract": "elementwise",
    "tanh": "elementwise",
    "where": "elementwise",
    "embedding": "gathering",
    "concatenate": "joining",
    "batch_norm": "normalization",
    "group_norm": "normalization",
    "layer_norm": "normalization",
    "local_response_norm": "normalization",
    "log_softmax": "normalization",
    "normalize": "normalization",
    "rms_norm": "normalization",
    "softmax": "normalization",
    "pad": "padding",
    "avg_pool1d": "pooling",
    "avg_pool2d": "pooling",
    "avg_pool3d": "pooling",
    "max_pool1d": "pooling",
    "max_pool2d": "pooling",
    "max_pool3d": "pooling",
    "linear": "products",
    "matmul": "products",
    "gru": "recurrent",
    "lstm": "recurrent",
    "rnn": "recurrent",
    "amax": "reduction",
    "amin": "reduction",
    "cumprod": "reduction",
    "cumsum": "reduction",
    "mean": "reduction",
    "prod": "reduction",
    "sum": "reduction",
    "interpolate": "resampling",
}
__all__ = [*_HOMES]  # noqa: PLE0604 - the table above has them
__getattr__, __dir__ = lazy.names(__name__, _HOMES, recorded)
