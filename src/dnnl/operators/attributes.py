"""What each attribute of an operator holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dnnl.graph.graph import Attributes, ModelError

_INTEGER = (
    *("accuracy_level", "activation_axis", "align_corners", "allowzero", "antialias", "axis"),
    *("batch_axis", "batch_dims", "bits", "block_size", "blocksize", "ceil_mode"),
    *("channels_last", "count_include_pad", "detect_negative", "detect_positive"),
    *("exclude_outside", "exclusive", "fmod", "given", "group", "groups", "ignore_index"),
    *("interleaved", "inverse", "is_causal", "is_inner_broadcast", "K", "keepdims"),
    *("kv_num_heads", "left_window_size", "log", "mask_index_type", "N", "noop_with_empty_axes"),
    *("num_groups", "num_heads", "num_outputs", "offset_group", "onesided", "opset"),
    *("output_height", "output_width", "p", "periodic", "q_num_heads"),
    *("qk_matmul_output_mode", "reverse", "right_window_size", "rotary_embedding_dim"),
    *("round_activation", "sampling_ratio", "saturate", "select_last_index", "size"),
    *("spatial", "stash_type", "storage_order", "time_axis", "training_mode", "transA"),
    *("transB", "transBatchA", "transBatchB", "unidirectional", "upper"),
)
_NUMBER = (
    *("activation_alpha", "activation_beta", "activation_gamma", "alpha", "beta", "bias"),
    *("cubic_coeff_a", "epsilon", "extrapolation_value", "gamma", "lambd", "limit"),
    *("mask_filter_value", "max", "min", "momentum", "ratio", "scale", "softcap"),
    *("spatial_scale", "value"),
)
_TEXT = (
    *("approximate", "auto_pad", "coordinate_transformation_mode", "direction", "equation"),
    *(
        "keep_aspect_ratio_policy",
        "mode",
        "nearest_mode",
        "padding_mode",
        "reduction",
        "round_mode",
    ),
)
_INTEGERS = (
    *("axes", "dilations", "ends", "kernel_shape", "output_padding", "output_shape", "paddings"),
    *("pads", "perm", "qkv_hidden_sizes", "shape", "split", "starts", "strides"),
)
_NUMBERS = ("activation_params", "scales")
_DATA_TYPES = ("dtype", "output_dtype", "precision", "to")

_ATTRIBUTES: dict[str, str] = {
    **dict.fromkeys(_INTEGER, "an integer"),
    **dict.fromkeys(_NUMBER, "a number"),
    **dict.fromkeys(_TEXT, "a text"),
    **dict.fromkeys(_INTEGERS, "integers"),
    **dict.fromkeys(_NUMBERS, "numbers"),
    **dict.fromkeys(_DATA_TYPES, "a data type"),
}
"""What each attribute holds; a name means the same in every operator that has no row of its own."""
_OF_LAYERS = {
    **dict.fromkeys(("activation_alpha", "activation_beta"), "numbers"),
    **dict.fromkeys(("hidden_size", "input_forget", "layout", "linear_before_reset"), "an integer"),
    "activations": "texts",
    "clip": "a number",
}
"""What recurrent layers have: parameters of several functions in one list."""
_LAYERS = ("GRU", "LSTM", "RNN", "com.microsoft.DynamicQuantizeLSTM")
_OF_OPERATOR = dict.fromkeys(_LAYERS, _ATTRIBUTES | _OF_LAYERS)


def _are(values: object, kind: type) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(v, kind) for v in values)


_FITS: dict[str, Callable[[object], bool]] = {
    "an integer": lambda value: isinstance(value, int),
    "a number": lambda value: isinstance(value, float),
    "a text": lambda value: isinstance(value, bytes),
    "texts": lambda value: _are(value, bytes),
    "integers": lambda value: _are(value, int),
    "numbers": lambda value: _are(value, float),
    # The code of a type that ONNX does not define stays an integer.
    "a data type": lambda value: isinstance(value, int | np.dtype),
}


def check_attributes(operator: str, attrs: Attributes) -> None:
    """Raise ModelError for an attribute of another type than the operator of a name has it."""
    known = _OF_OPERATOR.get(operator, _ATTRIBUTES)
    for name, value in attrs.items():
        what = known.get(name)
        if what is not None and not _FITS[what](value):
            raise ModelError(f"attribute {name!r} = {value!r} must be {what}")
