"""A convolution of groups of a few channels, several of which a vector holds.

Tiles of the direct algorithm broadcast the channels of one group, whose outputs would leave the
rest of each vector empty. Here a vector has the outputs of several groups, and the tiles are those
of depthwise convolutions: to them, each output is a group of its own, which shares its channels
with others (`depthwise.groups`).
"""

from __future__ import annotations

from dataclasses import replace

from dnnl.codegen.ir.kernel import Kernel, Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.convolution.depthwise import factors, tile_plan
from dnnl.kernels.convolution.depthwise.groups import Groups
from dnnl.kernels.convolution.depthwise.rows import build_rows
from dnnl.kernels.convolution.depthwise.tiles import DepthwiseTilesConf
from dnnl.kernels.convolution.direct.convolution import resolve_activations
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem, refuse_quantization
from dnnl.kernels.product.plan.refusals import refuse_problem
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import BYTES, FLOATS, refuse_types
from dnnl.types.arg import name_of
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_TAPS = "defg"  # the letters of the taps of weights
_EACH_OUTPUT = 0b11  # the mask of scales for each output of each group


def refuse(isa: Isa, problem: ConvolutionProblem) -> Refusal | None:
    """Why the groups of a convolution do not share vectors, whatever its layouts, or None."""
    channels, outputs = problem.channels, problem.outputs
    if not problem.grouped or problem.groups == 1:
        return Refusal(Reason.SHAPE, "one group")
    if channels == outputs == 1:
        return Refusal(Reason.SHAPE, "groups of one channel, which are depthwise")
    if 0 in (channels, outputs) or isa.lanes % outputs or outputs % channels:
        rule = f"the channels of a group divide its outputs, and these {isa.lanes} lanes"
        return Refusal(Reason.SHAPE, f"groups of {channels} for {outputs} outputs; {rule}")
    refusal = refuse_types(problem.src, allowed=FLOATS)
    refusal = refusal or refuse_types(problem.weights, allowed=FLOATS | BYTES)
    types = {problem.src.data_type, problem.weights.data_type}
    converted = types != {DataType.f32} and factors.multiply_of(isa, types) is factors.IN_F32
    if refusal is None and converted and channels == isa.lanes:
        detail = f"groups of {channels} channels in {problem.src.data_type}, of which each would be"
        refusal = Refusal(Reason.SHAPE, f"{detail} converted with its whole vector")
    return refusal


def resolve(problem: ConvolutionProblem, isa: Isa) -> ConvolutionProblem:
    """Decide the layouts that are ``any``: weights as the tiles read them, and activations as those
    of a depthwise convolution, since blocks of a vector do not cut groups. They are channels-last
    if src has fewer channels than dst, of which a vector reads a part of a block, or fewer than a
    vector."""
    src, dst = problem.src, problem.dst
    if problem.channels < problem.outputs or problem.groups * problem.outputs < isa.lanes:
        src, dst = _channels_last(src), _channels_last(dst)
    outputs, (_, _, *rest) = problem.groups * problem.outputs, problem.weights.dims
    weights = MemoryDesc((outputs, 1, *rest), problem.weights.data_type, "any")
    single = replace(problem, src=src, dst=dst, weights=weights)
    activations = resolve_activations(single, isa)
    problem = replace(problem, src=activations.src, dst=activations.dst)
    if problem.weights.format_kind is FormatKind.any:
        problem = replace(problem, weights=problem.weights.with_tag(_packed(problem, isa)))
    return problem


def opens(_problem: ConvolutionProblem, _isa: Isa) -> bool:
    """Images may have sizes that only an execution knows; `configure` decides."""
    return True


