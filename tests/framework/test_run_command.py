"""``dnnl run``: files in and out, exit statuses, one line for each failure."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from dnnl import __version__
from dnnl.runtime import storage
from dnnl.runtime.threads import available_cpus
from dnnl.tools import run_report
from dnnl.tools.cli import main
from tests.device import FAR, backend_of
from tests.framework.models import LIGHT, Array, make_model, node, run_peer

FULL = Path("/dev/full")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small network: two convolutions, a residual, a pooling."""
    rng = np.random.default_rng(0)
    nodes = [
        node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], "r"),
        node("Conv", ["r", "v"], "b"),
        node("Add", ["b", "r"], "c"),
        node("GlobalAveragePool", ["c"], "y"),
    ]
    weights = {"w": rng.standard_normal((8, 3, 3, 3)), "v": rng.standard_normal((8, 8, 1, 1))}
    path = tmp_path / "model.onnx"
    onnx.save(make_model(nodes, {"x": ["n", 3, 9, 9]}, ["y"], weights), path)
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An input file."""
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(1).standard_normal((2, 3, 9, 9)).astype(np.float32))
    return path


def expected(model: Path, image: Path) -> Array:
    return run_peer(model.read_bytes(), {"x": np.load(image)})["y"]


def test_everything_at_once(
    model: Path, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, trace, figures = tmp_path / "out.npz", tmp_path / "trace.json", tmp_path / "run.json"
    arguments = ["run", str(model), "--input", f"x={image}", "--output", str(output)]
    arguments += ["--profile", str(trace), "--json", str(figures), "--repeat", "3"]
    assert main([*arguments, "--threads", "1", "--compare", "onnxruntime"]) == 0
    text = capsys.readouterr().out
    for part in ("node_a +1", "convolution", "brgemm", "GFLOP/s", "preparation", "onnxruntime"):
        assert part in text
    assert "largest relative error" in text
    np.testing.assert_allclose(np.load(output)["y"], expected(model, image), rtol=1e-4)
    report = json.loads(figures.read_text())
    assert report["threads"] == 1
    assert report["batch"] == 2
    assert len(report["times_ms"]) == 3
    assert report["comparison"]["equal"]
    assert report["inference_ms"] > 0
    assert all(layer["ms"] >= 0 for layer in report["layers"])
    convolutions = [layer for layer in report["layers"] if layer["primitive"] == "convolution"]
    assert convolutions[0]["gflop"] == pytest.approx(2 * 2 * 8 * 81 * 27 / 1e9)
    events = json.loads(trace.read_text())["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X" and event["tid"] == 0]
    assert names == [layer["name"] for layer in report["layers"]] * 3
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")


def test_on_a_device(
    model: Path, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, writes = tmp_path / "run.json", backend_of(FAR).writes
    arguments = ["run", str(model), "--input", f"x={image}", "--repeat", "2", "--engine", "far"]
    assert main([*arguments, "--compare", "onnxruntime", "--json", str(figures)]) == 0
    assert "engine far" in capsys.readouterr().out
    assert backend_of(FAR).writes > writes
    report = json.loads(figures.read_text())
    assert report["engine"] == "far"
    assert report["comparison"]["equal"]
    assert main(["run", str(model), "--batch", "1", "--engine", "nowhere"]) == 2
    assert "--engine = 'nowhere': expected cpu, " in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".pb"])
def test_expected_output(
    model: Path, image: Path, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"expected{suffix}"
    arguments = ["run", str(model), "--input", f"x={image}", "--repeat", "1", "--expect", str(path)]

    def save(array: Array) -> None:
        if suffix == ".npz":
            np.savez(path, y=array)
        elif suffix == ".npy":
            np.save(path, array)
        else:
            path.write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())

    wanted = expected(model, image)
    save(wanted)
    assert main(arguments) == 0
    wanted[1, 5] += 10.0
    save(wanted)
    assert main(arguments) == 1
    text = capsys.readouterr().out
    assert "differs from what is expected: 'y' at [1, 5, 0, 0]" in text
    assert "1 of 16 elements" in text
    save(wanted[:1])
    assert main(arguments) == 1


@pytest.mark.parametrize(("above", "status"), [(50.0, 0), (1e30, 1)])
def test_constant_outputs_prove_nothing(
    above: float, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Relu(x - above) is zero for small inputs, or for all that are tried."""
    nodes = [node("Sub", ["x", "c"], "d"), node("Relu", ["d"], "y")]
    path, figures = tmp_path / "constant.onnx", tmp_path / "run.json"
    onnx.save(make_model(nodes, {"x": [3, 40]}, ["y"], {"c": np.full(1, above)}), path)
    arguments = ["run", str(path), "--repeat", "1", "--json", str(figures)]
    assert main([*arguments, "--compare", "onnxruntime"]) == status
    said = "the comparison proves nothing: y has one value everywhere on both sides"
    assert (said in capsys.readouterr().out) == bool(status)
    assert json.loads(figures.read_text())["comparison"]["constant"] == ["y"] * status


