"""The page of ``dnnl run --html``: every step with its facts, and nothing from elsewhere."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from dnnl.framework.plan import Layer
from dnnl.tools import run_page
from dnnl.tools.cli import main
from dnnl.tools.roofs import Roofs
from dnnl.tools.run_graph import INPUT, STEP, RunGraph, Tensor, Vertex
from dnnl.tools.run_report import Report
from tests.device import FAR
from tests.framework.models import make_model, model_of, node

pytest.importorskip("matplotlib", reason="needs dnnl[report]")
pytest.importorskip("jinja2", reason="needs dnnl[report]")

ROOFS = Roofs(peaks={"f32": 100e9, "bf16": 4000e9}, memory=20e9, cache=90e9)
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ODD = '</script><b>"{{ x }}'
RNG = np.random.default_rng(3)


class Reader(HTMLParser):
    """What a page shows: rows of the table of steps, vertices, edges, plots; and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, list[str]] = {}
        self.nodes: dict[int, dict[str, str | None]] = {}
        self.edges: list[tuple[int, int]] = []
        self.points: list[int] = []
        self.segments: list[int] = []
        self.loaded: list[str] = []
        self.data: Any = None
        self._tags: list[str] = []
        self._key = -1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        names = ("src", "href", "xlink:href", "data", "action")
        self.loaded += [f"{tag} {v}" for n, v in attrs if n in names and not str(v).startswith("#")]
        self.loaded += [tag] * (tag in ("link", "iframe", "img", "base", "object"))
        key = int(given.get("data-key") or -1)
        if tag == "tr":
            self._key = key
            self.rows.setdefault(key, [])
        elif tag in ("td", "th") and self._key >= 0:
            self.rows[self._key].append("")
        elif tag == "g" and key >= 0:
            self.nodes[key] = given
        elif tag == "use" and key >= 0:
            self.points.append(key)
        elif tag == "span" and key >= 0:
            self.segments.append(key)
        elif tag == "path" and "data-from" in given:
            self.edges.append((int(given["data-from"] or -1), int(given["data-to"] or -1)))
        self._tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "tr":
            self._key = -1

    def handle_data(self, data: str) -> None:
        if self._tags[-1:] == ["script"] and self.data is None:
            self.data = json.loads(data)
        elif self._key >= 0 and self.rows[self._key]:
            self.rows[self._key][-1] += data


def read(path: Path) -> tuple[str, Reader]:
    text, reader = path.read_text(encoding="utf-8"), Reader()
    reader.feed(text)
    return text, reader


