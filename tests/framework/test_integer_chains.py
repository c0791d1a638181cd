"""Chains of integers and truth values are one kernel, and compute what each node computes alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.framework.graph import Array
from dnnl.framework.lowering import LAYOUTS
from dnnl.framework.session import Session
from dnnl.runtime.engine import Engine
from dnnl.types.dtype import DataType
from tests.framework.models import make_model, model_of, node, run_peer
from tests.primitives.typed import drawn

TYPES = {"int32": 6, "int64": 7, "bool": 9}
SHAPE = (3, 17, 5)
OPSET = 19


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
        }
        self.kinds = {name: array.dtype.name for name, array in self.feeds.items()}
        while len(self.nodes) < 9:
            self._grow()
        self._close()

    def _value(self, kind: str) -> str:
        """A value of a type, the youngest ones most often; a single number where there is none."""
        known = [name for name, own in self.kinds.items() if own == kind]
        place = len(known) - 1 - min(int(self.rng.geometric(0.5)) - 1, len(known) - 1)
        return known[place] if known and (kind == "bool" or self.rng.random() < 0.8) else kind

    def _add(self, op: str, sources: list[str], kind: str, **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        if all(source in self.constants for source in sources):
            sources[0] = "a" if sources[0] == "int32" else "d"
        self.nodes.append(node(op, sources, name, **attrs))
        self.kinds[name] = kind
        return name

    def _grow(self) -> None:
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
    fixed = {"k": np.array([3], np.int32)}
    shapes = {name: array.shape for name, array in feeds.items()}
    kinds: dict[str, Any] = {name: array.dtype for name, array in feeds.items()}
    kinds |= dict.fromkeys(results, np.dtype(np.int32))
    proto = make_model(nodes, shapes, results, fixed, OPSET, kinds)
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
