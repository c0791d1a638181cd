"""Modules of torch.nn that compute by the library, and their exchange in a network.

Arguments, parameters and ``state_dict`` are those of PyTorch's module of the same name, of which
each is a subclass, but for the recurrent ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from dnnl.errors import InvalidArguments
from dnnl.torch.functions import elementwise, normalizing, pooling, products, recurrent
from dnnl.torch.functions import softmax as exponential
from dnnl.torch.functions.checks import refuse
from dnnl.torch.multihead import MultiheadAttention

_log = logging.getLogger("dnnl.torch")
Module = TypeVar("Module", bound=nn.Module)


class Linear(nn.Linear):
    """`torch.nn.Linear` by `dnnl.torch.linear`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., outputs] of [..., inputs]."""
        return products.linear(x, self.weight, self.bias)


def _convolved(
    own: nn.Conv1d | nn.Conv2d | nn.Conv3d,
    function: Callable[..., torch.Tensor],
    x: torch.Tensor,
) -> torch.Tensor:
    padding: Any = own.padding
    if own.padding_mode != "zeros":
        sides: Sequence[int] = own._reversed_padding_repeated_twice
        x, padding = nn.functional.pad(x, sides, own.padding_mode), 0
    return function(x, own.weight, own.bias, own.stride, padding, own.dilation, own.groups)


class Conv1d(nn.Conv1d):
    """`torch.nn.Conv1d` by `dnnl.torch.conv1d`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The convolution of [N, C, W] or [C, W]."""
        return _convolved(self, products.conv1d, x)


class Conv2d(nn.Conv2d):
    """`torch.nn.Conv2d` by `dnnl.torch.conv2d`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The convolution of [N, C, H, W] or [C, H, W]."""
        return _convolved(self, products.conv2d, x)


class Conv3d(nn.Conv3d):
    """`torch.nn.Conv3d` by `dnnl.torch.conv3d`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The convolution of [N, C, D, H, W] or [C, D, H, W]."""
        return _convolved(self, products.conv3d, x)


class LayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm` by `dnnl.torch.layer_norm`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The last dimensions of x by their mean and variance."""
        return normalizing.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class GroupNorm(nn.GroupNorm):
    """`torch.nn.GroupNorm` by `dnnl.torch.group_norm`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Groups of channels of [N, C, ...] by their mean and variance."""
        return normalizing.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


def _normalized(own: nn.modules.batchnorm._BatchNorm, x: torch.Tensor) -> torch.Tensor:
    own._check_input_dim(x)  # type: ignore[no-untyped-call]
    momentum = 0.0 if own.momentum is None else own.momentum
    if own.training and own.track_running_stats and own.num_batches_tracked is not None:
        own.num_batches_tracked.add_(1)
        if own.momentum is None:  # the average of all batches
            momentum = 1.0 / float(own.num_batches_tracked)
    training = own.training or own.running_mean is None
    running = own.running_mean, own.running_var
    if own.training and not own.track_running_stats:
        running = None, None
    affine = own.weight, own.bias
    return normalizing.batch_norm(x, *running, *affine, training, momentum, own.eps)


