"""The report of a run as one page that opens offline: summary, plots, a table of all cases."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from dnnl import __version__
from dnnl.runtime.engine import first_cpu
from dnnl.runtime.threads import get_num_threads
from dnnl.tools.bench.report import Record, Report
from dnnl.tools.bench.result import State
from dnnl.tools.bench.settings import PEERS
from dnnl.tools.engines import named
from dnnl.tools.limits_plots import Plot, bandwidth, limits_text, roofline
from dnnl.tools.page import machine, rendered
from dnnl.tools.plots import Point, inline, ratio_plot
from dnnl.tools.roofs import Roofs, measure_roofs

_BAD = ("FAILED", "UNTESTED_FAILED", "UNIMPLEMENTED", "INVALID_ARGUMENTS")
_EVEN = 0.05
"""Ratios that are as near to 1 as this are shown as neither better nor worse."""


def write_page(path: Path, report: Report, tokens: Sequence[str], seconds: float) -> None:
    """Write the page; where something was measured, measure the machine's limits as well."""
    measured = [record for record in report.records if record.get("min_ms")]
    limited = [record for record in measured if named(record["engine"]) == first_cpu()]
    roofs = measure_roofs(get_num_threads()) if limited else None
    page = rendered(
        "bench/page.html.jinja",
        command=shlex.join(["dnnl", "bench", *tokens]),
        version=__version__,
        machine=_machine(report.records),
        seconds=seconds,
        tests=report.tests,
        counts=report.counts,
        peers=[peer for peer in report.peers if peer.cases or peer.alone or peer.differing],
        limits=limits_text(roofs) if roofs else "",
        plots=_plots(limited, roofs) + _beside_the_peers(measured),
        rows=[_row(record) for record in report.records],
        timed=bool(measured),
        counted=any(record["ops"] for record in measured),
        checked=any("worst_error" in record for record in report.records),
        names=_peer_names(report.records),
        bad=_BAD,
    )
    path.write_text(page, encoding="utf-8")


def _machine(records: Sequence[Record]) -> str:
    """The engines of the cases, and the threads of the processor."""
    names = dict.fromkeys(r["engine"] for r in records if r["state"] != State.LISTED.name)
    return machine([named(name) for name in names] or [first_cpu()], get_num_threads())


def _peer_names(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(p["name"] for record in records for p in record.get("peers", ())))


def _row(record: Record) -> dict[str, object]:
    """What the table shows of a case."""
    ms = record.get("min_ms", 0.0)
    return {
        **record,
        "bandwidth": record["bytes"] / ms / 1e6 if ms else None,
        "gflops": record["ops"] / ms / 1e6 if ms and record["ops"] else None,
        "theirs": {peer["name"]: _side(peer) for peer in record.get("peers", ())},
    }


def _side(peer: Record) -> dict[str, object]:
    """A peer's cells: its time and the ratio, how it is coloured, and why there is none."""
    ratio = peer.get("ratio")
    colour = ""
    if ratio is not None and abs(ratio - 1) > _EVEN:
        colour = "better" if ratio > 1 else "worse"
    title = peer.get("refusal") or "; ".join(filter(None, (peer["impl"], peer.get("differs"))))
    return {"ms": peer.get("min_ms"), "ratio": ratio, "colour": colour, "title": title}


def _plots(records: Sequence[Record], roofs: Roofs | None) -> list[Plot]:
    """The plots for which there are cases."""
    if roofs is None:
        return []
    plots = []
    rated = [record for record in records if record["ops"]]
    moving = [record for record in records if not record["ops"] and record["bytes"]]
    if rated:
        plots.append(roofline([_rated(record) for record in rated], roofs, "case"))
    if moving:
        plots.append(bandwidth([_moving(record) for record in moving], roofs))
    return plots


def _beside_the_peers(records: Sequence[Record]) -> list[Plot]:
    ratios = [
        (peer["ratio"], record, peer)
        for record in records
        for peer in record.get("peers", ())
        if "ratio" in peer
    ]
    if not ratios:
        return []
    return [_ratios(sorted(ratios, key=lambda item: float(item[0])))]


def _rated(record: Record) -> Point:
    """The place of a case below the roofline."""
    rate = record["ops"] / record["min_ms"] / 1e6
    return Point(
        record["ops"] / record["bytes"], rate, record["impl"], _title(record, rate, "FLOP")
    )


def _moving(record: Record) -> Point:
    """The place of a case below the limits of memory."""
    rate = record["bytes"] / record["min_ms"] / 1e6
    return Point(record["bytes"], rate, record["impl"], _title(record, rate, "B"))


def _title(record: Record, rate: float, what: str) -> str:
    return f"{record['case']}\n{record['impl']}: {record['min_ms']:.4g} ms, {rate:.4g} G{what}/s"


def _ratios(items: Sequence[tuple[float, Record, Record]]) -> Plot:
    points = []
    for name in PEERS:
        own = [item for item in items if item[2]["name"].partition(" ")[0] == name]
        points += [
            Point(
                place,
                ratio,
                peer["name"],
                f"{record['case']}\n{ratio:.3g} times as fast as {peer['name']} ({peer['impl']})",
            )
            for place, (ratio, record, peer) in enumerate(own, 1)
        ]
    note = "The peer's least time by ours, one point for each case. Above the line ours is faster."
    return Plot("Beside the peers", inline(ratio_plot(points), points), note)
