"""The gradient of local response normalization."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.ir.vector import multiply_add
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.types import WIDE_FLOATS, core_of, refuse_types
from dnnl.kernels.windows.lrn import Statement, Window, lines, powers
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class LrnBackwardConf:
    """diff_src = diff_dst * w^-beta - 2 alpha beta / n * src * sum of diff_dst * workspace.

    The workspace is src * w^(-beta - 1). The sum goes over the results whose windows contain the
    element. Windows are symmetric, so these are the results in its own window.
    """

    statement: Statement
    src: MemoryDesc
    diff_dst: MemoryDesc
    workspace: MemoryDesc
    diff_src: MemoryDesc


def configure(
    statement: Statement,
    src: MemoryDesc,
    diff_dst: MemoryDesc,
    workspace: MemoryDesc,
    diff_src: MemoryDesc,
) -> LrnBackwardConf | Refusal:
    """Accept any layouts of floats."""
    refusal = refuse_types(src, diff_dst, diff_src, allowed=WIDE_FLOATS)
    return refusal or LrnBackwardConf(statement, src, diff_dst, workspace, diff_src)


def build(conf: LrnBackwardConf, isa: Isa) -> Kernel:
    """One nest that reduces the windows."""
    arguments, statement = Arguments(), conf.statement
    window = Window(statement, conf.src.dims)

    src = window.middle(arguments.slot(Arg.SRC), conf.src)
    diff_dst = window.middle(arguments.slot(Arg.DIFF_DST), conf.diff_dst)
    diff_src = window.middle(arguments.slot(Arg.DIFF_SRC), conf.diff_src)
    sources = window.around(arguments.slot(Arg.SRC), conf.src)
    gradients = window.around(arguments.slot(Arg.DIFF_DST), conf.diff_dst)
    workspaces = window.around(arguments.slot(Arg.WORKSPACE), conf.workspace)

    def body(point: Point) -> None:
        b = point.e.b
        squares, total = window.sums(point, (sources, sources), (gradients, workspaces))
        power, _ = powers(point.e, window.base(point, squares), statement)
        share = b.fmul(b.fmul(point.load(src), window.slope(point)), total)
        direct = point.load(diff_dst)
        point.store(diff_src, multiply_add(point.e, direct, power, b.fneg(share)))

    module = Module("lrn_backward", isa)
    entry = symbol("lrn_backward", [conf.src, conf.diff_dst, conf.diff_src], isa)
    inputs = (src, diff_dst, *sources, *gradients, *workspaces)
    nest = Nest(
        window.axes,
        window.taps,
        inputs,
        (diff_src,),
        body,
        registers=lines(isa, conf.diff_src),
        core=core_of(conf.src, conf.diff_dst, conf.diff_src),
    )
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)
