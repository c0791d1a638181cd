"""The convolution layers of ResNet-50 with bias and relu, as a part of the multiply-add peak."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import dnnl
from bench import products
from bench.agreement import check
from bench.context import SEED, Context, threads_text
from bench.descriptor import ConvolutionCase, read
from bench.operation import Values, enter
from bench.ours import OURS, OurOperation
from bench.peers import ONEDNN, PYTORCH
from bench.report import Column, Report, Row, Table
from dnnl import Arg
from dnnl.tools.bench.machine import PEAK, peak
from dnnl.tools.bench.measure import Contender, Effort, Measurement, measure

CASES = Path(__file__).parent / "cases" / "resnet_50"
BATCH = 1

COLUMNS = (
    Column("layer", "layer"),
    Column("count", "n", "d"),
    Column("sizes", "ic x ih -> oc x oh"),
    Column("kernel", "kernel"),
    *products.COLUMNS,
)
NOTE = (
    f"{products.NOTE} Products with padding are not counted. n: how often the network has the "
    "layer, which weights the last line."
)


def run(context: Context, report: Report) -> None:
    """A table for each thread count."""
    cases = read(CASES, BATCH)
    effort = context.effort(rounds=7, turn=0.02)
    for num_threads in context.each_thread_count():
        ceiling = peak(context.engine, num_threads)
        rows, results = [], []
        for case in cases:
            row, result = _measured(context, case, num_threads, ceiling, effort)
            rows.append(row)
            results.append((case, result))
        rows.append(_total(results))
        title = f"ResNet-50 convolutions, f32, batch {BATCH}, {threads_text(num_threads)}"
        parts = [(_short(case), result.relative(OURS, PEAK)) for case, result in results]
        name = f"each ResNet-50 convolution, {threads_text(num_threads)}"
        report.add(Table(title, NOTE, COLUMNS, rows), [products.target(name, parts)])


def _measured(
    context: Context, case: ConvolutionCase, num_threads: int, ceiling: Contender, effort: Effort
) -> tuple[Row, Measurement]:
    """The row of a layer, once its result has been compared with the peers'."""
    tensors = _tensors(case)
    desc, attr = _described(case)
    operation = OurOperation(desc, context.engine, num_threads, attr)
    ours, dst = enter(OURS, operation, tensors, case.flops)
    contenders = [ours, ceiling]
    row: dict[str, str | float | None] = {"impl": operation.impl_info}
    peers = context.peers
    if peers.onednn is not None:
        peer = peers.onednn.operation(desc, attr)
        theirs, expected = enter(ONEDNN, peer, tensors, case.flops)
        check(case.name, dst, expected, ONEDNN)
        contenders.append(theirs)
        row["peer_impl"] = peer.impl_info
    if peers.pytorch is not None:
        call = peers.pytorch.convolution(case, *tensors.values())
        check(case.name, dst, call().numpy(), PYTORCH)
        contenders.append(Contender(PYTORCH, call, case.flops))
    result = measure(contenders, effort)
    h, w = case.height, case.width
    row |= {
        "layer": _short(case),
        "count": case.count,
        "sizes": f"{case.src_channels} x {h.src} -> {case.dst_channels} x {h.dst}",
        "kernel": f"{h.kernel}x{w.kernel}" + (f" / {h.stride}" if h.stride > 1 else ""),
        **products.cells(result),
    }
    return row, result


def _short(case: ConvolutionCase) -> str:
    return case.name.removeprefix("resnet_50:")


def _tensors(case: ConvolutionCase) -> dict[Arg, Values]:
    """Source, weights and bias."""
    rng = np.random.default_rng(SEED)
    dims = {
        Arg.SRC: case.src_dims,
        Arg.WEIGHTS: case.weights_dims,
        Arg.BIAS: (case.dst_channels,),
    }
    return {argument: rng.standard_normal(sizes, np.float32) for argument, sizes in dims.items()}


def _described(case: ConvolutionCase) -> tuple[dnnl.ConvolutionDesc, dnnl.PrimitiveAttr]:
    """With bias and relu, in layouts of the library's own choice."""
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
    return desc, attr


def _total(results: list[tuple[ConvolutionCase, Measurement]]) -> Row:
    """All layers as often as the network has them."""

    def seconds(name: str) -> float:
        return sum(case.count * result.median(name) for case, result in results)

    flops = sum(case.count * case.flops for case, _ in results)
    at_peak = sum(case.count * case.flops / result.rate(PEAK) for case, result in results)
    names = products.peer_names(results[0][1])
    return {
        "layer": "all",
        "count": sum(case.count for case, _ in results),
        "us": seconds(OURS) * 1e6,
        "gflops": flops / seconds(OURS) / 1e9,
        "peak": at_peak / seconds(OURS),
        **{name: seconds(name) / seconds(OURS) for name in names},
    }
