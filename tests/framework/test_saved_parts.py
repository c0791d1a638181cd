"""Saved models that decide sizes while they run: the plans of their parts, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.framework import model as models
from dnnl.framework.saved_file import WEIGHTS
from dnnl.graph.graph import ModelError
from tests.framework import control_graphs as graphs
from tests.framework.control_graphs import inner, value
from tests.framework.models import make_model, model_of, node
from tests.framework.random_loops import WIDTH, random_loop
from tests.framework.test_control import FEEDS
from tests.framework.test_saved_models import (
    HEADER,
    assert_same_bits,
    edited,
    elsewhere,
    named_results,
    rewrite,
)

load: Any = models.load
RNG = np.random.default_rng(17)
Array = np.ndarray


@pytest.mark.parametrize("kind", FEEDS)
def test_other_processes_compile_nothing(kind: str, tmp_path: Path) -> None:
    """Loops, scans, branches, lists and selections, after calls of several sizes."""
    proto, feeds_of = FEEDS[kind]
    model, every = model_of(proto), list(feeds_of())
    expected = [named_results(model, feeds) for feeds in every]
    model.save(tmp_path / "model")
    for given, own in zip(elsewhere(tmp_path / "model", every), expected, strict=True):
        assert_same_bits(given, own)
    again = load(tmp_path / "model")  # a file out of a file
    again.save(tmp_path / "again")
    saved = load(tmp_path / "again", compile=False)
    for feeds, own in zip(every, expected, strict=True):
        assert_same_bits(named_results(saved, feeds), own)


@pytest.mark.parametrize("seed", range(12))
def test_random_loops(seed: int, tmp_path: Path) -> None:
    model, rng = model_of(random_loop(seed)), np.random.default_rng(seed)
    every: list[dict[str, Any]] = []
    for count, grown in ((4, 3), (9, 2), (1, 5)):
        sizes = {"x": (10, WIDTH), "u": (WIDTH,), "g0": (grown, WIDTH)}
        feeds: dict[str, Any] = {
            name: rng.standard_normal(own).astype(np.float32) for name, own in sizes.items()
        }
        every.append(feeds | ({"count": np.array(count)} if "count" in model.inputs else {}))
    expected = [named_results(model, feeds) for feeds in every]
    model.save(tmp_path / "model")
    saved = load(tmp_path / "model", compile=False)
    for feeds, own in zip(every, expected, strict=True):
        assert_same_bits(named_results(saved, feeds), own)


def test_arrays_instead_of_calls(tmp_path: Path) -> None:
    """A weaker instruction set takes nothing from calls: the model runs on what is given."""
    model = model_of(graphs.positive_rows())
    every = [{"x": RNG.standard_normal((n, 12)).astype(np.float32)} for n in (9, 30)]
    model.save(tmp_path / "model", every, isa="avx2")
    for feeds, given in zip(every, elsewhere(tmp_path / "model", every), strict=True):
        want = named_results(model, feeds)
        np.testing.assert_array_equal(given["count"], want["count"])
        np.testing.assert_allclose(given["y"], want["y"], 1e-4, 1e-5)


def test_what_is_no_use_of_shapes(tmp_path: Path) -> None:
    model = model_of(graphs.positive_rows())
    with pytest.raises(InvalidArguments, match=r"shapes = None: .*call it before; shapes=\["):
        model.save(tmp_path / "model")
    with pytest.raises(
        InvalidArguments, match=r"shapes\[0\]\['x'\] = \(9, 12\).*expected an array"
    ):
        model.save(tmp_path / "model", [{"x": (9, 12)}])
    with pytest.raises(InvalidArguments, match=r"input 'x'.*float64.*expects float32"):
        model.save(tmp_path / "model", [{"x": np.zeros((9, 12))}])
    with pytest.raises(InvalidArguments, match=r"shapes\[0\] = 'z': there is no such input"):
        model.save(tmp_path / "model", [{"z": np.zeros((9, 12))}])
    assert not (tmp_path / "model").exists()


def branching() -> Any:
    """A branch that an input decides, on floats."""
    nodes = [
        node("Relu", ["x"], "r"),
        node("If", ["yes"], "b",
             then_branch=inner("t", [node("Exp", ["r"], "z")], [], [value("z")]),
             else_branch=inner("e", [node("MatMul", ["r", "w"], "z")], [], [value("z")])),
        node("Neg", ["b"], "y"),
    ]  # fmt: skip
    constants = {"w": graphs.weights(6, 6)}
    inputs: dict[str, Any] = {"x": ("n", 6), "yes": ()}
    return make_model(nodes, inputs, ["y"], constants, kinds={"yes": np.bool_})


def test_what_no_call_has_taken_is_compiled_or_refused(tmp_path: Path) -> None:
    model, x = model_of(branching()), RNG.standard_normal((5, 6)).astype(np.float32)
    yes, no = {"x": x, "yes": np.array(True)}, {"x": x, "yes": np.array(False)}
    model(yes)
    model.save(tmp_path / "model")
    saved = load(tmp_path / "model", compile=False)
    np.testing.assert_array_equal(saved(yes), model(yes))
    with pytest.raises(
        Unimplemented, match=r"for x \[5, 6\], yes = False\n.*\[5, 6\], and for other contents"
    ):
        saved(no)
    with pytest.raises(
        Unimplemented, match=r"for x \[3, 6\], yes = True\n.*plan 0: it is for x float32 \[5, 6"
    ):
        saved({"x": x[:3], "yes": np.array(True)})
    given, want = (named_results(own, no)["y"] for own in (load(tmp_path / "model"), model))
    np.testing.assert_allclose(given, want, 1e-5, 1e-6)


def test_contents_of_others_are_refused_with_them(tmp_path: Path) -> None:
    nodes = [node("Slice", ["x", "zero", "end"], "head"), node("Relu", ["head"], "y")]
    constants, kinds = {"zero": np.array([0])}, {"end": np.int64}
    inputs: dict[str, Any] = {"x": ("n", 4), "end": (1,)}
    model = model_of(make_model(nodes, inputs, ["y"], constants, kinds=kinds))
    x = RNG.standard_normal((9, 4)).astype(np.float32)
    model(x, np.array([-1]))
    model.save(tmp_path / "model")
    saved = load(tmp_path / "model", compile=False)
    np.testing.assert_array_equal(saved(x, np.array([-1])), np.maximum(x[:-1], 0))
    with pytest.raises(Unimplemented, match=r"end = \[-3\]\n.*, and for other contents"):
        saved(x, np.array([-3]))
    assert np.array_equal(load(tmp_path / "model")(x, np.array([-3])), np.maximum(x[:-3], 0))


def test_values_of_defaults_are_used(tmp_path: Path) -> None:
    """A plan for the constant of the model does not serve a call that gives another one."""
    proto = make_model([node("Mul", ["x", "w"], "y")], {"x": ("n",)}, ["y"], {"w": np.ones(1)})
    proto.graph.input.append(value("w", graphs.FLOAT, [1]))
    model = model_of(proto)
    x, two = np.arange(4, dtype=np.float32), np.full(1, 2, np.float32)
    model(x)
    model.save(tmp_path / "model")
    saved = load(tmp_path / "model", compile=False)
    np.testing.assert_array_equal(saved(x), x)
    with pytest.raises(Unimplemented, match="has no kernels for inputs x, w"):
        saved({"x": x, "w": two})
    np.testing.assert_array_equal(load(tmp_path / "model")({"x": x, "w": two}), 2 * x)
    model({"x": x, "w": two})
    model.save(tmp_path / "model")
    saved = load(tmp_path / "model", compile=False)
    np.testing.assert_array_equal(saved({"x": x, "w": two}), 2 * x)
    np.testing.assert_array_equal(saved(x), x)


def test_defaults_that_decide_sizes(tmp_path: Path) -> None:
    """A model of one part, and of contents where the default is given: each as it is."""
    nodes = [node("Reshape", ["x", "s"], "r"), node("Relu", ["r"], "y")]
    proto = make_model(nodes, {"x": ("n", 6)}, ["y"], {"s": np.array([-1, 3])})
    proto.graph.input.append(value("s", graphs.INT64, [2]))
    model, x = model_of(proto), RNG.standard_normal((4, 6)).astype(np.float32)
    two = np.array([-1, 2])
    model.save(tmp_path / "model", [{"x": (4, 6)}, {"x": x, "s": two}])
    saved = load(tmp_path / "model", compile=False)
    np.testing.assert_array_equal(saved(x), np.maximum(x, 0).reshape(-1, 3))
    np.testing.assert_array_equal(saved({"x": x, "s": two}), np.maximum(x, 0).reshape(-1, 2))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The file of a decoder."""
    model: Any = model_of(graphs.decoder())
    for most in (4, 9):
        model({"most": np.array(most), "start": np.array([3])})
    model.save(tmp_path / "model.dnnl")
    return tmp_path / "model.dnnl"


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every element of lists and objects, with what it is in."""
    found: list[tuple[Any, Any]] = []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, own in items:
        found.append((tree, key))
        if isinstance(own, dict | list):
            found += _places(own)
    return found


def test_changed_programs_are_refused(saved: Path) -> None:
    """Whatever is changed of a program, with checksums that are right, errors are the library's."""
    content = saved.read_bytes()
    rng = np.random.default_rng(3)
    other: Any = (None, 7, -1, "x", [], {}, [[]], 1.5, True, "s0", "+")
    feeds = {"most": np.array(9), "start": np.array([3])}
    want = load(saved, compile=False)(feeds)
    refused = 0
    for _ in range(150):

        def change(index: dict[str, Any]) -> None:
            places = _places(index["programs"])
            holder, key = places[int(rng.integers(len(places)))]
            holder[key] = other[int(rng.integers(len(other)))]

        rewrite(saved, content)
        edited(saved, change)
        try:
            got = load(saved, compile=False)(feeds)
        except dnnl.Error:
            refused += 1
        else:
            assert got.keys() == want.keys()
    assert refused > 75


