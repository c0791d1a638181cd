"""oneDNN as a peer: any operation of ours on it, by the same description and attributes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dnnl.errors import Unimplemented
from dnnl.primitives.batch_normalization import BatchNormalizationDesc
from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.concat import ConcatDesc
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.deconvolution import DeconvolutionDesc
from dnnl.primitives.desc import Desc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.primitives.group_normalization import GroupNormalizationDesc
from dnnl.primitives.inner_product import InnerProductDesc
from dnnl.primitives.layer_normalization import LayerNormalizationDesc
from dnnl.primitives.lrn import LrnDesc
from dnnl.primitives.matmul import MatmulDesc
from dnnl.primitives.pooling import PoolingDesc
from dnnl.primitives.prelu import PreluDesc
from dnnl.primitives.reduction import ReductionDesc
from dnnl.primitives.reorder import ReorderDesc
from dnnl.primitives.resampling import ResamplingDesc
from dnnl.primitives.rnn import RnnDesc
from dnnl.primitives.shuffle import ShuffleDesc
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.primitives.sum import SumDesc
from dnnl.tools.bench.peers.onednn_library import QUERY_EXEC_ARG_MD, Handle, dims
from dnnl.tools.bench.peers.onednn_operation import OneDnnOperation
from dnnl.tools.bench.peers.onednn_session import Session
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg, FormatKind, FpmathMode, NormFlags, PropKind
from dnnl.types.post_ops import PostOpBinary, PostOpDepthwise, PostOpEltwise, PostOpPrelu, PostOpSum
from dnnl.types.rnn_qparams import RnnQparams, WeightsScales
from dnnl.types.scales import ScaleSpec

_PLAIN = {"scales": DataType.f32, "zero_points": DataType.s32}
"""The types that every version has."""


class OneDnn(Session):
    """oneDNN with the operations of the table; raises BadValue where it is not to be had."""

    def make(
        self,
        desc: Desc,
        attr: PrimitiveAttr,
        num_threads: int,
        known: Desc | None = None,
        forward: Desc | None = None,
    ) -> OneDnnOperation:
        """The operation as it was asked for; raises Unimplemented where oneDNN refuses.

        ``known`` is the same with the sizes of the execution, where these are open, and ``forward``
        the forward operation that a backward one belongs to.
        """
        self.library.set_num_threads(num_threads)
        make = _MAKERS.get(type(desc))
        sums = any(isinstance(entry, PostOpSum) for entry in attr.post_ops)
        if make is None or (sums and not desc.operation.sums):
            what = f"{desc.kind} with the post-op sum" if sums else desc.kind
            raise Unimplemented(f"{self.name} does not document {what}")
        earlier = hint = None
        if forward is not None:
            hint = make(Asked(self, forward, self._attr(PrimitiveAttr())))
            earlier = OneDnnOperation(self, hint, forward)
        pd = make(Asked(self, desc, self._attr(attr), hint))
        own = desc.under(attr.post_ops) if known is None else known
        return OneDnnOperation(self, pd, own, earlier)

    def _attr(self, attr: PrimitiveAttr) -> Handle:
        call = self.library.call
        if attr.dropout is not None:
            raise Unimplemented(f"{self.name} is asked for no dropout")
        made = self.library.create("primitive_attr", "primitive_attr_create")
        for kind, specs in (("scales", attr.scales), ("zero_points", attr.zero_points)):
            for argument, spec in specs.items():
                self._set(made, kind, argument, spec)
        if attr.fpmath_apply_to_int:
            self.need("primitive_attr_set_fpmath_mode_v2")
            call("primitive_attr_set_fpmath_mode_v2", made, attr.fpmath_mode.value, 1)
        elif attr.fpmath_mode is not FpmathMode.strict:
            call("primitive_attr_set_fpmath_mode", made, attr.fpmath_mode.value)
        if attr.rnn_qparams != RnnQparams():
            self._set_rnn(made, attr.rnn_qparams)
        post_ops = self.library.create("post_ops", "post_ops_create")
        parts: list[object] = [post_ops]
        for entry in attr.post_ops:
            parts.append(self._append(post_ops, entry))
        call("primitive_attr_set_post_ops", made, post_ops)
        made.parts = tuple(parts)
        return made

    def _set(self, made: Handle, kind: str, argument: int, spec: ScaleSpec) -> None:
        """Scales or zero points: by a mask alone, or with groups and a type."""
        function = f"primitive_attr_set_{kind}"
        if spec.computed:
            raise Unimplemented(f"{self.name} is asked for no scales that it computes")
        if not spec.groups and spec.data_type is _PLAIN[kind]:
            self.library.call(f"{function}_mask", made, argument, spec.mask)
            return
        self.need(function)
        groups = dims(spec.groups) if spec.groups else None
        ends = (len(spec.groups), groups, spec.data_type.value)
        self.library.call(function, made, argument, spec.mask, *ends)

    def _set_rnn(self, made: Handle, qparams: RnnQparams) -> None:
        """What integers of a recurrent network stand for."""
        call, prefix = self.library.call, "primitive_attr_set_rnn"
        call(f"{prefix}_data_qparams", made, _float(qparams.scale), _float(qparams.shift))
        for name, own in (("weights", qparams.weights), ("weights_projection", qparams.projection)):
            if own != WeightsScales():
                count = ctypes.c_int64(len(own.values))
                scales = (ctypes.c_float * len(own.values))(*own.values)
                call(f"{prefix}_{name}_qparams", made, count, own.mask, scales)

    def need(self, function: str) -> None:
        """Raise Unimplemented where the version does not have a function."""
        if not hasattr(self.library.c, f"dnnl_{function}"):
            raise Unimplemented(f"{self.name} has no {function}")

    def _append(self, post_ops: Handle, entry: object) -> object:
        call = self.library.call
        match entry:
            case PostOpSum():
                kind = (entry.data_type or DataType.undef).value
                call("post_ops_append_sum", post_ops, _float(entry.scale), entry.zero_point, kind)
            case PostOpEltwise():
                numbers = _float(entry.alpha), _float(entry.beta)
                call("post_ops_append_eltwise", post_ops, entry.alg.value, *numbers)
            case PostOpBinary() if entry.src2_desc is None:
                operand = self.library.memory_desc(entry.src1_desc)
                call("post_ops_append_binary", post_ops, entry.alg.value, operand)
                return operand
            case PostOpPrelu():
                call("post_ops_append_prelu", post_ops, entry.mask)
            case PostOpDepthwise():
                types = (kind.value for kind in (entry.weights_dt, entry.bias_dt, entry.dst_dt))
                sizes = map(ctypes.c_int64, (entry.kernel, entry.stride, entry.padding_l))
                call("post_ops_append_dw", post_ops, *types, *sizes)
            case _:
                raise Unimplemented(f"{self.name} has no post-op {entry}")
        return None


@dataclass(frozen=True, eq=False)
class Asked:
    """An operation that oneDNN is asked for, with its attributes over there; ``hint`` is the
    primitive descriptor of the forward operation that a backward one belongs to."""

    peer: OneDnn
    desc: Any
    attr: Handle
    hint: Handle | None = None

    @property
    def forward(self) -> bool:
        """Whether this is a forward pass."""
        return self.hint is None

    def create(self, function: str, *arguments: object, version: str = "") -> Handle:
        """The primitive descriptor that a function makes of these arguments, the hint and the
        attributes; ``version`` ends the name of a newer one. Raises Unimplemented where there is
        none."""
        hints = () if self.forward else (self.hint,)
        name = f"{function}_primitive_desc_create{version}"
        self.peer.need(name)
        ends = (*arguments, *hints, self.attr)
        return self.peer.library.create("primitive_desc", name, self.peer.engine, *ends)

    def tensors(self, *arguments: int) -> list[Handle | None]:
        """The descriptors of tensors, None for an absent one. What the forward pass has read or
        written is stored as it is there, if its layout was left open."""
        return [self._tensor(argument) for argument in arguments]

    def _tensor(self, argument: int) -> Handle | None:
        desc, library = self.desc.desc_of(argument), self.peer.library
        is_open = desc.format_kind is FormatKind.any and argument < Arg.DIFF_SRC
        if self.hint is None or not is_open:
            return library.memory_desc(desc)
        query = library.c.dnnl_primitive_desc_query_md
        found = ctypes.c_void_p(query(self.hint, QUERY_EXEC_ARG_MD, argument))
        return library.create("memory_desc", "memory_desc_clone", found)


def _float(value: float) -> ctypes.c_float:
    return ctypes.c_float(value)


def _reorder(asked: Asked) -> Handle:
    library, engine = asked.peer.library, asked.peer.engine
    src, dst = asked.tensors(Arg.SRC, Arg.DST)
    function = "reorder_primitive_desc_create"
    return library.create("primitive_desc", function, src, engine, dst, engine, asked.attr)


def _softmax(asked: Asked) -> Handle:
    desc = asked.desc
    kinds = desc.prop_kind.value, desc.alg_kind.value
    if asked.forward:
        tensors = asked.tensors(Arg.SRC, Arg.DST)
        return asked.create("softmax_forward", *kinds, *tensors, desc.axis)
    tensors = asked.tensors(Arg.DIFF_SRC, Arg.DIFF_DST, Arg.DST)
    return asked.create("softmax_backward", kinds[1], *tensors, desc.axis)


def _eltwise(asked: Asked) -> Handle:
    desc = asked.desc
    kinds = desc.prop_kind.value, desc.alg_kind.value
    numbers = _float(desc.alpha), _float(desc.beta)
    if asked.forward:
        return asked.create("eltwise_forward", *kinds, *asked.tensors(Arg.SRC, Arg.DST), *numbers)
    data = Arg.DST if desc.alg_kind.uses_dst else Arg.SRC
    tensors = asked.tensors(Arg.DIFF_SRC, Arg.DIFF_DST, data)
    return asked.create("eltwise_backward", kinds[1], *tensors, *numbers)


def _binary(asked: Asked) -> Handle:
    if not asked.desc.src2_desc.is_zero:
        tensors = asked.tensors(Arg.SRC_0, Arg.SRC_1, Arg.SRC_2, Arg.DST)
        return asked.create("binary", asked.desc.alg_kind.value, *tensors, version="_v2")
    tensors = asked.tensors(Arg.SRC_0, Arg.SRC_1, Arg.DST)
    return asked.create("binary", asked.desc.alg_kind.value, *tensors)


def _sum(asked: Asked) -> Handle:
    count = len(asked.desc.scales)
    scales = (ctypes.c_float * count)(*asked.desc.scales)
    (dst,), sources = asked.tensors(Arg.DST), _sources(asked, count)
    return asked.create("sum", dst, count, scales, _array(sources))


def _concat(asked: Asked) -> Handle:
    desc = asked.desc
    count = len(desc.src_descs)
    (dst,), sources = asked.tensors(Arg.DST), _sources(asked, count)
    return asked.create("concat", dst, count, desc.axis, _array(sources))


def _normalization(asked: Asked) -> Handle:
    desc = asked.desc
    kind, numbers = desc.prop_kind.value, (_float(desc.epsilon), desc.flags.value)
    if asked.forward:
        ends = asked.tensors(Arg.SRC, Arg.DST)
        return asked.create("batch_normalization_forward", kind, *ends, *numbers)
    tensors = asked.tensors(Arg.DIFF_SRC, Arg.DIFF_DST, Arg.SRC)
    return asked.create("batch_normalization_backward", kind, *tensors, *numbers)


def _lrn(asked: Asked) -> Handle:
    desc = asked.desc
    kinds = desc.prop_kind.value, desc.alg_kind.value
    size = ctypes.c_int64(desc.local_size)
    numbers = (size, *map(_float, (desc.alpha, desc.beta, desc.k)))
    if asked.forward:
        return asked.create("lrn_forward", *kinds, *asked.tensors(Arg.SRC, Arg.DST), *numbers)
    tensors = asked.tensors(Arg.DIFF_SRC, Arg.DIFF_DST, Arg.SRC)
    return asked.create("lrn_backward", kinds[1], *tensors, *numbers)


def _prelu(asked: Asked) -> Handle:
    if asked.forward:
        tensors = asked.tensors(Arg.SRC, Arg.WEIGHTS, Arg.DST)
        return asked.create("prelu_forward", asked.desc.prop_kind.value, *tensors)
    gradients = Arg.DIFF_SRC, Arg.DIFF_WEIGHTS, Arg.DIFF_DST
    return asked.create("prelu_backward", *asked.tensors(Arg.SRC, Arg.WEIGHTS, *gradients))


def _shuffle(asked: Asked) -> Handle:
    desc = asked.desc
    numbers = desc.axis, ctypes.c_int64(desc.group_size)
    if asked.forward:
        ends = asked.tensors(Arg.SRC, Arg.DST)
        return asked.create("shuffle_forward", desc.prop_kind.value, *ends, *numbers)
    ends = asked.tensors(Arg.DIFF_SRC, Arg.DIFF_DST)
    return asked.create("shuffle_backward", *ends, *numbers)


def _layer_normalization(asked: Asked) -> Handle:
    desc, name = asked.desc, "layer_normalization"
    if NormFlags.rms_norm in desc.flags and not asked.forward:
        # Those of 3.13 differ from the formula in float64.
        raise Unimplemented(f"{asked.peer.name} is asked for no gradients of rms_norm")
    kinds = (desc.diff_scale_shift_data_type, desc.scale_shift_data_type)
    types, version = [kind.value for kind in kinds], "_v2"
    if set(kinds) == {DataType.f32}:
        types, version = [], ""
    stat = asked.peer.library.memory_desc(desc.stat_desc)
    numbers = _float(desc.epsilon), desc.flags.value
    if asked.forward:
        ends = (*asked.tensors(Arg.SRC, Arg.DST), stat, *types[1:], *numbers)
        return asked.create(f"{name}_forward", desc.prop_kind.value, *ends, version=version)
    ends = (*asked.tensors(Arg.DIFF_SRC, Arg.DIFF_DST, Arg.SRC), stat, *types, *numbers)
    return asked.create(f"{name}_backward", desc.prop_kind.value, *ends, version=version)


def _group_normalization(asked: Asked) -> Handle:
    desc, name = asked.desc, "group_normalization"
    numbers = ctypes.c_int64(desc.groups), _float(desc.epsilon), desc.flags.value
    ends = (Arg.SRC, Arg.DST) if asked.forward else (Arg.DIFF_SRC, Arg.DIFF_DST, Arg.SRC)
    function = f"{name}_{'forward' if asked.forward else 'backward'}"
    return asked.create(function, desc.prop_kind.value, *asked.tensors(*ends), *numbers)


def _pooling(asked: Asked) -> Handle:
    desc = asked.desc
    kinds = desc.prop_kind.value, desc.alg_kind.value
    window = (desc.strides, desc.kernel, desc.dilations, desc.padding_l, desc.padding_r)
    if asked.forward:
        ends = asked.tensors(Arg.SRC, Arg.DST)
        return asked.create("pooling_forward", *kinds, *ends, *map(dims, window))
    ends = asked.tensors(Arg.DIFF_SRC, Arg.DIFF_DST)
    return asked.create("pooling_backward", kinds[1], *ends, *map(dims, window))


def _reduction(asked: Asked) -> Handle:
    desc = asked.desc
    ends, numbers = asked.tensors(Arg.SRC, Arg.DST), map(_float, (desc.p, desc.eps))
    return asked.create("reduction", desc.alg_kind.value, *ends, *numbers)


def _resampling(asked: Asked) -> Handle:
    desc, factors = asked.desc, ctypes.c_void_p()
    if desc.taps:
        raise Unimplemented("oneDNN takes no taps")
    if asked.forward:
        kinds, ends = (desc.prop_kind.value, desc.alg_kind.value), asked.tensors(Arg.SRC, Arg.DST)
        return asked.create("resampling_forward", *kinds, factors, *ends)
    ends = asked.tensors(Arg.DIFF_SRC, Arg.DIFF_DST)
    return asked.create("resampling_backward", desc.alg_kind.value, factors, *ends)


def _convolution(asked: Asked) -> Handle:
    desc = asked.desc
    window = (desc.strides, desc.dilations, desc.padding_l, desc.padding_r)
    kinds = [desc.prop_kind.value] if asked.forward else []
    ends = (*kinds, desc.alg_kind.value, *_weighted(asked), *map(dims, window))
    return asked.create(f"{desc.kind}_{_direction(asked)}", *ends)


def _inner_product(asked: Asked) -> Handle:
    kinds = [asked.desc.prop_kind.value] if asked.forward else []
    return asked.create(f"inner_product_{_direction(asked)}", *kinds, *_weighted(asked))


def _rnn(asked: Asked) -> Handle:
    desc = asked.desc
    if desc.functions is not None or desc.gate_order or not desc.lengths_desc.is_zero:
        raise Unimplemented("oneDNN takes neither lengths, functions of cells nor a gate_order")
    cell = _CELLS[desc.alg_kind]
    known = [own for own in _RECURRENT if desc.operation.role(own).when(desc)]
    gradients = () if asked.forward else [Arg[f"DIFF_{own.name}"] for own in known]
    tensors = _of_its_own(asked, (*known, *gradients))
    kinds = [desc.prop_kind, *([] if desc.activation is None else [desc.activation])]
    ends = [desc.flags.value, *([_float(desc.alpha)] * 2 if cell == "vanilla_rnn" else [])]
    values = [kind.value for kind in (*kinds, desc.direction)]
    return asked.create(f"{cell}_{_direction(asked)}", *values, *tensors, *ends)


_RECURRENT = (
    *(Arg.SRC_LAYER, Arg.SRC_ITER, Arg.SRC_ITER_C, Arg.AUGRU_ATTENTION),
    *(Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER, Arg.WEIGHTS_PEEPHOLE, Arg.WEIGHTS_PROJECTION),
    *(Arg.BIAS, Arg.DST_LAYER, Arg.DST_ITER, Arg.DST_ITER_C),
)
"""The tensors of all cells in oneDNN's order."""
_CELLS = {
    Alg.vanilla_rnn: "vanilla_rnn",
    Alg.vanilla_lstm: "lstm",
    Alg.vanilla_gru: "gru",
    Alg.lbr_gru: "lbr_gru",
    Alg.vanilla_augru: "augru",
    Alg.lbr_augru: "lbr_augru",
}