class BatchNorm1d(nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` by `dnnl.torch.batch_norm`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Channels of [N, C] or [N, C, W] by their mean and variance."""
        return _normalized(self, x)


class BatchNorm2d(nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` by `dnnl.torch.batch_norm`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Channels of [N, C, H, W] by their mean and variance."""
        return _normalized(self, x)


class BatchNorm3d(nn.BatchNorm3d):
    """`torch.nn.BatchNorm3d` by `dnnl.torch.batch_norm`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Channels of [N, C, D, H, W] by their mean and variance."""
        return _normalized(self, x)


def _greatest(
    own: nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d,
    function: Callable[..., torch.Tensor],
    x: torch.Tensor,
) -> torch.Tensor:
    if own.return_indices:
        raise refuse("return_indices", True, "maxima come without their places")
    window = own.kernel_size, own.stride, own.padding, own.dilation
    return function(x, *window, own.ceil_mode)


class MaxPool1d(nn.MaxPool1d):
    """`torch.nn.MaxPool1d` by `dnnl.torch.max_pool1d`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The maxima of windows of [N, C, W] or [C, W]."""
        return _greatest(self, pooling.max_pool1d, x)


class MaxPool2d(nn.MaxPool2d):
    """`torch.nn.MaxPool2d` by `dnnl.torch.max_pool2d`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The maxima of windows of [N, C, H, W] or [C, H, W]."""
        return _greatest(self, pooling.max_pool2d, x)


class MaxPool3d(nn.MaxPool3d):
    """`torch.nn.MaxPool3d` by `dnnl.torch.max_pool3d`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The maxima of windows of [N, C, D, H, W] or [C, D, H, W]."""
        return _greatest(self, pooling.max_pool3d, x)


def _averaged(
    own: nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d,
    function: Callable[..., torch.Tensor],
    x: torch.Tensor,
) -> torch.Tensor:
    divisor = getattr(own, "divisor_override", None)
    if divisor is not None:
        rule = "averages are divided by the elements of their windows"
        raise refuse("divisor_override", divisor, rule)
    window = own.kernel_size, own.stride, own.padding
    return function(x, *window, own.ceil_mode, own.count_include_pad)


class AvgPool1d(nn.AvgPool1d):
    """`torch.nn.AvgPool1d` by `dnnl.torch.avg_pool1d`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The averages of windows of [N, C, W] or [C, W]."""
        return _averaged(self, pooling.avg_pool1d, x)


class AvgPool2d(nn.AvgPool2d):
    """`torch.nn.AvgPool2d` by `dnnl.torch.avg_pool2d`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The averages of windows of [N, C, H, W] or [C, H, W]."""
        return _averaged(self, pooling.avg_pool2d, x)


class AvgPool3d(nn.AvgPool3d):
    """`torch.nn.AvgPool3d` by `dnnl.torch.avg_pool3d`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The averages of windows of [N, C, D, H, W] or [C, D, H, W]."""
        return _averaged(self, pooling.avg_pool3d, x)


def _recurrent(own: nn.RNNBase, function: Callable[..., Any], x: Any, hx: Any) -> Any:
    return function(
        x, hx, own._flat_weights, own.bias, own.num_layers, own.dropout, own.training,
        own.bidirectional, own.batch_first,
    )  # fmt: skip


class LSTM(nn.RNNBase):
    """`torch.nn.LSTM` by `dnnl.torch.lstm`. Not a subclass: torch.compile breaks graphs there."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        """Arguments are those of `torch.nn.LSTM`."""
        super().__init__("LSTM", *args, **keywords)

    def forward(self, x: Any, hx: Any = None) -> Any:
        """The output and (h_n, c_n) of a tensor or a PackedSequence."""
        return _recurrent(self, recurrent.lstm, x, hx)


class GRU(nn.RNNBase):
    """`torch.nn.GRU` by `dnnl.torch.gru`. Not a subclass, as `LSTM`."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        """Arguments are those of `torch.nn.GRU`."""
        super().__init__("GRU", *args, **keywords)

    def forward(self, x: Any, hx: Any = None) -> Any:
        """The output and h_n of a tensor or a PackedSequence."""
        return _recurrent(self, recurrent.gru, x, hx)


class RNN(nn.RNNBase):
    """`torch.nn.RNN` by `dnnl.torch.rnn`. Not a subclass, as `LSTM`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **keywords: Any,
    ) -> None:
        """Arguments are those of `torch.nn.RNN`."""
        modes = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
        if nonlinearity not in modes:
            raise InvalidArguments("nonlinearity", nonlinearity, 'expected "tanh" or "relu"')
        sizes = input_size, hidden_size, num_layers
        super().__init__(modes[nonlinearity], *sizes, *args, **keywords)
        self.nonlinearity = nonlinearity

    def forward(self, x: Any, hx: Any = None) -> Any:
        """The output and h_n of a tensor or a PackedSequence."""
        return _recurrent(self, partial(recurrent.rnn, nonlinearity=self.nonlinearity), x, hx)


class ReLU(nn.ReLU):
    """`torch.nn.ReLU` by `dnnl.torch.relu`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """max(x, 0)."""
        return elementwise.relu(x)


class LeakyReLU(nn.LeakyReLU):
    """`torch.nn.LeakyReLU` by `dnnl.torch.leaky_relu`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x, or a multiple of it where it is negative."""
        return elementwise.leaky_relu(x, self.negative_slope)


class GELU(nn.GELU):
    """`torch.nn.GELU` by `dnnl.torch.gelu`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x times the normal distribution's probability of x."""
        return elementwise.gelu(x, self.approximate)


class Tanh(nn.Tanh):
    """`torch.nn.Tanh` by `dnnl.torch.tanh`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The hyperbolic tangent."""
        return elementwise.tanh(x)


