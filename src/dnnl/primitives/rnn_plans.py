"""How recurrent networks are computed: what their products multiply, and every layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.kernel import Reason, Recipe, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import multiply
from dnnl.kernels.rnn import backward, forward
from dnnl.kernels.rnn.problem import Operands, RnnConf, along_units
from dnnl.primitives.implementation import Plan, refuse_attr
from dnnl.primitives.rnn_cases import SHAPES
from dnnl.primitives.rnn_gradients import GRADIENTS, gradient_conf, workspace
from dnnl.reference.rnn import reversed_of
from dnnl.types.arg import Arg, name_of
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.cell_functions import are_bounded, usual
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg, Direction, FormatKind, PropKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, surely_equal

TYPES = (DataType.f32, DataType.bf16, DataType.f16)
_WEIGHTS = {
    "weights_layer_desc": Arg.WEIGHTS_LAYER,
    "weights_iter_desc": Arg.WEIGHTS_ITER,
    "weights_projection_desc": Arg.WEIGHTS_PROJECTION,
}
_BYTES = (DataType.s8, DataType.u8)
_LONGEST = 2**16
"""The terms of products of bytes whose sums have 32 bits."""
_ALONG_INPUTS = 1 << 2
"""The dimension of weights that sums are along."""
_ZERO_POINTS = (DataType.s32, *_BYTES)
_STATES = ("src_iter_desc", "dst_layer_desc", "dst_iter_desc")
_MULTIPLIED = ("src_layer_desc", *_WEIGHTS)


def plan(desc: Any, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    """A pass in either direction."""
    compressed = {} if desc.is_integer else _compressed(desc)
    allowed = ["rnn_qparams"] * desc.is_integer + ["scales", "zero_points"] * bool(compressed)
    refusal = refuse_attr(attr, *allowed) or _refused(desc, isa)
    refusal = refusal or _refused_parameters(attr, compressed)
    if refusal is not None:
        return refusal
    kinds = list(_operands(desc, isa))
    usable = kinds if _panels_are_known(desc) else kinds[-1:]
    if desc.propagation in GRADIENTS:
        usable = [own for own in usable if not own.widens]
    for operands in usable:
        found = _planned(desc, isa, operands, kinds, attr)
        if isinstance(found, Plan):
            return found
    return found


def _operands(desc: Any, isa: Isa) -> Iterator[Operands]:
    """What products may multiply, best first: integers; pairs of bytes where all weights are bytes,
    states have a bound, and the target has instructions for them; bf16 where inputs and weights
    are, and the target has instructions for it, else f32 by pairs of bf16; and f32. Gradients are
    computed of the others alone, and read what forward passes choose."""
    if desc.is_integer:
        found = multiply(isa, DataType.u8, DataType.s8, tiled=True)
        yield Operands(DataType.u8, DataType.s8, found is not None and found.tiles is not None)
        return
    given = dict(desc.present())
    kinds = {own.data_type for name, own in given.items() if name in _MULTIPLIED}
    yield from _byte_pairs(desc, isa)
    bf16 = DataType.bf16
    dot = multiply(isa, bf16, bf16, tiled=True)
    if kinds == {bf16} and dot is not None and dot.group > 1:
        yield Operands(bf16, bf16, unit=dot.tiles is not None)
    elif kinds == {bf16} and _may_widen(desc):
        yield Operands(DataType.f32, bf16)
    yield Operands()


def _may_widen(desc: Any) -> bool:
    """Whether f32 may be multiplied by pairs of bf16: in training states are rows of the workspace,
    which has nothing behind an odd number of channels."""
    layers, states = desc.weights_layer_desc.dims[0], desc.weights_iter_desc.dims[2]
    read = [states] if layers == 1 else [states, desc.weights_layer_desc.dims[2]]
    return desc.propagation is PropKind.forward_inference or not any(own % 2 for own in read)


def _byte_pairs(desc: Any, isa: Isa) -> Iterator[Operands]:
    """Pairs of bytes, if one instruction multiplies them: of s8, which need no sums of columns, or
    else of u8. A single step reads weights once, so it shifts them rather than sum their columns up
    before."""
    weights = [own for name, own in desc.present() if name in _WEIGHTS]
    kinds, longest = {own.data_type for own in weights}, max(own.dims[2] for own in weights)
    if len(kinds) != 1 or not kinds <= {*_BYTES} or longest > _LONGEST or not _is_bounded(desc):
        return
    single = surely_equal(desc.src_layer_desc.dims[0], 1)
    yield from _paired(isa, kinds.pop(), shifts=single)


def _paired(isa: Isa, weights: DataType, *, shifts: bool) -> Iterator[Operands]:
    """Pairs of bytes by weights of a type, which may be shifted as they are loaded."""
    for data in _BYTES:
        found = multiply(isa, data, weights, tiled=True)
        if found is None:
            continue
        has_unit = found.tiles is not None
        if has_unit or (found.parts == 1 and (shifts or not found.shift)):
            yield Operands(data, weights, has_unit, byte_pairs=True)
            return


def multiplies_byte_pairs(isa: Isa) -> bool:
    """Whether layers whose weights are s8 multiply pairs of bytes."""
    return any(_paired(isa, DataType.s8, shifts=False))


def _is_bounded(desc: Any) -> bool:
    """Whether states are no larger than 1, or than the first ones."""
    others = desc.weights_projection_desc, desc.attention_desc
    return are_bounded(desc.functions, desc.activation) and all(own.is_zero for own in others)


def _panels_are_known(desc: Any) -> bool:
    """Whether panels of terms can be laid out: gradients by pairs need steps and rows for them."""
    sizes = desc.src_layer_desc.dims[:2]
    return desc.propagation not in GRADIENTS or all(is_known(own) and own > 0 for own in sizes)


def _compressed(desc: Any) -> dict[int, MemoryDesc]:
    """Weights that are bytes, by argument."""
    given = dict(desc.present())
    return {
        argument: given[name]
        for name, argument in _WEIGHTS.items()
        if name in given and given[name].data_type in _BYTES
    }


def _refused_parameters(attr: PrimitiveAttr, weights: dict[int, MemoryDesc]) -> Refusal | None:
    """Why scales and zero points of weights that are bytes are none that a kernel reads: sums are
    multiplied by scales, so that these do not vary along them."""
    own = Quantization.of(attr)
    refusal = own.refuse(weights)
    if refusal is not None:
        return refusal
    for what, specs in (("scales", own.scales), ("zero points", own.zero_points)):
        for argument, spec in specs:
            where = f"{what} of {name_of(argument)}"
            if spec.mask & _ALONG_INPUTS or spec.groups:
                gates = 27 if weights[argument].ndims == 5 else 11
                rule = f"along inputs or in groups; mask = {gates} has one of each column"
                return Refusal(Reason.ATTRIBUTE, f"{where} {rule}")
            if specs is own.zero_points and spec.data_type not in _ZERO_POINTS:
                rule = f"of type {spec.data_type}; s32, s8 and u8 are read"
                return Refusal(Reason.ATTRIBUTE, f"{where} {rule}")
    return None


def _planned(
    desc: Any, isa: Isa, operands: Operands, kinds: Sequence[Operands], attr: PrimitiveAttr
) -> Plan | Refusal:
    """With some operands, out of the ``kinds`` of them that there are: a gradient reads weights in
    the blocks of any."""
    gradient = desc.propagation in GRADIENTS
    laid_out = {}
    for name, own in desc.present():
        is_open = own.format_kind is FormatKind.any
        if is_open and name in _WEIGHTS:
            laid_out[name] = own.with_tag(operands.tag(own.ndims, isa.lanes))
        elif is_open:  # gradients of weights
            laid_out[name] = MemoryDesc(own.dims, own.data_type)
    desc = desc.laid_out(**laid_out)
    weights = [own for name, own in desc.present() if name in _WEIGHTS]
    for name, own in desc.present():
        readable = kinds if gradient else [operands]
        tags = [each.tag(own.ndims, isa.lanes) for each in readable] if name in _WEIGHTS else []
        transposed = name.removeprefix("diff_") in _WEIGHTS and own.data_type not in _BYTES
        if not _contiguous(own, tags, transposed=transposed):
            hint = "".join(f", or {tag}" for tag in tags)
            hint += ", or inputs are" if transposed else ""
            return Refusal(Reason.LAYOUT, f"{name} = {own}; channels are contiguous{hint}")
    conf = _conf(desc, isa, operands, attr)
    if gradient:
        own_conf = gradient_conf(desc, conf)
        return Plan(desc, (), Recipe(own_conf, isa, backward.build), own_conf.scratchpad)
    unpacked = any(along_units(own) and conf.packs(own) for own in weights)
    of_floats = operands.group > 1 and not desc.is_integer
    if of_floats and unpacked and not conf.many_rows:
        return Refusal(Reason.LAYOUT, "few rows by weights that are row-major")
    return Plan(desc, (), Recipe(conf, isa, forward.build), conf.scratchpad)


def _contiguous(desc: MemoryDesc, tags: Sequence[str], *, transposed: bool) -> bool:
    """Whether channels are, or weights are in the blocks of one of the tags, or inputs are
    contiguous of weights that may be ``transposed``."""
    if desc.inner_blocks:
        return any(desc.inner_blocks == desc.with_tag(tag).inner_blocks for tag in tags)
    dims = (-1, 2) if transposed else (-1,)
    return desc.ndims == 1 or any(desc.dims[n] == 1 or desc.strides[n] == 1 for n in dims)


def _refused(desc: Any, isa: Isa) -> Refusal | None:
    """Why there is no kernel, but for layouts."""
    if isa.device is not None:
        return Refusal(Reason.ISA, f"{isa.name} repeats no phases")
    given = dict(desc.present())
    for name, own in given.items():
        for size, key in zip(own.dims, SHAPES[name], strict=True):
            if key not in desc.single and not is_known(size):
                return Refusal(Reason.RUNTIME_DIM, f"{key} of {name}")
    for name, own in given.items():
        if own.data_type not in _types_of(desc, name):
            return Refusal(Reason.DATA_TYPE, f"{own.data_type} of {name}")
    return None


def _types_of(desc: Any, name: str) -> tuple[DataType, ...]:
    """The types that a tensor may have: where inputs are integers, in inference, weights are too,
    and states and results may be; where they are floats, weights may be bytes in inference."""
    data = desc.src_layer_desc.data_type
    if name == "lengths_desc":
        return (DataType.s32,)
    if desc.propagation is not PropKind.forward_inference:
        return TYPES
    if not desc.is_integer:
        return (*TYPES, *_BYTES) if name in _WEIGHTS else TYPES
    if name in _MULTIPLIED:
        return (data if name == "src_layer_desc" else DataType.s8,)
    return (*TYPES, data) if name in _STATES else TYPES


def _conf(desc: Any, isa: Isa, operands: Operands, attr: PrimitiveAttr) -> RnnConf:
    def there(own: MemoryDesc) -> MemoryDesc | None:
        return None if own.is_zero else own

    reverse, added = reversed_of(desc.direction), desc.direction is Direction.bidirectional_sum
    own = usual(desc.alg_kind, desc.activation or Alg.eltwise_tanh, desc.alpha)
    return RnnConf(
        desc.alg_kind, desc.functions or (own,) * len(reverse), reverse, added, isa.lanes,
        desc.src_layer_desc, there(desc.src_iter_desc), there(desc.src_iter_c_desc),
        there(desc.attention_desc), desc.weights_layer_desc, desc.weights_iter_desc,
        there(desc.weights_peephole_desc), there(desc.weights_projection_desc),
        there(desc.bias_desc), desc.dst_layer_desc, there(desc.dst_iter_desc),
        there(desc.dst_iter_c_desc), there(desc.lengths_desc), operands, attr.rnn_qparams,
        Quantization.of(attr),
        None if desc.propagation is PropKind.forward_inference else workspace(desc),
        desc.gate_order,
    )  # fmt: skip
