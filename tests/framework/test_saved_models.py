"""Saved models: the same results in processes that compile nothing, and files that are refused."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.framework import model as models
from dnnl.framework.loading import system
from dnnl.framework.model import Model
from dnnl.framework.saved_file import MAGIC, WEIGHTS
from dnnl.graph.graph import ModelError
from tests.framework.models import Array, feeds_for, make_model, model_of, node, plans_of
from tests.framework.random_graphs import STEPS, Builder
from tests.framework.test_branches import SIZES, branching

load: Any = models.load
HEADER = struct.Struct("<8sIIQQ32s")

# Loads a model where there is neither a compiler nor a reader of ONNX, and runs it on given arrays.
PROGRAM = """
import sys
for absent in ("llvmlite", "onnx"):
    sys.modules[absent] = None
import numpy as np
import dnnl
model = dnnl.load(sys.argv[1], compile=False)
for number in range(int(sys.argv[3])):
    feeds = dict(np.load(f"{sys.argv[2]}/feeds{number}.npz"))
    results = model({name: feeds[name] for name in model.inputs})
    if not isinstance(results, dict):
        results = {model.outputs[0]: results}
    np.savez(f"{sys.argv[2]}/results{number}.npz", **results)
"""


def named_results(model: Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name."""
    found = model(feeds)
    return found if isinstance(found, dict) else {model.outputs[0]: found}