class Sigmoid(nn.Sigmoid):
    """`torch.nn.Sigmoid` by `dnnl.torch.sigmoid`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """1 / (1 + exp(-x))."""
        return elementwise.sigmoid(x)


class SiLU(nn.SiLU):
    """`torch.nn.SiLU` by `dnnl.torch.silu`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x sigmoid(x)."""
        return elementwise.silu(x)


class ELU(nn.ELU):
    """`torch.nn.ELU` by `dnnl.torch.elu`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x, or alpha (exp(x) - 1) where it is negative."""
        return elementwise.elu(x, self.alpha)


class Mish(nn.Mish):
    """`torch.nn.Mish` by `dnnl.torch.mish`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x tanh(log(1 + exp(x)))."""
        return elementwise.mish(x)


class Hardswish(nn.Hardswish):
    """`torch.nn.Hardswish` by `dnnl.torch.hardswish`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x times its hardsigmoid."""
        return elementwise.hardswish(x)


class Hardsigmoid(nn.Hardsigmoid):
    """`torch.nn.Hardsigmoid` by `dnnl.torch.hardsigmoid`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x / 6 + 1 / 2, from 0 to 1."""
        return elementwise.hardsigmoid(x)


class ReLU6(nn.ReLU6):
    """`torch.nn.ReLU6` by `dnnl.torch.relu6`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x from 0 to 6."""
        return elementwise.relu6(x)


class Hardtanh(nn.Hardtanh):
    """`torch.nn.Hardtanh` by `dnnl.torch.hardtanh`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x between two bounds."""
        return elementwise.hardtanh(x, self.min_val, self.max_val)


class Softplus(nn.Softplus):
    """`torch.nn.Softplus` by `dnnl.torch.softplus`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """log(1 + exp(beta x)) / beta."""
        return elementwise.softplus(x, self.beta)


class LogSigmoid(nn.LogSigmoid):
    """`torch.nn.LogSigmoid` by `dnnl.torch.logsigmoid`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logarithm of the sigmoid."""
        return elementwise.logsigmoid(x)


class Softmax(nn.Softmax):
    """`torch.nn.Softmax` by `dnnl.torch.softmax`; ``dim`` must be given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """exp(x) over its sum."""
        return exponential.softmax(x, _given(self.dim))


class LogSoftmax(nn.LogSoftmax):
    """`torch.nn.LogSoftmax` by `dnnl.torch.log_softmax`; ``dim`` must be given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logarithm of exp(x) over its sum."""
        return exponential.log_softmax(x, _given(self.dim))


def _given(dim: int | None) -> int:
    if dim is None:
        raise InvalidArguments("dim", None, "must be given", "try -1")
    return dim


def _hangs(own: Any) -> bool:
    """Whether windows of an average may reach beyond a padding that it counts."""
    padding = own.padding if isinstance(own.padding, tuple) else (own.padding,)
    return bool(own.ceil_mode and own.count_include_pad and any(padding))


_OWN: Mapping[type[nn.Module], type[nn.Module]] = {
    getattr(nn, own.__name__): own
    for own in (
        Linear, Conv1d, Conv2d, Conv3d, LayerNorm, GroupNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d,
        MaxPool1d, MaxPool2d, MaxPool3d, AvgPool1d, AvgPool2d, AvgPool3d, LSTM, GRU, RNN, ReLU,
        LeakyReLU, GELU, Tanh, Sigmoid, SiLU, ELU, Mish, Hardswish, Hardsigmoid, ReLU6, Hardtanh,
        Softplus, LogSigmoid, Softmax, LogSoftmax, MultiheadAttention,
    )
}  # fmt: skip
_PLAIN = torch.float32, torch.bfloat16, torch.float16
_THRESHOLD = 20  # from where softplus is x within the digits of f32
_F64 = Linear, Conv1d, Conv2d, Conv3d, MultiheadAttention


def _why_not(own: nn.Module, wanted: type[nn.Module]) -> str | None:
    """Why a module stays PyTorch's; None if it does not."""
    types = (*_PLAIN, torch.float64) if wanted in _F64 else _PLAIN
    for name, parameter in own.named_parameters(recurse=False):
        if parameter.dtype not in types or parameter.device.type != "cpu":
            return f"{name} is {parameter.dtype} on {parameter.device}"
    if getattr(own, "return_indices", False):
        return "return_indices"
    if getattr(own, "divisor_override", None) is not None:
        return "divisor_override"
    if wanted in (AvgPool1d, AvgPool2d, AvgPool3d) and _hangs(own):
        return "ceil_mode with count_include_pad and padding"
    if wanted in (Softmax, LogSoftmax) and own.dim is None:
        return "no dim"
    if getattr(own, "threshold", _THRESHOLD) != _THRESHOLD:
        return "threshold"
    return None


def replace(module: Module) -> Module:
    """Let a network compute by the library; returns the network.

    Each module in it, and itself, that is one of torch.nn's with a counterpart here becomes that
    counterpart in place: the object, its parameters, hooks and state stay. Subclasses stay as they
    are, and so do modules with arguments or types that the library does not take. The logger
    ``dnnl.torch`` reports both by name, at the level INFO. Activations with ``inplace``
    write new tensors.
    """
    if not isinstance(module, nn.Module):
        raise InvalidArguments("module", type(module).__name__, "expected a torch.nn.Module")
    for name, own in module.named_modules():
        wanted = _OWN.get(type(own))
        if wanted is None:
            continue
        reason = _why_not(own, wanted)
        where = name or "the network"
        if reason is None:
            own.__class__ = wanted
            _log.info("%s: %s by dnnl", where, wanted.__name__)
        else:
            _log.info("%s: %s by PyTorch: %s", where, wanted.__name__, reason)
    return module
