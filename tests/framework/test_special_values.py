"""What rewrites make of zeros with a sign, infinities, NaN and the ends of the range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.framework.models import Array, make_model, model_of, node, run_peer
from tests.framework.special_graphs import STEPS, SpecialGraph, bits

F32 = np.float32
SPECIAL = np.array(
    [0.0, -0.0, 1, -1, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e-45, 3.4e38, -3.4e38],
    F32,
)
Wide = npt.NDArray[np.float64]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, np.inf, -np.inf, np.nan, 1e-40, 3.0e38]


def assert_same_bits(nodes: list[Any], constants: dict[str, Any], outputs: list[str]) -> None:
    proto = make_model(nodes, {"x": SPECIAL.shape}, outputs, constants)
    want = run_peer(proto, {"x": SPECIAL}, as_written=True)
    got = model_of(proto).compile(num_threads=1).run({"x": SPECIAL})
    for name in outputs:
        different = bits(got[name]) != bits(want[name])
        found = np.stack((SPECIAL, got[name], want[name]), 1)[different].tolist()
        assert not found, f"{name}: x, ours, ONNX Runtime's: {found}"


BEFORE = {"": [], "Neg": ["Neg"], "Floor": ["Floor"], "Neg Neg": ["Neg", "Neg"]}
"""Alone, as a post-op, within a traced function, joined."""


def of_numbers(op: str, before: str) -> Iterator[tuple[list[Any], str]]:
    """The nodes of one number each as either source, and the result."""
    for place, number in enumerate(NUMBERS):
        if op in ("Mul", "Div") and abs(number) == F32(3e38):
            continue  # a divisor is the factor of its inverse, which need not be a power of two
        for first in (True, False):
            nodes: list[Any] = []
            value = "x"
            result = f"{op}({f'{number}, x' if first else f'x, {number}'})"
            for each in BEFORE[before]:
                nodes.append(node(each, [value], f"{result} {each}{len(nodes)}"))
                value = nodes[-1].output[0]
            sources = [f"c{place}", value] if first else [value, f"c{place}"]
            yield [*nodes, node(op, sources, result)], result


@pytest.mark.parametrize(
    ("op", "before"),
    [(op, before) for op in ("Add", "Sub") for before in BEFORE]
    + [("Mul", ""), ("Mul", "Neg"), ("Div", ""), ("Div", "Floor")],
)
def test_numbers_and_special_values(op: str, before: str) -> None:
    """-0 + 0 is 0, x - 0 is x, and c / x is no multiple of 1 / x."""
    parts = list(of_numbers(op, before))
    constants = {f"c{place}": np.array(number, F32) for place, number in enumerate(NUMBERS)}
    nodes = [each for part, _ in parts for each in part]
    assert_same_bits(nodes, constants, [result for _, result in parts])


@pytest.mark.parametrize("seed", range(16))
def test_graphs_of_exact_nodes(seed: int) -> None:
    """`make fuzz` draws more of them."""
    graph, rng = SpecialGraph(seed), np.random.default_rng(seed)
    for name in rng.choice(list(STEPS), rng.integers(2, 9)):
        graph.step(str(name))
    proto, feeds = graph.proto(), graph.feeds()
    want = run_peer(proto, feeds, as_written=True)
    got = model_of(proto).compile(num_threads=1).run(feeds)
    for name, array in want.items():
        np.testing.assert_array_equal(bits(got[name]), bits(array))


def test_nodes_that_go_leave_no_trace() -> None:
    chains = {
        "neg neg": ["Neg", "Neg"],
        "neg": ["Neg"],
        "abs": ["Abs"],
        "identity": ["Identity"],
        "relu relu": ["Relu"],
        "floor floor": ["Floor", "Floor"],
        "sign": ["Sign"],
        "neg floor neg": ["Neg", "Floor", "Neg"],
        "sum": ["Sum"],
        "max": ["Max"],
        "round": ["Round"],
        "reciprocal": ["Reciprocal"],
    }
    nodes = []
    for name, ops in chains.items():
        value = "x"
        for place, op in enumerate(ops):
            result = name if place == len(ops) - 1 else f"{name} {place}"
            nodes.append(node(op, [value], result))
            value = result
    zeros_in_relu = [n for n in chains if n != "relu relu"]  # max(-0, 0) is either of them
    assert_same_bits(nodes, {}, zeros_in_relu)


def test_casts_round_as_written() -> None:
    """Twice to the same type is once; a smaller type between two is not dropped."""
    steps = {"half": [10, 1], "double": [11, 1], "same": [1], "truth": [9, 1], "smaller": [10, 11]}
    nodes = []
    for name, kinds in steps.items():
        value = "x"
        for place, kind in enumerate(kinds):
            last = place == len(kinds) - 1
            nodes.append(node("Cast", [value], name if last else f"{name} {place}", to=kind))
            value = nodes[-1].output[0]
    assert_same_bits(nodes, {}, ["half", "double", "same", "truth"])


def close(got: Array, want: Array) -> None:
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("host", ["Conv", "MatMul", "BatchNormalization"])
def test_arithmetic_of_channels_after_a_product(host: str, op: str) -> None:
    """What is folded into weights is what was written, also where weights would overflow."""
    weights = np.array([1.0, 0.0, 1e20, 1e-20], F32)
    outputs: list[str] = []
    nodes: list[Any] = []
    constants: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    # Where what is between overflowed, it would be inf * 0 as written.
    x = np.tile(np.array([0, 1, -1, 1e15, np.inf, np.nan], F32), (1, 4, 1, 1))
    if host == "Conv":
        constants = {"w": weights.reshape(4, 1, 1, 1)}
        sources, attrs = ["x", "w"], {"group": 4}
    elif host == "BatchNormalization":
        ones, zeros = np.ones(4), np.zeros(4)
        constants = {"w": weights, "b": zeros, "m": zeros, "v": ones}
        sources, attrs = ["x", "w", "b", "m", "v"], {"epsilon": 0.0}
    else:
        x = np.array([[1], [0], [-1], [1e-3]], F32)
        constants, sources = {"w": weights.reshape(1, 4)}, ["x", "w"]
    shape = (1, 4, 1, 1) if x.ndim == 4 else (4,)
    for number in (0.0, 1.0, np.inf, -np.inf, np.nan, 1e30, 1e-30):
        result = f"{op} {number}"
        constants[f"c{number}"] = np.full(shape, number, F32)
        nodes += [
            node(host, sources, f"h{number}", **attrs),
            node(op, [f"h{number}", f"c{number}"], result),
        ]
        outputs.append(result)
    proto = make_model(nodes, {"x": x.shape}, outputs, constants)
    want = run_peer(proto, {"x": x}, as_written=True)
    got = model_of(proto).compile(num_threads=1).run({"x": x})
    for name in outputs:
        close(got[name], want[name])


def test_a_normalization_whose_weights_would_overflow_stays() -> None:
    x = np.full((1, 1, 2, 2), 1e-20, F32)
    constants = {
        "w": np.full((1, 1, 1, 1), 1e20),
        "g": np.array([1e20]),
        "b": np.array([0.5]),
        "m": np.array([0.0]),
        "v": np.array([1.0]),
    }
    nodes = [node("Conv", ["x", "w"], "c"), node("BatchNormalization", list("cgbmv"), "y")]
    proto = make_model(nodes, {"x": x.shape}, ["y"], constants)
    got = model_of(proto).compile(num_threads=1).run({"x": x})["y"]
    close(got, run_peer(proto, {"x": x}, as_written=True)["y"])
    assert np.isfinite(got).all()


@pytest.mark.parametrize("op", ["Elu", "Celu", "Selu"])
@pytest.mark.parametrize("inside", [False, True])
def test_exponentials_close_to_0_have_all_digits(op: str, inside: bool) -> None:
    """Alone and within a function; ONNX Runtime computes exp(x) - 1."""
    x = -np.logspace(-30, 1, 64).astype(F32)
    attrs: dict[str, float] = {} if op == "Selu" else {"alpha": 1.5}
    wide = x.astype(np.float64)
    want = {
        "Elu": 1.5 * np.expm1(wide),
        "Celu": 1.5 * np.expm1(wide / 1.5),
        "Selu": float(F32(1.0507010)) * float(F32(1.6732632)) * np.expm1(wide),
    }[op]
    nodes = [node(op, ["x"], "e", **attrs)]
    if inside:
        nodes.append(node("Mul", ["e", "e"], "y"))
        want = want * want
    proto = make_model(nodes, {"x": x.shape}, ["y" if inside else "e"])
    (got,) = model_of(proto).compile(num_threads=1).run({"x": x}).values()
    np.testing.assert_array_max_ulp(got, want.astype(F32), 5)


def _largest(x: Wide) -> Wide:
    return np.asarray(np.max(x, 1, keepdims=True))


def _norm(x: Wide) -> Wide:
    return np.asarray(np.sqrt(np.sum(x * x, 1, keepdims=True)))


def _log_of_sum(x: Wide) -> Wide:
    powers = np.exp(x - _largest(x))
    return np.asarray(np.log(np.sum(powers, 1, keepdims=True)) + _largest(x))


NORMS: dict[str, tuple[dict[str, Any], Callable[[Wide], Wide]]] = {
    "ReduceL2": ({"axes": [1]}, _norm),
    "LayerNormalization": (
        {"epsilon": 0.0}, lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True),
    ),
    "RMSNormalization": ({"epsilon": 0.0}, lambda x: x / (_norm(x) / 2.0)),
    "ReduceLogSumExp": ({"axes": [1]}, _log_of_sum),
}  # fmt: skip
"""Attributes and the true result, of rows of four."""


@pytest.mark.parametrize("size", [2.0**-57, 2.0**-30, 1.0, 2.0**30, 2.0**61])
@pytest.mark.parametrize("op", NORMS)
def test_norms_have_all_digits_where_squares_fit(op: str, size: float) -> None:
    """The range that docs/numerics.md states; beyond it sums of squares are infinite, or 0."""
    attrs, truth = NORMS[op]
    opset = 23 if op == "RMSNormalization" else 17
    x = (np.array([[1, 2, -3, 4], [1.5, -1.25, 1, -1]]) * size).astype(F32)
    constants = {"scale": np.ones(4)} if "Norm" in op else {}
    proto = make_model(
        [node(op, ["x", *constants], "y", **attrs)], {"x": x.shape}, ["y"], constants, opset
    )
    got = model_of(proto).compile(num_threads=1).run({"x": x})["y"]
    np.testing.assert_allclose(got, truth(x.astype(np.float64)), rtol=1e-6)
    if op == "ReduceL2":
        huge = (x / size * 1e30).astype(F32)
        assert np.isinf(np.asarray(model_of(proto)(huge))).all()
        assert np.isinf(run_peer(proto, {"x": huge})["y"]).all()
