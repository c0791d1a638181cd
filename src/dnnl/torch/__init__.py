"""PyTorch: its graphs as models, the backend ``dnnl`` of `torch.compile`, and primitives as
differentiable functions.

The package is imported where PyTorch is in use: nothing else in the library imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dnnl import lazy
from dnnl.runtime import teams

try:
    import torch as torch
except ModuleNotFoundError as error:
    rule = "pip install 'dnnl[torch]' brings it"
    raise ModuleNotFoundError(f"this needs the package torch: {rule}", name=error.name) from None

if TYPE_CHECKING:
    from dnnl.torch.functions.attention import attention as attention
    from dnnl.torch.functions.elementwise import elu as elu
    from dnnl.torch.functions.elementwise import gelu as gelu
    from dnnl.torch.functions.elementwise import hardsigmoid as hardsigmoid
    from dnnl.torch.functions.elementwise import hardswish as hardswish
    from dnnl.torch.functions.elementwise import hardtanh as hardtanh
    from dnnl.torch.functions.elementwise import leaky_relu as leaky_relu
    from dnnl.torch.functions.elementwise import logsigmoid as logsigmoid
    from dnnl.torch.functions.elementwise import mish as mish
    from dnnl.torch.functions.elementwise import relu as relu
    from dnnl.torch.functions.elementwise import relu6 as relu6
    from dnnl.torch.functions.elementwise import sigmoid as sigmoid
    from dnnl.torch.functions.elementwise import silu as silu
    from dnnl.torch.functions.elementwise import softplus as softplus
    from dnnl.torch.functions.elementwise import tanh as tanh
    from dnnl.torch.functions.normalizing import batch_norm as batch_norm
    from dnnl.torch.functions.normalizing import group_norm as group_norm
    from dnnl.torch.functions.normalizing import layer_norm as layer_norm
    from dnnl.torch.functions.pooling import avg_pool1d as avg_pool1d
    from dnnl.torch.functions.pooling import avg_pool2d as avg_pool2d
    from dnnl.torch.functions.pooling import avg_pool3d as avg_pool3d
    from dnnl.torch.functions.pooling import max_pool1d as max_pool1d
    from dnnl.torch.functions.pooling import max_pool2d as max_pool2d
    from dnnl.torch.functions.pooling import max_pool3d as max_pool3d
    from dnnl.torch.functions.products import conv1d as conv1d
    from dnnl.torch.functions.products import conv2d as conv2d
    from dnnl.torch.functions.products import conv3d as conv3d
    from dnnl.torch.functions.products import linear as linear
    from dnnl.torch.functions.recurrent import gru as gru
    from dnnl.torch.functions.recurrent import lstm as lstm
    from dnnl.torch.functions.recurrent import rnn as rnn
    from dnnl.torch.functions.softmax import log_softmax as log_softmax
    from dnnl.torch.functions.softmax import softmax as softmax
    from dnnl.torch.functions.traced import activation as activation
    from dnnl.torch.modules import ELU as ELU
    from dnnl.torch.modules import GELU as GELU
    from dnnl.torch.modules import GRU as GRU
    from dnnl.torch.modules import LSTM as LSTM
    from dnnl.torch.modules import RNN as RNN
    from dnnl.torch.modules import AvgPool1d as AvgPool1d
    from dnnl.torch.modules import AvgPool2d as AvgPool2d
    from dnnl.torch.modules import AvgPool3d as AvgPool3d
    from dnnl.torch.modules import BatchNorm1d as BatchNorm1d
    from dnnl.torch.modules import BatchNorm2d as BatchNorm2d
    from dnnl.torch.modules import BatchNorm3d as BatchNorm3d
    from dnnl.torch.modules import Conv1d as Conv1d
    from dnnl.torch.modules import Conv2d as Conv2d
    from dnnl.torch.modules import Conv3d as Conv3d
    from dnnl.torch.modules import GroupNorm as GroupNorm
    from dnnl.torch.modules import Hardsigmoid as Hardsigmoid
    from dnnl.torch.modules import Hardswish as Hardswish
    from dnnl.torch.modules import Hardtanh as Hardtanh
    from dnnl.torch.modules import LayerNorm as LayerNorm
    from dnnl.torch.modules import LeakyReLU as LeakyReLU
    from dnnl.torch.modules import Linear as Linear
    from dnnl.torch.modules import LogSigmoid as LogSigmoid
    from dnnl.torch.modules import LogSoftmax as LogSoftmax
    from dnnl.torch.modules import MaxPool1d as MaxPool1d
    from dnnl.torch.modules import MaxPool2d as MaxPool2d
    from dnnl.torch.modules import MaxPool3d as MaxPool3d
    from dnnl.torch.modules import Mish as Mish
    from dnnl.torch.modules import ReLU as ReLU
    from dnnl.torch.modules import ReLU6 as ReLU6
    from dnnl.torch.modules import Sigmoid as Sigmoid
    from dnnl.torch.modules import SiLU as SiLU
    from dnnl.torch.modules import Softmax as Softmax
    from dnnl.torch.modules import Softplus as Softplus
    from dnnl.torch.modules import Tanh as Tanh
    from dnnl.torch.modules import replace as replace
    from dnnl.torch.multihead import MultiheadAttention as MultiheadAttention

_HOMES = {
    "attention": "functions.attention",
    "elu": "functions.elementwise",
    "gelu": "functions.elementwise",
    "hardsigmoid": "functions.elementwise",
    "hardswish": "functions.elementwise",
    "hardtanh": "functions.elementwise",
    "leaky_relu": "functions.elementwise",
    "logsigmoid": "functions.elementwise",
    "mish": "functions.elementwise",
    "relu": "functions.elementwise",
    "relu6": "functions.elementwise",
    "sigmoid": "functions.elementwise",
    "silu": "functions.elementwise",
    "softplus": "functions.elementwise",
    "tanh": "functions.elementwise",
    "batch_norm": "functions.normalizing",
    "group_norm": "functions.normalizing",
    "layer_norm": "functions.normalizing",
    "avg_pool1d": "functions.pooling",
    "avg_pool2d": "functions.pooling",
    "avg_pool3d": "functions.pooling",
    "max_pool1d": "functions.pooling",
    "max_pool2d": "functions.pooling",
    "max_pool3d": "functions.pooling",
    "conv1d": "functions.products",
    "conv2d": "functions.products",
    "conv3d": "functions.products",
    "linear": "functions.products",
    "gru": "functions.recurrent",
    "lstm": "functions.recurrent",
    "rnn": "functions.recurrent",
    "log_softmax": "functions.softmax",
    "softmax": "functions.softmax",
    "activation": "functions.traced",
    "AvgPool1d": "modules",
    "AvgPool2d": "modules",
    "AvgPool3d": "modules",
    "BatchNorm1d": "modules",
    "BatchNorm2d": "modules",
    "BatchNorm3d": "modules",
    "Conv1d": "modules",
    "Conv2d": "modules",
    "Conv3d": "modules",
    "ELU": "modules",
    "GELU": "modules",
    "GRU": "modules",
    "GroupNorm": "modules",
    "Hardsigmoid": "modules",
    "Hardswish": "modules",
    "Hardtanh": "modules",
    "LSTM": "modules",
    "LayerNorm": "modules",
    "LeakyReLU": "modules",
    "Linear": "modules",
    "LogSigmoid": "modules",
    "LogSoftmax": "modules",
    "MaxPool1d": "modules",
    "MaxPool2d": "modules",
    "MaxPool3d": "modules",
    "Mish": "modules",
    "RNN": "modules",
    "ReLU": "modules",
    "ReLU6": "modules",
    "SiLU": "modules",
    "Sigmoid": "modules",
    "Softmax": "modules",
    "Softplus": "modules",
    "Tanh": "modules",
    "replace": "modules",
    "MultiheadAttention": "multihead",
}
teams.use_threads_of(torch)
__all__ = [*_HOMES]  # noqa: PLE0604 - the table above has them
__getattr__, __dir__ = lazy.names(__name__, _HOMES)
