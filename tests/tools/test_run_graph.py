"""The graph of a run: which steps there were, on which tensors, and who wrote what they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from dnnl.framework.compiler import optimize
from dnnl.framework.model import Model
from dnnl.framework.session import Session
from dnnl.graph.graph import Graph
from dnnl.lowering.graphs import LAYOUTS
from dnnl.passes.specialize import specialize
from dnnl.runtime.engine import Engine
from dnnl.tools.run_graph import INPUT, NUMBERS, OUTPUT, RunGraph, graph_of
from tests.framework.models import feeds_for, make_model, model_of, node
from tests.framework.random_graphs import STEPS, Builder

RNG = np.random.default_rng(7)


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def run(
    model: Model, feeds: Mapping[str, Any], session: Session | None = None, **options: Any
) -> RunGraph:
    """The graph of a run of a model on inputs whose sizes it leaves open."""
    if session is None:
        known = model.with_shapes({name: array.shape for name, array in feeds.items()})
        session = known.compile(Engine("cpu"), **options)
    outputs, spans = session.run_timed(feeds)
    assert len(spans) == len(session.layers)
    return graph_of(session, spans, model.graph, feeds, outputs)


def edges(graph: RunGraph) -> set[tuple[str, str, str]]:
    names = [vertex.name for vertex in graph.vertices]
    return {(names[e.source], names[e.target], e.roles) for e in graph.edges}


def residual(blocks: int) -> Model:
    """A convolution, whose result is added to that of as many after it."""
    nodes = [node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]), node("Relu", ["a"], "r0")]
    nodes += [node("Conv", [f"r{n}", "v"], f"r{n + 1}") for n in range(blocks)]
    nodes += [node("Add", [f"r{blocks}", "r0"], "c"), node("GlobalAveragePool", ["c"], "y")]
    constants = {"w": weights(8, 3, 3, 3), "v": weights(8, 8, 1, 1)}
    return model_of(make_model(nodes, {"x": ["n", 3, 9, 9]}, ["y"], constants))


def test_tensors_of_steps() -> None:
    graph = run(residual(1), {"x": np.ones((2, 3, 9, 9), np.float32)})
    assert [vertex.name for vertex in graph.vertices] == ["x", "node_a", "node_r1", "node_y", "y"]
    assert edges(graph) == {
        ("x", "node_a", "src"),
        ("node_a", "node_r1", "src, post_op(0)|src_1"),
        ("node_r1", "node_y", "src"),
        ("node_y", "y", "output"),
    }
    source, first, *_, result = graph.vertices
    assert (source.kind, result.kind) == (INPUT, OUTPUT)
    assert source.tensors[0].sizes == ("n=2", "3", "9", "9")
    assert result.tensors[0].sizes == ("2", "8", "1", "1")
    tensors = {own.role: own for own in first.tensors}
    assert tensors["src"].sizes == ("2", "3", "9", "9")
    assert tensors["dst"].sizes == ("2", "8", "9", "9")
    assert tensors["weights"].sizes == ("8", "3", "3", "3")
    assert [role for role, own in tensors.items() if own.constant] == ["weights"]
    assert tensors["src"].nbytes == 4 * 2 * 3 * 81
    assert tensors["dst"].nbytes >= 4 * 2 * 8 * 81
    assert first.nbytes == sum(own.nbytes for own in first.tensors)


def test_a_residual_is_read_where_it_is_added_to() -> None:
    graph = run(residual(2), {"x": np.ones((2, 3, 9, 9), np.float32)})
    assert {("node_a", "node_r1", "src"), ("node_a", "node_r2", "dst")} < edges(graph)
    (last,) = [vertex for vertex in graph.vertices if vertex.name == "node_r2"]
    sizes = {own.role: own.nbytes for own in last.tensors}
    assert last.nbytes == sum(sizes.values()) + sizes["dst"]


def test_a_part_of_a_tensor_and_the_rows_that_are_gathered() -> None:
    """What a step reads is less than what is stored."""
    nodes = [
        node("Split", ["x"], "a", "b", axis=1),
        node("Softmax", ["b"], "s"),
        node("Gather", ["table", "i"], "g"),
        node("Add", ["s", "g"], "y"),
    ]
    inputs = {"x": [5, 32], "i": [5]}
    kinds = {"i": np.int64}
    model = model_of(make_model(nodes, inputs, ["y"], {"table": weights(900, 16)}, kinds=kinds))
    graph = run(model, {"x": np.ones((5, 32), np.float32), "i": np.arange(5)})
    softmax, gather = (
        next(own for own in graph.vertices if own.layer and own.layer.primitive == kind)
        for kind in ("softmax", "gather")
    )
    assert [own.nbytes for own in softmax.tensors if own.role == "src"] == [4 * 5 * 16]
    assert gather.nbytes < 4 * 900 * 16


def test_reorders_are_marked() -> None:
    nodes = [
        node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]),
        node("Reshape", ["a", "shape"], "f"),
        node("MatMul", ["f", "v"], "y"),
    ]
    constants = {
        "w": weights(20, 3, 3, 3),
        "shape": np.array([0, -1], np.int64),
        "v": weights(1620, 5),
    }
    model = model_of(make_model(nodes, {"x": ["n", 3, 9, 9]}, ["y"], constants))
    feeds = {"x": np.ones((2, 3, 9, 9), np.float32)}
    graph, plain = run(model, feeds), run(model, feeds, layout="plain")
    (moved,) = [vertex for vertex in graph.vertices if vertex.is_reorder]
    layouts = {own.role: own.layout for own in moved.tensors}
    assert layouts["dst"] == "abcd"
    assert layouts["src"] != "abcd"
    assert not any(vertex.is_reorder for vertex in plain.vertices)


def test_a_model_in_parts() -> None:
    """NonZero runs on arrays between two plans; the first one's result is read by both others. A
    transposition is a view: it has a plan without steps."""
    nodes = [
        node("Relu", ["x"], "r"),
        node("NonZero", ["r"], "z"),
        node("Transpose", ["z"], "t", perm=[1, 0]),
        node("GatherND", ["r", "t"], "g"),
        node("Exp", ["g"], "y"),
        node("NonZero", ["y"], "zz"),
        node("Transpose", ["zz"], "tt", perm=[1, 0]),
    ]
    kinds = {"z": np.int64, "tt": np.int64}
    model = model_of(make_model(nodes, {"x": ["n", 6]}, ["y", "z", "tt"], kinds=kinds))
    feeds = {"x": RNG.standard_normal((4, 6)).astype(np.float32)}
    graph = run(model, feeds)
    found = edges(graph)
    assert ("x", "node_r", "src") in found
    assert ("node_r", "node_z", "r") in found
    assert ("node_z", "z", "output") in found
    assert ("node_zz", "tt", "output") in found
    assert len(graph.steps) > 4
    (between,) = [vertex for vertex in graph.vertices if vertex.name == "node_z"]
    assert between.layer is not None
    assert between.layer.implementation == "numpy"
    sources = ancestors(graph)
    (last,) = [n for n, vertex in enumerate(graph.vertices) if vertex.name == "y"]
    names = {graph.vertices[n].name for n in sources[last]}
    assert {"x", "node_r", "node_z"} <= names


def test_open_sizes_have_their_names_and_numbers() -> None:
    """Numbers that a run writes ahead of its first step are no step of their own."""
    nodes = [
        node("Shape", ["x"], "s"),
        node("Gather", ["s", "zero"], "n"),
        node("Range", ["zero", "n", "one"], "r"),
        node("Cast", ["r"], "f", to=1),
        node("Add", ["x", "f"], "a"),
        node("Concat", ["a", "a"], "c", axis=0),
        node("Exp", ["c"], "y"),
    ]
    constants = {"zero": np.array(0, np.int64), "one": np.array(1, np.int64)}
    model = model_of(make_model(nodes, {"x": ["rows"]}, ["y"], constants))
    session = model.compile(Engine("cpu"), sizes={"rows": (2, 50)})
    for size in (7, 11):
        graph = run(model, {"x": np.ones(size, np.float32)}, session)
        assert [vertex.kind for vertex in graph.vertices].count(NUMBERS) == 1
        sizes = {own.sizes for number in graph.steps for own in graph.vertices[number].tensors}
        assert sizes == {(f"rows={size}",), (f"2*rows={2 * size}",)}
        assert graph.vertices[0].tensors[0].sizes == (f"rows={size}",)
        last = graph.vertices[graph.steps[-1]]
        assert [own.nbytes for own in last.tensors] == [8 * size] * len(last.tensors)


def ancestors(graph: RunGraph) -> list[set[int]]:
    """What each vertex depends on."""
    found: list[set[int]] = [set() for _ in graph.vertices]
    for edge in sorted(graph.edges, key=lambda edge: edge.target):
        assert edge.source < edge.target
        found[edge.target] |= {edge.source} | found[edge.source]
    return found


def needed(graph: Graph) -> dict[str, set[str]]:
    """The nodes and inputs that each node needs, by names."""
    makers = {value: own.name for own in graph.nodes for value in own.outputs}
    makers.update((name, name) for name in graph.inputs)
    found: dict[str, set[str]] = {name: set() for name in graph.inputs}
    for own in graph.nodes:
        read = {makers[value] for value in own.reads if value in makers}
        found[own.name] = read.union(*(found[name] for name in read))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_steps_depend_on_what_the_nodes_of_the_graph_need(seed: int) -> None:
    """The plan knows storages alone, which are used again: the graph knows values."""
    builder, rng = Builder(seed), np.random.default_rng(seed)
    for _ in range(14):
        recent = [int(back) for back in rng.exponential(2.0, 3)]
        builder.step(str(rng.choice(list(STEPS))), recent)
    model = model_of(builder.proto(also=[str(rng.choice(builder.values[2:]))]))
    graph = run(model, feeds_for(model.graph), layout=LAYOUTS[seed % 3])
    optimized = optimize(specialize(model.graph))
    expected, names = needed(optimized), [vertex.name for vertex in graph.vertices]
    own = {names[number] for number in graph.steps}.union(optimized.inputs) & expected.keys()
    checked = 0
    for number, depends in enumerate(ancestors(graph)):
        vertex = graph.vertices[number]
        if vertex.name in own and vertex.layer is not None:
            assert {names[n] for n in depends} & own == expected[vertex.name] & own
            checked += 1
        for tensor in vertex.tensors:
            computed = tensor.constant or tensor.source >= 0 or tensor.role == "dst"
            assert vertex.kind == INPUT or computed or vertex.name not in expected
    assert checked >= 5
