"""Chains of integers, truth values and floats between them are one kernel, and compute what each
node computes alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from dnnl.framework.session import Session
from dnnl.graph.graph import Array
from dnnl.lowering.graphs import LAYOUTS
from dnnl.runtime.engine import Engine
from dnnl.types.dtype import DataType
from tests.framework.models import make_model, model_of, node, run_peer
from tests.primitives.typed import drawn

TYPES = {"float32": 1, "int32": 6, "int64": 7, "bool": 9}
SHAPE = (3, 17, 5)
OPSET = 19
FIXED = {
    "k": np.array([3], np.int32),
    "scale": np.array(0.37, np.float32),
    "shift": np.array([2], np.float32),
}


class _Chain:
    """Random nodes behind ``a`` to ``d``, the last of which reads, through others, each of them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.feeds = {
            "a": drawn(DataType.s32, SHAPE, seed),
            "b": drawn(DataType.s64, (17, 1), seed + 1),
            "c": drawn(DataType.boolean, SHAPE, seed + 2),
            "d": drawn(DataType.s64, SHAPE, seed + 3),
        }
        self.constants: dict[str, Array] = {
            "int32": np.array([int(self.rng.integers(-9, 9))], np.int32),
            "int64": np.array(int(self.rng.integers(-9, 9)), np.int64),
            "float32": np.array([self.rng.uniform(0.5, 2)], np.float32),
            "low": np.array(-99, np.float32),
            "high": np.array(99, np.float32),
        }
        self.kinds = {name: array.dtype.name for name, array in self.feeds.items()}
        while len(self.nodes) < 12:
            self._grow()
        self._close()

    def _value(self, kind: str) -> str:
        """A value of a type, the youngest ones most often; a single number where there is none."""
        known = [name for name, own in self.kinds.items() if own == kind]
        place = len(known) - 1 - min(int(self.rng.geometric(0.5)) - 1, len(known) - 1)
        return known[place] if known and (kind == "bool" or self.rng.random() < 0.8) else kind

    def _add(self, op: str, sources: list[str], kind: str, **attrs: Any) -> str:
        if all(source in self.constants for source in sources):
            sources[0] = {"int32": "a", "int64": "d"}.get(sources[0]) or self._float("a")
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, sources, name, **attrs))
        self.kinds[name] = kind
        return name

    def _float(self, source: str) -> str:
        """An integer as a float, small enough to become one again."""
        whole = self._add("Cast", [source], "float32", to=TYPES["float32"])
        del self.kinds[whole]  # what no integer holds becomes another one in ONNX Runtime
        return self._add("Clip", [whole, "low", "high"], "float32")

    def _grow_floats(self) -> None:
        x, y = self._value("float32"), self._value("float32")
        rows: list[tuple[str, list[str]]] = [
            *((op, [x, y]) for op in ("Add", "Sub", "Max", "Min")),
            *((op, [x, "float32"]) for op in ("Add", "Mul", "Div")),
            *((op, [x]) for op in ("Abs", "Ceil", "Floor", "Neg", "Relu", "Round")),
            ("Where", [self._value("bool"), x, y]),
            ("Less", [x, y]),
        ]
        op, sources = rows[int(self.rng.integers(len(rows)))]
        self._add(op, sources, "bool" if op == "Less" else "float32")
        kind = str(self.rng.choice(("int32", "int64")))
        if self.rng.random() < 0.3:
            self._add("Cast", [self._value("float32")], kind, to=TYPES[kind])

    def _grow(self) -> None:
        if self.rng.random() < 0.4:
            if "float32" not in self.kinds.values() or self.rng.random() < 0.2:
                self._float(self._value(str(self.rng.choice(("int32", "int64")))))
            self._grow_floats()
            return
        kind = str(self.rng.choice(("int32", "int64")))
        other = "int64" if kind == "int32" else "int32"
        x, y, condition = self._value(kind), self._value(kind), self._value("bool")
        rows: list[tuple[str, list[str], str, dict[str, Any]]] = [
            *((op, [x, y], kind, {}) for op in ("Add", "Sub", "Mul", "Max", "Min")),
            *((op, [x], kind, {}) for op in ("Abs", "Neg", "Sign")),
            *((op, [x, y], "bool", {}) for op in ("Less", "GreaterOrEqual", "Equal")),
            ("And", [condition, self._value("bool")], "bool", {}),
            ("Not", [condition], "bool", {}),
            ("Where", [condition, x, y], kind, {}),
            ("Cast", [self._value(other)], kind, {"to": TYPES[kind]}),
            ("Cast", [condition], kind, {"to": TYPES[kind]}),
        ]
        op, sources, result, attrs = rows[int(self.rng.integers(len(rows)))]
        self._add(op, sources, result, **attrs)

    def _close(self) -> None:
        """One result of all values that nothing reads, and of all sources."""
        read = {source for each in self.nodes for source in each.input}
        total = ""
        for name, kind in list(self.kinds.items()):
            if name in read:
                continue
            wide = name if kind == "int64" else self._add("Cast", [name], "int64", to=7)
            total = self._add("Add", [total, wide], "int64") if total else wide
        self.nodes.append(node("Add", [total, "b"], "y"))

    def proto(self) -> Any:
        kinds: dict[str, Any] = {
            "y": np.int64,
            **{name: array.dtype for name, array in self.feeds.items()},
        }
        shapes = {name: array.shape for name, array in self.feeds.items()}
        return make_model(self.nodes, shapes, ["y"], self.constants, OPSET, kinds)


