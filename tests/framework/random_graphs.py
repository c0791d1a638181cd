"""Random graphs, built from steps that each have a name and say which values they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import helper

from tests.framework.models import make_model, node

Shape = tuple[int, int, int, int]
SHAPE: Shape = (2, 16, 4, 5)


class Builder:
    """A graph of values that all have one shape, and of results that have others.

    Parameters are random; the same ``seed`` and the same steps give the same graph.
    """

    def __init__(self, seed: int, shape: Shape = SHAPE) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = shape
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.values = ["x", "z"]
        self.results: list[str] = []
        self._wholes: dict[str, str] = {}

    def step(self, name: str, back: Sequence[int]) -> None:
        """Add a step of ``STEPS``; ``back`` is how far behind the last value its sources are, the
        last of them standing for those that are left out."""
        sources = [self.values[-1 - min(n, len(self.values) - 1)] for n in back]
        result = STEPS[name](self, *(sources + sources[-1:] * 3)[:3])
        if name in RESULTS:
            self.results.append(result)
        else:
            # Tanh keeps products of products in range.
            self.values.append(self.add("Tanh", result) if name in _GROWING else result)

    def proto(self, also: Sequence[str] = ()) -> Any:
        """The model; its outputs are its last value, the results, and values ``also``."""
        if not self.nodes:
            self.values.append(self.add("Identity", "x"))
        last = [self.nodes[-1].output[0], self.values[-1]]
        outputs = sorted({*last, *self.results, *also} - {"x", "z"})
        inputs = {"x": self.shape, "z": self.shape}
        return make_model(self.nodes, inputs, outputs, self.constants)

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Add a node, and return the name of its result."""
        self.nodes.append(node(op, inputs, result := f"v{len(self.nodes)}", **attrs))
        return result

    def constant(self, array: Any) -> str:
        """The name of a new constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def weights(self, *shape: int) -> str:
        """A constant that keeps the size of what is multiplied by it."""
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])))

    def channels(self, low: float = -1.0, high: float = 1.0) -> str:
        """A constant with one number for each channel."""
        return self.constant(self.rng.uniform(low, high, self.shape[1]))

    def whole(self, value: str, kind: str) -> str:
        """Integers of a type: the eighths of an input, or of what `number` gave; those of the input
        ``x`` for any other value, which rounding may take across an integer."""
        source = value if value in ("x", "z", *self._wholes) else "x"
        if source not in self._wholes:
            eighths = self.add("Mul", source, self.constant(np.array(8.0)))
            self._wholes[source] = self.cast(eighths, "int32")
        return self.cast(self._wholes[source], kind)

    def number(self, integers: str) -> str:
        """Integers as eighths, cut where int8 would no longer hold a sum of two."""
        least, most = (self.constant(np.array(n, np.int32)) for n in (-60, 60))
        whole = self.add("Min", self.add("Max", self.cast(integers, "int32"), least), most)
        value = self.add("Mul", self.cast(whole, "float32"), self.constant(np.array(0.125)))
        self._wholes[value] = whole
        return value

    def cast(self, value: str, kind: str) -> str:
        """A value in another type, by its name in NumPy."""
        to = int(helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
        return self.add("Cast", value, to=to)


Step = Callable[..., str]


def _unary(op: str, **attrs: Any) -> Step:
    return lambda b, x, *_: b.add(op, x, **attrs)


def _binary(op: str) -> Step:
    return lambda b, x, y, _: b.add(op, x, y)


def _convolution(size: int, groups: int = 1, dilation: int = 1) -> Step:
    def step(b: Builder, x: str, *_: str) -> str:
        c = b.shape[1]
        group = c if groups == 0 else groups if c % groups == 0 else 1
        weights = b.weights(c, c // group, size, size)
        pads = [dilation * (size // 2)] * 4
        return b.add("Conv", x, weights, pads=pads, group=group, dilations=[dilation] * 2)

    return step


def _spread(b: Builder, x: str, *_: str) -> str:
    """Back to the size of x: what is twice as large is cut by a convolution with a stride."""
    c = b.shape[1]
    twice = b.add("ConvTranspose", x, b.weights(c, c, 2, 2), strides=[2, 2])
    return b.add("Conv", twice, b.weights(c, c, 2, 2), strides=[2, 2])


def _biased(b: Builder, x: str, *_: str) -> str:
    c = b.shape[1]
    return b.add("Conv", x, b.weights(c, c, 3, 1), b.channels(), pads=[1, 0, 1, 0])


def _normalized(b: Builder, x: str, *_: str) -> str:
    parameters = [b.channels(), b.channels(), b.channels(), b.channels(0.5, 2.0)]
    return b.add("BatchNormalization", x, *parameters)


def _joined(b: Builder, x: str, y: str, _: str) -> str:
    c = b.shape[1]
    return b.add("Conv", b.add("Concat", x, y, axis=1), b.weights(c, 2 * c, 1, 1))


def _shuffled(b: Builder, x: str, *_: str) -> str:
    n, c, h, w = b.shape
    groups = 4 if c % 4 == 0 else 1
    x = b.add("Reshape", x, b.constant(np.array([n, groups, c // groups, h, w])))
    x = b.add("Transpose", x, perm=[0, 2, 1, 3, 4])
    return b.add("Reshape", x, b.constant(np.array(b.shape)))


def _turned(b: Builder, x: str, *_: str) -> str:
    x = b.add("Relu", b.add("Transpose", x, perm=[0, 2, 3, 1]))
    return b.add("Transpose", x, perm=[0, 3, 1, 2])


def _reshaped(b: Builder, x: str, *_: str) -> str:
    return b.add("Reshape", b.add("Flatten", x), b.constant(np.array(b.shape)))


def _squeezed(b: Builder, x: str, *_: str) -> str:
    axes = b.constant(np.array([2]))
    return b.add("Squeeze", b.add("Unsqueeze", x, axes), axes)


def _scaled(b: Builder, x: str, *_: str) -> str:
    return b.add("Mul", x, b.weights(b.shape[1], 1, 1))


def _excited(b: Builder, x: str, *_: str) -> str:
    gate = b.add("GlobalAveragePool", x)
    return b.add(
        "Mul", x, b.add("Sigmoid", b.add("Conv", gate, b.weights(*b.shape[1:2] * 2, 1, 1)))
    )


def _dense(b: Builder, x: str, *_: str) -> str:
    return b.add("MatMul", x, b.weights(b.shape[3], b.shape[3]))


def _divided(b: Builder, x: str, y: str, _: str) -> str:
    return b.add("Div", x, b.add("Add", b.add("Abs", y), b.constant(np.array(1.0))))


def _root(b: Builder, x: str, *_: str) -> str:
    return b.add("Sqrt", b.add("Abs", x))


def _clipped(b: Builder, x: str, *_: str) -> str:
    return b.add("Clip", x, b.constant(np.array(-0.5)), b.constant(np.array(1.5)))


def _coarse(b: Builder, x: str, *_: str) -> str:
    c = b.shape[1]
    return b.add("Conv", x, b.weights(2 * c + 1, c, 3, 3), pads=[1] * 4, strides=[2, 2])


def _halved(b: Builder, x: str, *_: str) -> str:
    return b.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER")


def _classified(b: Builder, x: str, *_: str) -> str:
    x = b.add("Flatten", b.add("GlobalAveragePool", x))
    return b.add("Softmax", b.add("Gemm", x, b.weights(b.shape[1], 10), b.weights(10)), axis=1)


def _integers(op: str, kind: str) -> Step:
    def step(b: Builder, x: str, y: str, _: str) -> str:
        return b.number(b.add(op, b.whole(x, kind), b.whole(y, kind)))

    return step


def _divisors(op: str, kind: str) -> Step:
    def step(b: Builder, x: str, *_: str) -> str:
        size = (b.shape[1], 1, 1)
        divisors = b.rng.integers(1, 10, size) * b.rng.choice([-1, 1], size)
        return b.number(b.add(op, b.whole(x, kind), b.constant(divisors.astype(kind))))

    return step


def _integer(op: str, kind: str) -> Step:
    return lambda b, x, *_: b.number(b.add(op, b.whole(x, kind)))


def _chosen(comparison: str, kind: str) -> Step:
    def step(b: Builder, x: str, y: str, z: str) -> str:
        return b.add("Where", b.add(comparison, b.whole(x, kind), b.whole(y, kind)), y, z)

    return step


def _neither(b: Builder, x: str, y: str, z: str) -> str:
    x, y, z = (b.whole(value, "int64") for value in (x, y, z))
    either = b.add("Or", b.add("Less", x, y), b.add("Equal", x, z))
    return b.number(b.add("Where", b.add("Not", either), y, z))


def _rows(b: Builder, x: str, *_: str) -> str:
    # A row of equal elements would otherwise grow by what rounding left of its variance.
    width = b.shape[3]
    return b.add("LayerNormalization", x, b.weights(width), b.weights(width), epsilon=0.1)


def _images(b: Builder, x: str, *_: str) -> str:
    return b.add("InstanceNormalization", x, b.channels(), b.channels(), epsilon=0.1)


def _slopes(b: Builder, x: str, *_: str) -> str:
    return b.add("PRelu", x, b.weights(b.shape[1], 1, 1))


def _without(op: str, *axes: int) -> Step:
    return lambda b, x, y, _: b.add("Sub", x, b.add(op, y, axes=axes))


def _sums(b: Builder, x: str, y: str, _: str) -> str:
    total = b.add("ReduceSum", x, b.constant(np.array([0, 2])))
    return b.add("Add", y, b.add("Mul", total, b.constant(np.array(1 / 8))))


def _unit(b: Builder, x: str, *_: str) -> str:
    norm = b.add("ReduceL2", x, axes=[2, 3])
    return b.add("Div", x, b.add("Add", norm, b.constant(np.array(1.0))))


def _whole_sums(kind: str, *axes: int) -> Step:
    def step(b: Builder, x: str, y: str, _: str) -> str:
        total = b.add("ReduceSum", b.whole(x, kind), b.constant(np.array(axes)))
        return b.number(b.add("Sub", b.whole(y, kind), total))

    return step


def _larger_and_back(**attrs: Any) -> Step:
    """An image of twice the size, of which every second element stays."""

    def step(b: Builder, x: str, *_: str) -> str:
        x = b.add("Resize", x, "", b.constant(np.array([1.0, 1.0, 2.0, 2.0])), **attrs)
        return b.add("MaxPool", x, kernel_shape=[1, 1], strides=[2, 2])

    return step


def _resized(mode: str, height: int, width: int) -> Step:
    def step(b: Builder, x: str, *_: str) -> str:
        sizes = b.constant(np.array([*b.shape[:2], height, width]))
        return b.add("Resize", x, "", "", sizes, mode=mode)

    return step


def _scalar(b: Builder, number: float) -> str:
    return b.constant(np.array(number))


def _gelu_by_parts(b: Builder, x: str, *_: str) -> str:
    inner = b.add("Add", b.add("Erf", b.add("Div", x, _scalar(b, 2**0.5))), _scalar(b, 1.0))
    return b.add("Mul", b.add("Mul", x, inner), _scalar(b, 0.5))


def _gelu_of_tanh(b: Builder, x: str, *_: str) -> str:
    x = b.add("Tanh", x)
    cube = b.add("Mul", b.add("Pow", x, _scalar(b, 3.0)), _scalar(b, 0.044715))
    inner = b.add("Tanh", b.add("Mul", b.add("Add", x, cube), _scalar(b, 0.7978846)))
    return b.add("Mul", b.add("Mul", x, _scalar(b, 0.5)), b.add("Add", inner, _scalar(b, 1.0)))


def _where_positive(b: Builder, x: str, *_: str) -> str:
    positive = b.add("Greater", x, _scalar(b, 0.25))
    return b.add("Where", positive, b.add("Sin", x), b.add("Mul", x, _scalar(b, 0.5)))


def _gated(b: Builder, x: str, y: str, _: str) -> str:
    return b.add("Mul", b.add("Sigmoid", x), b.add("Tanh", y))


def _rotated(b: Builder, x: str, y: str, z: str) -> str:
    """Two products of values with constants, and a third value behind their sum."""
    first = b.add("Mul", x, b.constant(b.rng.uniform(-1, 1, b.shape[2:])))
    second = b.add("Mul", y, b.constant(b.rng.uniform(-1, 1, (b.shape[1], 1, 1))))
    return b.add("Sub", z, b.add("Add", first, second))


def _powers(b: Builder, x: str, *_: str) -> str:
    exponents = b.rng.integers(0, 4, (b.shape[1], 1, 1)).astype(np.float32)
    return b.add("Tanh", b.add("Pow", x, b.constant(exponents)))


def _attended(b: Builder, x: str, y: str, _: str) -> str:
    n, c, h, w = b.shape
    keys = b.add("Transpose", b.add("Mul", y, _scalar(b, 0.7)), perm=[0, 1, 3, 2])
    scores = b.add("MatMul", b.add("Mul", x, _scalar(b, 0.7)), keys)
    mask = b.constant(np.triu(np.full((h, h), -1e4), 1))
    weights = b.add("Softmax", b.add("Add", scores, mask), axis=-1)
    weights = b.add("Where", b.add("IsNaN", weights), _scalar(b, 0.0), weights)
    heads = b.add("Transpose", b.add("MatMul", weights, y), perm=[0, 2, 1, 3])
    rows = b.add("Reshape", heads, b.constant(np.array([n, h, c * w])))
    back = b.add("Reshape", rows, b.constant(np.array([n, h, c, w])))
    return b.add("Transpose", back, perm=[0, 2, 1, 3])


def _swapped(b: Builder, x: str, *_: str) -> str:
    c = b.shape[1]
    ends = [b.constant(np.array([at])) for at in (0, c // 2, c, 1)]
    first, second = (b.add("Slice", x, ends[n], ends[n + 1], ends[3]) for n in (0, 1))
    return b.add("Concat", second, b.add("Relu", first), axis=1)


def _backwards(b: Builder, x: str, *_: str) -> str:
    named = ([-1, 10**6], [-(10**6), -(10**6)], [2, 1], [-1, -1])
    return b.add("Slice", x, *(b.constant(np.array(numbers)) for numbers in named))


def _gathered(b: Builder, x: str, *_: str) -> str:
    order = b.rng.permutation(b.shape[1]) - b.rng.integers(0, 2, b.shape[1]) * b.shape[1]
    return b.add("Gather", x, b.constant(order), axis=1)


def _framed(mode: str) -> Step:
    def step(b: Builder, x: str, *_: str) -> str:
        around = b.constant(np.array([0, 0, 1, 2, 0, 0, 2, 1]))
        pads = (around, _scalar(b, 0.5)) if mode == "constant" else (around,)
        # ONNX Runtime reflects no more than there is.
        kind = "edge" if mode == "reflect" and min(b.shape[2:]) < 3 else mode
        window = {"kernel_shape": [4, 4]}
        return b.add("AveragePool", b.add("Pad", x, *pads, mode=kind), **window)

    return step


def _tiled(b: Builder, x: str, *_: str) -> str:
    x = b.add("Tile", x, b.constant(np.array([1, 1, 2, 2])))
    return b.add("AveragePool", x, kernel_shape=[1, 1], strides=[2, 2])


def _lower(b: Builder, x: str, *_: str) -> str:
    return b.add("Trilu", x, b.constant(np.array(1)), upper=0)


_POOL = {"kernel_shape": [3, 3], "pads": [1] * 4}
STEPS: dict[str, Step] = {
    **{op: _unary(op) for op in ("Relu", "Tanh", "Sigmoid", "HardSwish", "Abs", "Neg")},
    **{op: _unary(op) for op in ("Softplus", "Elu", "LeakyRelu", "HardSigmoid", "Identity", "Exp")},
    **{op: _binary(op) for op in ("Add", "Mul", "Sub", "Max", "Min")},
    "Sum": lambda b, x, y, z: b.add("Sum", x, y, z),
    "Conv": _convolution(3),
    "Pointwise": _convolution(1),
    "Grouped": _convolution(3, groups=4),
    "Depthwise": _convolution(3, groups=0),
    "Dilated": _convolution(3, dilation=2),
    "Biased": _biased,
    "Spread": _spread,
    "MaxPool": _unary("MaxPool", **_POOL),
    "AveragePool": _unary("AveragePool", **_POOL),
    "BatchNormalization": _normalized,
    "LRN": _unary("LRN", size=3),
    "Softmax": _unary("Softmax", axis=1),
    "Rows": _unary("LogSoftmax", axis=3),
    "Concat": _joined,
    "Shuffle": _shuffled,
    "Transpose": _turned,
    "Reshape": _reshaped,
    "Squeeze": _squeezed,
    "Factor": _scaled,
    "Excite": _excited,
    "Dense": _dense,
    "Div": _divided,
    "Sqrt": _root,
    "Clip": _clipped,
    **{f"{op}Int32": _integers(op, "int32") for op in ("Add", "Mul", "Max")},
    **{f"{op}Int64": _integers(op, "int64") for op in ("Sub", "Mul", "Min")},
    **{f"Div{kind.title()}": _divisors("Div", kind) for kind in ("int32", "int64")},
    **{f"Mod{kind.title()}": _divisors("Mod", kind) for kind in ("int8", "int32", "int64")},
    **{f"{op}Int8": _integer(op, "int8") for op in ("Abs", "Neg", "Sign")},
    "Less": _chosen("Less", "int32"),
    "GreaterOrEqual": _chosen("GreaterOrEqual", "int64"),
    "Neither": _neither,
    "GeluByParts": _gelu_by_parts,
    "GeluOfTanh": _gelu_of_tanh,
    "WherePositive": _where_positive,
    **{op: _unary(op) for op in ("Erf", "Softsign", "Cos", "Selu")},
    "Gated": _gated,
    "Rotated": _rotated,
    "Powers": _powers,
    "Attention": _attended,
    "Swapped": _swapped,
    "Backwards": _backwards,
    "Gathered": _gathered,
    **{f"Pad{mode.title()}": _framed(mode) for mode in ("constant", "edge", "reflect")},
    "Tile": _tiled,
    "Trilu": _lower,
    "LayerNormalization": _rows,
    "InstanceNormalization": _images,
    "PRelu": _slopes,
    "WithoutMean": _without("ReduceMean", 1),
    "WithoutRowMean": _without("ReduceMean", 0, 3),
    "WithoutMax": _without("ReduceMax", 2, 3),
    "WithoutMin": _without("ReduceMin", 1),
    "WithoutLogSumExp": _without("ReduceLogSumExp", 1),
    "Sums": _sums,
    "Unit": _unit,
    "SumsInt32": _whole_sums("int32", 1),
    "SumsInt64": _whole_sums("int64", 0, 3),
    "Nearest": _larger_and_back(coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    "Linear": _larger_and_back(mode="linear"),
    "Corners": _larger_and_back(mode="linear", coordinate_transformation_mode="align_corners"),
    "Coarse": _coarse,
    "Halve": _halved,
    "Classify": _classified,
    "Mean": _unary("ReduceMean", axes=[2, 3], keepdims=0),
    "Norms": _unary("ReduceL1", axes=[1], keepdims=0),
    "Squares": _unary("ReduceSumSquare", axes=[0, 2]),
    "Cubic": _resized("cubic", 6, 9),
    "Smaller": _resized("linear", 3, 2),
    "Hanging": _unary("AveragePool", **_POOL, strides=[2, 2], ceil_mode=1, count_include_pad=1),
}
"""What adds a node or a few, by name, and returns the name of the result."""
RESULTS = (
    *("Coarse", "Halve", "Classify", "Mean", "Norms", "Squares", "Cubic", "Smaller"),
    "Hanging",
)
"""The steps whose results have another shape, so that nothing follows them."""
_GROWING = ("Mul", "Sum", "Exp", "Excite")
