"""One row for each ONNX operator: the types of its results, its primitives, what it absorbs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from dnnl.framework.lowering import Lowering
from dnnl.graph.graph import EXACT, FUNCTION, ModelError, Node, PostOp
from dnnl.graph.scope import Infer
from dnnl.operators import lower_data as data
from dnnl.operators import lower_elementwise as elementwise
from dnnl.operators import lower_normalization as normalization
from dnnl.operators import lower_product as product
from dnnl.operators import lower_quantized as quantized
from dnnl.operators import lower_reduction as reduction
from dnnl.operators import lower_resize as resizing
from dnnl.operators import lower_spatial as spatial
from dnnl.operators import shapes, shapes_data
from dnnl.operators import shapes_normalization as normalized
from dnnl.operators import shapes_quantized as bytewise
from dnnl.operators import shapes_reduction as reduced
from dnnl.operators import shapes_resize as resized
from dnnl.operators.algorithms import ELTWISE
from dnnl.operators.exact import COMPARISONS, ONE, TWO_OF_A_TYPE
from dnnl.operators.quantization import (
    CONV,
    CONV_TRANSPOSE,
    DEQUANTIZE,
    DYNAMIC,
    MATMUL,
    QUANTIZE,
    SOFTMAX,
)
from dnnl.operators.traced import ALONE

Lower = Callable[[Lowering, Node], None]

_ANY = frozenset({"eltwise", "binary", "function"})
_ELTWISE = frozenset({"eltwise", "function"})
_BINARY = frozenset({"binary", "function"})

_INTEGER = (
    *("allowzero", "antialias", "axis", "batch_dims", "block_size", "ceil_mode"),
    *("channels_last", "count_include_pad", "detect_negative", "detect_positive"),
    *("exclude_outside", "fmod"),
    *("group", "keepdims", "noop_with_empty_axes", "num_groups", "num_outputs", "opset"),
    *("saturate", "size", "spatial"),
    *("stash_type", "storage_order", "training_mode", "transA", "transB", "upper"),
)
_NUMBER = (
    *("alpha", "beta", "bias", "cubic_coeff_a", "epsilon", "extrapolation_value", "gamma", "max"),
    *("min", "momentum", "ratio", "value"),
)
_TEXT = (
    *("approximate", "auto_pad", "coordinate_transformation_mode", "direction"),
    *("keep_aspect_ratio_policy", "mode", "nearest_mode", "round_mode"),
)
_INTEGERS = (
    *("axes", "dilations", "ends", "kernel_shape", "output_padding", "output_shape", "paddings"),
    *("pads", "perm", "shape", "split", "starts", "strides"),
)
_NUMBERS = ("scales",)
_DATA_TYPES = ("output_dtype", "to")

_ATTRIBUTES: dict[str, str] = {
    **dict.fromkeys(_INTEGER, "an integer"),
    **dict.fromkeys(_NUMBER, "a number"),
    **dict.fromkeys(_TEXT, "a text"),
    **dict.fromkeys(_INTEGERS, "integers"),
    **dict.fromkeys(_NUMBERS, "numbers"),
    **dict.fromkeys(_DATA_TYPES, "a data type"),
}
"""What each attribute holds; a name means the same in every operator of the table."""


def _are(values: object, kind: type) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(v, kind) for v in values)


_FITS: dict[str, Callable[[object], bool]] = {
    "an integer": lambda value: isinstance(value, int),
    "a number": lambda value: isinstance(value, float),
    "a text": lambda value: isinstance(value, bytes),
    "integers": lambda value: _are(value, int),
    "numbers": lambda value: _are(value, float),
    # The code of a type that ONNX does not define stays an integer.
    "a data type": lambda value: isinstance(value, int | np.dtype),
}


class Role(Enum):
    """Which types of floats an operator's primitive can combine, and what its result is."""

    PRODUCT = "both factors have one type, the result any"
    FUNCTION = "each source and the result have any type"
    STATISTIC = "as a function; one number depends on many"
    MOVED = "sources and result have one type, nothing is computed"
    EXACT = "computed in the types of the elements, not in smaller ones"


@dataclass(frozen=True, slots=True)
class Operator:
    """How an operator is typed and run, and which kinds of post-ops its primitive takes.

    ``inputs`` are the numbers of sources that it needs and that it takes at most (None: any),
    ``required`` the attributes that have no default. ``stores_bytes`` is false where a dst of bytes
    is refused, or decides on more than how the result is stored.
    """

    infer: Infer
    lower: Lower
    post_ops: frozenset[str] = frozenset()
    inputs: tuple[int, int | None] = (1, 1)
    required: tuple[str, ...] = ()
    role: Role = Role.FUNCTION
    stores_bytes: bool = True

    def takes(self, post_op: PostOp) -> bool:
        """Whether the primitive has such post-ops; what takes no second source takes no operands
        of functions either."""
        kinds = {post_op.kind, "binary"} if post_op.operands else {post_op.kind}
        return kinds <= self.post_ops