def compiled(proto: Any, layout: str = "propagate") -> Session:
    return model_of(proto).compile(Engine("cpu"), layout=layout, num_threads=2)


@pytest.mark.parametrize("seed", range(16))
def test_random_chains(seed: int) -> None:
    chain = _Chain(100 * seed)
    proto = chain.proto()
    session = compiled(proto)
    want = run_peer(proto, chain.feeds)["y"]
    np.testing.assert_array_equal(session.run(chain.feeds)["y"], want)
    assert len(session.layers) < len(chain.nodes) / 2


def joined(nodes: list[Any], feeds: dict[str, Array], *results: str) -> list[str]:
    """The nodes of each kernel of a model, whose results are those of ONNX Runtime."""
    shapes = {name: array.shape for name, array in feeds.items()}
    kinds: dict[str, Any] = {name: array.dtype for name, array in feeds.items()}
    kinds |= dict.fromkeys(results, np.dtype(np.int32))
    proto = make_model(nodes, shapes, results, FIXED, OPSET, kinds)
    want = run_peer(proto, feeds)
    for layout in LAYOUTS:
        session = compiled(proto, layout)
        got = session.run(feeds)
        for name in results:
            np.testing.assert_array_equal(got[name], want[name])
    parts = [(*layer.fused, layer.name) for layer in session.layers]
    return [" ".join(name.removeprefix("node_") for name in names) for names in parts]


def ints(*shape: int) -> Array:
    return drawn(DataType.s32, shape, len(shape))


def test_what_others_read_ends_a_chain() -> None:
    nodes = [
        node("Add", ["a", "k"], "s"),
        node("Mul", ["s", "s"], "m"),
        node("Sub", ["m", "s"], "y"),
        node("Neg", ["y"], "z"),
    ]
    feeds = {"a": ints(3, 17, 5)}
    assert joined(nodes, feeds, "z") == ["s m y z"]
    assert joined(nodes, feeds, "y", "z") == ["s m y", "z"]
    assert joined(nodes, feeds, "s", "z") == ["s", "m y z"]


def test_what_is_broadcast_is_computed_once() -> None:
    nodes = [node("Mul", ["b", "k"], "m"), node("Neg", ["m"], "n"), node("Add", ["a", "n"], "y")]
    assert joined(nodes, {"a": ints(3, 17, 5), "b": ints(17, 1)}, "y") == ["m n", "y"]


