"""A case's attributes on the side of the library: the attribute itself, its tensors, its effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dnnl.language import attributes as parsed
from dnnl.language.case import tensor
from dnnl.language.tags import expand as expand_tag
from dnnl.primitives.desc import Desc
from dnnl.primitives.operation import Operation
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.reference.arrays import Array, f64
from dnnl.reference.dropout import dropout
from dnnl.reference.fill import drawn, generator, integers, stored
from dnnl.reference.post_ops import apply_post_ops, undecided
from dnnl.reference.quantization import (
    computed_scales,
    dequantize,
    expand,
    quantize,
    quantize_computed,
)
from dnnl.reference.rule import Rule
from dnnl.reference.stochastic import rounded
from dnnl.tools.bench.cases import Case
from dnnl.types.arg import GRADIENT, Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpBinary, PostOpEltwise, PostOpPrelu, PostOpSum
from dnnl.types.scales import ScaleSpec

_NEAR = 2e-5
_EXACT_STEPS = (Alg.binary_add, Alg.binary_sub, Alg.binary_mul, Alg.binary_div)


@dataclass
class Parameters:
    """The values of an attribute's tensors by execution argument, as they are stored."""

    values: dict[int, Array] = field(default_factory=dict)
    descs: dict[int, MemoryDesc] = field(default_factory=dict)

    def add(self, argument: int, values: Array, desc: MemoryDesc) -> None:
        """Keep the values of one argument."""
        self.values[argument] = stored(values, desc.data_type)
        self.descs[argument] = desc


def make_attr(case: Case, operation: Operation, desc: Desc) -> PrimitiveAttr:
    """The attribute of a case for an operation that it describes."""
    ndims = {tensor.argument: tensor.desc.ndims for tensor in desc.tensors}
    fpmath, _, whole = str(case["attr-fpmath"]).partition(":")
    attr = PrimitiveAttr(
        scratchpad_mode=str(case["attr-scratchpad"]),
        fpmath_mode=fpmath,
        deterministic=bool(case["attr-deterministic"]),
        fpmath_apply_to_int=bool(whole),
        accumulation_mode=str(case["attr-acc-mode"]),
    )
    for rounding in case["attr-rounding-mode"].items:
        attr.set_rounding_mode(rounding.name.upper(), rounding.mode)

    def arguments(entry: parsed.Quantization) -> tuple[int, int, tuple[int, ...], DataType]:
        bits = _bits(case, operation, entry, ndims.get(entry.argument, 0))
        return entry.argument, bits, entry.groups, entry.data_type

    for entry in case["attr-scales"].items:
        attr.set_scales(*arguments(entry), parsed.DYNAMIC.get(entry.mask.name, "static_sazp"))
    for entry in case["attr-zero-points"].items:
        attr.set_zero_points(*arguments(entry))
    for entry in case["attr-precomputed-reductions"].items:
        attr.set_precomputed_reductions(*arguments(entry))
    _set_dropout(attr, case["attr-dropout"], desc.outputs[0].desc)
    for entry in case["attr-post-ops"].items:
        dst = desc.under(attr.post_ops).outputs[0].desc
        if isinstance(entry, parsed.Depthwise):
            _append_depthwise(attr, entry, desc)
        else:
            _append(attr, operation, entry, dst)
    operation.attributes(case, desc, attr)
    return attr


def _append_depthwise(attr: PrimitiveAttr, entry: parsed.Depthwise, desc: Desc) -> None:
    """Weights and bias have the types of those of the convolution before, or of their gradients."""
    types = {tensor.argument & ~GRADIENT: tensor.desc.data_type for tensor in desc.tensors}
    weights, bias = (types.get(own, DataType.undef) for own in (Arg.WEIGHTS, Arg.BIAS))
    attr.post_ops.append_depthwise(
        weights, bias, entry.data_type, entry.kernel, entry.stride, entry.padding
    )


def _set_dropout(attr: PrimitiveAttr, asked: object, dst: MemoryDesc) -> None:
    if not isinstance(asked, parsed.Dropout):
        return
    tag = expand_tag(asked.tag, dst.ndims)
    mask = None if tag == "undef" else MemoryDesc(dst.dims, "u8", tag)
    attr.set_dropout(mask, "s64", asked.offset != 0, asked.host_scalars)


