"""Winograd's convolution of 3x3 taps at stride 1: fewer multiplications between transforms.

::

    V = B' d B   of the pixels d of each tile        U = G g G'   of the taps g
    M = V U      tiles x channels by channels x outputs, for each place in a tile
    dst = A' M A

A work item computes some tiles of dst from src, with V and M in memory of the thread. Where weights
are too large to be read again for each item, V and M of all tiles are in the scratchpad, and the
transforms and the product are phases.
"""

from __future__ import annotations

from dataclasses import replace

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.kernels.convolution.direct.convolution import resolve_activations
from dnnl.kernels.convolution.direct.problem import (
    ConvolutionProblem,
    channels_last,
    refuse_quantization,
)
from dnnl.kernels.convolution.winograd.conf import Results, WinogradConf
from dnnl.kernels.convolution.winograd.cost import best_tiling
from dnnl.kernels.convolution.winograd.layout import WinogradLayout
from dnnl.kernels.convolution.winograd.phases import emit_items, emit_phases
from dnnl.kernels.convolution.winograd.tiling import Tiling
from dnnl.kernels.product.base.problem import NONE
from dnnl.kernels.product.plan.refusals import refuse_problem
from dnnl.kernels.reorder.winograd import Filters, emit_filters
from dnnl.kernels.shared.copies import emit_copies, emit_copy
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.kernels.shared.types import FLOATS, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.cook_toom import TAPS
from dnnl.types.dtype import DataType
from dnnl.types.encoding import Winograd
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known


def refuse(problem: ConvolutionProblem) -> Refusal | None:
    """Why Winograd's algorithm does not compute a convolution, or None."""
    if problem.dst.ndims != 4:
        return Refusal(Reason.SHAPE, f"{problem.dst.ndims - 2} dimensions of space; it takes 2")
    h, w = problem.space[1:]
    if (h.kernel, w.kernel) != (TAPS, TAPS):
        return Refusal(Reason.SHAPE, f"a kernel of {h.kernel}x{w.kernel}; it takes 3x3")
    if {h.stride, w.stride, h.dilation, w.dilation} != {1}:
        given = f"strides {h.stride}x{w.stride}, dilations {h.dilation - 1}x{w.dilation - 1}"
        return Refusal(Reason.PARAMETER, f"{given}; it takes 1x1 and 0x0")
    return refuse_types(problem.src, problem.weights, problem.dst, allowed=FLOATS)


def opens(problem: ConvolutionProblem, _: Isa) -> bool:
    """Whether there is code for images whose sizes only an execution knows: their channels are
    known."""
    dims = (*problem.weights.dims, problem.src.dims[1], problem.dst.dims[1])
    return all(map(is_known, dims))


def resolve(problem: ConvolutionProblem, isa: Isa) -> ConvolutionProblem:
    """Decide the layouts that are ``any``: activations as for the direct algorithm, but in vectors
    of channels, weights transformed."""
    given, weights = (problem.src, problem.dst), problem.weights
    problem = resolve_activations(problem, isa)
    src, dst = (
        channels_last(desc)
        if own.format_kind is FormatKind.any and not _has_whole_vectors(desc, isa)
        else desc
        for own, desc in zip(given, (problem.src, problem.dst), strict=True)
    )
    problem = replace(problem, src=src, dst=dst)
    if weights.format_kind is not FormatKind.any:
        return problem
    encoding = WinogradLayout.of(problem, best_tiling(problem, isa), isa).encoding(isa)
    return replace(problem, weights=MemoryDesc.encoded(weights.dims, weights.data_type, encoding))


