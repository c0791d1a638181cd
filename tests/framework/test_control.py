"""Models that decide sizes, branches and iterations while they run, beside ONNX Runtime."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dnnl
from dnnl.framework.model import Model
from dnnl.graph.graph import ModelError
from dnnl.tools.cli import main
from tests.framework import control_graphs as graphs
from tests.framework.control_graphs import inner, value
from tests.framework.models import graph_of, make_model, node, run_peer
from tests.pairs import every_pair

Array = np.ndarray
RNG = np.random.default_rng(42)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def number(n: int) -> Array:
    return np.array(n, np.int64)


def mask(count: int) -> Array:
    chosen = RNG.integers(0, 2, count)
    chosen[0] = 1
    return chosen


def feeds_of_slices() -> Iterator[dict[str, Array]]:
    for count in (9, 12, 12, 9, 30, 2, 17, 1):
        yield {"x": floats(7, count), "mask": mask(count)}


FEEDS: Mapping[str, tuple[Any, Callable[[], Iterator[dict[str, Array]]]]] = {
    "decoder": (
        graphs.decoder(),
        lambda: ({"most": number(n), "start": np.array([n % 30])} for n in (12, 3, 40, 0, 1, 25)),
    ),
    "detector": (
        graphs.detector(),
        lambda: ({"x": floats(1, 3, *s)} for s in ((6, 8), (9, 9), (12, 5), (6, 8), (3, 3))),
    ),
    "positive rows": (
        graphs.positive_rows(),
        lambda: ({"x": floats(n, 12)} for n in (9, 30, 30, 2, 55, 9)),
    ),
    "recurrent": (
        graphs.recurrent(),
        lambda: ({"x": floats(t, n, 8), "start": floats(n, 12)}
                 for t, n in ((5, 3), (7, 4), (2, 9), (1, 1), (12, 3))),
    ),
    "branches in loops": (
        graphs.branches_in_loops(),
        lambda: ({"count": number(c), "x": floats(n, 6), "weight": floats(6)}
                 for c, n in ((6, 3), (9, 5), (1, 8), (0, 3), (12, 1))),
    ),
    "slices": (graphs.slices(), feeds_of_slices),
    "sequence": (
        graphs.gathered_in_sequence(),
        lambda: ({"count": number(c), "x": floats(n, 6)}
                 for c, n in ((4, 9), (9, 5), (1, 8), (20, 40))),
    ),
}  # fmt: skip


WITHOUT_ACTIVATIONS = {"recurrent", "branches in loops", "sequence"}
"""Models whose parts have nothing between their inputs and their outputs."""


def assert_same(got: Any, want: Mapping[str, Array]) -> None:
    got = got if isinstance(got, dict) else {next(iter(want)): got}
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape), name
        np.testing.assert_allclose(got[name], array, 1e-4, 1e-4, err_msg=name)


@pytest.mark.parametrize("kind", FEEDS)
def test_beside_the_peer(kind: str) -> None:
    """Called with changing sizes, and compiled for each."""
    proto, feeds_of = FEEDS[kind]
    model = Model(graph_of(proto))
    for place, feeds in enumerate(feeds_of()):
        want = run_peer(proto, feeds)
        assert_same(model(feeds), want)
        if place < 2:
            shapes = {name: array.shape for name, array in feeds.items()}
            session = model.with_shapes(shapes).compile()
            assert_same(session.run(feeds), want)
            timed, spans = session.run_timed(feeds)
            assert_same(timed, want)
            assert len(spans) == len(session.layers)
            assert (session.activation_nbytes > 0) is (kind not in WITHOUT_ACTIVATIONS)
            assert session.nbytes >= session.activation_nbytes


@pytest.mark.parametrize("kind", FEEDS)
def test_written_back(kind: str) -> None:
    proto, feeds_of = FEEDS[kind]
    feeds = next(feeds_of())
    assert_same(run_peer(Model(graph_of(proto)).to_onnx(), feeds), run_peer(proto, feeds))


def test_plans_do_not_grow_with_sizes() -> None:
    """1,000 sizes that data computes share few plans."""
    nodes = [
        node("Slice", ["x", "zero", "end"], "head"),
        node("MatMul", ["head", "w"], "y"),
    ]
    constants = {"zero": np.array([0], np.int64), "w": floats(4, 3)}
    kinds = {"end": np.int64}
    proto = make_model(nodes, {"x": ("n", 4), "end": (1,)}, ["y"], constants, kinds=kinds)
    model = Model(graph_of(proto))
    x = floats(1200, 4)
    for end in range(1, 1001):
        got = model(x, np.array([end]))
        assert isinstance(got, np.ndarray)
        np.testing.assert_allclose(got, x[:end] @ constants["w"], 1e-4, 1e-4)
    (plans,) = model._called(()).runner.plans
    assert len(plans.sessions) <= 3
    assert len(plans._uses._uses) <= 1024


def test_places_from_the_end_share_a_plan() -> None:
    nodes = [
        node("Slice", ["x", "start", "end"], "tail"),
        node("MatMul", ["tail", "w"], "y"),
    ]
    constants = {"end": np.array([2**63 - 1]), "w": floats(4, 3)}
    kinds = {"start": np.int64}
    proto = make_model(nodes, {"x": ("n", 4), "start": (1,)}, ["y"], constants, kinds=kinds)
    model = Model(graph_of(proto))
    for count in range(2, 30):
        x = floats(50, 4)
        got = model(x, np.array([-count]))
        assert isinstance(got, np.ndarray)
        np.testing.assert_allclose(got, x[-count:] @ constants["w"], 1e-4, 1e-4)
    (plans,) = model._called(()).runner.plans
    assert len(plans.sessions) == 2


def test_plans_of_single_numbers_are_few() -> None:
    """What is no size has a plan for each number, of which the latest stay."""
    nodes = [node("Clip", ["x", "", "most"], "y")]
    model = Model(graph_of(make_model(nodes, {"x": (5,), "most": ()}, ["y"])))
    x = floats(5)
    for step in range(12):
        got = model(x, np.array(step / 10, np.float32))
        assert isinstance(got, np.ndarray)
        np.testing.assert_array_equal(got, np.minimum(x, np.float32(step / 10)))
    (plans,) = model._called(()).runner.plans
    assert len(plans.sessions) == 8
    assert len(plans._uses._uses) <= 8


def test_a_loop_of_a_thousand_sizes() -> None:
    """A decoder's cache grows; its plans, and what they hold, do not."""
    model = Model(graph_of(graphs.decoder()))
    for start in range(8):  # some texts end early, as the weights are random
        for most in (150, 1, 2):
            model({"most": number(most), "start": np.array([start])})
    runner = model._called(()).runner
    before = len(runner.sessions)
    for start in range(8, 16):
        model({"most": number(150), "start": np.array([start])})
    assert len(runner.sessions) == before
    assert all(len(plans.sessions) <= 8 for plans in runner.plans)


