"""The page of a run: every case, plots where something was measured, nothing from elsewhere."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dnnl.tools import plots
from dnnl.tools.bench import page as pages
from dnnl.tools.bench.command import run
from dnnl.tools.plots import Point, Roof, inline, limits_plot, ratio_plot
from dnnl.tools.roofs import Roofs
from tests.device import FAR

pytest.importorskip("matplotlib", reason="needs dnnl[report]")
pytest.importorskip("jinja2", reason="needs dnnl[report]")

ROOFS = Roofs(peaks={"f32": 100e9}, memory=20e9, cache=90e9)


class Reader(HTMLParser):
    """Collects the cells of the table's body by row, and everything that a page could load."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.loaded: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = ("src", "href", "xlink:href", "data")
        self.loaded += [f"{tag} {v}" for n, v in attrs if n in names and not str(v).startswith("#")]
        self.loaded += [tag] * (tag in ("script", "link", "iframe", "img"))
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")
        self._inside = tag != "table" and (self._inside or tag == "td")

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._inside = False
            self.rows[-1][-1] = " ".join(self.rows[-1][-1].split())

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += data


def read(path: Path) -> tuple[str, Reader]:
    text, reader = path.read_text(encoding="utf-8"), Reader()
    reader.feed(text)
    reader.rows = [row for row in reader.rows if row]
    return text, reader


def titles(text: str) -> list[str]:
    found = re.findall(r"<title>(.*?)</title>", text, re.DOTALL)
    return [html.unescape(title) for title in found]