def configure(problem: ConvolutionProblem, isa: Isa) -> WinogradConf | Refusal:
    """Plan a convolution whose layouts are all decided (see :func:`resolve`)."""
    refusal = refuse_problem(problem) or refuse_quantization(problem)
    refusal = refusal or _refuse_encoding(problem)
    if refusal is not None:
        return refusal
    scratchpad = Scratchpad()
    of_src, of_weights, of_dst = problem.arguments
    src: Argument = (of_src, problem.src)
    if not _has_whole_vectors(problem.src, isa):
        src = scratchpad.copy(src, channels_last(problem.src))
    dst: Argument = (of_dst, problem.dst)
    copy_out, in_place = None, _has_whole_vectors(problem.dst, isa)
    if not in_place:
        computed = scratchpad.take(channels_last(problem.dst.with_data_type(DataType.f32)))
        dst, copy_out = computed, (computed, dst)
    problem = replace(problem, src=src[1], dst=dst[1])
    given = filters = Filters.of(of_weights, problem.weights)
    tiling = Tiling.of(problem, given.tile) if given.tile else best_tiling(problem, isa)
    layout = WinogradLayout.of(problem, tiling, isa)
    wanted = layout.weights(isa)
    if given.desc != wanted:
        filters = Filters(*scratchpad.take(wanted), tiling.size, rotated=problem.transposed)
    parts = [layout.dense(channels) for channels in (layout.channels, layout.outputs)]
    if layout.in_items:
        pixels, sums = zip((int(Arg.SRC), int(Arg.DST)), parts, strict=True)
    else:
        pixels, sums = map(scratchpad.take, parts)
    product = layout.product(pixels, (filters.slot, filters.desc), sums, isa)
    factors = of_src, of_weights
    quantization = _by_outputs(problem)
    results = Results(
        dst,
        problem.bias,
        problem.post_ops if in_place else (),
        quantization if in_place else quantization.of_arguments(factors),
        factors,
        product.multiply,
    )
    return WinogradConf(
        tiling=tiling,
        src=src,
        given=given,
        filters=filters,
        pixels=pixels,
        product=product,
        sums=sums,
        results=results,
        in_items=layout.in_items,
        copies_in=tuple(scratchpad.copies),
        copy_out=copy_out,
        behind=() if in_place else problem.post_ops,
        requantized=NONE if in_place else quantization.of_arguments((Arg.DST,)),
        scratchpad=scratchpad.size,
    )


def _refuse_encoding(problem: ConvolutionProblem) -> Refusal | None:
    """Why encoded weights are not those of a convolution, or None."""
    encoding = problem.weights.encoding
    if encoding is None:
        return None
    wanted = (problem.transposed, False)
    if isinstance(encoding, Winograd) and (encoding.rotated, encoding.exchanged) == wanted:
        return None
    rule = "a reorder to the weights_desc of this propagation transforms them"
    return Refusal(Reason.LAYOUT, f"{problem.weights}; {rule}")


def _has_whole_vectors(desc: MemoryDesc, isa: Isa) -> bool:
    """Whether vectors of channels are contiguous, and nothing else is padded."""
    if desc.data_type.bits < 8 or desc.padded_dims != (
        desc.dims[0],
        desc.padded_dims[1],
        *desc.dims[2:],
    ):
        return False
    if not desc.inner_blocks:
        return desc.strides[1] == 1 or isa.lanes == 1
    return len(desc.inner_blocks) == 1 and desc.inner_blocks[0][1] % isa.lanes == 0


def _by_outputs(problem: ConvolutionProblem) -> Quantization:
    """The quantization, with scales of the weights of groups along one dimension of outputs."""
    given = problem.quantization
    weights = problem.arguments[1]
    scales = tuple(
        (arg, replace(spec, mask=min(spec.mask, 1)) if arg == weights else spec)
        for arg, spec in given.scales
    )
    return replace(given, scales=scales)


def build(conf: WinogradConf, isa: Isa) -> Kernel:
    """The copies around the convolution, the transform of plain weights, and the convolution."""
    module, arguments = Module("winograd", isa), Arguments()
    found = emit_copies(module, "winograd", conf.copies_in, arguments)
    if conf.given != conf.filters:
        found.append(emit_filters(module, "winograd_weights", conf.given, conf.filters, arguments))
    if conf.in_items:
        found.append(emit_items(module, conf, arguments))
    else:
        found += emit_phases(module, conf, arguments)
    if conf.copy_out is not None:
        given, dst = conf.copy_out
        entry = f"winograd_out__{dst[1].data_type}__{isa.lanes}x1__{isa.name}"
        quantization = conf.requantized
        copy = (module, entry, given, dst, arguments, conf.behind, quantization)
        found.append(emit_copy(*copy, requantizes=True))
    return Kernel(module, tuple(found), arguments.ids)