@pytest.mark.parametrize(
    "change",
    [
        lambda step, plans: step[2].update({"most": "nowhere"}),
        lambda step, plans: step[-1][0].__setitem__(0, next(n for n in range(9) if n not in plans)),
        lambda step, plans: step[3].append("another"),
    ],
)
def test_parts_with_plans_of_others(change: Callable[[Any, Any], object], saved: Path) -> None:
    def changed(index: dict[str, Any]) -> None:
        (loop,) = [own for own in index["programs"][0]["program"]["steps"] if own[0] == "between"]
        part = next(own for own in loop[3]["body"]["steps"] if own[0] == "part")
        change(part, {own[0] for own in part[-1]})

    edited(saved, changed)
    with pytest.raises(ModelError, match=r"another part|nothing computes|list index"):
        load(saved)


def test_damaged_files_are_refused(saved: Path) -> None:
    data = saved.read_bytes()
    _, _, _, offset, length, _ = HEADER.unpack_from(data)
    sections = json.loads(data[offset : offset + length])["sections"]
    begin, nbytes, _ = sections.get(WEIGHTS, (0, 0, ()))
    rng = np.random.default_rng(2)
    for place in rng.integers(64, len(data), 60):
        if not begin <= place < begin + nbytes:
            damaged = bytearray(data)
            damaged[int(place)] ^= 1 << int(rng.integers(8))
            rewrite(saved, bytes(damaged))
            with pytest.raises(ModelError, match=r"damaged|truncated|version"):
                load(saved)