def _binary(post_ops: frozenset[str] = _ANY) -> Operator:
    return Operator(shapes.elementwise, elementwise.binary, post_ops, (2, 2))


def _variadic() -> Operator:
    return Operator(shapes.elementwise, elementwise.binary, _ANY, (1, None))


def _pooling(*required: str, role: Role = Role.FUNCTION, stores_bytes: bool = True) -> Operator:
    return Operator(
        shapes.pooling,
        spatial.pooling,
        _ANY,
        required=required,
        role=role,
        stores_bytes=stores_bytes,
    )


def _exact(infer: Infer, count: int, *required: str, role: Role = Role.EXACT) -> Operator:
    return Operator(infer, elementwise.exact, inputs=(count, count), required=required, role=role)


def _product(infer: Infer, lower: Lower, inputs: tuple[int, int]) -> Operator:
    return Operator(infer, lower, _ANY, inputs, role=Role.PRODUCT)


def _moved(
    infer: Infer, lower: Lower, inputs: tuple[int, int | None] = (1, 1), *required: str
) -> Operator:
    return Operator(infer, lower, inputs=inputs, required=required, role=Role.MOVED)


def _unary(inputs: tuple[int, int] = (1, 1)) -> Operator:
    return Operator(shapes.same, elementwise.unary, _BINARY, inputs)


OPERATORS: dict[str, Operator] = {
    "Add": _binary(),
    "AveragePool": _pooling("kernel_shape"),
    "BatchNormalization": Operator(
        shapes.batch_normalization,
        spatial.batch_normalization,
        _ELTWISE,
        (5, 5),
        stores_bytes=False,
    ),
    "Cast": Operator(shapes.cast, elementwise.cast, required=("to",), role=Role.EXACT),
    "Concat": _moved(shapes.concat, data.concat, (1, None), "axis"),
    "Conv": _product(shapes.convolution, spatial.convolution, (2, 3)),
    "ConvTranspose": _product(shapes.deconvolution, spatial.deconvolution, (2, 3)),
    "Div": _binary(),
    "Dropout": Operator(shapes.dropout, data.unsupported, inputs=(1, 3)),
    "Expand": _moved(shapes_data.expanded, data.expand, (2, 2)),
    "Flatten": _moved(shapes.flatten, data.reshape),
    "Gather": _moved(shapes_data.gather, data.gather, (2, 2)),
    "GatherElements": _moved(shapes_data.gather_elements, data.gather_elements, (2, 2)),
    "GatherND": Operator(shapes_data.gather_nd, data.unsupported, inputs=(2, 2)),
    "Gemm": _product(shapes.gemm, product.gemm, (2, 3)),
    "GlobalAveragePool": _pooling(role=Role.STATISTIC),
    "GlobalMaxPool": _pooling(role=Role.STATISTIC, stores_bytes=False),
    "GroupNormalization": Operator(
        normalized.group, normalization.group, _ANY, (3, 3), ("num_groups",)
    ),
    "Identity": Operator(shapes.same, data.unsupported),
    "InstanceNormalization": Operator(normalized.instance, data.unsupported, inputs=(3, 3)),
    "IsInf": Operator(shapes_data.truth, data.unsupported),
    "IsNaN": Operator(shapes_data.truth, data.unsupported),
    "LRN": Operator(shapes.same, data.unsupported, required=("size",)),
    "LayerNormalization": Operator(normalized.layer, normalization.layer, _ANY, (2, 3)),
    "LogSoftmax": Operator(shapes.same, elementwise.softmax, _ELTWISE),
    "MatMul": _product(shapes.matmul, product.matmul, (2, 2)),
    "Max": _variadic(),
    "MaxPool": _pooling("kernel_shape", stores_bytes=False),
    "Min": _variadic(),
    "Mul": _binary(),
    "Pad": Operator(shapes_data.padded, data.unsupported, inputs=(1, 4)),
    "PRelu": Operator(shapes.prelu, elementwise.prelu, inputs=(2, 2)),
    "Pow": _binary(_BINARY),
    "RMSNormalization": Operator(normalized.layer, normalization.layer, _ANY, (2, 2)),
    **{
        op: Operator(reduced.reduction, reduction.reduction, _ANY, (1, 2), role=Role.STATISTIC)
        for op in reduced.REDUCTIONS
    },
    "Range": Operator(shapes_data.counted, data.counted, inputs=(3, 3), role=Role.EXACT),
    "Reshape": _moved(shapes.reshape, data.reshape, (1, 2)),
    "Resize": Operator(resized.resize, resizing.resize, _ANY, (1, 4)),
    "Slice": _moved(shapes_data.sliced, data.sliced, (1, 5)),
    "Softmax": Operator(shapes.same, elementwise.softmax, _ELTWISE),
    "Split": _moved(shapes_data.split, data.split, (1, 2)),
    "Squeeze": _moved(shapes.squeeze, data.reshape, (1, 2)),
    "Sub": _binary(),
    "Sum": Operator(shapes.elementwise, elementwise.summation, inputs=(1, None)),
    "Tile": Operator(shapes_data.tiled, data.unsupported, inputs=(2, 2)),
    "Transpose": _moved(shapes.transpose, data.transpose),
    "Trilu": Operator(shapes_data.triangle, data.unsupported, inputs=(1, 2)),
    "Unsqueeze": _moved(shapes.unsqueeze, data.reshape, (1, 2)),
    "Upsample": Operator(resized.resize, data.unsupported, inputs=(1, 2)),
    "Where": _exact(shapes.choice, 3, role=Role.MOVED),
    **{op: _exact(shapes.comparison, 2) for op in COMPARISONS},
    **{op: _exact(shapes.elementwise, 2) for op in TWO_OF_A_TYPE},
    **{op: _exact(shapes.same, 1) for op in ONE},
    "BitShift": _exact(shapes.elementwise, 2, "direction"),
    **{op: _unary((1, 3) if op == "Clip" else (1, 1)) for op in ELTWISE},
    **{op: Operator(shapes.floats, data.unsupported) for op in ALONE},
    **{
        name: Operator(bytewise.operator_form(name), data.unsupported, inputs=form.inputs)
        for name, form in bytewise.FORMS.items()
    },
    **{
        f"{domain}{QUANTIZE}": Operator(bytewise.quantize, data.unsupported, inputs=(2, 3))
        for domain in ("", f"{bytewise.MICROSOFT}.")
    },
    **{
        f"{domain}{DEQUANTIZE}": Operator(bytewise.dequantize, data.unsupported, inputs=(2, 3))
        for domain in ("", f"{bytewise.MICROSOFT}.")
    },
    DYNAMIC: Operator(bytewise.dynamic, data.unsupported),
    "ConvInteger": Operator(
        bytewise.integer_sums(shapes.convolution, (0, 0)), data.unsupported, inputs=(2, 4)
    ),
    "MatMulInteger": Operator(
        bytewise.integer_sums(shapes.matmul, (-2, -1)), data.unsupported, inputs=(2, 4)
    ),
}