def test_a_measured_run_through_the_command(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    path = tmp_path / "page.html"
    line = (
        f"bench --mode=P --fix-times-per-prb=2 --peer=torch --report={path} "
        "--matmul --wtag=ab 20x30:30x40 2x3:3x4_n<b>&name 0x3:3x4"
    )
    done = subprocess.run(
        [sys.executable, "-m", "dnnl", *line.split()], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text, reader = read(path)
    assert reader.loaded == []
    assert "@import" not in text
    assert set(re.findall(r"https?://[^\s\"'<]*", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    cases = ["--matmul --wtag=ab 20x30:30x40", "--matmul --wtag=ab 2x3:3x4_n<b>&name"]
    assert [row[2] for row in reader.rows[:2]] == cases
    printed = re.findall(r"perf,cpu,(\S+?),.*?%?\n(?:peer,torch.*?ratio:(\S+)\n)", done.stdout)
    for row, (impl, ratio) in zip(reader.rows[:2], printed, strict=True):
        assert row[1] == "EXECUTED"
        assert row[3] == impl
        assert float(row[-1]) == pytest.approx(float(ratio), rel=0.01, abs=0.006)
        ms, bandwidth, gflops = map(float, row[4:7])
        assert 0 < ms < 1e3
        assert bandwidth > 0
        assert gflops > 0
    assert "Roofline" in text
    assert "Beside the peers" in text
    assert sum(cases[1] in title for title in titles(text)) == 2
    assert "cases that torch" in text


def test_without_measurements_there_is_a_table_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.html"
    line = "--ip --dir=FWD_D,BWD_DW --stag=ab,ba mb3ic4oc5 mb5ic6oc7"
    assert run(line.split(), page=path) == 1
    printed = re.findall(r"[0-9]+:([A-Z_]+) .*__REPRO: (.*)", capsys.readouterr().out)
    text, reader = read(path)
    assert [row[1] for row in reader.rows] == [state for state, _ in printed[:8]]
    told = zip(reader.rows, printed[:8], strict=True)
    assert all(row[2].startswith(repro) for row, (_, repro) in told)
    assert next(row[4] for row in reader.rows if row[1] == "PASSED") == "0"
    assert all(float(row[4]) < 1e-5 for row in reader.rows if row[1] == "PASSED")
    assert "brgemm: unsupported propagation kind: backward" in text
    assert "<svg" not in text
    assert "GB/s" not in text


def test_operations_that_only_move_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "measure_roofs", lambda _: ROOFS)
    path = tmp_path / "page.html"
    line = "--mode=P --fix-times-per-prb=1 --reorder --dtag=abx,axb 8x16x20"
    assert run(line.split(), page=path) == 0
    text, reader = read(path)
    assert "Bandwidth" in text
    assert "Roofline" not in text
    assert "GFLOP/s</th>" not in text
    assert "copy in memory, 20 GB/s" in text
    for row in reader.rows:
        ms, bandwidth = float(row[4]), float(row[5])
        assert bandwidth == pytest.approx(2 * 4 * 8 * 16 * 20 / ms / 1e6, rel=0.01)


@pytest.mark.parametrize("place", [0.01, 10.0, 400.0])
def test_the_slope_of_a_roof_is_in_the_picture(place: float) -> None:
    """Whichever side of its end the points are on."""
    drawn = limits_plot([Point(place, 20.0, "a", "x")], [Roof("r", 50.0, 5.0, "--")], "x", "y")
    width, height = map(float, re.findall(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', drawn)[0])
    paths = re.findall(r'<path d="([^"]*)"[^>]*stroke-dasharray', drawn)
    line = max(paths, key=len)
    places = [tuple(map(float, pair)) for pair in re.findall(r"[ML] ([0-9.]+) ([0-9.-]+)", line)]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert 0 < x0 < x1 < x2 < width
    assert 0 < y1 == y2 < y0 < height


def test_points_keep_their_titles_and_the_page_its_colours() -> None:
    points = [Point(4.0, 8.0, "b", "first"), Point(1.0, 2.0, "a", "<third>")]
    points.insert(1, Point(2.0, 40.0, "b", "second"))
    drawn = limits_plot(points, [Roof("roof", 50.0, 10.0)], "x", "y")
    text = inline(drawn, points)
    assert titles(text) == ["first", "second", "<third>"]
    places = re.findall(r'<use [^>]*x="([0-9.]+)" y="([0-9.]+)"[^>]*>\s*<title>(\w+)', text)
    x, y = ({title: float(place[i]) for *place, title in places} for i in (0, 1))
    assert x["first"] > x["second"]
    assert y["first"] > y["second"]
    assert "var(--series0)" in text
    assert "var(--series1)" in text
    assert not re.search("#0[0-9a-f]{5}", text)
    assert ">roof<" in text


def test_ratios_are_drawn_beside_a_line_at_one() -> None:
    points = [Point(1, 0.5, "peer", "slow"), Point(2, 2.0, "peer", "fast")]
    text = inline(ratio_plot(points), points)
    assert titles(text) == ["slow", "fast"]
    places = [float(y) for y in re.findall(r'<use [^>]*y="([0-9.]+)"[^>]*>\s*<title>', text)]
    level = re.compile(r'd="M [0-9.]+ ([0-9.]+)  L [0-9.]+ \1  "[^>]*stroke: var\(--ink\)')
    line = level.search(text)
    assert line
    assert places[1] < float(line[1]) < places[0]
    assert places[0] - float(line[1]) == pytest.approx(float(line[1]) - places[1], rel=1e-3)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.8, 1.25, [0.8, 0.9, 1.0, 1.1, 1.2]),
        (2.1, 4.9, [2.5, 3.0, 3.5, 4.0, 4.5]),
        (1.01e9, 1.02e9, [1.01e9, 1.012e9, 1.014e9, 1.016e9, 1.018e9, 1.02e9]),
        (0.07, 20, [0.1, 0.2, 0.5, 1, 2, 5, 10, 20]),
        (1, 1e6, [1, 10, 100, 1e3, 1e4, 1e5, 1e6]),
    ],
)
def test_ticks_are_round_and_several(low: float, high: float, ticks: list[float]) -> None:
    found = plots._ticks(low, high)
    assert [tick for tick in found if low <= tick <= high] == pytest.approx(ticks)


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_missing_package_is_named_before_anything_runs(
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert run(["--softmax", "3x4"], page=tmp_path / "page.html") == 1
    captured = capsys.readouterr()
    assert captured.err == (
        f"dnnl bench: error: --report needs {package}: pip install 'dnnl[report]'\n"
    )
    assert not captured.out


def test_a_missing_folder_is_named_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "no" / "file"
    for json, page in ((None, missing), (missing, None)):
        assert run(["--softmax", "3x4"], json, page) == 1
        captured = capsys.readouterr()
        assert f"there is no folder {missing.parent}" in captured.err
        assert not captured.out


def test_cases_on_a_device_have_no_roofs_of_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(num_threads: int) -> Roofs:
        raise AssertionError("the processor's limits are none of a device")

    monkeypatch.setattr(pages, "measure_roofs", never)
    path = tmp_path / "page.html"
    line = f"--engine={FAR.kind} --mode=P --fix-times-per-prb=2 --softmax 3x40"
    assert run(line.split(), None, path) == 0
    text, reader = read(path)
    assert "Roofline" not in text
    assert "Bandwidth" not in text
    assert any("3x40" in cell for row in reader.rows for cell in row)