@pytest.fixture(autouse=True)
def roofs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_page, "measure_roofs", lambda _: ROOFS)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Convolutions, a residual, a reorder, a product; names that are markup."""
    nodes = [
        node("Conv", ["<i>x", "w"], "a", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], "r"),
        node("Conv", ["r", "v"], "b"),
        node("Add", ["b", "r"], "c"),
        node("MaxPool", ["c"], "p", kernel_shape=[2, 2]),
        node("Reshape", ["p", "shape"], "f"),
        node("MatMul", ["f", "u"], "<b>&y"),
    ]
    nodes[0].name = ODD
    nodes[1].name = "<b>relu"
    constants = {
        "w": RNG.standard_normal((20, 3, 3, 3)),
        "v": RNG.standard_normal((20, 20, 1, 1)),
        "u": RNG.standard_normal((20 * 64, 5)),
        "shape": np.array([0, -1], np.int64),
    }
    path = tmp_path / "<b>model.onnx"
    onnx.save(make_model(nodes, {"<i>x": ["n", 3, 9, 9]}, ["<b>&y"], constants), path)
    return path


def page_of(model: Path, *options: str) -> Path:
    page = model.with_name("page.html")
    assert main(["run", str(model), "--repeat", "2", "--html", str(page), *options]) == 0
    return page


def test_every_step_is_there_with_its_facts(model: Path, tmp_path: Path) -> None:
    figures = tmp_path / "run.json"
    text, reader = read(page_of(model, "--json", str(figures)))
    report = json.loads(figures.read_text())
    steps = [own for own in reader.data if own["kind"] == "step"]
    assert [own["name"] for own in steps] == [layer["name"] for layer in report["layers"]]
    assert [own["number"] for own in steps] == list(range(1, len(steps) + 1))
    keys = [key for key, own in enumerate(reader.data) if own["kind"] == "step"]
    assert [key for key in reader.rows if key >= 0] == keys
    assert reader.segments == keys
    assert sorted(reader.nodes) == list(range(len(reader.data)))
    total = sum(layer["ms"] for layer in report["layers"])
    for key, own, layer in zip(keys, steps, report["layers"], strict=True):
        for name in ("primitive", "implementation", "fused", "ms", "gflop"):
            assert own[name] == layer[name]
        assert own["share"] == pytest.approx(layer["ms"] / total)
        assert own["gflops"] == pytest.approx(layer["gflop_per_s"])
        assert own["gbytes"] == pytest.approx(own["nbytes"] / layer["ms"] / 1e6)
        assert own["intensity"] == pytest.approx(1e9 * own["gflop"] / own["nbytes"])
        layouts = {tensor["role"]: tensor["layout"] for tensor in own["tensors"]}
        assert layouts.items() >= layer["layouts"].items()
        number, name, kind, ms, share, *_ = (" ".join(cell.split()) for cell in reader.rows[key])
        assert number == str(own["number"])
        assert name.startswith(own["name"])
        assert all(fused in name for fused in own["fused"])
        assert kind == f"{own['primitive']}{own['implementation']}"
        assert float(ms) == pytest.approx(own["ms"], abs=6e-4)
        assert share == f"{100 * own['share']:.1f} %"
        assert own["name"] in str(reader.nodes[key]["aria-label"])
    rated = {key for key, own in zip(keys, steps, strict=True) if own["gflop"]}
    assert set(reader.points) == set(keys)  # below the roofline or the bandwidth
    assert len(rated) == 3
    assert "Roofline" in text
    assert "Bandwidth" in text
    assert "f32 products, 100 GFLOP/s" in text
    sources = {(t["source"], key) for key, own in enumerate(reader.data) for t in own["tensors"]}
    assert set(reader.edges) == {(a, b) for a, b in sources if a >= 0}
    reorder = next(key for key, own in enumerate(reader.data) if own.get("primitive") == "reorder")
    marked = [key for key, own in reader.nodes.items() if "reorder" in str(own["class"]).split()]
    assert marked == [reorder]


def test_the_totals_are_those_of_the_terminal(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, _ = read(page_of(model, "--compare", "onnxruntime"))
    printed = capsys.readouterr().out
    for name in ("settings", "load", "preparation", "memory", "tolerance", "inference"):
        (line,) = re.findall(rf"^{name} +(.*?) *$", printed, re.MULTILINE)
        assert f"<dt>{name}</dt><dd>{line}</dd>" in text
    assert re.search(r"onnxruntime .*times our time; largest relative error", text)
    assert "1 is taken for n" in text


def test_nothing_is_loaded_and_names_are_text(model: Path) -> None:
    text, reader = read(page_of(model))
    assert reader.loaded == []
    assert "@import" not in text
    assert "url(http" not in text
    assert set(re.findall(r"https?://[^\s\"'<]*", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    for tag in ("<b>relu", "<b>&y", "<i>x", "<b>model", "</script><b>"):
        assert tag not in text
    assert len(re.findall("</script>", text)) == len(re.findall("<script", text)) == 2
    names = {own["name"] for own in reader.data}
    assert {ODD, "<i>x", "<b>&y"} <= names
    assert reader.data[1]["fused"] == ["<b>relu"]
    assert [own["tensors"][0]["sizes"] for own in reader.data if own["kind"] == "input"] == [
        ["n=1", "3", "9", "9"]
    ]


def test_a_device_has_no_roofs_of_the_processor(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(num_threads: int) -> Roofs:
        raise AssertionError("the processor's limits are none of a device")

    monkeypatch.setattr(run_page, "measure_roofs", never)
    text, reader = read(page_of(model, "--engine", FAR.kind))
    assert "Measured in this run" not in text
    assert reader.points


def test_a_model_in_parts(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], "r"), node("NonZero", ["r"], "z"), node("Exp", ["r"], "y")]
    path = tmp_path / "parts.onnx"
    onnx.save(make_model(nodes, {"x": [4, 6]}, ["y", "z"], kinds={"z": np.int64}), path)
    _, reader = read(page_of(path))
    numpy = [own for own in reader.data if own.get("implementation") == "numpy"]
    assert [own["name"] for own in numpy] == ["node_z"]
    assert [key for key in reader.rows if key >= 0] == [
        key for key, own in enumerate(reader.data) if own["kind"] == "step"
    ]


@pytest.mark.parametrize("op", ["Shape", "Identity"])
def test_a_model_without_steps(op: str, tmp_path: Path) -> None:
    path, kinds = tmp_path / "none.onnx", {"y": np.int64 if op == "Shape" else np.float32}
    onnx.save(make_model([node(op, ["x"], "y")], {"x": [2, 3]}, ["y"], kinds=kinds), path)
    text, reader = read(page_of(path))
    assert [own["kind"] for own in reader.data] == ["input", "output"]
    assert reader.edges == [(0, 1)] * (op == "Identity")
    assert "Roofline" not in text


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_missing_package_is_named_before_anything_runs(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["run", "none.onnx", "--html", str(tmp_path / "page.html")]) == 2
    error = capsys.readouterr().err
    assert error == f"dnnl: error: --html needs {package}: pip install 'dnnl[report]'\n"


@pytest.fixture
def browser() -> Iterator[Any]:
    """Opens a page, in a browser that may load nothing else."""
    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("needs one of " + ", ".join(BROWSERS))
    with api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


def opened(browser: Any, path: Path, **options: Any) -> Any:
    """The page without errors, having asked for nothing but itself."""
    page = browser.new_page(viewport={"width": 1400, "height": 900}, **options)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.on("request", lambda request: errors.append(request.url))
    page.goto(path.as_uri())
    assert errors == [path.as_uri()]
    return page


def chosen(page: Any) -> set[str]:
    """The names of the chosen vertex, row, segment and point: one, if they agree."""
    keys = page.locator(".chosen").evaluate_all("all => all.map(own => own.dataset.key)")
    assert len(keys) >= 3
    return set(keys)


def test_a_node_a_row_and_a_point_are_chosen_together(model: Path, browser: Any) -> None:
    path = page_of(model)
    _, reader = read(path)
    page = opened(browser, path)
    slowest = max(
        (key for key, own in enumerate(reader.data) if own["kind"] == "step"),
        key=lambda key: reader.data[key]["ms"],
    )
    assert chosen(page) == {str(slowest)}
    first, last = (key for key, own in enumerate(reader.data) if own.get("number") in (1, 4))
    page.click(f"#graph .node[data-key='{first}']")
    assert chosen(page) == {str(first)}
    assert page.text_content("#details-title") == f"1 {ODD}"
    details = page.text_content("#details")
    assert "<b>relu" in details
    assert page.locator("#details b").count() == 0
    assert page.locator("circle.ring").count() == 1
    page.click(f"#steps tr[data-key='{last}']")
    assert chosen(page) == {str(last)}
    page.locator(f"use[data-key='{first}']").dispatch_event("click")
    assert chosen(page) == {str(first)}
    page.hover("h1")
    page.hover(f"#steps tr[data-key='{last}']")
    hovered = page.locator(".hover").evaluate_all("all => all.map(own => own.dataset.key)")
    assert set(hovered) == {str(last)}
    assert page.text_content("#details-title").startswith("4 ")
    page.hover("h1")
    assert page.text_content("#details-title") == f"1 {ODD}"


def test_keys_search_and_order(model: Path, browser: Any) -> None:
    path = page_of(model)
    _, reader = read(path)
    page = opened(browser, path)
    page.focus("#graph .node.chosen")
    page.keyboard.press("Home")
    assert page.text_content("#details-title") == "input <i>x"
    page.keyboard.press("ArrowDown")
    assert chosen(page) == {"1"}
    assert page.evaluate("document.activeElement.dataset.key") == "1"
    page.keyboard.press("End")
    assert page.text_content("#details-title") == "output <b>&y"
    page.fill("#search", "MATMUL")
    assert page.text_content("#found") == f"1 of {len(reader.data)}"
    assert page.locator("#steps tbody tr:visible").count() == 1
    assert page.locator("#graph .node:not(.other)").count() == 1
    page.keyboard.press("Enter")
    (product,) = (key for key, own in enumerate(reader.data) if own.get("primitive") == "matmul")
    assert chosen(page) == {str(product)}
    page.fill("#search", "")
    rows = page.locator("#steps tbody tr")
    for column, falls in (("ms", True), ("ms", False), ("#", False), ("GFLOP/s", True)):
        page.click(f"#steps thead button:text-is('{column}')")
        keys = rows.evaluate_all("all => all.map(own => Number(own.dataset.key))")
        fact = {"ms": "ms", "#": "number", "GFLOP/s": "gflops"}[column]
        values = [reader.data[key][fact] for key in keys]
        assert values == sorted(values, reverse=falls)
        assert page.get_attribute("#steps th[aria-sort]", "aria-sort").startswith(
            "desc" if falls else "asc"
        )


def test_zoom_and_dark(model: Path, browser: Any) -> None:
    path = page_of(model)
    light, dark = (opened(browser, path, color_scheme=scheme) for scheme in ("light", "dark"))
    colours = [page.evaluate("getComputedStyle(document.body).color") for page in (light, dark)]
    assert colours[0] != colours[1]
    width = "Number(document.getElementById('graph').getAttribute('width'))"
    before = light.evaluate(width)
    light.click("#larger")
    light.click("#larger")
    larger = light.evaluate(width)
    assert larger == pytest.approx(before * 1.25**2)
    light.evaluate("canvas.scrollTop = 0")
    box, before = light.locator("#canvas").bounding_box(), chosen(light)
    x = box["x"] + box["width"] / 2
    light.mouse.move(x, box["y"] + 300)
    light.mouse.down()
    light.mouse.move(x, box["y"] + 200, steps=4)
    light.mouse.up()
    assert light.evaluate("canvas.scrollTop") == 100
    assert chosen(light) == before
    light.keyboard.down("Control")
    light.mouse.wheel(0, 200)
    light.keyboard.up("Control")
    light.wait_for_function(f"{width} < {larger}")
    light.click("#fit")
    assert light.evaluate(width) <= light.evaluate("canvas.clientWidth") + 1


def test_a_thousand_steps_stay_usable(tmp_path: Path, browser: Any) -> None:
    """Each with a residual; the longest of all waits is below what one notices."""
    layer = Layer("step", "convolution", "brgemm:isa", {"src": "abcd", "dst": "abcd"}, 1e6, ("r",))
    graph = RunGraph()
    graph.add(Vertex(INPUT, "x", (Tensor("input", "float32", ("1",), "", 4),)))
    for number in range(1, 1001):
        sources = (number - 1, max(0, number - 4))
        tensors = tuple(
            Tensor("src", "f32", ("8", "16", "9", "9"), "abcd", 41472, source=source)
            for source in sources
        )
        graph.add(Vertex(STEP, f"step{number}", tensors, replace(layer, name=f"s{number}"), 99999))
    times = [0.01 * (1 + number % 7) for number in range(1000)]
    layers = [vertex.layer for vertex in graph.vertices if vertex.layer]
    report = Report("deep.onnx", {}, layers, times, 1.0, 1.0, [40.0])
    session = model_of(make_model([node("Relu", ["x"], "y")], {"x": [3]}, ["y"])).compile()
    path = tmp_path / "deep.html"
    run_page.write_page(path, report, session, graph)
    assert path.stat().st_size < 5e6
    page = opened(browser, path)
    assert page.locator("#graph .node").count() == 1001
    waits = page.evaluate(
        """() => {
          const timed = (act) => {
            const start = performance.now();
            act();
            document.body.offsetHeight;
            return performance.now() - start;
          };
          return [
            timed(() => choose(500, "")), timed(() => zoom(0.5)),
            timed(() => { search.value = "7"; search.dispatchEvent(new Event("input")); }),
            timed(() => heads[3].querySelector("button").click()), timed(() => choose(900, "")),
          ];
        }"""
    )
    assert max(waits) < 500
    assert chosen(page) == {"900"}
    node_top, box = (
        page.locator(where).bounding_box() for where in ("#graph .node.chosen", "#canvas")
    )
    assert box["y"] <= node_top["y"] <= box["y"] + box["height"]