def _bits(case: Case, operation: Operation, entry: parsed.Quantization, ndims: int) -> int:
    """The mask, by the rules of the operation."""
    own = operation.mask(case, entry.name, entry.mask.name, ndims)
    return entry.mask.bits(ndims) if own is None else own


def _append(
    attr: PrimitiveAttr, operation: Operation, entry: parsed.PostOp, dst: MemoryDesc
) -> None:
    match entry:
        case parsed.Sum():
            attr.post_ops.append_sum(entry.scale, entry.zero_point, entry.data_type)
        case parsed.Eltwise():
            attr.post_ops.append_eltwise(entry.alg, entry.alpha, entry.beta)
            if float(entry.scale) != 1.0:
                attr.post_ops.append_eltwise("eltwise_linear", entry.scale)
        case parsed.Prelu():
            attr.post_ops.append_prelu(_operand_mask(operation, entry.mask, dst.ndims))
        case parsed.Binary():
            condition = None
            if entry.alg is Alg.binary_select:
                layout = entry.third.tag if entry.third else "any"
                condition = tensor(dst.dims, DataType.s8, layout)
            attr.post_ops.append_binary(entry.alg, _operand(operation, entry, dst), condition)


def _operand_mask(operation: Operation, mask: parsed.Mask, ndims: int) -> int:
    if mask.name == "per_oc":
        return 1 << operation.channels % ndims
    return mask.bits(ndims)


def _operand(operation: Operation, entry: parsed.Binary, dst: MemoryDesc) -> MemoryDesc:
    bits = _operand_mask(operation, entry.mask, dst.ndims)
    dims = [size if bits >> d & 1 else 1 for d, size in enumerate(dst.dims)]
    if entry.strides:
        return MemoryDesc(dims, entry.data_type, [int(s) for s in entry.strides.split("x")])
    open_sizes = dst.has_runtime_values and entry.tag == "any"  # these have no layout to choose
    tag = None if open_sizes else expand_tag(entry.tag, dst.ndims)
    return MemoryDesc(dims, entry.data_type, tag)


def fill_parameters(case: Case, pd: PrimitiveDesc) -> Parameters:
    """Values for the tensors of the attribute that are read."""
    made = Parameters()
    for kind, entries, specs in (
        (Arg.SCALES, case["attr-scales"], pd.attr.scales),
        (Arg.ZERO_POINTS, case["attr-zero-points"], pd.attr.zero_points),
    ):
        for entry in entries.items:
            dims = pd.desc.quantized(entry.argument).dims
            spec = specs[entry.argument]
            if spec.computed:
                continue
            _add_quantization(made, kind | entry.argument, entry, spec.shape(dims), pd)
    _add_dropout(made, case["attr-dropout"], pd.attr)
    if pd.attr.rounding_modes:
        made.add(Arg.ROUNDING_SEED, f64([_seed(case)]), pd.arg_desc(Arg.ROUNDING_SEED))
    for number, entry in enumerate(pd.attr.post_ops):
        _add_operands(made, number, entry, pd)
    return made


def add_reductions(made: Parameters, inputs: Mapping[int, Array], pd: PrimitiveDesc) -> None:
    """The sums of the rows of ``inputs``."""
    for owner, spec in pd.attr.precomputed_reductions.items():
        rows, argument = inputs[owner], Arg.PRECOMPUTED_REDUCTIONS | owner
        sums = rows.reshape(*rows.shape[:-1], -1, spec.group_sizes(rows.ndim)[-1]).sum(-1)
        made.add(argument, sums, pd.arg_desc(argument))


def _seed(case: Case) -> int:
    """The seed of a case's rounding."""
    entries = case["attr-rounding-mode"].items
    return next((entry.seed for entry in entries if entry.seed is not None), 0)