def _direction(asked: Asked) -> str:
    return "forward" if asked.forward else str(asked.desc.propagation)


def _weighted(asked: Asked) -> list[Handle | None]:
    """The tensors of a product, or of a gradient."""
    return _of_its_own(asked, _GRADIENTS.get(asked.desc.propagation, _WEIGHTED))


def _of_its_own(asked: Asked, arguments: Iterable[int]) -> list[Handle | None]:
    """Tensors of a kernel that lays out all that are open as it likes, also those that the forward
    pass has."""
    return [asked.peer.library.memory_desc(asked.desc.desc_of(argument)) for argument in arguments]


def _matmul(asked: Asked) -> Handle:
    return asked.create("matmul", *asked.tensors(*_WEIGHTED))


_WEIGHTED = (Arg.SRC, Arg.WEIGHTS, Arg.BIAS, Arg.DST)
_GRADIENTS = {
    PropKind.backward_data: (Arg.DIFF_SRC, Arg.WEIGHTS, Arg.DIFF_DST),
    PropKind.backward_weights: (Arg.SRC, Arg.DIFF_WEIGHTS, Arg.DIFF_BIAS, Arg.DIFF_DST),
}


def _array(handles: Sequence[Handle]) -> ctypes.Array[ctypes.c_void_p]:
    """Descriptors in a row, for the time that ``handles`` live."""
    return (ctypes.c_void_p * len(handles))(*(handle.value.value for handle in handles))


def _sources(asked: Asked, count: int) -> list[Handle]:
    arguments = [Arg.multiple_src(number) for number in range(count)]
    return [handle for handle in asked.tensors(*arguments) if handle is not None]


_MAKERS: dict[type[Desc], Callable[[Asked], Handle]] = {
    ReorderDesc: _reorder,
    SoftmaxDesc: _softmax,
    EltwiseDesc: _eltwise,
    BinaryDesc: _binary,
    SumDesc: _sum,
    ConcatDesc: _concat,
    BatchNormalizationDesc: _normalization,
    LayerNormalizationDesc: _layer_normalization,
    GroupNormalizationDesc: _group_normalization,
    LrnDesc: _lrn,
    PoolingDesc: _pooling,
    PreluDesc: _prelu,
    ReductionDesc: _reduction,
    ResamplingDesc: _resampling,
    ShuffleDesc: _shuffle,
    ConvolutionDesc: _convolution,
    DeconvolutionDesc: _convolution,
    InnerProductDesc: _inner_product,
    MatmulDesc: _matmul,
    RnnDesc: _rnn,
}
