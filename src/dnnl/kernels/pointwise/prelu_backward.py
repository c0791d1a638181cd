"""Gradients of a prelu: of src, and of its weights, which sum over the elements that share a
weight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, letters
from dnnl.codegen.nest.fold_loop import added
from dnnl.codegen.nest.folds import Fold, Reduction, emit_fold, exact_partials_desc
from dnnl.codegen.nest.point import Point
from dnnl.kernels.pointwise.prelu import where_positive
from dnnl.kernels.shared.copies import emit_copy
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import TYPES, computed_in, core_of, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

_NONE = MemoryDesc.zero()
_CACHED = 1024


@dataclass(frozen=True)
class PreluBackwardConf:
    """diff_src = diff_dst where src > 0, else diff_dst * weights; diff_weights is the sum of src *
    diff_dst over the elements of a weight that are not positive.

    ``partial`` sums are in the ``scratchpad``, which is in bytes. So are the ``totals``, if
    diff_weights has padding along a dimension that is summed over.
    """

    src: MemoryDesc
    weights: MemoryDesc
    diff_dst: MemoryDesc
    diff_src: MemoryDesc
    diff_weights: MemoryDesc
    partial: MemoryDesc = _NONE
    totals: MemoryDesc = _NONE
    scratchpad: int = 0

    @property
    def tensors(self) -> tuple[MemoryDesc, ...]:
        """All tensors."""
        return self.src, self.weights, self.diff_dst, self.diff_src, self.diff_weights

    @property
    def shared(self) -> tuple[bool, ...]:
        """The dimensions along which elements share a weight."""
        pairs = zip(self.src.dims, self.weights.dims, strict=True)
        return tuple(extent != own for extent, own in pairs)


def configure(
    src: MemoryDesc,
    weights: MemoryDesc,
    diff_dst: MemoryDesc,
    diff_src: MemoryDesc,
    diff_weights: MemoryDesc,
    isa: Isa,
) -> PreluBackwardConf | Refusal:
    """Accept any layouts of supported types."""
    conf = PreluBackwardConf(src, weights, diff_dst, diff_src, diff_weights)
    return refuse_types(*conf.tensors, allowed=TYPES) or _with_scratchpad(conf, isa)


@lru_cache(_CACHED)
def _with_scratchpad(conf: PreluBackwardConf, isa: Isa) -> PreluBackwardConf:
    """The configuration with its parts of the scratchpad."""
    scratchpad = Scratchpad()
    padded = zip(conf.shared, conf.diff_weights.padded_dims, strict=True)
    if any(shared and extent > 1 for shared, extent in padded):
        totals = MemoryDesc(conf.weights.dims, computed_in(*conf.tensors))
        conf = replace(conf, totals=scratchpad.take(totals)[1])
    wanted = exact_partials_desc(isa, _fold(conf, Arguments()))
    if not wanted.has_zero_dim:
        conf = replace(conf, partial=scratchpad.take(wanted)[1])
    return replace(conf, scratchpad=scratchpad.size)


def build(conf: PreluBackwardConf, isa: Isa) -> Kernel:
    """One reduction over the elements that share a weight, which also computes diff_src."""
    module, arguments = Module("prelu_backward", isa), Arguments()
    entry = symbol("prelu_backward", [conf.src, conf.diff_src, conf.diff_weights], isa)
    fold = _fold(conf, arguments)
    slot = arguments.slot(Arg.SCRATCHPAD) if conf.scratchpad else -1
    phases = emit_fold(module, entry, fold, (slot, conf.partial))
    if not conf.totals.is_zero:
        entry = symbol("prelu_padding", [conf.diff_weights], isa)
        ends = (Arg.SCRATCHPAD, conf.totals), (Arg.DIFF_WEIGHTS, conf.diff_weights)
        core = core_of(*conf.tensors)
        phases += (emit_copy(module, entry, *ends, arguments, core=core),)
    return Kernel(module, phases, arguments.ids)


def _fold(conf: PreluBackwardConf, arguments: Arguments) -> Fold:
    """The sums of diff_weights. diff_src is stored with each term of a sum; if it has padding,
    behind each part of the sums, while that is in a cache."""
    axes = letters(conf.src.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    own = tuple(ZERO if shared else i for shared, i in zip(conf.shared, index, strict=True))
    src = Operand(arguments.slot(Arg.SRC), conf.src, index)
    weights = Operand(arguments.slot(Arg.WEIGHTS), conf.weights, own)
    diff_dst = Operand(arguments.slot(Arg.DIFF_DST), conf.diff_dst, index)
    diff_src = Operand(arguments.slot(Arg.DIFF_SRC), conf.diff_src, index)
    if conf.totals.is_zero:
        sums = Operand(arguments.slot(Arg.DIFF_WEIGHTS), conf.diff_weights, own)
    else:
        sums = Operand(arguments.slot(Arg.SCRATCHPAD), conf.totals, own)
    padded = conf.diff_src.padded_dims != conf.diff_src.dims

    def differentiate(p: Point) -> None:
        gradient = p.load(diff_dst)
        scaled = p.e.b.fmul(gradient, p.load(weights))
        p.store(diff_src, where_positive(p, p.load(src), gradient, scaled))

    def step(p: Point, total: Value) -> Values:
        element = p.load(src)
        more = vector.multiply_add(p.e, element, p.load(diff_dst), total)
        if not padded:
            differentiate(p)
        return (where_positive(p, element, total, more),)

    def partial(point: Point) -> Values:
        totals = point.fold((0.0,), step, added)
        if padded:
            point.each(differentiate)
        return totals

    return Fold(
        parallel=tuple(a for a, shared in zip(axes, conf.shared, strict=True) if not shared),
        reduced=tuple(a for a, shared in zip(axes, conf.shared, strict=True) if shared),
        inputs=(src, weights, diff_dst),
        outputs=(sums,),
        reduction=Reduction(partial, added, (0.0,), computed_in(*conf.tensors)),
        finish=lambda point, values: point.store(sums, *values),
        stored=(diff_src,),
    )
