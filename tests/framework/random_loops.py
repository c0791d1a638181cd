"""Random bodies of Loop and Scan, built from steps that each make one more row of floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.framework.control_graphs import BOOL, FLOAT, INT64, inner, value
from tests.framework.models import make_model, node

Array = np.ndarray
WIDTH = 6
_CONSTANTS: Mapping[str, Array] = {
    "zero": np.array([0]), "one": np.array(1), "tenth": np.array(0.1, np.float32),
    "nothing": np.array(0, np.float32),
}  # fmt: skip


class Body:
    """The nodes of a body that has the rows ``s`` and ``r`` and, growing, the rows ``g`` as values
    of its own, and of the graph around it the rows ``x``, of which the first is ``x0``, and the row
    ``v``. A loop has the number ``i`` of the iteration."""

    def __init__(self, seed: int, *, counts: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.counts = counts
        self.nodes: list[Any] = []
        self.constants = dict(_CONSTANTS)
        self.rows = ["s", "r"]

    def step(self, name: str) -> None:
        """Add a step of ``STEPS``, whose result stays within -1..1."""
        self.rows.append(self.add("Tanh", STEPS[name](self)))

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Add a node, and return the name of its result."""
        self.nodes.append(node(op, inputs, result := f"b{len(self.nodes)}", **attrs))
        return result

    def row(self) -> str:
        """One of the rows."""
        return str(self.rng.choice([*self.rows[-4:], "v"]))

    def weights(self) -> str:
        """A new matrix."""
        name = f"w{len(self.constants)}"
        self.constants[name] = (self.rng.standard_normal((WIDTH, WIDTH)) / 3).astype(np.float32)
        return name

    def next(self) -> str:
        """The number of the next iteration, on one axis."""
        return self.add("Unsqueeze", self.add("Add", "i", "one"), "zero")

    def one_of(self, *names: str) -> str:
        """One of these values, as a value of the body."""
        return self.add("Identity", str(self.rng.choice(names)))


def _of_two(body: Body) -> str:
    op = str(body.rng.choice(["Add", "Sub", "Mul", "Max"]))
    return body.add(op, body.row(), body.row())


def _of_one(body: Body) -> str:
    op = str(body.rng.choice(["Sigmoid", "Neg", "Abs", "Identity"]))
    return body.add(op, body.row())


def _product(body: Body) -> str:
    return body.add("MatMul", body.row(), body.weights())


def _gathered(body: Body) -> str:
    return body.add("Gather", "x", "i", axis=0)


def _sliced(body: Body) -> str:
    start = body.add("Unsqueeze", "i", "zero")
    one = body.add("Slice", "x", start, body.next(), "zero")
    return body.add("Squeeze", one, "zero")


def _prefix(body: Body) -> str:
    rows = body.add("Slice", "x", "zero", body.next())
    return body.add("ReduceMean", rows, axes=[0], keepdims=0)


def _grown(body: Body) -> str:
    return body.add("ReduceMean", "g", axes=[0], keepdims=0)


def _scaled(body: Body) -> str:
    number = body.add("Mul", body.add("Cast", "i", to=FLOAT), "tenth")
    return body.add("Mul", body.row(), number)


def _decided(body: Body) -> str:
    first, second = body.row(), body.row()
    total = body.add("ReduceSum", body.row(), keepdims=0)
    large = body.add("Greater", total, "nothing")
    yes = inner("yes", [node("Mul", [first, "tenth"], "t")], [], [value("t")])
    no = inner("no", [node("Identity", [second], "e")], [], [value("e")])
    return body.add("If", large, then_branch=yes, else_branch=no)


STEPS: Mapping[str, Callable[[Body], str]] = {
    "two": _of_two, "one": _of_one, "product": _product, "grown": _grown, "decided": _decided,
    "gathered": _gathered, "sliced": _sliced, "prefix": _prefix, "scaled": _scaled,
}  # fmt: skip
COUNTING = {"gathered", "sliced", "prefix", "scaled"}
"""Those that use the number of the iteration."""


def random_loop(seed: int) -> Any:
    """A model of a Loop, or a Scan for each third seed, with results of several kinds."""
    counts = seed % 3 != 2
    body = Body(seed, counts=counts)
    rng = body.rng
    names = [name for name in STEPS if counts or name not in COUNTING]
    for name in rng.choice(names, rng.integers(1, 6)):
        body.step(str(name))
    last, longer = body.rows[-1], body.one_of("g")
    if counts and rng.integers(2):  # ONNX Runtime takes no states of a Scan that grow
        longer = body.add("Concat", "g", body.add("Unsqueeze", last, "zero"), axis=0)
    carried = [body.one_of(last, "s"), body.one_of(*body.rows), longer]
    shown = [body.one_of(last, "v"), body.add("ReduceSum", last, keepdims=0)]
    inputs = [value("s"), value("r"), value("g")]
    inside = {name: body.constants[name] for name in body.constants if name not in _CONSTANTS}
    around = dict(_CONSTANTS)
    if counts:
        go_on = {
            0: lambda: body.add("Identity", "go"),
            1: lambda: body.add("Less", "i", "last"),
            2: lambda: body.add("Less", shown[1], "high"),
        }[int(rng.integers(3))]()
        around |= {"last": np.array(9), "high": np.array(3, np.float32)}
        shown.append(body.one_of("i"))
        graph = inner("body", body.nodes, [value("i", INT64, []), value("go", BOOL, []), *inputs],
                      [value(go_on, BOOL), *map(value, (*carried, *shown[:2])),
                       value(shown[2], INT64, [])], inside)  # fmt: skip
        sources, op, attrs = ["count", "", "v", "x0", "g0"], "Loop", {}
    else:
        graph = inner("body", body.nodes, [*inputs, value("unread")],
                      [*map(value, (*carried, *shown))], inside)  # fmt: skip
        sources, op, attrs = ["v", "x0", "g0", "x"], "Scan", {"num_scan_inputs": 1}
    results = [f"y{place}" for place in range(len(carried) + len(shown))]
    nodes = [
        node("Relu", ["u"], "v"),
        node("Gather", ["x", "first"], "x0", axis=0),
        node(op, sources, *results, body=graph, **attrs),
        node("Tanh", ["y2"], "behind"),
    ]
    kinds = {"count": np.int64, "y5": np.int64}
    own: dict[str, tuple[int | str, ...]] = {"x": ("n", WIDTH), "u": (WIDTH,), "g0": ("m", WIDTH)}
    if counts:
        own["count"] = ()
    around["first"] = np.array(0)
    return make_model(nodes, own, [*results, "behind"], around, kinds=kinds)