def _add_dropout(made: Parameters, asked: object, attr: PrimitiveAttr) -> None:
    if not isinstance(asked, parsed.Dropout) or attr.dropout is None:
        return
    scalars: dict[int, float] = {
        Arg.DROPOUT_PROBABILITY: float(asked.probability),
        Arg.DROPOUT_SEED: asked.seed,
        Arg.DROPOUT_OFFSET: asked.offset,
    }
    for argument, desc in attr.dropout.descs.items():
        if argument in scalars:
            made.add(argument, f64([scalars[argument]]), desc)


def _add_quantization(
    made: Parameters,
    argument: int,
    entry: parsed.Quantization,
    shape: tuple[int, ...],
    pd: PrimitiveDesc,
) -> None:
    rng = generator("attribute", argument, shape)
    if entry.mask.common:
        values = np.full(shape, float(entry.value))
    elif argument & Arg.SCALES:
        values = drawn(rng, (1 / 16, 1 / 8, 1 / 4), shape)
    else:
        values = integers(rng, shape, -2, 2)
    desc = pd.arg_desc(argument)
    if desc.is_zero:
        desc = MemoryDesc((values.size,), entry.data_type)
    made.add(argument, values.reshape(desc.dims), desc)


def _add_operands(made: Parameters, number: int, entry: object, pd: PrimitiveDesc) -> None:
    flag = Arg.post_op(number)
    if isinstance(entry, PostOpPrelu):
        desc = pd.arg_desc(flag | Arg.WEIGHTS)
        values = generator("prelu", number).uniform(-2, 2, desc.dims)
        made.add(flag | Arg.WEIGHTS, values, desc)
    if not isinstance(entry, PostOpBinary):
        return
    for operand, _ in entry.operands:
        desc = pd.arg_desc(flag | operand)
        rng = generator("operand", number, desc.dims)
        values = integers(rng, desc.dims, *pd.desc.operation.operands)
        if entry.alg is Alg.binary_mul and desc.data_type.is_float:
            values /= 8
        if entry.alg is Alg.binary_div:
            values[np.maximum(values, desc.data_type.min) == 0] = 1  # as it is stored
        made.add(flag | operand, values, desc)


def dequantized(values: Array, argument: int, pd: PrimitiveDesc, made: Parameters) -> Array:
    """An input as its scale and zero point mean it."""
    scale, zero_point = both(values.shape, argument, pd, made)
    if argument == Arg.SRC and pd.desc.operation.scales_result:
        scale = 1.0
    return dequantize(values, scale, zero_point)


def finished(
    result: Array,
    pd: PrimitiveDesc,
    made: Parameters,
    previous: Array | None,
    core: DataType,
    *,
    exact: bool,
) -> tuple[dict[int, Array], NDArray[np.bool_]]:
    """What a dropout, the post-ops, the scale and the zero point of the destination make of a
    result, computed in ``core``, with what else they write; and where that may be anything, as a
    rounding decides. The result itself may be ``exact``."""
    operands, written = dict(made.values), {}
    if pd.desc.operation.scales_result:
        scale, _ = both(result.shape, Arg.SRC, pd, made)
        result = result * scale
    if pd.attr.dropout is not None:
        probability = made.values[Arg.DROPOUT_PROBABILITY].item()
        seed = made.values[Arg.DROPOUT_SEED].item()
        offset = made.values[Arg.DROPOUT_OFFSET].item() if pd.attr.dropout.use_offset else 0
        result, mask = dropout(result, probability, int(seed), int(offset))
        written[int(Arg.DROPOUT_MASK)] = mask
    argument, kind = pd.desc.outputs[0].argument, pd.desc.outputs[0].desc.data_type
    begin, post_ops, _ = pd.desc.stages(pd.attr.post_ops)[-1]
    values = apply_post_ops(result, post_ops, operands, previous, core, kind, begin)
    open_at = undecided(result, post_ops, operands, previous, kind, exact=exact, begin=begin)
    owner = pd.desc.quantizes(argument)
    spec = pd.attr.scales.get(owner)
    if spec is not None and spec.computed:
        scales = computed_scales(values, spec, kind)
        written[Arg.SCALES | owner] = scales
        if post_ops or not exact:  # which may take the largest number of a group across a power
            around = (computed_scales(values * (1 + s), spec, kind) for s in (-_NEAR, _NEAR))
            open_at |= expand(np.not_equal(*around), values.shape, spec) > 0
        values = quantize_computed(values, expand(scales, values.shape, spec), kind)
    else:
        values = quantize(values, *both(values.shape, owner, pd, made))
    if argument in pd.attr.rounding_modes:
        values = rounded(values, kind, int(made.values[Arg.ROUNDING_SEED].item()))
    written[argument] = values
    return written, open_at