_MADE = {
    EXACT: Operator(shapes.same, elementwise.exact, inputs=(1, None), role=Role.EXACT),
    FUNCTION: Operator(shapes.same, elementwise.function, _BINARY),
    CONV: Operator(shapes.convolution, spatial.convolution, _ANY, (2, 6)),
    CONV_TRANSPOSE: Operator(shapes.deconvolution, spatial.deconvolution, _ANY, (2, 6)),
    MATMUL: Operator(shapes.matmul, quantized.matmul, _ANY, (2, 6)),
    SOFTMAX: Operator(shapes.same, quantized.softmax, _ELTWISE, (2, 2)),
}
"""What passes write and no file can hold."""


def row_name(node: Node) -> str:
    """The name of a node's row, with the domain where it is not ONNX's own."""
    return f"{node.domain}.{node.op}" if node.domain else node.op


def operator_of(node: Node) -> Operator:
    """The row of a node that is known, whether a file or a pass wrote it."""
    made = _MADE.get(node.op)
    return OPERATORS[row_name(node)] if made is None else made


def check_form(node: Node) -> None:
    """Raise ModelError where a node of the table has a wrong number of sources, lacks an attribute
    or has one of another type."""
    operator = OPERATORS.get(row_name(node))
    if operator is None:
        return
    _check_inputs(node.inputs, *operator.inputs)
    if not node.outputs or not node.output:
        raise ModelError("the node has no result")
    for name in operator.required:
        if name not in node.attrs:
            raise ModelError(f"attribute {name!r} is missing")
    for name, value in node.attrs.items():
        what = _ATTRIBUTES.get(name)
        if what is not None and not _FITS[what](value):
            raise ModelError(f"attribute {name!r} = {value!r} must be {what}")


def _check_inputs(inputs: tuple[str, ...], least: int, most: int | None) -> None:
    required = inputs if most is None else inputs[:least]
    if len(required) < least or not all(required) or (most is not None and len(inputs) > most):
        count = f"{least} or more" if most is None else f"{least}" + f" to {most}" * (most > least)
        raise ModelError(f"inputs {', '.join(map(repr, inputs))}: it must have {count} of them")