def test_a_model_of_one_part_has_none() -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("ConstantOfShape", ["shape"], "zeros"),
        node("NonZero", ["zeros"], "where"),
        node("Reshape", ["x", "shape"], "y"),
    ]
    proto = make_model(nodes, {"x": ("n", 4)}, ["y"])
    assert Model(graph_of(proto))._program.whole


def loop_of(body: Any, **inputs: tuple[int, ...]) -> Model:
    nodes = [node("Loop", ["count", "", "x"], "y", body=body)]
    kinds = {"count": np.int64}
    return Model(graph_of(make_model(nodes, {"count": (), "x": (3,)}, ["y"], kinds=kinds)))


IN_LOOP = [value("i", graphs.INT64, []), value("go", graphs.BOOL, []), value("s")]


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_run_command(precision: str, tmp_path: Path) -> None:
    """`dnnl run` times the layers of all parts, and compares with the peer."""
    path, image, trace = tmp_path / "m.onnx", tmp_path / "x.npy", tmp_path / "trace.json"
    onnx.save(graphs.positive_rows(), path)
    x = floats(20, 12)
    x[:, 0] = np.where(np.arange(20) % 2, 1, -1)
    np.save(image, x)
    arguments = ["run", str(path), "--input", f"x={image}", "--profile", str(trace)]
    arguments += ["--repeat", "2", "--precision", precision, "--compare", "onnxruntime"]
    assert main(arguments) == 0
    names = [event["name"] for event in json.loads(trace.read_text())["traceEvents"]]
    assert names.count("node_where") == 2