def both(
    dims: tuple[int, ...], argument: int, pd: PrimitiveDesc, made: Parameters
) -> tuple[Array | float, Array | float]:
    """The scale and the zero point of each element of a tensor of ``dims``."""

    def values(kind: Arg, specs: Mapping[int, ScaleSpec], plain: float) -> Array | float:
        spec = specs.get(argument)
        return plain if spec is None else expand(made.values[kind | argument], dims, spec)

    return (
        values(Arg.SCALES, pd.attr.scales, 1.0),
        values(Arg.ZERO_POINTS, pd.attr.zero_points, 0.0),
    )


def scaled(rule: Rule, pd: PrimitiveDesc, made: Parameters) -> Rule:
    """The rule with slack, and what errors are relative to, as the scales make them."""
    if Arg.SCALES | Arg.DST in made.values:
        rule = replace(rule, slack=rule.slack / made.values[Arg.SCALES | Arg.DST].min(initial=1.0))
    output = pd.desc.outputs[0]
    dims, owner = output.desc.dims, pd.desc.quantizes(output.argument)
    if owner in pd.attr.scales and pd.attr.scales[owner].computed:
        return rule
    scale, zero_point = both(dims, owner, pd, made)
    size = 0.0 if rule.size is None else rule.size / scale
    if pd.desc.operation.scales_result:
        size = size * both(dims, Arg.SRC, pd, made)[0]
    size = np.maximum(size, np.abs(zero_point))  # which may cancel what was rounded
    return replace(rule, size=size) if size.any() else rule


def reads_dst(attr: PrimitiveAttr) -> bool:
    """Whether the destination's content matters."""
    return any(isinstance(entry, PostOpSum) for entry in attr.post_ops)


def loosened(rule: Rule, attr: PrimitiveAttr, data_type: DataType) -> Rule:
    """The rule with what post-ops and scales of the destination allow as well."""
    absolute, relative, non_finite = rule.absolute, rule.relative, rule.non_finite
    zeros = rule.zeros
    if attr.dropout is not None:
        relative, zeros = max(relative, 2 * DataType.f32.eps), 100.0  # of 1 / (1 - P) and of dst
    for entry in attr.post_ops:
        if isinstance(entry, PostOpEltwise):
            absolute, relative = max(absolute, 2e-5), max(relative, 8e-6)
            non_finite = True  # what leaves f32 before the end: swish of -inf is NaN
            zeros = max(zeros, 65)
        if isinstance(entry, PostOpBinary) and entry.alg in _EXACT_STEPS:
            absolute = max(absolute, 5e-3 if data_type is DataType.f16 else 4e-6)
            relative = max(relative, 1e-5)
            # The maximum of an empty window is -inf, which a product with 0 makes NaN.
            non_finite |= entry.alg in (Alg.binary_div, Alg.binary_mul)
        if isinstance(entry, PostOpBinary) and entry.alg not in (*_EXACT_STEPS, Alg.binary_max):
            zeros = 100
        if isinstance(entry, PostOpSum | PostOpPrelu):
            relative = max(relative, 2 * DataType.f32.eps)
        if isinstance(entry, PostOpBinary) and entry.alg is Alg.binary_mul:
            zeros = max(zeros, 65)
    if attr.rounding_modes and (attr.post_ops or attr.scales):
        relative = max(relative, 2 * data_type.eps)  # one step away where f32 is a digit off
    if Arg.DST in attr.scales and data_type is DataType.f32:
        relative = max(relative, 1e-5)
    return replace(rule, zeros=zeros, absolute=absolute, relative=relative, non_finite=non_finite)