def elsewhere(path: Path, every: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
    """The results of a saved model in another process, which compiles nothing."""
    folder = path.parent
    for number, feeds in enumerate(every):
        np.savez(folder / f"feeds{number}.npz", **dict(feeds))  # type: ignore[arg-type]
    command = [sys.executable, "-c", PROGRAM, str(path), str(folder), str(len(every))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return [dict(np.load(folder / f"results{number}.npz")) for number in range(len(every))]


def assert_same_bits(given: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Every output is the same, bit for bit."""
    assert given.keys() == expected.keys()
    for name, array in expected.items():
        assert given[name].dtype == array.dtype
        np.testing.assert_array_equal(given[name], array)


def perceptron(rng: np.random.Generator) -> Any:
    """Two products on rows of any number."""
    constants = {"v": rng.standard_normal((24, 40)), "w": rng.standard_normal((40, 8))}
    nodes = [
        node("MatMul", ["x", "v"], "a"),
        node("Relu", ["a"], "b"),
        node("MatMul", ["b", "w"], "c"),
        node("Softmax", ["c"], "y", axis=-1),
    ]
    return make_model(nodes, {"x": ["n", 24]}, ["y"], constants)


def detector(rng: np.random.Generator) -> Any:
    """Convolutions on images of any size, whose result has the size of the image."""
    constants = {"v": rng.standard_normal((16, 3, 3, 3)), "w": rng.standard_normal((16, 16, 3, 3))}
    constants["u"] = rng.standard_normal((1, 32, 1, 1))
    scales = np.array([1.0, 1.0, 2.0, 2.0])
    nodes = [
        node("Conv", ["x", "v"], "a", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["a"], "b"),
        node("Conv", ["b", "w"], "c", pads=[1, 1, 1, 1]),
        node("Concat", ["b", "c"], "d", axis=1),
        node("Resize", ["d", "", "s"], "e", mode="nearest"),
        node("Conv", ["e", "u"], "f"),
        node("Sigmoid", ["f"], "y"),
    ]
    return make_model(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], {**constants, "s": scales})


def attention(rng: np.random.Generator) -> Any:
    """One head on rows of any number, with a table of words and a mask of positions."""
    constants = {name: rng.standard_normal((32, 32)) for name in "qkv"}
    constants |= {"words": rng.standard_normal((50, 32)), "root": np.array(32**-0.5)}
    nodes = [
        node("Gather", ["words", "ids"], "x", axis=0),
        *(node("MatMul", ["x", name], f"{name}0") for name in "qkv"),
        node("Transpose", ["k0"], "k1", perm=[0, 2, 1]),
        node("MatMul", ["q0", "k1"], "s0"),
        node("Mul", ["s0", "root"], "s1"),
        node("Softmax", ["s1"], "p", axis=-1),
        node("MatMul", ["p", "v0"], "c"),
        node("Add", ["c", "x"], "y"),
        node("Shape", ["ids"], "sizes"),
    ]
    kinds = {"ids": np.int64, "sizes": np.int64}
    return make_model(nodes, {"ids": ["b", "t"]}, ["y", "sizes"], constants, kinds=kinds)


def floats(rng: np.random.Generator, *shape: int) -> dict[str, Array]:
    """An input x."""
    return {"x": rng.standard_normal(shape).astype(np.float32)}


CASES: dict[str, tuple[Callable[..., Any], Callable[..., list[dict[str, Array]]]]] = {
    "perceptron": (perceptron, lambda rng: [floats(rng, n, 24) for n in (3, 1, 70, 5)]),
    "detector": (
        detector,
        lambda rng: [
            floats(rng, n, 3, h, w) for n, h, w in ((1, 64, 64), (1, 96, 160), (2, 32, 64))
        ],
    ),
    "attention": (
        attention,
        lambda rng: [{"ids": rng.integers(0, 50, shape)} for shape in ((2, 9), (1, 1), (3, 33))],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_other_processes_compile_nothing(case: str, tmp_path: Path) -> None:
    make, feeds_of = CASES[case]
    rng = np.random.default_rng(7)
    model, every = model_of(make(rng)), feeds_of(rng)
    shapes = [{name: array.shape for name, array in feeds.items()} for feeds in every]
    model.save(tmp_path / "model", shapes)
    saved = load(tmp_path / "model")
    here = [named_results(saved, feeds) for feeds in every]
    for feeds, given in zip(every, here, strict=True):
        for name, array in named_results(model, feeds).items():
            np.testing.assert_allclose(given[name], array, rtol=1e-5, atol=1e-5)
    for given, expected in zip(elsewhere(tmp_path / "model", every), here, strict=True):
        assert_same_bits(given, expected)


def test_what_calls_have_made_is_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    model: Any = model_of(perceptron(rng))
    every = [floats(rng, rows, 24) for rows in (4, 9, 23)]
    expected = [named_results(model, feeds) for feeds in every]
    model.save(tmp_path / "model.dnnl")
    for given, own in zip(elsewhere(tmp_path / "model.dnnl", every), expected, strict=True):
        assert_same_bits(given, own)


def test_a_model_that_nobody_called_is_saved_for_typical_sizes(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    model, told = model_of(perceptron(rng)), list[tuple[int, int, str]]()
    model.save(tmp_path / "model", progress=lambda *own: told.append(own))
    assert told[0] == (0, 0, "planning")
    every = [floats(rng, rows, 24) for rows in (1, 4, 17)]
    for given, feeds in zip(elsewhere(tmp_path / "model", every), every, strict=True):
        np.testing.assert_allclose(
            given["y"], named_results(model, feeds)["y"], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    builder = Builder(seed)
    for name in rng.choice(sorted(STEPS), 6):
        builder.step(name, rng.integers(0, 3, 3).tolist())
    model: Any = model_of(builder.proto())
    feeds = feeds_for(model.graph, seed)
    expected = named_results(model, feeds)
    model.save(tmp_path / "model")
    assert_same_bits(named_results(load(tmp_path / "model", compile=False), feeds), expected)


def test_quantized_models(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    model, feeds = quantized_model(rng), floats(rng, 5, 24)
    expected = named_results(model, feeds)
    model.save(tmp_path / "model")
    assert_same_bits(elsewhere(tmp_path / "model", [feeds])[0], expected)


def quantized_model(rng: np.random.Generator) -> Model:
    """A product of bytes, as ONNX Runtime's quantizer writes it."""
    constants = {
        "w": rng.integers(-127, 127, (24, 16), np.int8), "u": np.float32(0.02),
        "s": np.float32(0.03), "z": np.uint8(128), "zw": np.int8(0),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "a"),
        node("DequantizeLinear", ["a", "s", "z"], "b"),
        node("DequantizeLinear", ["w", "u", "zw"], "c"),
        node("MatMul", ["b", "c"], "d"),
        node("Relu", ["d"], "y"),
    ]
    return model_of(make_model(nodes, {"x": ["n", 24]}, ["y"], constants))


def test_bf16(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    model, feeds = model_of(perceptron(rng)), floats(rng, 6, 24)
    model.save(tmp_path / "model", [{"x": (6, 24)}], precision="bf16")
    given = elsewhere(tmp_path / "model", [feeds])[0]["y"]
    expected: Any = model.with_shapes({"x": (6, 24)}).compile(precision="bf16")(feeds)
    np.testing.assert_allclose(given, expected, rtol=1e-2, atol=1e-2)
    assert np.abs(given - model(feeds)).max() > 1e-5  # it is not in f32
    saved = load(tmp_path / "model")
    assert np.abs(saved(floats(rng, 500, 24)) - 1 / 8).max() < 1  # compiled, for other sizes


def test_branches(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    model: Any = model_of(branching(SIZES))
    every = [
        {**floats(rng, rows, 4), "w": rng.standard_normal(4).astype(np.float32)}
        for rows in (2, 5, 1, 7)
    ]
    shapes = [{name: array.shape for name, array in feeds.items()} for feeds in every]
    model.save(tmp_path / "model", shapes)
    for feeds, given in zip(every, elsewhere(tmp_path / "model", every), strict=True):
        np.testing.assert_allclose(given["y"], model(feeds), rtol=1e-6)
    saved = load(tmp_path / "model")  # its graph has the branches
    feeds = {**every[0], "x": np.ones((900, 4), np.float32)}
    np.testing.assert_allclose(saved(feeds), model(feeds), rtol=1e-6)


def test_other_sizes_are_compiled_or_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    model: Any = model_of(perceptron(rng))
    model.save(tmp_path / "model", [{"x": (1, 24)}])
    feeds = floats(rng, 6, 24)
    saved = load(tmp_path / "model")
    np.testing.assert_allclose(saved(feeds), model(feeds), rtol=1e-5, atol=1e-6)
    with pytest.raises(Unimplemented, match=r"has no kernels for x \[6, 24\]") as caught:
        load(tmp_path / "model", compile=False)(feeds)
    assert "it is for x float32 [1, 24]" in str(caught.value)


def test_a_loaded_model_is_a_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    model: Any = model_of(perceptron(rng)).with_memory_budget(1 << 20)
    model.save(tmp_path / "model.onnx")  # the name does not matter
    saved: Any = dnnl.load(tmp_path / "model.onnx")
    assert isinstance(saved, Model)
    assert (saved.inputs, saved.outputs) == (model.inputs, model.outputs)
    assert saved.memory_budget == 1 << 20
    feeds = floats(rng, 3, 24)
    expected = model(feeds)
    for batch in (saved.compile(batch=3), saved.with_batch(3)):
        found: Any = batch(feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(saved))(feeds), expected, rtol=1e-5)
    again: Any = load_bytes(tmp_path, saved.to_onnx())
    np.testing.assert_allclose(again(feeds), expected, rtol=1e-5)
    saved.save(tmp_path / "again")
    assert_same_bits(elsewhere(tmp_path / "again", [feeds])[0], named_results(saved, feeds))


def load_bytes(folder: Path, content: bytes) -> Model:
    """The model of an ONNX file's contents."""
    (folder / "other.onnx").write_bytes(content)
    made: Model = load(folder / "other.onnx")
    return made


def test_constants_are_the_file(tmp_path: Path) -> None:
    model: Any = model_of(perceptron(np.random.default_rng(5)))
    model.save(tmp_path / "model", [{"x": (4, 24)}])
    saved = load(tmp_path / "model")
    saved(floats(np.random.default_rng(5), 4, 24))
    (compiled,) = [session.compiled for session in plans_of(saved).sessions]
    assert compiled.constants
    mapped = mapping_of(tmp_path / "model")
    for memory in compiled.constants.values():
        assert memory.readonly
        assert memory.pointer % 64 == 0
        assert any(begin <= memory.pointer < end for begin, end in mapped)
    for array in saved.graph.constants.values():
        assert not array.flags.writeable
        assert any(begin <= array.ctypes.data < end for begin, end in mapped)


def mapping_of(path: Path) -> list[tuple[int, int]]:
    """Where a file is mapped in this process."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    spans = [line.split()[0].split("-") for line in lines if line.endswith(str(path))]
    return [(int(begin, 16), int(end, 16)) for begin, end in spans]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The file of a small model, for two sizes."""
    path = tmp_path / "model.dnnl"
    model: Any = model_of(perceptron(np.random.default_rng(5)))
    model.save(path, [{"x": (4, 24)}, {"x": (1, 24)}])
    return path


def rewrite(path: Path, data: bytes) -> None:
    """Replace a file, which may be mapped: what is truncated in place is gone for its readers."""
    path.unlink()
    path.write_bytes(data)


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the index of a file, as whoever wants to deceive would: its checksum is right."""
    data = path.read_bytes()
    magic, version, zero, offset, length, _ = HEADER.unpack_from(data)
    index = json.loads(data[offset : offset + length])
    change(index)
    text = json.dumps(index).encode()
    digest = hashlib.sha256(text).digest()
    header = HEADER.pack(magic, version, zero, offset, len(text), digest)
    rewrite(path, header + data[HEADER.size : offset] + text)


def test_truncated_files_are_refused(saved: Path) -> None:
    data = saved.read_bytes()
    rng = np.random.default_rng(2)
    for length in (8, 20, 63, 64, len(data) - 1, *rng.integers(65, len(data), 20)):
        rewrite(saved, data[: int(length)])
        with pytest.raises(ModelError, match=r"truncated|no whole header"):
            load(saved)


def test_damaged_files_are_refused(saved: Path) -> None:
    data = saved.read_bytes()
    index = json.loads(data[slice(*index_span(data))])
    begin, nbytes, _ = index["sections"][WEIGHTS]
    rng = np.random.default_rng(2)
    for place in (9, 17, 40, *rng.integers(64, len(data), 60)):
        if begin <= place < begin + nbytes:
            continue
        damaged = bytearray(data)
        damaged[int(place)] ^= 1 << int(rng.integers(8))
        rewrite(saved, bytes(damaged))
        with pytest.raises(ModelError, match=r"damaged|truncated|version"):
            load(saved)


def index_span(data: bytes) -> tuple[int, int]:
    """Where the index of a file is."""
    _, _, _, offset, length, _ = HEADER.unpack_from(data)
    return offset, offset + length


def test_damaged_weights_are_seen_when_something_is_compiled(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    begin, nbytes, _ = json.loads(bytes(data[slice(*index_span(bytes(data)))]))["sections"][WEIGHTS]
    data[begin + nbytes // 2] ^= 1
    rewrite(saved, bytes(data))
    model: Any = load(saved)
    assert model(np.zeros((4, 24), np.float32)).shape == (4, 8)
    with pytest.raises(ModelError, match="section 'weights' has another checksum"):
        model.compile(batch=5)


def test_other_versions_are_refused(saved: Path) -> None:
    data = saved.read_bytes()
    rewrite(saved, MAGIC + struct.pack("<I", 9) + data[12:])
    with pytest.raises(ModelError, match="format is version 9, this library reads version 3"):
        load(saved)


def test_files_for_other_machines_are_refused(saved: Path) -> None:
    edited(saved, lambda index: index["target"].update(features=["avx2", "amx-later", "sve9"]))
    with pytest.raises(Unimplemented, match=r"this processor has no amx-later, sve9; save it with"):
        load(saved)
    edited(saved, lambda index: index["target"].update(system="riscv64-plan9-little"))
    with pytest.raises(Unimplemented, match=f"are for riscv64-plan9-little, this is {system()}"):
        load(saved)


EVIL = (
    "__import__('os').system('touch evil')",
    "().__class__.__base__.__subclasses__()",
    "(lambda: 1)()",
    "[0 for s0 in (1,)]",
    "open('evil', 'w')",
    "s0.real",
    "2**2**2**2",
    "1 if s0 else 2",
    "min(1, key=s0)",
    "f'{s0}'",
    "s0) or (1",
    "s0\n",
    "",
)


@pytest.mark.parametrize("text", EVIL)
def test_no_expression_of_a_file_is_anything_but_arithmetic(
    text: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = saved.read_bytes()

    def every(index: dict[str, Any], put: Callable[[dict[str, Any], list[Any]], None]) -> None:
        for plan in index["plans"]:
            classes = [code[5] for codes in plan["kernels"] for code in codes if code[5]]
            put(plan, classes)

    def in_classes(_: dict[str, Any], classes: list[Any]) -> None:
        for own in classes:
            own[1].append(text)

    def in_sources(_: dict[str, Any], classes: list[Any]) -> None:
        for own in classes:
            own[0][:1] = [text]

    changes: list[Callable[[dict[str, Any], list[Any]], None]] = [
        lambda plan, _: plan.update(condition=text),
        lambda plan, _: plan["expressions"].append(text),
        in_classes,
        in_sources,
    ]
    for change in changes:
        rewrite(saved, content)
        edited(saved, partial(lambda put, index: every(index, put), change))
        with pytest.raises(dnnl.Error, match=r"no expression of integers|is damaged"):
            load(saved)(np.zeros((4, 24), np.float32))
    assert not Path("evil").exists()


def _put(key: str, value: Any, index: dict[str, Any]) -> None:
    index[key] = value


def test_indexes_of_wrong_types_are_refused(saved: Path) -> None:
    content = saved.read_bytes()
    rng = np.random.default_rng(0)
    keys = ["target", "plans", "programs", "images", "graph", "sections", "precision", "startup"]
    every: Sequence[Any] = (None, 7, "x", [], {}, [[]])
    for key in keys:
        for value in every:
            rewrite(saved, content)
            edited(saved, partial(_put, key, value))
            with suppress(dnnl.Error):
                load(saved)(rng.standard_normal((4, 24)).astype(np.float32))


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    model: Any = model_of(perceptron(np.random.default_rng(5)))
    for path in (tmp_path, tmp_path / "none" / "model", "", 5):
        with pytest.raises(InvalidArguments, match="path = "):
            model.save(path)
    before = os.listdir(tmp_path)
    model.save(tmp_path / "model", [{"x": (2, 24)}])
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "model"])


@pytest.mark.parametrize(
    ("shapes", "rule"),
    [
        ([{"z": (1, 24)}], "no such input"),
        ([{}], "has no shape of input 'x'"),
        ([(1, 24)], "expected a mapping"),
        ([{"x": (1, 25)}], "cannot be compiled"),
        ([{"x": np.ones((1, 2))}], r"shapes\[0\]\['x'\] = .*expected a sequence of integers"),
    ],
)
def test_wrong_shapes(shapes: Any, rule: str, tmp_path: Path) -> None:
    model: Any = model_of(perceptron(np.random.default_rng(5)))
    with pytest.raises(InvalidArguments, match=rule):
        model.save(tmp_path / "model", shapes)
    assert not (tmp_path / "model").exists()
