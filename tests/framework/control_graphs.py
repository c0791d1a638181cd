"""Models that decide sizes, branches and iterations while they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.framework.models import make_model, node

RNG = np.random.default_rng(41)
INT64, FLOAT, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
ONE, ZERO = np.array(1, np.int64), np.array(0, np.int64)
FIRST = np.array([0], np.int64)
"""An axis, or a place."""


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def value(name: str, kind: int = FLOAT, shape: Sequence[int | str] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def inner(
    name: str,
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, np.ndarray] | None = None,
) -> Any:
    """A graph inside a node."""
    arrays = [numpy_helper.from_array(a, key) for key, a in (constants or {}).items()]
    return helper.make_graph(nodes, name, inputs, outputs, arrays)


def decoder(vocabulary: int = 30, width: int = 16) -> Any:
    """Greedy decoding by a Loop: attention over a cache that grows by one row in each iteration,
    until a token is 0 or there are ``most`` of them."""
    body = inner(
        "step",
        [
            node("Gather", ["table", "token"], "e"),
            node("Shape", ["cache"], "shape"),
            node("Slice", ["places", "shape0", "shape1", "zero"], "here"),
            node("Add", ["e", "here"], "row"),
            node("Concat", ["cache", "row"], "longer", axis=0),
            node("Transpose", ["longer"], "keys", perm=[1, 0]),
            node("MatMul", ["row", "keys"], "scores"),
            node("Softmax", ["scores"], "parts", axis=-1),
            node("MatMul", ["parts", "longer"], "mixed"),
            node("MatMul", ["mixed", "head"], "logits"),
            node("TopK", ["logits", "k"], "best", "place", axis=-1),
            node("Reshape", ["place", "flat"], "next"),
            node("Equal", ["place", "end"], "ended"),
            node("Reshape", ["ended", "none"], "is_ended"),
            node("Not", ["is_ended"], "more"),
        ],
        [value("i", INT64, []), value("go", BOOL, []), value("token", INT64, [1]),
         value("cache", FLOAT, ["t", width])],
        [value("more", BOOL), value("next", INT64), value("longer"), value("next", INT64, [1]),
         value("logits", FLOAT, [1, vocabulary])],
        {"k": np.array([1], np.int64), "flat": np.array([1], np.int64),
         "none": np.array([], np.int64), "end": ZERO, "one1": np.array([1], np.int64)},
    )  # fmt: skip
    at = next(n for n, each in enumerate(body.node) if each.op_type == "Slice")
    body.node.insert(at, node("Slice", ["shape", "zero", "one1"], "shape0"))
    body.node.insert(at + 1, node("Add", ["shape0", "one1"], "shape1"))
    nodes = [
        node("Loop", ["most", "", "start", "empty"], "last", "cached", "tokens", "logits_all",
             body=body),
        node("MatMul", ["cached", "head"], "y"),
    ]  # fmt: skip
    body.output[3].name = "emitted"
    body.node.append(node("Identity", ["next"], "emitted"))
    constants = {
        "table": weights(vocabulary, width), "places": weights(200, width),
        "head": weights(width, vocabulary), "zero": FIRST,
        "empty": np.zeros((0, width), np.float32),
    }  # fmt: skip
    kinds = {"most": np.int64, "start": np.int64, "tokens": np.int64}
    inputs: dict[str, Sequence[int | str]] = {"most": (), "start": (1,)}
    return make_model(nodes, inputs, ["tokens", "logits_all", "y"], constants, kinds=kinds)


def detector() -> Any:
    """Boxes and scores from convolutions, non-maximum suppression, and a head on what it leaves."""
    nodes = [
        node("Conv", ["x", "w"], "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], "f"),
        node("Conv", ["f", "wb"], "b", kernel_shape=[1, 1]),
        node("Conv", ["f", "ws"], "s", kernel_shape=[1, 1]),
        node("Reshape", ["b", "four"], "b1"),
        node("Transpose", ["b1"], "boxes", perm=[0, 2, 1]),
        node("Reshape", ["s", "two"], "s1"),
        node("Sigmoid", ["s1"], "scores"),
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], "picked"),
        node("Gather", ["picked", "third"], "places", axis=1),
        node("Reshape", ["f", "features"], "f1"),
        node("Transpose", ["f1"], "f2", perm=[0, 2, 1]),
        node("Squeeze", ["f2", "zero"], "rows"),
        node("Gather", ["rows", "places"], "chosen"),
        node("MatMul", ["chosen", "head"], "h"),
        node("Tanh", ["h"], "y"),
    ]
    constants = {
        "w": weights(8, 3, 3, 3), "wb": weights(4, 8, 1, 1), "ws": weights(2, 8, 1, 1),
        "four": np.array([0, 4, -1], np.int64), "two": np.array([0, 2, -1], np.int64),
        "features": np.array([0, 8, -1], np.int64), "most": np.array([6], np.int64),
        "iou": np.array([0.3], np.float32), "least": np.array([0.4], np.float32),
        "third": np.array(2, np.int64), "zero": FIRST, "head": weights(8, 5),
    }  # fmt: skip
    kinds = {"picked": np.int64}
    return make_model(nodes, {"x": (1, 3, "h", "w")}, ["picked", "y"], constants, kinds=kinds)


def positive_rows() -> Any:
    """The rows whose first element is positive, multiplied, and how many there are."""
    nodes = [
        node("Slice", ["x", "zero", "one1", "one1"], "first"),
        node("Greater", ["first", "nothing"], "yes"),
        node("Squeeze", ["yes", "one1"], "flags"),
        node("NonZero", ["flags"], "where"),
        node("Squeeze", ["where", "zero"], "places"),
        node("Gather", ["x", "places"], "rows"),
        node("MatMul", ["rows", "w"], "y"),
        node("Shape", ["rows"], "shape"),
        node("Gather", ["shape", "zero"], "count"),
    ]
    constants = {"zero": FIRST, "one1": np.array([1], np.int64), "w": weights(12, 5),
                 "nothing": np.array(0, np.float32)}  # fmt: skip
    kinds = {"count": np.int64}
    return make_model(nodes, {"x": ("n", 12)}, ["y", "count"], constants, kinds=kinds)


def recurrent(hidden: int = 12, width: int = 8) -> Any:
    """A Scan whose body is a recurrent cell, forward and backward."""
    body = inner(
        "cell",
        [
            node("MatMul", ["h0", "u"], "a"),
            node("MatMul", ["x0", "w"], "b"),
            node("Add", ["a", "b"], "c"),
            node("Add", ["c", "bias"], "d"),
            node("Tanh", ["d"], "h1"),
            node("Identity", ["h1"], "shown"),
        ],
        [value("h0"), value("x0")],
        [value("h1"), value("shown")],
    )
    scan = {"body": body, "num_scan_inputs": 1}
    nodes = [
        node("Scan", ["start", "x"], "last", "every", **scan),
        node("Scan", ["start", "x"], "last2", "back", scan_input_directions=[1],
             scan_output_directions=[1], scan_output_axes=[1], **scan),
        node("Transpose", ["back"], "turned", perm=[1, 0, 2]),
        node("Add", ["every", "turned"], "y"),
    ]  # fmt: skip
    constants = {"u": weights(hidden, hidden), "w": weights(width, hidden), "bias": weights(hidden)}
    inputs = {"x": ("t", "n", width), "start": ("n", hidden)}
    return make_model(nodes, inputs, ["y", "last"], constants)


def branches_in_loops() -> Any:
    """An If inside a Loop, which captures values of the loop and of the graph around it; one of
    its branches has an If of its own."""
    deepest = node(
        "If", ["early"], "r",
        then_branch=inner("p", [node("Mul", ["s", "w"], "z")], [], [value("z")]),
        else_branch=inner("q", [node("MatMul", ["s", "square"], "z")], [], [value("z")]),
    )  # fmt: skip
    body = inner(
        "body",
        [
            node("ReduceSum", ["s"], "total", keepdims=0),
            node("Greater", ["total", "limit"], "large"),
            node("Less", ["i", "two"], "early"),
            node("If", ["large"], "next",
                 then_branch=inner("t", [node("Sub", ["s", "w"], "z")], [], [value("z")]),
                 else_branch=inner("e", [deepest], [], [value("r")])),
            node("Identity", ["go"], "go_on"),
            node("Identity", ["total"], "shown"),
        ],
        [value("i", INT64, []), value("go", BOOL, []), value("s")],
        [value("go_on", BOOL), value("next"), value("shown")],
        {"two": np.array(2, np.int64), "limit": np.array(0.5, np.float32)},
    )  # fmt: skip
    nodes = [
        node("Relu", ["weight"], "w"),
        node("Loop", ["count", "", "x"], "out", "totals", body=body),
        node("Sigmoid", ["out"], "y"),
    ]
    inputs: dict[str, Sequence[int | str]] = {"count": (), "x": ("n", 6), "weight": (6,)}
    constants = {"square": weights(6, 6)}
    kinds = {"count": np.int64}
    return make_model(nodes, inputs, ["y", "totals"], constants, kinds=kinds)


def slices() -> Any:
    """Elements up to an end that data computes: the sum of a mask, and the same from the end."""
    nodes = [
        node("ReduceSum", ["mask"], "length", keepdims=1),
        node("Slice", ["x", "zero", "length", "one1"], "head"),
        node("Neg", ["length"], "behind"),
        node("Slice", ["x", "behind", "end", "one1"], "tail"),
        node("Add", ["head", "tail"], "both"),
        node("MatMul", ["w", "both"], "y0"),
        node("Relu", ["y0"], "y"),
    ]  # fmt: skip
    constants = {"zero": FIRST, "one1": np.array([1], np.int64), "w": weights(5, 7),
                 "end": np.array([2**63 - 1], np.int64)}  # fmt: skip
    kinds = {"mask": np.int64}
    return make_model(nodes, {"x": (7, "n"), "mask": ("n",)}, ["y"], constants, kinds=kinds)


def gathered_in_sequence() -> Any:
    """A Loop that appends products of growing slices to a list, joined behind it."""
    body = inner(
        "body",
        [
            node("Add", ["i", "one"], "next"),
            node("Unsqueeze", ["next", "zero"], "end"),
            node("Slice", ["x", "zero", "end"], "rows"),
            node("MatMul", ["rows", "w"], "product"),
            node("SequenceInsert", ["list", "product"], "longer"),
            node("Identity", ["go"], "go_on"),
        ],
        [value("i", INT64, []), value("go", BOOL, []),
         helper.make_tensor_sequence_value_info("list", FLOAT, None)],
        [value("go_on", BOOL), helper.make_tensor_sequence_value_info("longer", FLOAT, None)],
        {"one": ONE, "zero": FIRST},
    )  # fmt: skip
    nodes = [
        node("SequenceEmpty", [], "none", dtype=FLOAT),
        node("Loop", ["count", "", "none"], "list_all", body=body),
        node("SequenceLength", ["list_all"], "length"),
        node("SequenceAt", ["list_all", "last"], "longest"),
        node("ConcatFromSequence", ["list_all"], "all", axis=0),
        node("Tanh", ["all"], "y"),
    ]
    inputs: dict[str, Sequence[int | str]] = {"x": ("n", 6), "count": ()}
    kinds = {"count": np.int64, "length": np.int64}
    constants = {"w": weights(6, 4), "last": np.array(-1, np.int64)}
    names = ["y", "longest", "length"]
    return make_model(nodes, inputs, names, constants, kinds=kinds)