def test_more_threads_than_cpus_are_said_and_not_taken(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DNNL_OVERSUBSCRIBE", raising=False)
    assert main(["run", str(model), "--batch", "1", "--repeat", "1", "--threads", "999"]) == 0
    text = capsys.readouterr().out
    assert f"--threads 999: executions have {available_cpus()}, as this process may use" in text
    assert f"threads {available_cpus()}" in text


def test_batch_and_random_weights(model: Path) -> None:
    arguments = ["run", str(model), "--batch", "3", "--random-weights", "7", "--repeat", "1"]
    assert main([*arguments, "--compare", "onnxruntime"]) == 0
    assert main([*arguments, "--compare", "onnxruntime", "--layout", "plain"]) == 0


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e5m2", "int4", "uint2", "int16", "bool"])
def test_inputs_of_every_type(kind: str, tmp_path: Path) -> None:
    old = tuple(map(int, onnx.__version__.split(".")[:2])) < (1, 19)
    if old and kind not in ("int16", "bool"):
        pytest.skip(f"onnx {onnx.__version__} has no types of ml_dtypes")
    cast = node("Cast", ["x"], "y", to=onnx.TensorProto.FLOAT)
    path, opset = tmp_path / "model.onnx", 25 if kind == "uint2" else 21
    onnx.save(make_model([cast], {"x": [4, 5]}, ["y"], None, opset, {"x": kind}), path)
    assert main(["run", str(path), "--repeat", "1", "--output", str(tmp_path / "y.npz")]) == 0
    y = np.load(tmp_path / "y.npz")["y"]
    assert y.shape == (4, 5)
    assert y.any()


def test_indices_choose_from_all_rows(tmp_path: Path) -> None:
    """An input that is nothing but indices; a mask and what is computed with stay 0 and 1."""
    nodes = [
        node("Cast", ["ids"], "wide", to=onnx.TensorProto.INT64),
        node("Unsqueeze", ["wide", "front"], "u"),
        node("Gather", ["table", "u"], "y"),
        node("Gather", ["short", "u"], "z"),
        node("Equal", ["ids", "pad"], "p"),
        node("Identity", ["mask"], "m"),
        node("Add", ["at", "at"], "twice"),
        node("Gather", ["table", "twice"], "t"),
    ]
    constants: dict[str, Array] = {
        "table": np.arange(60.0),
        "short": np.arange(50.0),
        "front": np.array([0]),
        "pad": np.array(3, np.int32),
    }
    kinds = {"ids": np.int32, "mask": np.int64, "at": np.int64, "p": np.bool_, "m": np.int64}
    inputs = {"ids": [400], "mask": [400], "at": [400]}
    outputs = ["y", "z", "p", "m", "t"]
    path = tmp_path / "model.onnx"
    onnx.save(make_model(nodes, inputs, outputs, constants, kinds=kinds), path)
    found = []
    for run in range(2):
        output = tmp_path / f"{run}.npz"
        assert main(["run", str(path), "--repeat", "1", "--output", str(output)]) == 0
        found.append(dict(np.load(output)))
    assert set(found[0]["y"].ravel()) == set(range(50))
    assert set(found[0]["m"]) == {0, 1}
    assert set(found[0]["t"]) == {0, 2}
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.onnx"], "none.onnx: no such file"),
        (["{image}"], "not an ONNX model"),
        (["{model}", "--threads", "0"], "--threads = 0: must be at least 1"),
        (["{model}", "--batch", "0"], "--batch = 0: must be at least 1"),
        (["{model}", "--repeat", "0"], "--repeat = 0"),
        (["{model}", "--input", "x"], "must be NAME=FILE"),
        (["{model}", "--input", "z={image}"], "--input = 'z': no such input; there are x"),
        (["{model}", "--input", "x=none.npy"], "none.npy: no such file"),
        (["{model}", "--input", "x={model}"], "not a serialized ONNX tensor"),
        (
            ["{model}", "--input", "x={short}"],
            "wrong shape: the model expects float32 [n, 3",
        ),
        (["{model}", "--input", "x={double}"], "wrong data type: the model expects float32"),
        (["{model}", "--expect", "none.npz"], "none.npz: no such file"),
        (["{model}", "--expect", "{other}"], "holds no output of the model, which has y"),
        (["{model}", "--input", "x={image}", "--input", "x={image}"], "x is given twice"),
        *(
            (["{model}", option, "no/such/folder/file"], f"{option} = 'no/such/folder/file': there")
            for option in ("--output", "--profile", "--json", "--html")
        ),
        (["{model}", "--json", "/"], "--json = '/': is a folder"),
        (["none.onnx", "--output", "no/folder/out.npz"], "--output = 'no/folder/out.npz'"),
        pytest.param(
            ["{model}", "--json", str(FULL)],
            f"--json = '{FULL}': cannot be written",
            marks=pytest.mark.skipif(not FULL.exists(), reason="this system has no full device"),
        ),
        (["{model}", "--layout", "odd"], "'odd' is not one of 'propagate', 'plain'"),
        (["{model}", "--frob"], "No such option"),
        ([], "Missing argument 'MODEL'"),
    ],
)
def test_bad_input_is_one_line(
    model: Path,
    image: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    array = np.load(image)
    files = {"model": model, "image": image}
    for name, content in (("short", array[:, :2]), ("double", array.astype(np.float64))):
        files[name] = tmp_path / f"{name}.npy"
        np.save(files[name], content)
    files["other"] = tmp_path / "other.npz"
    np.savez(files["other"], z=array)
    filled = [argument.format_map(files) for argument in arguments]
    assert main(["run", *filled, *(["--repeat", "1"] if "--repeat" not in filled else [])]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("dnnl: error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_unknown_operator_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    proto = make_model([node("Frobnicate", ["x"], "y")], {"x": [1]}, ["y"])
    path.write_bytes(proto.SerializeToString())
    assert main(["run", str(path)]) == 2
    error = capsys.readouterr().err
    assert "operator Frobnicate of node 'node_y'" in error
    assert error.count("\n") == 1


def test_open_sizes_are_told(
    model: Path, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(model), "--repeat", "1", "--json", str(tmp_path / "run.json")]) == 0
    note = (
        "input 'x': 1 is taken for n of float32 [n, 3, 9, 9]; --shape n=N or --input x=FILE gives"
    )
    assert note in capsys.readouterr().out
    assert json.loads((tmp_path / "run.json").read_text())["notes"]
    for known in (["--batch", "2"], ["--input", f"x={image}"]):
        assert main(["run", str(model), "--repeat", "1", *known]) == 0
        assert "is taken" not in capsys.readouterr().out


def test_a_named_size_is_that_of_the_given_arrays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, given = tmp_path / "model.onnx", tmp_path / "a.npy"
    inputs: dict[str, list[int | str]] = {"a": ["n", "m"], "b": ["n", 1], "c": [1, "m"]}
    onnx.save(make_model([node("Sum", ["a", "b", "c"], "y")], inputs, ["y"]), path)
    np.save(given, np.ones((3, 5), np.float32))
    assert main(["run", str(path), "--repeat", "1", "--input", f"a={given}"]) == 0
    assert main(["run", str(path), "--repeat", "1", "--batch", "2"]) == 2
    error = capsys.readouterr().err
    assert "the model leaves m of float32 [2, m] open; --shape m=N gives them" in error


def test_sizes_by_name_hold_in_all_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, report = tmp_path / "model.onnx", tmp_path / "run.json"
    inputs: dict[str, list[int | str]] = {"a": ["n", "m"], "b": ["n", 1], "c": [1, "m"]}
    onnx.save(make_model([node("Sum", ["a", "b", "c"], "y")], inputs, ["y"]), path)
    output = tmp_path / "y.npz"
    sizes = ["--shape", "m=5", "--shape", "n=7"]
    command = ["run", str(path), "--repeat", "1", "--json", str(report)]
    assert main([*command, *sizes, "--output", str(output)]) == 0
    assert np.load(output)["y"].shape == (7, 5)
    capsys.readouterr()
    for wrong in ("m", "m=", "=5", "m=-1", "k=3"):
        assert main([*command, "--shape", wrong]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "--shape" in line


def test_times_are_readable_on_sixty_columns(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_report, "PIPE_WIDTH", 60)
    assert main(["run", str(model), "--repeat", "1"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["layer", "primitive", "ms", "GFLOP/s"]
    place = head.index(" ms") + 3
    assert all(re.search(r"\d\.\d{3}$", row[:place]) for row in rows[:1])


@pytest.mark.parametrize(
    ("dims", "reason"),
    [
        ([2**20, 2**20], "cannot allocate"),
        ([2**40, 2**40], "the number of elements must fit 64 bits"),
        ([2**17, 1], "cannot allocate"),  # the model fits, with its inputs it does not
    ],
)
def test_sizes_beyond_the_machine(
    dims: list[int],
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage, "physical_memory", lambda: float(2**20))
    path = tmp_path / "model.onnx"
    onnx.save(make_model([node("Relu", ["x"], "y")], {"x": dims}, ["y"]), path)
    assert main(["run", str(path), "--repeat", "1"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dnnl: error: ")
    assert error.count("\n") == 1
    assert reason in error


def test_truncated_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes((LIGHT / "light_resnet50.onnx").read_bytes()[:1000])
    assert main(["run", str(path)]) == 2
    assert "truncated or damaged" in capsys.readouterr().err


def test_json_has_no_infinity(
    model: Path, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, figures = tmp_path / "wanted.npy", tmp_path / "run.json"
    np.save(wanted, np.full((2, 8, 1, 1), np.nan, np.float32))
    arguments = ["run", str(model), "--input", f"x={image}", "--repeat", "1"]
    assert main([*arguments, "--expect", str(wanted), "--json", str(figures)]) == 1
    assert "differs" in capsys.readouterr().out

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    report = json.loads(figures.read_text(), parse_constant=refuse)
    assert report["expected"] == {"relative_error": None, "equal": False}


@pytest.mark.parametrize("name", ["file", "allow_pickle", "a/b"])
def test_output_of_any_name(name: str, tmp_path: Path) -> None:
    model, output = tmp_path / "model.onnx", tmp_path / "out.npz"
    onnx.save(make_model([node("Neg", ["x"], name)], {"x": [1, 2]}, [name]), model)
    assert main(["run", str(model), "--repeat", "1", "--output", str(output)]) == 0
    with np.load(output) as archive:
        assert archive.files == [name]
        assert archive[name].shape == (1, 2)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dnnl {__version__}\n"


@pytest.mark.parametrize(
    "start",
    [["-m", "dnnl"], ["-c", "import sys; from dnnl.__main__ import main; sys.exit(main())"]],
)
def test_interrupted_while_it_starts(start: list[str], tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2] / "src")])
    done = subprocess.run(
        [sys.executable, *start],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("name", ["[/x]", "[red]a[/b]", "a[0]"])
def test_brackets_in_names(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{name.replace('/', '')}.onnx"
    relu = onnx.helper.make_node("Relu", ["x"], ["y"], name=name)
    onnx.save(make_model([relu], {"x": [1, 2]}, ["y"]), path)
    assert main(["run", str(path), "--repeat", "1"]) == 0
    text = capsys.readouterr().out
    assert name in text
    assert path.name in text


def test_thread_count_of_the_environment(model: Path) -> None:
    environment = {**os.environ, "DNNL_NUM_THREADS": "0"}
    command = [sys.executable, "-m", "dnnl", "run", str(model)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("dnnl: error: DNNL_NUM_THREADS = '0'")
    assert done.stderr.count("\n") == 1


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "run" in text
    assert "info" in text
    assert main(["frob"]) == 2


def test_the_library_alone_imports_none_of_this() -> None:
    script = "import sys, dnnl; print([n for n in ('onnx', 'click', 'rich') if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