def test_a_kernel_has_a_few_sources() -> None:
    feeds = {f"a{n}": ints(3, 5) + n for n in range(12)}
    nodes = [
        node("Add", [f"s{n - 1}" if n > 1 else "a0", f"a{n}"], f"s{n}" if n < 11 else "y")
        for n in range(1, 12)
    ]
    assert joined(nodes, feeds, "y") == ["s1 s2 s3 s4", "s5 s6 s7 s8 s9 s10 y"]


def test_comparisons_of_floats_choose_integers() -> None:
    feeds = {"f": drawn(DataType.f32, (3, 17, 5), 1), "a": ints(3, 17, 5)}
    nodes = [
        node("Cast", ["a"], "g", to=1),
        node("Less", ["f", "g"], "l"),
        node("Where", ["l", "a", "k"], "y"),
    ]
    assert joined(nodes, feeds, "y") == ["g l y"]


def test_floats_between_integers() -> None:
    """What is rounded down is at most one rounding from an integer."""
    nodes = [
        node("Cast", ["a"], "f", to=1),
        node("Add", ["f", "shift"], "s"),
        node("Div", ["s", "scale"], "d"),
        node("Mul", ["d", "scale"], "m"),
        node("Floor", ["m"], "l"),
        node("Sqrt", ["l"], "q"),
        node("Mul", ["q", "q"], "p"),
        node("Round", ["p"], "r"),
        node("Cast", ["r"], "y", to=6),
    ]
    feeds = {"a": np.arange(3 * 4001, dtype=np.int32).reshape(3, -1)}
    assert joined(nodes, feeds, "y") == ["f s d m l q p r y"]
    assert joined([*nodes[:4], node("Cast", ["m"], "y", to=6)], feeds, "y") == ["f s d m y"]


def test_floats_from_elsewhere_stay_floats() -> None:
    """What they are part of is left to post-ops."""
    nodes = [
        node("Cast", ["a"], "f", to=1),
        node("Mul", ["f", "scale"], "m"),
        node("Add", ["m", "x"], "s"),
        node("Relu", ["s"], "r"),
        node("Cast", ["r"], "y", to=6),
    ]
    feeds = {"a": ints(3, 5) % 99, "x": drawn(DataType.s8, (3, 5), 1).astype(np.float32)}
    assert joined(nodes, feeds, "y") == ["f m", "r s", "y"]


@pytest.mark.parametrize("kind", ["FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16"])
def test_each_node_of_a_chain_is_rounded(kind: str) -> None:
    """A chain has the results of its nodes one by one: of a model that gives all of them."""
    to = getattr(TensorProto, kind)
    nodes = [
        *(node("Cast", [name], f"{name}_", to=to) for name in ("scale", "shift")),
        node("Cast", ["a"], "f", to=to),
        node("Mul", ["f", "scale_"], "m"),
        node("Add", ["m", "shift_"], "s"),
        node("Sqrt", ["s"], "q"),
        node("Mul", ["q", "m"], "p"),
        node("Sub", ["p", "f"], "r"),
        node("Cast", ["r"], "y", to=6),
    ]
    feeds = {"a": np.arange(2003, dtype=np.int32)}
    dtype = helper.tensor_dtype_to_np_dtype(to)
    kinds: dict[str, Any] = {"a": np.int32, "y": np.int32, **dict.fromkeys("fmsqpr", dtype)}
    one, each = (
        compiled(make_model(nodes, {"a": (2003,)}, names, FIXED, OPSET, kinds))
        for names in ("y", "fmsqpry")
    )
    assert [len(session.layers) for session in (one, each)] == [1, 7]
    np.testing.assert_array_equal(one.run(feeds)["y"], each.run(feeds)["y"])
