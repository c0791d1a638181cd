"""What PyTorch calls for each of our operations."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from dnnl.errors import Unimplemented
from dnnl.primitives.batch_normalization import BatchNormalizationDesc
from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.concat import ConcatDesc
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.deconvolution import DeconvolutionDesc
from dnnl.primitives.desc import Desc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.primitives.gather import GatherDesc
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
from dnnl.tools.bench.peers.pytorch_functions import binary, eltwise
from dnnl.tools.bench.peers.pytorch_gradients import eltwise_backward
from dnnl.tools.bench.peers.pytorch_products import (
    convolution,
    deconvolution,
    inner_product,
    matmul,
)
from dnnl.tools.bench.peers.pytorch_program import (
    Program,
    Tensors,
    Values,
    alike,
    equal_floats,
    gradients,
    plain_views,
)
from dnnl.tools.bench.peers.pytorch_recurrent import recurrent
from dnnl.tools.bench.peers.pytorch_reorder import reorder
from dnnl.tools.bench.peers.pytorch_tensors import Run, Tensor, Torch
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg, NormFlags, PropKind

_MATRIX = 2
_AFFINE = (Arg.MEAN, Arg.VARIANCE, Arg.SCALE, Arg.SHIFT, Arg.DIFF_SCALE, Arg.DIFF_SHIFT)


def program(desc: Desc, attr: PrimitiveAttr) -> Program:
    """The functions for one operation; raises Unimplemented where PyTorch has no equal."""
    make = _MAKERS.get(type(desc))
    if make is None:
        raise Unimplemented(f"PyTorch is not asked for {desc.kind}")
    if any(tensor.desc.compensation is not None for tensor in desc.tensors):
        raise Unimplemented("PyTorch has no compensation behind a tensor")
    if (attr.scales or attr.zero_points) and not isinstance(desc, ReorderDesc):
        raise Unimplemented(f"PyTorch has no {desc.kind} with scales or zero points")
    if attr.dropout is not None:
        raise Unimplemented("PyTorch is asked for no dropout")
    return make(desc, attr)


def _softmax(desc: SoftmaxDesc, _: PrimitiveAttr) -> Program:
    equal_floats(desc)
    name = "_log_softmax" if desc.alg_kind is Alg.softmax_log else "_softmax"
    if not desc.propagation.is_forward:
        return _softmax_backward(desc, f"{name}_backward_data")

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        operators, src = getattr(torch.ops.aten, name), tensors[Arg.SRC]
        if not src.is_contiguous():
            # Given a result it would ignore the strides of both.
            return lambda: operators.default(src, desc.axis, False)
        work, finish = alike(torch, src, out)

        def run() -> Tensor:
            operators.out(src, desc.axis, False, out=work)
            return finish()

        return run

    return Program(name.removeprefix("_"), plain_views(desc), build)


def _softmax_backward(desc: SoftmaxDesc, name: str) -> Program:
    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        operators, dst = getattr(torch.ops.aten, name), tensors[Arg.DST]
        ends = (tensors[Arg.DIFF_DST], dst, desc.axis, dst.dtype)
        keyword = "out" if desc.alg_kind is Alg.softmax_log else "grad_input"
        if not all(tensor.is_contiguous() for tensor in (*ends[:2], out)):
            return lambda: operators.default(*ends)
        return lambda: operators.out(*ends, **{keyword: out})

    return Program(name.removeprefix("_"), plain_views(desc), build)


def _eltwise(desc: EltwiseDesc, _: PrimitiveAttr) -> Program:
    equal_floats(desc)

    parameters = desc.alg_kind, desc.alpha, desc.beta

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        if desc.propagation.is_forward:
            function, src = eltwise(torch, *parameters), tensors[Arg.SRC]
            return lambda: function(src, out)
        gradient, diff_dst = eltwise_backward(torch, *parameters), tensors[Arg.DIFF_DST]
        data = tensors[Arg.DST if desc.alg_kind.uses_dst else Arg.SRC]
        return lambda: gradient(diff_dst, data, out)

    return Program(desc.alg_kind.name.removeprefix("eltwise_"), plain_views(desc), build)


def _binary(desc: BinaryDesc, _: PrimitiveAttr) -> Program:
    equal_floats(desc)

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        function = binary(torch, desc.alg_kind)
        x, y = tensors[Arg.SRC_0], tensors[Arg.SRC_1]
        return lambda: function(x, y, out)

    return Program(desc.alg_kind.name.removeprefix("binary_"), plain_views(desc), build)


def _sum(desc: SumDesc, _: PrimitiveAttr) -> Program:
    equal_floats(desc)
    first, *scales = desc.scales

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        head, *others = (tensors[Arg.multiple_src(i)] for i in range(len(desc.scales)))
        pairs = list(zip(others, scales, strict=True))

        def run() -> Tensor:
            if first == 1 and pairs:
                result = torch.add(head, pairs[0][0], alpha=pairs[0][1], out=out)
                rest = pairs[1:]
            else:
                result, rest = torch.mul(head, first, out=out), pairs
            for tensor, scale in rest:
                result = result.add_(tensor, alpha=scale)
            return result

        return run

    return Program("add", plain_views(desc), build)


def _concat(desc: ConcatDesc, _: PrimitiveAttr) -> Program:
    count = len(desc.src_descs)

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        sources = [tensors[Arg.multiple_src(i)] for i in range(count)]
        return lambda: torch.cat(sources, dim=desc.axis, out=out)

    if len({t.desc.data_type for t in desc.tensors}) > 1:
        raise Unimplemented("PyTorch concatenates tensors of one type")
    return Program("cat", plain_views(desc), build)


def _normalization(desc: BatchNormalizationDesc, _: PrimitiveAttr) -> Program:
    relu = NormFlags.fuse_norm_relu in desc.flags
    if NormFlags.fuse_norm_add_relu in desc.flags:
        raise Unimplemented("PyTorch is compared where nothing is added")
    if not desc.propagation.is_forward:
        if relu:
            raise Unimplemented("PyTorch has no workspace of a fused relu")
        return _normalization_backward(desc)
    if NormFlags.use_global_stats not in desc.flags:
        return _normalization_by_batch(desc, relu)

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        call = torch.ops.aten.native_batch_norm.out
        arguments = (Arg.SRC, Arg.SCALE, Arg.SHIFT, Arg.MEAN, Arg.VARIANCE)
        values = [tensors.get(argument) for argument in arguments]
        saved = [torch.empty(0), torch.empty(0)]
        work, finish = alike(torch, values[0], out)

        def run() -> Tensor:
            call(
                *values,
                False,
                0.0,
                desc.epsilon,
                out=work,
                save_mean=saved[0],
                save_invstd=saved[1],
            )
            result = finish()
            return result.relu_() if relu else result

        return run

    return Program("native_batch_norm", plain_views(desc), build)


def _layer_normalization(desc: LayerNormalizationDesc, _: PrimitiveAttr) -> Program:
    if desc.flags & (NormFlags.use_global_stats | NormFlags.rms_norm):
        raise Unimplemented("PyTorch is compared where mean and variance are those of the rows")
    if desc.prop_kind is PropKind.forward_training:
        raise Unimplemented("PyTorch stores the inverse deviation in the place of the variance")
    equal_floats(desc, Arg.MEAN, Arg.VARIANCE)
    row = list(desc.src_desc.dims[-1:])

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        aten, src = torch.ops.aten, tensors[Arg.SRC]
        scale, shift = tensors.get(Arg.SCALE), tensors.get(Arg.SHIFT)
        if desc.prop_kind.is_forward:
            work, finish = alike(torch, src, out)
            saved = [torch.empty(0), torch.empty(0)]

            def run() -> Tensor:
                aten.native_layer_norm.out(
                    src, row, scale, shift, desc.epsilon, out0=work, out1=saved[0], out2=saved[1]
                )
                return finish()

            return run
        mean = tensors[Arg.MEAN].unsqueeze(-1)
        inverse = (tensors[Arg.VARIANCE].unsqueeze(-1) + desc.epsilon).rsqrt()
        names = (Arg.DIFF_SRC, Arg.DIFF_SCALE, Arg.DIFF_SHIFT)
        wanted = [name in tensors for name in names]
        operands = (tensors[Arg.DIFF_DST], src, row, mean, inverse, scale, tensors.get(names[2]))

        def gradient() -> dict[int, Tensor]:
            made = aten.native_layer_norm_backward(*operands, wanted)
            return {int(name): made[n] for n, name in enumerate(names) if wanted[n]}

        return gradient

    return Program("native_layer_norm", plain_views(desc), build)


def _group_normalization(desc: GroupNormalizationDesc, _: PrimitiveAttr) -> Program:
    if NormFlags.use_global_stats in desc.flags:
        raise Unimplemented("PyTorch is compared where mean and variance are those of the groups")
    equal_floats(desc, *_AFFINE)
    if desc.src_desc.data_type is not DataType.f32:
        raise Unimplemented("PyTorch wants statistics and scales of the type of src")
    images, channels, *space = desc.src_desc.dims
    sizes = images, channels, prod(space), desc.groups

    def build(torch: Torch, tensors: Tensors, _: Values, __: Tensor) -> Run:
        aten, src, scale = torch.ops.aten, tensors[Arg.SRC], tensors.get(Arg.SCALE)
        if desc.prop_kind.is_forward:
            shift = tensors.get(Arg.SHIFT)

            def run() -> Tensor:
                made = aten.native_group_norm(src, scale, shift, *sizes, desc.epsilon)
                dst, mean, inverse = made
                return {Arg.DST: dst, Arg.MEAN: mean, Arg.VARIANCE: inverse**-2 - desc.epsilon}

            training = desc.prop_kind is PropKind.forward_training
            return run if training else lambda: run()[Arg.DST]
        mean, inverse = tensors[Arg.MEAN], (tensors[Arg.VARIANCE] + desc.epsilon).rsqrt()
        names = (Arg.DIFF_SRC, Arg.DIFF_SCALE, Arg.DIFF_SHIFT)
        wanted = [name in tensors for name in names]
        last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(src.ndim)
        is_last = last is not None and src.is_contiguous(memory_format=last)
        layout = last if is_last else torch.contiguous_format

        def gradient() -> dict[int, Tensor]:
            # It takes both for tensors of one of these layouts, which autograd gives it.
            ends = (
                tensor.contiguous(memory_format=layout) for tensor in (tensors[Arg.DIFF_DST], src)
            )
            made = aten.native_group_norm_backward(*ends, mean, inverse, scale, *sizes, wanted)
            return {int(name): made[n] for n, name in enumerate(names) if wanted[n]}

        return gradient

    return Program("native_group_norm", plain_views(desc), build)


def _lrn(desc: LrnDesc, _: PrimitiveAttr) -> Program:
    if desc.alg_kind is not Alg.lrn_across_channels:
        raise Unimplemented("PyTorch has no local response normalization within a channel")
    if desc.local_size % 2 == 0 or desc.src_desc.ndims == _MATRIX:
        raise Unimplemented("PyTorch has other windows of even sizes, and none without space")
    equal_floats(desc, Arg.WORKSPACE)
    numbers = (desc.local_size, desc.alpha, desc.beta, desc.k)

    def build(torch: Torch, tensors: Tensors, _: Values, __: Tensor) -> Run:
        call, src = torch.nn.functional.local_response_norm, tensors[Arg.SRC]
        if desc.propagation.is_forward:
            return lambda: call(src, *numbers)
        computed = gradients(torch, lambda x: call(x, *numbers), [src], tensors[Arg.DIFF_DST])
        return lambda: computed()[0]

    return Program("local_response_norm", plain_views(desc), build)


def _prelu(desc: PreluDesc, _: PrimitiveAttr) -> Program:
    equal_floats(desc)

    def build(torch: Torch, tensors: Tensors, _: Values, __: Tensor) -> Run:
        src, weights = tensors[Arg.SRC], tensors[Arg.WEIGHTS]
        aten, each = torch.ops.aten, weights.expand_as(src)
        if desc.propagation.is_forward:
            return lambda: aten._prelu_kernel(src, each)
        shared = [d for d, size in enumerate(desc.weights_desc.dims) if size == 1]

        def gradient() -> dict[int, Tensor]:
            diff_src, shares = aten._prelu_kernel_backward(tensors[Arg.DIFF_DST], src, each)
            sums = shares.sum(shared, keepdim=True) if shared else shares
            return {Arg.DIFF_SRC: diff_src, Arg.DIFF_WEIGHTS: sums}

        return gradient

    return Program("_prelu_kernel", plain_views(desc), build)


def _shuffle(desc: ShuffleDesc, _: PrimitiveAttr) -> Program:
    forward = desc.propagation.is_forward
    if len({tensor.desc.data_type for tensor in desc.tensors}) > 1:
        raise Unimplemented("PyTorch moves elements of one type")

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        given = tensors[Arg.SRC if forward else Arg.DIFF_DST]
        groups = given.shape[desc.axis] // desc.group_size
        rows = groups if forward else desc.group_size
        split = given.unflatten(desc.axis, (rows, -1)).transpose(desc.axis, desc.axis + 1)
        places = out.unflatten(desc.axis, (-1, rows))

        def run() -> Tensor:
            places.copy_(split)
            return out

        return run

    return Program("copy_", plain_views(desc), build)


def _normalization_by_batch(desc: BatchNormalizationDesc, relu: bool) -> Program:
    learned = NormFlags.use_scale | NormFlags.use_shift
    if desc.src_desc.data_type is not DataType.f32 and not desc.flags & learned:
        raise Unimplemented("PyTorch rounds statistics to the type of src where that has no scales")

    def build(torch: Torch, tensors: Tensors, _: Values, __: Tensor) -> Run:
        call = torch.ops.aten.native_batch_norm.default
        values = [tensors.get(argument) for argument in (Arg.SRC, Arg.SCALE, Arg.SHIFT)]

        def run() -> Tensor:
            dst, mean, deviation = call(*values, None, None, True, 0.0, desc.epsilon)
            variance = deviation**-2 - desc.epsilon
            dst = dst.relu_() if relu else dst
            return {Arg.DST: dst, Arg.MEAN: mean, Arg.VARIANCE: variance}

        return run

    return Program("native_batch_norm", plain_views(desc), build)


def _normalization_backward(desc: BatchNormalizationDesc) -> Program:
    outputs = (Arg.DIFF_SRC, Arg.DIFF_SCALE, Arg.DIFF_SHIFT)
    written = [output.argument for output in desc.outputs]
    wanted = [argument in written for argument in outputs]
    given = NormFlags.use_global_stats in desc.flags

    def build(torch: Torch, tensors: Tensors, _: Values, __: Tensor) -> Run:
        call = torch.ops.aten.native_batch_norm_backward.default
        mean, variance = tensors[Arg.MEAN], tensors[Arg.VARIANCE]
        statistics = (mean, variance, None, None)
        if not given:
            statistics = (None, None, mean, (variance + desc.epsilon).rsqrt())
        ends = tensors[Arg.DIFF_DST], tensors[Arg.SRC], tensors.get(Arg.SCALE)

        def run() -> Tensor:
            made = call(*ends, *statistics, not given, desc.epsilon, wanted)
            return {a: value for a, value in zip(outputs, made, strict=True) if a in written}

        return run

    return Program("native_batch_norm_backward", plain_views(desc), build)


def _pooling(desc: PoolingDesc, _: PrimitiveAttr) -> Program:
    largest = desc.alg_kind is Alg.pooling_max
    if not desc.propagation.is_forward and largest:
        raise Unimplemented("PyTorch wants elements of src where a workspace has taps")
    if not largest:
        equal_floats(desc)
    space = len(desc.kernel)
    dilations = [value + 1 for value in desc.dilations]
    if not largest and set(dilations) != {1}:
        raise Unimplemented("PyTorch has no average of dilated windows")
    name = f"{'max' if largest else 'avg'}_pool{space}d"
    window = (list(desc.kernel), list(desc.strides), list(desc.padding_l))
    padding = desc.alg_kind is Alg.pooling_avg_include_padding
    extra = (dilations, False) if largest else (False, padding)

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        call = getattr(torch.nn.functional, name)
        if desc.propagation.is_forward:
            return lambda: call(tensors[Arg.SRC], *window, *extra)
        src = torch.empty_like(out)
        run = gradients(torch, lambda x: call(x, *window, *extra), [src], tensors[Arg.DIFF_DST])
        return lambda: run()[0]

    return Program(name, plain_views(desc), build)


def _reduction(desc: ReductionDesc, _: PrimitiveAttr) -> Program:
    names = {
        Alg.reduction_sum: "sum",
        Alg.reduction_mean: "mean",
        Alg.reduction_max: "amax",
        Alg.reduction_min: "amin",
    }
    name = names.get(desc.alg_kind)
    if name is None:
        raise Unimplemented(f"PyTorch is not asked for {desc.alg_kind}")
    equal_floats(desc)
    pairs = enumerate(zip(desc.src_desc.dims, desc.dst_desc.dims, strict=True))
    axes = [axis for axis, (extent, left) in pairs if extent != left]
    if not axes:
        raise Unimplemented("PyTorch takes no axes for all")

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        call, src = getattr(torch, name), tensors[Arg.SRC]
        return lambda: call(src, axes, keepdim=True, out=out)

    return Program(name, plain_views(desc), build)


def _resampling(desc: ResamplingDesc, _: PrimitiveAttr) -> Program:
    if desc.taps:
        raise Unimplemented("PyTorch takes no taps")
    equal_floats(desc)
    forward = desc.propagation.is_forward
    src, dst = (
        (desc.src_desc, desc.dst_desc) if forward else (desc.diff_src_desc, desc.diff_dst_desc)
    )
    linear = desc.alg_kind is Alg.resampling_linear
    mode = ("linear", "bilinear", "trilinear")[src.ndims - 3] if linear else "nearest-exact"
    options = {"align_corners": False} if linear else {}

    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        def call(x: Tensor) -> Tensor:
            return torch.nn.functional.interpolate(x, dst.dims[2:], mode=mode, **options)

        if forward:
            return lambda: call(tensors[Arg.SRC])
        run = gradients(torch, call, [torch.empty_like(out)], tensors[Arg.DIFF_DST])
        return lambda: run()[0]

    return Program("interpolate", plain_views(desc), build)


def _gather(desc: GatherDesc, _: PrimitiveAttr) -> Program:
    def build(torch: Torch, tensors: Tensors, _: Values, out: Tensor) -> Run:
        extent = desc.src_desc.dims[desc.axis]
        given = tensors[Arg.SRC_1]
        # It refuses negative indices and those out of range.
        places = torch.where(given < 0, given + extent, given).clamp(0, extent - 1)
        if elements:
            places = places.long()
            return lambda: torch.gather(tensors[Arg.SRC], desc.axis, places, out=out)
        return lambda: torch.index_select(tensors[Arg.SRC], desc.axis, places, out=out)

    elements = desc.indices_desc.ndims > 1
    return Program("gather" if elements else "index_select", plain_views(desc), build)


_MAKERS: dict[type[Desc], Callable[..., Program]] = {
    ReorderDesc: reorder,
    SoftmaxDesc: _softmax,
    EltwiseDesc: _eltwise,
    BinaryDesc: _binary,
    SumDesc: _sum,
    ConcatDesc: _concat,
    BatchNormalizationDesc: _normalization,
    GatherDesc: _gather,
    GroupNormalizationDesc: _group_normalization,
    LayerNormalizationDesc: _layer_normalization,
    LrnDesc: _lrn,
    PoolingDesc: _pooling,
    PreluDesc: _prelu,
    ReductionDesc: _reduction,
    ResamplingDesc: _resampling,
    ShuffleDesc: _shuffle,
    ConvolutionDesc: convolution,
    DeconvolutionDesc: deconvolution,
    InnerProductDesc: inner_product,
    MatmulDesc: matmul,
    RnnDesc: recurrent,
}
