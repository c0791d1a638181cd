"""Phrases for what verbose lines name: operations, functions, events, implementations."""

from __future__ import annotations

import re

from dnnl.language.errors import BadValue

PROPAGATIONS = {
    "undef": "",
    "forward_training": "forward, for training",
    "forward_inference": "forward, for inference",
    "backward": "backward: gradients of src and weights",
    "backward_data": "backward: the gradient of src",
    "backward_weights": "backward: the gradient of the weights",
    "backward_bias": "backward: the gradient of the bias",
}

EVENTS = {
    "exec": "executed",
    "create:cache_miss": "created anew",
    "create:cache_hit": "found in the cache of primitives",
    "create:kernel_cache_hit": "created with a kernel from the cache",
    "create:persistent_cache_hit": "created from a cache on disk",
    "create:nested_primitive_cache_hit": "its inner primitive was found in the cache",
    "create:from_cache_blob": "created from a stored blob",
    "create:start": "its creation began",
}

FUNCTIONS = {
    "relu": "x if x > 0, else {a}*x",
    "tanh": "tanh(x)",
    "elu": "x if x > 0, else {a}*(exp(x) - 1)",
    "square": "x*x",
    "abs": "|x|",
    "sqrt": "sqrt(x)",
    "linear": "{a}*x + {b}",
    "soft_relu": "log(1 + exp({a}*x)) / {a}",
    "hardsigmoid": "max(0, min(1, {a}*x + {b}))",
    "logistic": "1 / (1 + exp(-x))",
    "exp": "exp(x)",
    "gelu_tanh": "x/2 * (1 + tanh(0.798*x * (1 + 0.0447*x*x)))",
    "gelu_erf": "x/2 * (1 + erf(x / sqrt(2)))",
    "swish": "x / (1 + exp(-{a}*x))",
    "log": "log(x)",
    "clip": "x, at least {a} and at most {b}",
    "clip_v2": "x, at least {a} and at most {b}",
    "pow": "{a} * x^{b}",
    "round": "x rounded to the nearest even whole number",
    "mish": "x * tanh(log(1 + exp(x)))",
    "hardswish": "x * max(0, min(1, {a}*x + {b}))",
}

BINARY = {
    "add": "{x} + {y}", "sub": "{x} - {y}", "mul": "{x} * {y}", "div": "{x} / {y}",
    "max": "the larger of {x} and {y}", "min": "the smaller of {x} and {y}",
    "ge": "1 where {x} >= {y}, else 0", "gt": "1 where {x} > {y}, else 0",
    "le": "1 where {x} <= {y}, else 0", "lt": "1 where {x} < {y}, else 0",
    "eq": "1 where {x} = {y}, else 0", "ne": "1 where {x} is not {y}, else 0",
    "select": "{x} where a third tensor is not 0, else {y}",
}  # fmt: skip

ALGORITHMS = {
    "softmax_accurate": "exp(x - largest) / sum of exp(x - largest)",
    "softmax_log": "logarithm of the softmax: x - largest - log(sum of exp(x - largest))",
    "convolution_direct": "direct",
    "convolution_winograd": "Winograd's transforms, with fewer multiplications",
    "convolution_auto": "direct or Winograd, as the library chooses",
    "deconvolution_direct": "direct",
    "deconvolution_winograd": "Winograd's transforms, with fewer multiplications",
    "pooling_max": "the largest element",
    "pooling_avg_include_padding": "the average, with padding counted as zeros",
    "pooling_avg_exclude_padding": "the average of the elements that are not padding",
    "lrn_across_channels": "neighbours in channels",
    "lrn_within_channel": "neighbours in space",
    "resampling_nearest": "the nearest element",
    "resampling_linear": "linear interpolation",
    "reduction_sum": "the sum", "reduction_mean": "the mean", "reduction_mul": "the product",
    "reduction_max": "the largest", "reduction_min": "the smallest",
    "reduction_norm_lp_sum": "the norm of power p", "reduction_norm_lp_max": "the norm of power p",
    "reduction_norm_lp_power_p_sum": "the sum of the powers p",
    "reduction_norm_lp_power_p_max": "the sum of the powers p",
    "vanilla_rnn": "plain cells", "vanilla_lstm": "LSTM cells", "vanilla_gru": "GRU cells",
    "lbr_gru": "GRU cells, linear before reset", "vanilla_augru": "AUGRU cells",
    "lbr_augru": "AUGRU cells, linear before reset",
}  # fmt: skip

FLAGS = {
    "G": "mean and variance are given", "C": "a scale", "H": "a shift", "S": "scale and shift",
    "R": "relu behind it", "A": "addition and relu behind it", "M": "no mean is subtracted",
    "O": "gradients of weights are overwritten",
}  # fmt: skip

_IMPLEMENTATIONS = (
    ("ref", "plain loops, the slow path of oneDNN"),
    ("simple", "C++ loops left to the compiler"),
    ("nest", "a loop nest generated for this problem"),
    ("fold", "sums in vectors along what is summed, generated for this problem"),
    ("depthwise", "a depthwise convolution generated for this problem"),
    ("grouped", "products of groups, generated for this problem"),
    ("planes", "products of matrices whose columns are the pixels of a plane, generated"),
    ("chain", "a 1x1 convolution and the depthwise one behind it, a part in a cache at a time"),
    ("open", "one kernel for all sizes that only the execution knows, generated"),
    ("pack", "weights without their zeros, generated"),
    ("sparse", "products of the nonzeros of a sparse matrix, generated"),
    ("wrapping", "a reduction of integers that wrap, generated for this problem"),
    ("blocks", "attention by blocks of rows, whose weights are not stored, generated"),
    ("steps", "the products of all steps, then cells step by step, generated"),
    ("winograd", "Winograd's transforms and products of matrices, generated"),
    ("brg", "batch-reduce products of small matrices, generated"),
    ("x64:gemm", "built on a general matrix product"),
    ("gemm", "built on a general matrix product"),
    ("jit", "generated at run time"),
    ("acl", "a kernel of the Arm Compute Library"),
    ("ocl", "an OpenCL kernel"),
)


_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?|inf|nan)")
_ISA = re.compile("sse|avx|amx|neon|asimd|sve|vsx|rvv|spirv|sm_")


def function(name: str, alpha: str, beta: str) -> str:
    """What an elementary function does with ``x``; its name where that is not known."""
    for parameter in (alpha, beta):
        if not _NUMBER.fullmatch(parameter):
            raise BadValue(f"{parameter!r} is no number, which a parameter of {name} must be")
    base = re.sub("(_dst|_use_dst_for_bwd)$", "", name.removeprefix("eltwise_"))
    if base == "relu" and float(alpha) == 0:
        return "x if x > 0, else 0"
    text = FUNCTIONS.get(base)
    return base if text is None else text.format(a=alpha, b=beta)


def implementation(name: str) -> str:
    """What the name of an implementation tells of it; empty if nothing."""
    for start, meaning in _IMPLEMENTATIONS:
        if name.startswith(start):
            isa = name.rpartition(":")[2]
            return f"{meaning}, for {isa}" if _ISA.match(isa) else meaning
    return ""


def event(name: str) -> str:
    """What happened."""
    if name.startswith("create_nested"):
        return "created inside another primitive"
    return EVENTS.get(name, name)