def configure(problem: ConvolutionProblem, isa: Isa) -> DepthwiseTilesConf | Refusal:
    """Plan a convolution that `refuse` does not refuse."""
    refusal = refuse_problem(problem) or refuse_quantization(problem)
    refusal = refusal or _refuse_masks(problem)
    if refusal is None and problem.narrow is not DataType.f32 and problem.channels == isa.lanes:
        detail = f"groups that fill a vector; products in {problem.narrow} are faster"
        refusal = Refusal(Reason.ATTRIBUTE, detail)
    if refusal is not None:
        return refusal
    scratchpad, groups = Scratchpad(), _groups(problem, isa)
    weights = problem.arguments[1], problem.weights
    view = _view(weights[1], problem, isa)
    if view is None:
        weights = scratchpad.copy(weights, weights[1].with_tag(_packed(problem, isa)))
        view = _view(weights[1], problem, isa)
        assert view is not None, "packed weights"
    of_src, _, of_dst = problem.arguments
    single = replace(problem, weights=view, arguments=(of_src, weights[0], of_dst))
    planned = tile_plan.plan(single, isa, groups, scratchpad)
    if planned is None:
        rule = (
            "it takes contiguous channels of whole bytes, at least one output, at most 16 taps a "
        )
        rule += "row, and few tiles at borders"
        return Refusal(Reason.LAYOUT, f"src {problem.src}, dst {problem.dst}; {rule}")
    return planned


def _refuse_masks(problem: ConvolutionProblem) -> Refusal | None:
    """Why scales and zero points do not fit tiles to which each output is a group, or None: one for
    each group, or for the outputs of all groups, is none of theirs."""
    of_src, of_weights, _ = problem.arguments
    given, allowed = problem.quantization, {of_src: 0, of_weights: _EACH_OUTPUT}
    for what, specs in (("scales", given.scales), ("zero points", given.zero_points)):
        for arg, spec in specs:
            if arg in allowed and spec.mask not in (0, allowed[arg]):
                rule = f"it takes 0 or {allowed[arg]}" if allowed[arg] else "it takes 0"
                detail = f"{what} of {name_of(arg)} with mask {spec.mask}; {rule}"
                return Refusal(Reason.ATTRIBUTE, detail)
    return None


def build(conf: DepthwiseTilesConf, isa: Isa) -> Kernel:
    """The copy of weights, and rows of dst."""
    return build_rows("grouped", conf, isa)


def build_transposed(conf: DepthwiseTilesConf, isa: Isa) -> Kernel:
    """The same, of a deconvolution."""
    return build_rows("grouped_transposed", conf, isa)


def _channels_last(desc: MemoryDesc) -> MemoryDesc:
    """An activation in that layout if its own is to be decided."""
    if desc.format_kind is not FormatKind.any:
        return desc
    return desc.with_tag(FormatTag(f"a{'cde'[: desc.ndims - 2]}b"))


def _groups(problem: ConvolutionProblem, isa: Isa) -> Groups:
    dot = factors.multiply_of(isa, {problem.src.data_type, problem.weights.data_type})
    k_group = 1 if problem.channels % dot.group else dot.group
    return Groups(problem.channels, problem.outputs, k_group)


def _packed(problem: ConvolutionProblem, isa: Isa) -> FormatTag:
    """The layout of weights that tiles read in one stream: vectors of the outputs of some groups,
    for each K group and tap."""
    taps, k_group = _TAPS[: problem.weights.ndims - 3], _groups(problem, isa).k_group
    sizes = {"a": isa.lanes // problem.outputs, "b": problem.outputs, "c": k_group}
    blocks = "".join(f"{size}{letter}" for letter, size in sizes.items() if size > 1)
    a, b, c = (letter.upper() if size > 1 else letter for letter, size in sizes.items())
    return FormatTag(f"{a}{b}{taps}{c}{blocks}")


def _view(weights: MemoryDesc, problem: ConvolutionProblem, isa: Isa) -> MemoryDesc | None:
    """The same memory with one dimension of outputs, or None if it has no vectors of them."""
    dims = (problem.groups * problem.outputs, 1, *weights.dims[2:])
    k_group = _groups(problem, isa).k_group
    if weights.matches_tag(_packed(problem, isa)):
        pairs = f"{k_group}c" if k_group > 1 else ""
        tag = f"Ab{_TAPS[: len(dims) - 3]}{'C' if pairs else 'c'}{isa.lanes}a{pairs}"
        return MemoryDesc(dims, weights.data_type, tag, offset0=weights.offset0)
    try:
        view = weights.reshape(dims)
    except InvalidArguments:
        return None
    return view if k_group == 1 and tile_plan.in_vectors(view, 0, isa.lanes) else None
