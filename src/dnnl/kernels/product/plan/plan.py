"""The planner of products: what is copied or packed, how operands are multiplied, and in which
blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, NamedTuple

from dnnl.codegen.epilogue.product_epilogue import core_type
from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.problem import NONE, Panels, with_plain_layouts
from dnnl.kernels.product.compensation.columns import summed_before
from dnnl.kernels.product.compensation.segments import Segmentation
from dnnl.kernels.product.pack.border import Border
from dnnl.kernels.product.pack.decompressed import plan_decompressed
from dnnl.kernels.product.pack.on_the_fly import PanelPacking
from dnnl.kernels.product.pack.pairs import take_flags
from dnnl.kernels.product.pack.repacked import plan_repacked
from dnnl.kernels.product.pack.sparse_decoded import SparseDecodedPacking
from dnnl.kernels.product.pack.unpacked import plan_unpacked
from dnnl.kernels.product.pack.up_converted import take_up_converted, with_up_conversion
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.kernels.product.plan.contraction import AnyContraction
from dnnl.kernels.product.plan.dot_kind import (
    chosen_dot,
    in_bf16,
    of_floats,
    packed_dot,
    segments_of,
    to_dequantize,
    usual_dot,
)
from dnnl.kernels.product.unit import tiles as product_tiles
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import typical

_FEW_ROWS = 3
"""Up to this many rows reading the weights, once, takes longer than all else."""


def resolve(problem: AnyContraction, isa: Isa) -> AnyContraction:
    """Decide the layouts of matrices that are ``any``: row-major, and panels for the weights."""
    problem = with_plain_layouts(problem)
    dot = packed_dot(problem, isa)
    dot = dot or usual_dot(problem, isa, tiled=problem.takes_unit(isa))
    if problem.weights.format_kind is FormatKind.any and dot is not None:
        panels = problem.panels(isa, problem.as_read(dot), problem.weights, dot).desc
        problem = replace(problem, weights=panels.with_data_type(problem.weights.data_type))
    return problem


def plan(
    problem: AnyContraction,
    isa: Isa,
    *,
    src: Argument | None = None,
    weights: Argument | None = None,
    decoded: tuple[SparseDecodedPacking, Panels] | None = None,
    scratchpad: Scratchpad | None = None,
    whole: bool = True,
) -> ProductConf[AnyContraction]:
    """Plan a product that nothing refuses; operands that it cannot read in place are copied.

    ``src`` and ``weights`` are where these are and how they are stored, if that is not as the
    problem says; ``scratchpad`` has what was copied before. ``decoded`` is the packing of packed
    (sparse) weights and its panels. Only the ``whole`` of a src is up-converted before it is
    multiplied.
    """
    scratchpad = scratchpad or Scratchpad()
    of_src, of_weights, _ = problem.arguments
    src, weights = src or (of_src, problem.src), weights or (of_weights, problem.weights)
    choice = _choose(problem, isa, packed=decoded is not None)
    problem, parts = choice.problem, choice.parts
    read = _read(choice, isa, src, weights, scratchpad, decoded)
    dot, wanted, ones = read.dot, read.wanted, read.ones
    quantization = problem.quantization if parts is None else parts.outer
    bare = problem.bias.is_zero and not problem.post_ops and problem.dropout is None
    core = core_type(dot, problem.dst.data_type, quantization, bare=bare and parts is None)
    layouts = read.layout, wanted
    dst, copy_out = problem.result(isa, dot, *layouts, core, scratchpad)
    segment = 0 if parts is None else parts.size
    stored = read.weights if read.packing is None else read.packing.weights
    sums = problem.compensation(read.src, stored, dot, segment, scratchpad, ones=ones)
    wide = flags = None
    if whole and read.border is None and problem.uses > _FEW_ROWS:
        products = typical(problem.terms * problem.dst.nelems())
        dot = with_up_conversion(dot, read.src[1], products)
        wide = take_up_converted(scratchpad, read.src[1]) if dot.up_converted else None
        if wanted.desc.inner_blocks and decoded is None:
            flags = take_flags(scratchpad, isa, dot, wanted.desc, products)
    return ProductConf(
        problem=problem,
        src=read.src,
        weights=read.weights,
        dst=dst,
        quantization=quantization,
        dequantized=choice.dequantized,
        multiply=dot,
        core=core,
        blocking=problem.blocking(isa, dot, *layouts, ones=ones, packing=read.packing),
        compensation=sums,
        copies_in=tuple(scratchpad.copies),
        copy_out=copy_out,
        scratchpad=scratchpad.size,
        segment=segment,
        per_segment=NONE if parts is None else parts.inner,
        border=read.border,
        up_converted=wide,
        flags=flags,
        packing=read.packing,
        decoded=decoded[0] if decoded is not None and read.packing is None else None,
    )


class _Choice(NamedTuple, Generic[AnyContraction]):
    """The operands and the dot-product kind, the segments (``parts``) of sums, what is
    ``dequantized`` by copies, and the packing of panels."""

    problem: AnyContraction
    dot: Multiply
    parts: Segmentation | None
    dequantized: Quantization
    packing: PanelPacking | None = None


def _choose(problem: AnyContraction, isa: Isa, *, packed: bool) -> _Choice[AnyContraction]:
    changing = to_dequantize(problem)
    given = problem.quantization.of_arguments(changing)
    narrow = in_bf16(problem, isa)
    if narrow is not None and not packed:
        packing = _with_packed_panels(narrow, isa, problem.weights, given)
        if packing is not None:
            return packing
    dot = chosen_dot(problem, isa)
    parts, dequantized = None, NONE
    if changing:
        parts = segments_of(problem, isa, dot)
        if parts is None:
            dequantized = given
            problem = of_floats(problem)
            dot = usual_dot(problem, isa, tiled=problem.takes_unit(isa))
    assert dot is not None, "refused before"
    return _Choice(problem, dot, parts, dequantized)


def _with_packed_panels(
    problem: AnyContraction, isa: Isa, given: MemoryDesc, dequantized: Quantization
) -> _Choice[AnyContraction] | None:
    """A product of bf16 panels that threads pack from the ``given`` weights, if they can."""
    dot = usual_dot(problem, isa)
    assert dot is not None, "bf16 is multiplied everywhere"
    src, weights = problem.as_read(dot), (problem.arguments[1], given)
    wanted = problem.panels(isa, src, problem.weights, dot)
    quantization = dequantized.of_arguments(problem.arguments[1:2])
    packing = plan_decompressed(isa, src, weights, dot, wanted, quantization, problem)
    return None if packing is None else _Choice(problem, dot, None, dequantized, packing)


class _Read(NamedTuple):
    """What a product reads: src, or its padded copy with a ``border``, in this ``layout``;
    ``weights`` in the ``wanted`` panels, unless ``packing`` packs these on the fly. ``ones`` says
    that tiles have a row of ones."""

    src: Argument
    layout: MemoryDesc
    border: Border | None
    weights: Argument
    dot: Multiply
    wanted: Panels
    packing: PanelPacking | None
    ones: bool


def _read(
    choice: _Choice[AnyContraction],
    isa: Isa,
    src: Argument,
    weights: Argument,
    scratchpad: Scratchpad,
    decoded: tuple[SparseDecodedPacking, Panels] | None,
) -> _Read:
    """Copy src and weights whose layouts are not the wanted ones."""
    problem, dot, packing = choice.problem, choice.dot, choice.packing
    factors = problem.arguments[:2]
    dequantizes = [choice.dequantized.of_arguments((arg,)) != NONE for arg in factors]
    as_wanted, border = problem.as_read(dot), problem.border(isa, dot, src, scratchpad)
    if border is not None:
        src, as_wanted = border.src, border.copy[1]
    elif dequantizes[0] or as_wanted is not src[1]:
        src = problem.copied(src, as_wanted, scratchpad)
        as_wanted = src[1]
    ones = problem.row_of_ones
    if choice.parts is None and not problem.simple and decoded is None:
        ones &= not summed_before(isa, dot, problem.planned_rows(isa))
    wanted = problem.panels(isa, as_wanted, problem.weights, dot, ones=ones)
    if decoded is not None:
        wanted = decoded[1]
        if isa.thread_memory:
            packing = decoded[0]
        else:
            weights = scratchpad.take(wanted.desc)
    if dot.tiles is not None:
        k_groups = -(-problem.line(dot) // dot.group)
        if choice.parts is not None:
            k_groups = (
                0 if ones else product_tiles.whole_k_groups(isa, choice.parts.size // dot.group)
            )
        fits = wanted.desc.inner_blocks and not (ones and decoded)
        if not (fits and product_tiles.takes(dot, problem.planned_rows(isa), k_groups)):
            untiled = usual_dot(problem, isa, tiled=False)
            assert untiled is not None, "refused before"
            dot = untiled
    # On a matrix unit, a row of ones meets a whole panel at the end of its sums.
    whole = ones and dot.tiles is not None
    copied = weights[1] != wanted.desc and not (dequantizes[1] or whole)
    if isa.thread_memory and packing is None and copied:
        packing = plan_repacked(isa, src[1], weights, dot, wanted, problem)
        packing = packing or plan_unpacked(isa, weights, dot, wanted, problem)
    if packing is not None:
        weights = weights[0], wanted.desc
    elif dequantizes[1] or weights[1] != wanted.desc:
        weights = problem.copied(weights, wanted.desc, scratchpad)
    return _Read(src, as_wanted, border, weights, dot, wanted, packing, ones)
