"""Floats of 4 to 8 bits and integers below 8 in models, beside ml_dtypes and ONNX's reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.numpy_helper import saturate_cast, to_float8e8m0

import dnnl
from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.framework.model import Model
from dnnl.graph.graph import Array, ModelError
from dnnl.operators.small_types import SMALL
from tests.framework.models import make_model, model_of, node
from tests.pairs import every_pair

NAMES = sorted(dtype.name for dtype in SMALL)
EIGHTS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
SMALLER = ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"]
INTEGERS = ["int2", "int4", "uint2", "uint4"]
WIDE = ["float16", "bfloat16", "float32", "float64"]
WHOLE = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
OPSET = 25
each_small = pytest.mark.parametrize("name", NAMES)


def code_of(name: str) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(name)))


def every(name: str) -> Array:
    """All elements of a small type; those of integers with unused bits of all kinds as well, which
    ml_dtypes does not allow in floats."""
    bits = 8
    if name.startswith("float"):
        bits = ml_dtypes.finfo(name).bits  # type: ignore[no-untyped-call]
    return np.arange(2**bits, dtype=np.uint8).view(name)


def casting(source: str, kind: str, **attrs: Any) -> Model:
    cast = node("Cast", ["x"], "y", to=code_of(kind), **attrs)
    proto = make_model([cast], {"x": ["n"]}, ["y"], None, OPSET, {"x": source, "y": kind})
    return model_of(proto)


def same(got: Any, want: Array) -> None:
    """Equal bits, but for NaN."""
    assert isinstance(got, np.ndarray)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    bits = f"u{want.dtype.itemsize}"
    a, b = got.astype(np.float64), want.astype(np.float64)
    equal = (np.isnan(a) & np.isnan(b)) | (got.view(bits) == want.view(bits))
    assert equal.all(), (got[~equal][:5], want[~equal][:5])


@each_small
@pytest.mark.parametrize("kind", [*WIDE, *WHOLE])
def test_what_elements_are(name: str, kind: str) -> None:
    source = every(name)
    if name.startswith("float") and kind in WHOLE[1:]:  # what has no integer is undefined
        info, wide = np.iinfo(kind), source.astype(np.float64)
        source = source[np.isfinite(wide) & (wide > info.min - 1) & (wide < info.max + 1.0)]
    same(casting(name, kind)(source), source.astype(kind))


def numbers(kind: str) -> Array:
    """All numbers of f16, and numbers of all sizes, ties between small floats and their
    neighbours among them."""
    rng = np.random.default_rng(3)
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
    spread = rng.standard_normal(20000) * 2.0 ** rng.integers(-170, 170, 20000)
    every_float = [every(name).astype(np.float64) for name in (*EIGHTS, *SMALLER)]
    ties = np.concatenate([(own[1:] + own[:-1]) / 2 for own in map(np.sort, every_float)])
    beside = [ties * (1 + sign * 2.0**-50) for sign in (-1, 0, 1)]
    with np.errstate(all="ignore"):
        found = np.concatenate([halves, spread, *beside]).astype(kind)
    return np.asarray(found)


@every_pair(kind=WIDE, name=[*EIGHTS, *SMALLER], saturate=[0, 1])
def test_floats_become_small_ones(name: str, kind: str, saturate: int) -> None:
    source = numbers(kind)
    with np.errstate(all="ignore"):
        want = source.astype(name)
        if saturate and name in EIGHTS:
            want = saturate_cast(source.astype(np.float64), np.dtype(name))
    same(casting(kind, name, saturate=saturate)(source), want)


@every_pair(
    kind=["float16", "bfloat16", "float32"], round_mode=["up", "down", "nearest"], saturate=[0, 1]
)
def test_floats_become_exponents(round_mode: str, kind: str, saturate: int) -> None:
    source = numbers(kind)
    with np.errstate(all="ignore"):
        want = to_float8e8m0(source, bool(saturate), round_mode)
    got = casting(kind, "float8_e8m0fnu", saturate=saturate, round_mode=round_mode)(source)
    same(got, want)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", [*WIDE, *WHOLE])
def test_numbers_become_small_integers(name: str, kind: str) -> None:
    source: Array = np.arange(-128, 128)
    if kind in WIDE:
        source = source + np.random.default_rng(4).random(256)
    given = source.astype(kind)
    same(casting(kind, name)(given), given.astype(np.int64).astype(name))


@pytest.mark.parametrize("kind", WHOLE)
def test_integers_become_small_floats(kind: str) -> None:
    source = np.arange(-2000, 2000).astype(kind)
    for name in (*EIGHTS, *SMALLER):
        want = saturate_cast(source.astype(np.float64), np.dtype(name))
        same(casting(kind, name)(source), want)


@each_small
def test_from_one_small_type_to_another(name: str) -> None:
    """Of NaN, what becomes of it in a type without one is not defined."""
    source = every(name)
    source = source[~np.isnan(source.astype(np.float32))]
    with np.errstate(all="ignore"):
        for other in {*SMALLER, "float8_e5m2"} - {name}:
            got = casting(name, other, saturate=0)(source)
            same(got, source.astype(np.float32).astype(other))


MOVED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Concat": ([node("Concat", ["x", "x"], "y", axis=0)], {}),
    "Expand": ([node("Expand", ["x", "shape"], "y")], {"shape": np.array([2, 1, 1])}),
    "Gather": ([node("Gather", ["x", "i"], "y", axis=1)], {"i": np.array([2, 0, -1])}),
    "Identity": ([node("Identity", ["x"], "y")], {}),
    "Reshape": ([node("Reshape", ["x", "shape"], "y")], {"shape": np.array([-1])}),
    "Slice": (
        [node("Slice", ["x", "from", "to", "axes", "step"], "y")],
        {
            "from": np.array([3]),
            "to": np.array([-9]),
            "axes": np.array([1]),
            "step": np.array([-1]),
        },
    ),
    "Tile": ([node("Tile", ["x", "times"], "y")], {"times": np.array([1, 2])}),
    "Transpose": ([node("Transpose", ["x"], "y")], {}),
    "Where": (
        [node("Where", ["condition", "x", "other"], "y")],
        {"condition": np.array([True, False, True, False])},
    ),
}


@each_small
def test_elements_are_moved(name: str) -> None:
    bits = np.random.default_rng(5).integers(0, 4, (5, 4), np.uint8)
    for op, (nodes, constants) in MOVED.items():
        one = {"other": np.ones((), np.uint8).view(name)} if op == "Where" else {}
        proto = make_model(
            nodes, {"x": ["n", 4]}, ["y"], {**constants, **one}, OPSET, {"x": name, "y": name}
        )
        plain = make_model(
            nodes,
            {"x": ["n", 4]},
            ["y"],
            {**constants, **{key: own.view(np.uint8) for key, own in one.items()}},
            OPSET,
            {"x": np.uint8, "y": np.uint8},
        )
        model = model_of(proto)
        for rows in (5, 3, 2, 1, 0):
            given = bits[:rows]
            (want,) = onnx.reference.ReferenceEvaluator(plain).run(None, {"x": given})
            got = model(given.view(name))
            assert isinstance(got, np.ndarray)
            assert got.dtype == np.dtype(name)
            np.testing.assert_array_equal(got.view(np.uint8), want, op)


def test_outputs_that_are_inputs_and_constants() -> None:
    values = np.array([0.5, -448, 3], ml_dtypes.float8_e4m3fn)
    nodes = [
        node("Identity", ["x"], "same"),
        node("Identity", ["w"], "known"),
        node("Concat", ["x", "w"], "both", axis=0),
        node("Cast", ["both"], "wide", to=code_of("float32")),
    ]
    kinds = dict.fromkeys(("x", "same", "known", "both"), values.dtype)
    outputs = ["same", "known", "both", "wide"]
    proto = make_model(nodes, {"x": ["n"]}, outputs, {"w": values}, OPSET, kinds)
    model = model_of(proto)
    for rows in (3, 2, 0):
        got = model(values[:rows])
        assert isinstance(got, dict)
        both = np.concatenate([values[:rows], values])
        same(got["same"], values[:rows])
        same(got["known"], values)
        same(got["both"], both)
        same(got["wide"], both.astype(np.float32))


def test_a_scalar_and_two_threads() -> None:
    cast = node("Cast", ["x"], "y", to=code_of("int4"))
    proto = make_model([cast], {"x": []}, ["y"], None, OPSET, {"y": "int4"})
    same(model_of(proto)(np.array(-7.9, np.float32)), np.array(-7, "int4"))
    source = np.random.default_rng(6).standard_normal(100_000).astype(np.float32)
    model = casting("float32", "float8_e5m2")
    one, two = (model(source, num_threads=threads) for threads in (1, 2))
    same(one, source.astype("float8_e5m2"))
    same(two, source.astype("float8_e5m2"))


def test_a_saved_model(tmp_path: Any) -> None:
    model = casting("float8_e4m3fnuz", "float4_e2m1fn")
    source = every("float8_e4m3fnuz")[:128]
    model.save(tmp_path / "small.dnnl", shapes=[{"x": source.shape}])
    with np.errstate(all="ignore"):
        want = source.astype(np.float32).astype("float4_e2m1fn")
    same(dnnl.load(tmp_path / "small.dnnl")(source), want)


@each_small
@pytest.mark.parametrize("external", [False, True])
def test_constants_in_files(name: str, external: bool, tmp_path: Any) -> None:
    """Elements of less than 8 bits are packed there."""
    w = np.array([[1, 1, 0], [1, 0, 1]]).astype(name)
    nodes = [node("Cast", ["w"], "v", to=code_of("float32")), node("Add", ["x", "v"], "y")]
    proto = make_model(nodes, {"x": ["n", 3]}, ["y"], {"w": w}, 28)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=external, size_threshold=0, location="weights")
    x = np.ones((2, 3), np.float32)
    same(dnnl.load(path)(x), x + w.astype(np.float32))


def test_nothing_computes_with_them() -> None:
    kinds = {"x": "float8_e5m2", "y": "float8_e5m2"}
    for op in ("Add", "Max"):
        proto = make_model([node(op, ["x", "x"], "y")], {"x": ["n"]}, ["y"], None, OPSET, kinds)
        with pytest.raises(Unimplemented, match="float8_e5m2 is moved and converted"):
            model_of(proto)(every("float8_e5m2"))


def test_wrong_arguments() -> None:
    with pytest.raises(InvalidArguments, match="wrong data type"):
        casting("int4", "float32")(np.zeros(3, np.int8))
    with pytest.raises(ModelError, match="round_mode"):
        casting("float32", "float8_e8m0fnu", round_mode="odd")(np.ones(3, np.float32))


@pytest.mark.parametrize("source", ["float32", "int32", "bool", "float8_e5m2", "int4", "float64"])
def test_bits_as_another_type(source: str) -> None:
    others = {
        "float32": ["int32", "uint32", "float32"],
        "int32": ["float32"],
        "bool": ["uint8", "int8"],
        "float8_e5m2": ["uint8", "int8", "float8_e4m3fnuz", "bool"],
        "int4": ["uint4", "float4_e2m1fn"],
        "float64": ["int64", "uint64"],
    }[source]
    rng = np.random.default_rng(7)
    dtype = np.dtype(source)
    raw = rng.integers(0, 2 if source == "bool" else 256, (6, 3, dtype.itemsize), np.uint8)
    given = raw.view(dtype)[..., 0]
    for kind in others:
        cast = node("BitCast", ["x"], "y", to=code_of(kind))
        proto = make_model([cast], {"x": ["n", 3]}, ["y"], None, 26, {"x": source, "y": kind})
        model = model_of(proto)
        for rows in (6, 4, 0):
            want = np.ascontiguousarray(given[:rows]).view(kind)
            if kind == "bool":
                want = want.view(np.uint8) != 0
            got = model(given[:rows])
            assert isinstance(got, np.ndarray)
            assert got.dtype == np.dtype(kind)
            np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


def test_bits_of_another_number() -> None:
    cast = node("BitCast", ["x"], "y", to=code_of("int8"))
    proto = make_model([cast], {"x": ["n"]}, ["y"], None, 26, {"x": "int4", "y": "int8"})
    with pytest.raises(ModelError, match="int4 has 4 bits, int8 8"):
        model_of(proto)(np.zeros(3, "int4"))


def test_cast_like_reads_the_type_alone() -> None:
    """The second source has another shape, and what is converted may be sizes."""
    nodes = [
        node("Shape", ["x"], "sizes"),
        node("CastLike", ["sizes", "like"], "wide"),
        node("CastLike", ["wide", "index"], "back"),
        node("Reshape", ["y", "back"], "z"),
        node("CastLike", ["x", "like"], "w"),
    ]
    inputs = {"x": ["n", "m"], "y": ["k"], "like": ["l"], "index": ["i"]}
    kinds = {"x": np.int32, "like": np.float64, "index": np.int64, "w": np.float64}
    model = model_of(make_model(nodes, inputs, ["z", "w"], None, 19, kinds))
    for n, m, count in ((2, 3, 4), (5, 2, 7), (3, 7, 0), (0, 4, 1)):
        x = np.arange(n * m, dtype=np.int32).reshape(n, m)
        y = np.arange(n * m, dtype=np.float32)
        feeds: dict[str, Array] = {
            "x": x,
            "y": y,
            "like": np.zeros(count),
            "index": np.zeros(1, np.int64),
        }
        got = model(feeds)
        assert isinstance(got, dict)
        np.testing.assert_array_equal(got["z"], y.reshape(n, m))
        same(got["w"], x.astype(np.float64))
