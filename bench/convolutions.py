"""The convolution layers of ResNet-50 with bias and relu, as a part of the multiply-add peak."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import dnnl
from bench.agreement import check
from bench.alternate import Contender, Effort, Measurement, measure
from bench.context import SEED, Context, threads_text
from bench.descriptor import ConvolutionCase, read
from bench.machine import PEAK, peak_contender
from bench.ours import OURS, Operation
from bench.peers import ONEDNN, PYTORCH, Peers
from bench.peers import onednn_library as c
from bench.report import Column, Report, Row, Table, Target
from dnnl import Arg

CASES = Path(__file__).parent / "cases" / "resnet_50"
BATCH = 1
LIMIT = 0.85

COLUMNS = (
    Column("layer", "layer"),
    Column("count", "n", "d"),
    Column("sizes", "ic x ih -> oc x oh"),
    Column("kernel", "kernel"),
    Column("us", "us", ".0f"),
    Column("gflops", "GFLOP/s", ".1f"),
    Column("best", "best", ".1f"),
    Column("peak", "of peak", ".0%"),
    Column(ONEDNN, f"/ {ONEDNN}", ".2f"),
    Column(PYTORCH, f"/ {PYTORCH}", ".2f"),
    Column("impl", "implementation"),
    Column("peer_impl", ONEDNN),
)
NOTE = (
    "Rates at the median time, products with padding not counted; best is the fastest sample. of "
    "peak: of a multiply-add loop on registers, run in turns with the layer. / peer: our rate in "
    "units of the peer's. n: how often the network has the layer, which weights the last line."
)


def run(context: Context, report: Report) -> None:
    """A table for each thread count."""
    cases = read(CASES, BATCH)
    effort = context.effort(rounds=7, turn=0.02)
    for num_threads in context.each_thread_count():
        peak = peak_contender(context.engine, num_threads)
        rows, results = [], []
        for case in cases:
            layer = _Layer(case, context.engine, num_threads)
            row, result = layer.measured(context.peers, peak, effort)
            rows.append(row)
            results.append((case, result))
        rows.append(_total(results))
        title = f"ResNet-50 convolutions, f32, batch {BATCH}, {threads_text(num_threads)}"
        report.add(Table(title, NOTE, COLUMNS, rows), [_target(rows[:-1], num_threads)])


class _Layer:
    """Our primitive for a case, and its tensors."""

    def __init__(self, case: ConvolutionCase, engine: dnnl.Engine, num_threads: int) -> None:
        self.case = case
        rng = np.random.default_rng(SEED)
        self.src = _normal(rng, case.src_dims)
        self.weights = _normal(rng, case.weights_dims)
        self.bias = _normal(rng, (case.dst_channels,))
        desc = dnnl.ConvolutionDesc.forward(
            "forward_inference",
            "convolution_direct",
            dnnl.MemoryDesc(case.src_dims, "f32", "any"),
            dnnl.MemoryDesc(case.weights_dims, "f32", "any"),
            dnnl.MemoryDesc(case.dst_dims, "f32", "any"),
            case.strides,
            case.padding_l,
            case.padding_r,
            case.dilations,
            dnnl.MemoryDesc((case.dst_channels,), "f32"),
        )
        attr = dnnl.PrimitiveAttr()
        attr.post_ops.append_eltwise("eltwise_relu")
        self.operation = Operation(desc, engine, num_threads, attr)
        self.operation.load(Arg.SRC, self.src)
        self.operation.load(Arg.WEIGHTS, self.weights)
        self.operation.load(Arg.BIAS, self.bias)

    def measured(self, peers: Peers, peak: Contender, effort: Effort) -> tuple[Row, Measurement]:
        """The row of this layer, once its result has been compared with the peers'."""
        case, ours = self.case, self.operation.bind()
        ours()
        dst = self.operation.read(Arg.DST)
        contenders = [Contender(OURS, ours, case.flops), peak]
        peer_impl = None
        if peers.onednn is not None:
            peer = peers.onednn.convolution(case)
            peer.load(c.ARG_SRC, self.src)
            peer.load(c.ARG_WEIGHTS, self.weights)
            peer.load(c.ARG_BIAS, self.bias)
            theirs = peer.bind()
            theirs()
            check(case.name, dst, peer.read(c.ARG_DST), ONEDNN)
            contenders.append(Contender(ONEDNN, theirs, case.flops))
            peer_impl = peer.impl_info
        if peers.pytorch is not None:
            call = peers.pytorch.convolution(case, self.src, self.weights, self.bias)
            check(case.name, dst, call().numpy(), PYTORCH)
            contenders.append(Contender(PYTORCH, call, case.flops))
        result = measure(contenders, effort)
        h, w = case.height, case.width
        row = {
            "layer": case.name.removeprefix("resnet_50:"),
            "count": case.count,
            "sizes": f"{case.src_channels} x {h.src} -> {case.dst_channels} x {h.dst}",
            "kernel": f"{h.kernel}x{w.kernel}" + (f" / {h.stride}" if h.stride > 1 else ""),
            "us": result.median(OURS) * 1e6,
            "gflops": result.rate(OURS) / 1e9,
            "best": result.best_rate(OURS) / 1e9,
            "peak": result.relative(OURS, PEAK),
            "impl": self.operation.pd.impl_info,
            "peer_impl": peer_impl,
            **{name: result.relative(OURS, name) for name in peer_names(result)},
        }
        return row, result


def peer_names(result: Measurement) -> list[str]:
    """The peers among the contenders of a measurement."""
    return [name for name in (ONEDNN, PYTORCH) if name in result.samples]


def _normal(rng: np.random.Generator, dims: tuple[int, ...]) -> NDArray[np.float32]:
    return rng.standard_normal(dims, np.float32)


def _total(results: list[tuple[ConvolutionCase, Measurement]]) -> Row:
    """All layers as often as the network has them."""

    def seconds(name: str) -> float:
        return sum(case.count * result.median(name) for case, result in results)

    flops = sum(case.count * case.flops for case, _ in results)
    at_peak = sum(case.count * case.flops / result.rate(PEAK) for case, result in results)
    return {
        "layer": "all",
        "count": sum(case.count for case, _ in results),
        "us": seconds(OURS) * 1e6,
        "gflops": flops / seconds(OURS) / 1e9,
        "peak": at_peak / seconds(OURS),
        **{name: seconds(name) / seconds(OURS) for name in peer_names(results[0][1])},
    }


def _target(rows: list[Row], num_threads: int) -> Target:
    name = f"each ResNet-50 convolution, {threads_text(num_threads)}: part of the peak"
    return peak_target(name, [(str(row["layer"]), row["peak"]) for row in rows])


def peak_target(name: str, parts: list[tuple[str, object]]) -> Target:
    """The target for the slowest of several; the detail says how many reach it."""
    values = {what: part for what, part in parts if isinstance(part, float)}
    lowest = min(values, key=values.__getitem__)
    reached = sum(value >= LIMIT for value in values.values())
    detail = f"{reached} of {len(values)} reach it; lowest: {lowest}"
    return Target(name, values[lowest], LIMIT, detail=detail)
