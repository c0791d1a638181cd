"""The doctor on cases of the bench, and the command."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import numpy_helper

from dnnl import (
    Arg,
    ConvolutionDesc,
    Engine,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Stream,
    Unimplemented,
)
from dnnl.errors import Error
from dnnl.graph.graph import ModelError
from dnnl.tools import cli
from dnnl.tools.quantcheck import check_case, quantcheck
from dnnl.tools.quantcheck.layer import LayerReport
from tests.tools.quantcheck.patients import float_model, inputs, quantized, scaled

MATMUL = "--matmul --dt=u8:s8:u8 --attr-scales=src:common:1+wei:per_oc:f32+dst:common:1 16x64:64x24"
Arrays = dict[str, np.ndarray[Any, Any]]


def tensors(src: tuple[int, ...], weights: tuple[int, ...]) -> Arrays:
    rng = np.random.default_rng(4)
    made = {"src": np.abs(rng.standard_normal(src)), "weights": rng.standard_normal(weights)}
    return {name: array.astype(np.float32) for name, array in made.items()}


def matmul() -> Arrays:
    arrays = tensors((16, 64), (64, 24))
    dst = np.maximum(arrays["src"] @ arrays["weights"], 0)
    return arrays | {
        "src_scale": arrays["src"].max() / 255,
        "weights_scale": np.abs(arrays["weights"]).max(axis=0) / 127,
        "dst_scale": np.float64(dst.max() / 255),
    }


def only(line: str, arrays: Arrays) -> LayerReport:
    (layer,) = check_case(line, arrays).layers
    return layer


def test_a_healthy_product() -> None:
    line = MATMUL.replace("16x64", "--attr-post-ops=relu 16x64")
    report = check_case(line, matmul())
    assert report.is_healthy
    (layer,) = report.layers
    assert layer.own.snr > 40
    assert [tensor.role for tensor in layer.tensors] == ["src", "weights", "dst"]
    assert all(tensor.saturated == 0 for tensor in layer.tensors)
    assert layer.sums is not None
    assert layer.sums.terms == 64


@pytest.mark.parametrize("role", ["src", "weights", "dst"])
@pytest.mark.parametrize("factor", [1 / 20, 20.0])
def test_the_bad_scale_is_the_one_that_is_named(role: str, factor: float) -> None:
    line = MATMUL.replace("16x64", "--attr-post-ops=relu 16x64")
    arrays = matmul()
    arrays[f"{role}_scale"] = arrays[f"{role}_scale"] * factor
    layer = only(line, arrays)
    (tensor,) = layer.changes
    assert tensor.role == role
    good = matmul()[f"{role}_scale"]
    np.testing.assert_allclose(tensor.best.scale.reshape(-1), np.ravel(good), rtol=0.4)
    mend = arrays | {f"{role}_scale": tensor.best.scale}
    assert check_case(line, mend).is_healthy
    assert only(line, mend).own.relative < layer.own.relative / 5


def test_the_error_is_that_of_our_own_kernel() -> None:
    """What the doctor predicts in float64 is what the primitive computes in integers."""
    arrays = tensors((2, 8, 6, 6), (12, 8, 3, 3))
    arrays |= {
        "src_scale": np.array(0.02),
        "weights_scale": np.array(0.03),
        "dst_scale": np.array(0.2),
    }
    scales = "src:common:1+wei:common:1+dst:common:1"
    line = f"--conv --dt=u8:s8:s8 --attr-scales={scales} mb2ic8ih6oc12oh6kh3ph1"
    layer = only(line, arrays)
    engine, attr = Engine("cpu"), PrimitiveAttr()
    for argument in (Arg.SRC, Arg.WEIGHTS, Arg.DST):
        attr.set_scales(argument)
    src, weights, dst = (
        MemoryDesc(dims, kind, "abcd")
        for dims, kind in (((2, 8, 6, 6), "u8"), ((12, 8, 3, 3), "s8"), ((2, 12, 6, 6), "s8"))
    )
    desc = ConvolutionDesc.forward(
        "forward_inference", "convolution_direct", src, weights, dst, (1, 1), (1, 1)
    )
    stored = {
        Arg.SRC: np.clip(np.rint(arrays["src"] / 0.02), 0, 255).astype(np.uint8),
        Arg.WEIGHTS: np.clip(np.rint(arrays["weights"] / 0.03), -128, 127).astype(np.int8),
        Arg.DST: np.zeros((2, 12, 6, 6), np.int8),
    }
    memories: dict[Arg | int, Memory] = {}
    memories |= {arg: Memory.from_numpy(array, "abcd", engine) for arg, array in stored.items()}
    for arg, scale in ((Arg.SRC, 0.02), (Arg.WEIGHTS, 0.03), (Arg.DST, 0.2)):
        memories[Arg.SCALES | arg] = Memory.from_numpy(np.array([scale], np.float32), None, engine)
    Primitive(PrimitiveDesc(desc, engine, attr)).execute(Stream(engine), memories)
    got = memories[Arg.DST].numpy() * 0.2
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(arrays["src"].astype(float), ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3)
    )
    meant = np.einsum("nchwyx,ocyx->nohw", windows, arrays["weights"].astype(float))
    assert layer.own.relative == pytest.approx(
        np.linalg.norm(got - meant) / np.linalg.norm(meant), rel=1e-3
    )


@pytest.mark.parametrize(
    ("line", "src", "weights"),
    [
        ("--conv --dt=u8:s8:f32 g2mb2ic8ih6oc12oh6kh3ph1", (2, 8, 6, 6), (2, 6, 4, 3, 3)),
        ("--conv --dt=s8:s8:f32 mb1ic4iw9oc6ow4kw3sw2pw0", (1, 4, 9), (6, 4, 3)),
        ("--deconv --dt=u8:s8:f32 mb2ic4ih5oc6oh11kh3sh2", (2, 4, 5, 5), (6, 4, 3, 3)),
        ("--ip --dt=u8:s8:f32 mb3ic5ih2oc7", (3, 5, 2, 2), (7, 5, 2, 2)),
        ("--matmul --dt=s8:s8:f32 2x3x8:1x8x5", (2, 3, 8), (1, 8, 5)),
        ("--matmul --dt=u8:s8:f32 --bia-dt=f32 3x8:8x5", (3, 8), (8, 5)),
    ],
)
def test_every_product(line: str, src: tuple[int, ...], weights: tuple[int, ...]) -> None:
    arrays = tensors(src, weights) | {"src_scale": np.array(0.03), "weights_scale": np.array(0.03)}
    if "bia" in line:
        arrays["bias"] = np.ones((1, 5), np.float32)
    layer = only(line, arrays)
    assert layer.sums is not None
    assert layer.own.snr > 30
    assert layer.sums.pair_largest > 0
    assert layer.sums.largest <= layer.sums.bound


def test_a_verbose_line_is_a_case_too() -> None:
    line = (
        "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core_vnni,undef,"
        "src:u8::blocked:ab::f0 wei:s8::blocked:ab::f0 dst:f32::blocked:ab::f0,,,16x64:64x24,0.1"
    )
    arrays = {name: matmul()[name] for name in ("src", "weights", "src_scale")}
    assert only(line, arrays | {"weights_scale": np.array(0.03)}).own.snr > 30


def test_pairs_overflow_where_both_are_large() -> None:
    arrays = {"src": np.full((4, 8), 255.0), "weights": np.full((8, 4), 127.0)}
    layer = only("--matmul --dt=u8:s8:s32 4x8:8x4", arrays)
    assert layer.own.relative == 0
    assert layer.sums is not None
    assert (layer.sums.pair_overflow, layer.sums.pair_largest) == (1.0, 2 * 255 * 127)


@pytest.mark.parametrize(
    ("line", "change", "rule"),
    [
        (MATMUL, {"wieghts": np.zeros(3)}, "no such tensor.*did you mean 'weights'"),
        (MATMUL, {"src": None}, "must have src of shape \\(16, 64\\)"),
        (MATMUL, {"src": np.zeros((16, 65))}, "expected the shape \\(16, 64\\)"),
        (MATMUL, {"src": np.full((16, 64), "a")}, "array of numbers"),
        (MATMUL, {"src": np.full((16, 64), np.nan)}, "finite"),
        (MATMUL, {"weights_scale": np.ones(23)}, "weights_scale.*expected the shape \\(24,\\)"),
        (MATMUL, {"src_scale": np.array(-1.0)}, "a scale is above 0"),
        ("--matmul --dt=u8:s8:f32 16x64:64x24", {}, "weights_scale.*one value"),
        ("--matmul 16x64:64x24", {}, "expected integers, as in --dt=u8:s8:f32"),
        ("--matmul --dt=u8:s8:f32,s32 16x64:64x24", {}, "expected one case, not 2"),
        ("--softmax 16x64", {}, "no product"),
        (MATMUL.replace("16x64", "--attr-post-ops=add:f32 16x64"), {}, "post-op binary"),
        ("onednn_verbose,v1,info,oneDNN v3.12.0", {}, "no operation"),
    ],
)
def test_wrong_cases(line: str, change: dict[str, Any], rule: str) -> None:
    arrays = {name: array for name, array in (matmul() | change).items() if array is not None}
    with pytest.raises((InvalidArguments, Unimplemented), match=rule):
        check_case(line, arrays)


def checked(*words: str) -> tuple[int, str]:
    done: Result = CliRunner().invoke(quantcheck, words, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return int(done.return_value), done.output


def test_the_command_on_a_case(tmp_path: Path) -> None:
    file, document = tmp_path / "tensors.npz", tmp_path / "report.json"
    arrays = matmul()
    arrays["src_scale"] = arrays["src_scale"] * 20
    np.savez(file, allow_pickle=False, **arrays)
    status, text = checked(*MATMUL.split(), "--data", str(file), "--json", str(document))
    assert status == 1
    assert "the scale of src 'src_scale' is 2" in text
    assert re.search(r"layer +operator +src saturated", text)
    told = json.loads(document.read_text(encoding="utf-8"))
    assert told["healthy"] is False
    (layer,) = told["layers"]
    assert {tensor["role"] for tensor in layer["tensors"]} == {"src", "weights", "dst"}
    assert layer["tensors"][0]["advised"].keys() == {"max-abs", "percentile", "least squares"}


def test_the_command_on_a_model(tmp_path: Path) -> None:
    data, made = tmp_path / "x.npy", tmp_path / "better.onnx"
    np.save(data, inputs()["x"])
    bad = scaled(quantized(tmp_path, "QDQ"), "a3_scale", 30.0)
    onnx.save(bad, str(tmp_path / "bad.onnx"))
    exact = str(tmp_path / "float.onnx")
    status, text = checked(
        str(tmp_path / "bad.onnx"), "--data", str(data), "--float", exact, "--mend", str(made)
    )
    assert status == 1
    assert "'a3_scale' is 30 times too large" in text
    status, text = checked(str(made), "--data", str(data), "--float", exact)
    assert (status, "no scale should change" in text) == (0, True)
    held = {
        each.name: numpy_helper.to_array(each) for each in onnx.load(str(made)).graph.initializer
    }
    assert held["a3_scale"].dtype == np.float32
    assert len(float_model().graph.initializer) == 8


@pytest.mark.parametrize(
    ("words", "error", "rule"),
    [
        (("none.onnx",), ModelError, "none.onnx: no such file"),
        ((*MATMUL.split(), "--float", "x.onnx"), Exception, "--float belongs to a model"),
        ((*MATMUL.split(), "--json", "no/where.json"), InvalidArguments, "no folder"),
        (("nonsense",), Error, "nonsense"),
    ],
)
def test_wrong_commands(
    tmp_path: Path, words: tuple[str, ...], error: type[Exception], rule: str
) -> None:
    file = tmp_path / "tensors.npz"
    np.savez(file, allow_pickle=False, **matmul())
    with pytest.raises(error, match=rule):
        checked(*words, "--data", str(file))


@pytest.mark.parametrize(("name", "rule"), [("none.npz", "no such file"), ("bad.npz", "archive")])
def test_files_that_cannot_be_read(tmp_path: Path, name: str, rule: str) -> None:
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=rule):
        checked(*MATMUL.split(), "--data", str(tmp_path / name))


def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "x.npy"
    np.save(data, inputs()["x"])
    quantized(tmp_path, "QDQ")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert cli.main(["quantcheck", str(tmp_path / "QDQ.onnx"), "--data", str(data)]) == 2
    assert "pip install 'dnnl[compare]'" in capsys.readouterr().err