def test_errors_name_what_is_wrong() -> None:
    feeds = {"count": number(3), "x": floats(3)}
    identity = [node("Identity", ["go"], "more"), node("Relu", ["s"], "t")]
    body = inner("b", identity, IN_LOOP, [value("more", graphs.BOOL)])
    with pytest.raises(ModelError, match=r"node_y.*body has 1 outputs; it must have 2"):
        loop_of(body)(feeds)
    body = inner("b", identity, IN_LOOP[:2], [value("more", graphs.BOOL), value("t")])
    body.node[1].input[0] = "x"
    with pytest.raises(ModelError, match=r"node_y.*body has 2 inputs; it must have 3"):
        loop_of(body)(feeds)
    body = inner("b", identity, IN_LOOP, [value("t"), value("t")])
    with pytest.raises(dnnl.InvalidArguments, match=r"node_y.*condition 't'.*must be one bool"):
        loop_of(body)(feeds)

    def one(op: str, inputs: Mapping[str, Array], **attrs: Any) -> Any:
        kinds = {name: array.dtype for name, array in inputs.items()}
        shapes = {name: array.shape for name, array in inputs.items()}
        proto = make_model([node(op, list(inputs), "y", **attrs)], shapes, ["y"], kinds=kinds)
        return Model(graph_of(proto))(inputs)

    with pytest.raises(dnnl.InvalidArguments, match=r"node_y.*k 'k'.*9.*from 0 to 4"):
        one("TopK", {"x": floats(2, 4), "k": np.array([9])})
    with pytest.raises(ModelError, match=r"node_y.*boxes \[2, 4\]"):
        one("NonMaxSuppression", {"b": floats(2, 4), "s": floats(1, 1, 2)})
    with pytest.raises(dnnl.InvalidArguments, match=r"node_y.*condition 'c'.*at most 2"):
        one("Compress", {"x": floats(2, 4), "c": np.ones(3, np.bool_)}, axis=0)
    with pytest.raises(ModelError, match=r"node_y.*is a tensor, not a list"):
        one("SequenceAt", {"x": floats(2, 4), "p": number(0)})
    nodes = [node("SequenceConstruct", ["x", "x"], "s"), node("SequenceAt", ["s", "p"], "y")]
    proto = make_model(nodes, {"x": (2,), "p": ()}, ["y"], kinds={"p": np.int64})
    with pytest.raises(dnnl.InvalidArguments, match=r"node_y.*position 'p'.*2.*from -2 to 1"):
        Model(graph_of(proto))(floats(2), number(2))


@every_pair(kind=[np.float16, np.float32, np.float64], largest=[0, 1], count=[1, 3, 40])
def test_largest_of_what_is_no_number(count: int, largest: int, kind: Any) -> None:
    """A NaN is larger than infinity, and the zeros are equal."""
    nodes = [node("TopK", ["x", "k"], "y", "places", largest=largest)]
    kinds = {"x": kind, "y": kind, "places": np.int64}
    constants = {"k": np.array([count])}
    proto = make_model(nodes, {"x": ("n", 40)}, ["y", "places"], constants, kinds=kinds)
    numbers = np.array([np.inf, np.nan, -np.inf, 0.0, -0.0, 1.5], kind)
    feeds = {"x": RNG.choice(numbers, (30, 40))}
    got, want = Model(graph_of(proto))(feeds), run_peer(proto, feeds)
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, strict=True)


def test_lists_have_memory_of_their_own() -> None:
    proto = make_model([node("SequenceConstruct", ["x", "x", "w"], "y")], {"x": ("n",)}, ["y"],
                       {"w": floats(3)})  # fmt: skip
    proto.graph.output[0].CopyFrom(helper.make_tensor_sequence_value_info("y", graphs.FLOAT, None))
    x, results = floats(5), Model(graph_of(proto))
    listed: Any = results(x)
    first, second, constant = listed
    assert not np.shares_memory(first, x)
    assert not np.shares_memory(first, second)
    assert constant.flags.writeable
    np.testing.assert_array_equal(first, x)


def test_contents_that_nobody_reads() -> None:
    """A Range of an input's contents does not matter where no output needs it."""
    nodes = [node("Range", ["zero", "end", "one"], "r"), node("Relu", ["x"], "y")]
    constants = {"zero": np.array(0), "one": np.array(1)}
    inputs: Mapping[str, Any] = {"x": ("n",), "end": ()}
    model = Model(graph_of(make_model(nodes, inputs, ["y"], constants, kinds={"end": np.int64})))
    for count in (3, 5):
        np.testing.assert_array_equal(model(np.ones(count, np.float32), number(count)), 1)
