"""Softmax and the normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Out, Result
from dnnl.ops.call import Problem, call, dense, present
from dnnl.ops.device import taken
from dnnl.ops.elementwise import divide, maximum
from dnnl.ops.promotion import Rules, as_type, of_floats, read_type, rules_of, target
from dnnl.ops.reading import Axes, many, read_axis
from dnnl.primitives.batch_normalization import BatchNormalizationDesc
from dnnl.primitives.group_normalization import GroupNormalizationDesc
from dnnl.primitives.layer_normalization import LayerNormalizationDesc
from dnnl.primitives.lrn import LrnDesc
from dnnl.primitives.parameters import Name, Real, Whole
from dnnl.primitives.reduction import ReductionDesc
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg, NormFlags
from dnnl.types.layout_input import read_bool, read_float, read_int
from dnnl.types.memory_desc import MemoryDesc

_INFERENCE = "forward_inference"
_EPSILON = Real(0.0, "try 1e-5")
_MASKED = Name(("nan", "zero"))


def softmax(
    x: ArrayLike,
    axis: int | None = None,
    out: Out = None,
    *,
    dim: int | None = None,
    dtype: object = None,
    masked_rows: str = "nan",
) -> Result:
    """e^x / sum of e^x along ``axis``, or ``dim`` as PyTorch calls it, by default the last one; in
    ``dtype``, by default the type of x.

    A row of -inf gives NaN as in PyTorch, or 0 with ``masked_rows`` "zero", which attention wants
    where no key takes part.

    >>> softmax(np.zeros((1, 4), np.float32))
    array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    return _shares(x, Alg.softmax_accurate, read_axis(axis, dim, -1), out, dtype, masked_rows)


def log_softmax(
    x: ArrayLike,
    axis: int | None = None,
    out: Out = None,
    *,
    dim: int | None = None,
    dtype: object = None,
    masked_rows: str = "nan",
) -> Result:
    """x - ln of the sum of e^x along ``axis``: the logarithm of `softmax`, without its underflow.

    A row of -inf gives NaN as in PyTorch, or -inf with ``masked_rows`` "zero".

    >>> log_softmax(np.array([[0.0, 1000.0]], np.float32))
    array([[-1000.,     0.]], dtype=float32)
    """
    return _shares(x, Alg.softmax_log, read_axis(axis, dim, -1), out, dtype, masked_rows)


def _shares(
    x: ArrayLike, alg: Alg, axis: Axes, out: Out, dtype: object, masked_rows: str
) -> Result:
    known = _MASKED.read("masked_rows", masked_rows, 0)
    kind = read_type(dtype)
    if kind is not None and not kind.is_float:
        raise InvalidArguments("dtype", str(kind), "shares are floats", "try 'f32'")
    return call(_softmax, (x,), (alg, axis, kind, known, rules_of(x)), out)


def _softmax(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    alg: Alg,
    axis: Axes,
    dtype: DataType | None,
    masked_rows: str,
    rules: Rules,
) -> Problem:
    src = descs[0]
    if dtype is None:
        src = of_floats(src, dst)
        left = dst or dense(src.dims, src)
    else:
        # f32 has all shares of the smaller floats, which are read as they are.
        direct = (
            dtype is DataType.f32 and src.data_type.is_float and src.data_type.bits < dtype.bits
        )
        src = src if direct else as_type(src, dtype)
        left = target(dst, src.dims, dtype)
    shape, (along,) = src.dims, axis.of(src.ndims, rules) or (0,)
    if not shape:
        src, left = src.reshape((1,)), left.reshape((1,))
    desc = SoftmaxDesc.forward(_INFERENCE, alg, src, left, along, masked_rows)
    return Problem(desc, (Arg.SRC,), shape, result=dtype)


def layer_norm(
    x: ArrayLike,
    normalized_shape: Sequence[int] | int,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    out: Out = None,
) -> Result:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions.

    ``normalized_shape`` is the shape of these; ``weight`` and ``bias`` have it as well.

    >>> layer_norm(np.array([[1.0, 3.0]], np.float32), 2, eps=0.0)
    array([[-1.,  1.]], dtype=float32)
    """
    return _normalized(x, normalized_shape, weight, bias, eps, out, NormFlags.none)


def rms_norm(
    x: ArrayLike,
    normalized_shape: Sequence[int] | int,
    weight: ArrayLike | None = None,
    eps: float | None = None,
    out: Out = None,
) -> Result:
    """x / sqrt(mean of x^2 + eps) * weight over the last dimensions, of ``normalized_shape``.

    By default ``eps`` is that of `torch.finfo`, of f64 where x is, else of f32.

    >>> rms_norm(np.array([[3.0, -3.0]], np.float32), 2, eps=0.0)
    array([[ 1., -1.]], dtype=float32)
    """
    return _normalized(x, normalized_shape, weight, None, eps, out, NormFlags.rms_norm)


def _normalized(
    x: ArrayLike,
    shape: Sequence[int] | int,
    weight: ArrayLike | None,
    bias: ArrayLike | None,
    eps: float | None,
    out: Out,
    flags: NormFlags,
) -> Result:
    least = None if eps is None and NormFlags.rms_norm in flags else _epsilon(eps)
    params = many("normalized_shape", shape, read_int), flags | _flags(weight, bias), least
    arrays, names = present({"x": x}, weight=weight, bias=bias)
    return call(_rows, arrays, params, out, names)


def _flags(weight: ArrayLike | None, bias: ArrayLike | None) -> NormFlags:
    """Those of the parameters that are given."""
    flags = NormFlags.none if weight is None else NormFlags.use_scale
    return flags if bias is None else flags | NormFlags.use_shift


def _epsilon(eps: object) -> float:
    return _EPSILON.read("eps", eps, 0)


def _rows(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    sizes: tuple[int, ...],
    flags: NormFlags,
    eps: float | None,
) -> Problem:
    src, parameters = of_floats(descs[0], dst), descs[1:]
    if eps is None:
        eps = min(src.data_type.eps, DataType.f32.eps)
    if not sizes or src.dims[-len(sizes) :] != sizes:
        rule = f"expected the last dimensions of x, which has the shape {src.dims}"
        raise InvalidArguments("normalized_shape", sizes, rule)
    _check_parameters(parameters, flags, sizes)
    shape = src.dims
    rows = (*(shape[: -len(sizes)] or (1,)), prod(sizes))
    tensors = src, *parameters, dst or dense(shape, src)
    cuts = rows, *(rows[-1:] for _ in parameters), rows
    pairs = enumerate(zip(tensors, cuts, strict=True))
    copied = frozenset(number for number, (desc, dims) in pairs if not _is_cut(desc, dims))
    src, left = (
        (dense(shape, tensors[number]) if number in copied else tensors[number]).reshape(rows)
        for number in (0, len(descs))
    )
    desc = LayerNormalizationDesc.forward(_INFERENCE, src, left, eps, flags)
    return Problem(desc, (Arg.SRC, *_arguments(flags)), shape, copied=copied)


def _is_cut(desc: MemoryDesc, dims: tuple[int, ...]) -> bool:
    """Whether the elements are in the places of a tensor of these dims."""
    try:
        desc.reshape(dims)
    except InvalidArguments:
        return False
    return True


def _check_parameters(
    descs: Sequence[MemoryDesc], flags: NormFlags, shape: tuple[int, ...]
) -> None:
    names = [
        name
        for name, flag in (("weight", NormFlags.use_scale), ("bias", NormFlags.use_shift))
        if flag in flags
    ]
    for name, desc in zip(names, descs, strict=True):
        _check_parameter(name, desc, shape)


def _check_parameter(name: str, desc: MemoryDesc, shape: tuple[int, ...]) -> None:
    """Raise unless it has the shape, and numbers that f32 holds: `call` converts smaller floats."""
    small = desc.data_type.is_float and desc.data_type is not DataType.f64
    if desc.dims != shape or not desc.is_dense() or not small:
        rule = f"expected an array without gaps of shape {shape} in f32, or a smaller float"
        raise InvalidArguments(name, f"{desc.data_type} of shape {desc.dims}", rule)


def _arguments(flags: NormFlags) -> tuple[int, ...]:
    scale = (Arg.SCALE,) if NormFlags.use_scale in flags else ()
    return (*scale, *((Arg.SHIFT,) if NormFlags.use_shift in flags else ()))


def batch_norm(
    x: ArrayLike,
    running_mean: ArrayLike,
    running_var: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    out: Out = None,
    *,
    training: bool = False,
) -> Result:
    """(x - running_mean) / sqrt(running_var + eps) * weight + bias, by channel (dimension 1).

    ``training`` is False: statistics are those that are given.

    >>> batch_norm(np.full((1, 1), 3.0, np.float32), np.ones(1, np.float32),
    ...            np.full(1, 0.25, np.float32), eps=0.0)
    array([[4.]], dtype=float32)
    """
    if read_bool("training", training):
        rule = "statistics of the batch are not computed here"
        raise InvalidArguments("training", training, rule, "use BatchNormalizationDesc")
    params = NormFlags.use_global_stats | _flags(weight, bias), _epsilon(eps)
    required = {"x": x, "running_mean": running_mean, "running_var": running_var}
    arrays, names = present(required, weight=weight, bias=bias)
    return call(_channels, arrays, params, out, names)


def _channels(
    descs: Sequence[MemoryDesc], dst: MemoryDesc | None, flags: NormFlags, eps: float
) -> Problem:
    src, (mean, variance, *parameters) = of_floats(descs[0], dst), descs[1:]
    if src.ndims < 2:
        raise InvalidArguments("x", src.dims, "expected a batch and channels, then any dimensions")
    for name, desc in (("running_mean", mean), ("running_var", variance)):
        _check_parameter(name, desc, src.dims[1:2])
    _check_parameters(parameters, flags, src.dims[1:2])
    described = BatchNormalizationDesc.forward(
        _INFERENCE, src, dst or dense(src.dims, src), eps, flags
    )
    return Problem(described, (Arg.SRC, Arg.MEAN, Arg.VARIANCE, *_arguments(flags)), src.dims)


def group_norm(
    x: ArrayLike,
    num_groups: int,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    out: Out = None,
) -> Result:
    """(x - mean) / sqrt(variance + eps) * weight + bias, with the mean and the variance of each
    group of channels (dimension 1); ``weight`` and ``bias`` have one number for each channel.

    >>> group_norm(np.array([[[1.0], [3.0]]], np.float32), 1, eps=0.0)
    array([[[-1.],
            [ 1.]]], dtype=float32)
    """
    params = Whole(1).read("num_groups", num_groups, 0), _flags(weight, bias), _epsilon(eps)
    arrays, names = present({"x": x}, weight=weight, bias=bias)
    return call(_groups, arrays, params, out, names)


def _groups(
    descs: Sequence[MemoryDesc], dst: MemoryDesc | None, groups: int, flags: NormFlags, eps: float
) -> Problem:
    src, parameters = of_floats(descs[0], dst), descs[1:]
    if src.ndims < 2 or src.dims[1] % groups:
        rule = f"must divide the channels of x, which has the shape {src.dims}"
        raise InvalidArguments("num_groups", groups, rule)
    _check_parameters(parameters, flags, src.dims[1:2])
    shape, left = src.dims, dst or dense(src.dims, src)
    if src.ndims == 2:  # which the primitive takes as an image of one point
        src, left = (desc.reshape((*shape, 1)) for desc in (src, left))
    desc = GroupNormalizationDesc.forward(_INFERENCE, src, left, groups, eps, flags)
    return Problem(desc, (Arg.SRC, *_arguments(flags)), shape)


def local_response_norm(
    x: ArrayLike,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    out: Out = None,
) -> Result:
    """x * (k + alpha / size * sum of x^2 over ``size`` neighbouring channels)^-beta.

    ``size`` is odd: the window reaches equally far to both sides.

    >>> local_response_norm(np.ones((1, 1, 2), np.float32), 1, alpha=1.0, beta=1.0)
    array([[[0.5, 0.5]]], dtype=float32)
    """
    width = Whole(1).read("size", size, 0)
    if width % 2 == 0:
        raise InvalidArguments("size", size, "expected an odd number of channels")
    given = (("alpha", alpha), ("beta", beta), ("k", k))
    numbers = tuple(read_float(name, number) for name, number in given)
    return call(_neighbours, (x,), (width, *numbers), out)


def _neighbours(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    size: int,
    alpha: float,
    beta: float,
    k: float,
) -> Problem:
    src = of_floats(descs[0], dst)
    left = dst or dense(src.dims, src)
    desc = LrnDesc.forward(_INFERENCE, "lrn_across_channels", src, left, size, alpha, beta, k)
    return Problem(desc, (Arg.SRC,), src.dims)


def normalize(
    x: ArrayLike,
    p: float = 2.0,
    axis: int | None = None,
    eps: float = 1e-12,
    out: Out = None,
    *,
    dim: int | None = None,
) -> Result:
    """x / max(norm, eps), with the ``p``-norms, of p >= 1, along ``axis``, or ``dim`` as PyTorch
    calls it, by default 1.

    >>> normalize(np.array([[3.0, 4.0]], np.float32))
    array([[0.6, 0.8]], dtype=float32)
    """
    power = read_float("p", p)
    if power < 1 or power == inf:
        raise InvalidArguments("p", power, "expected 1 or more, and no infinity")
    along, least = read_axis(axis, dim, 1), _epsilon(eps)
    place, (array,) = taken((x,), ("x",), out)
    norms = call(_norms, (array,), (power, along, rules_of(x)))
    result = divide(array, maximum(norms, least), out)
    return place.returned(result, (x,), out)


def _norms(
    descs: Sequence[MemoryDesc], dst: MemoryDesc | None, p: float, along: Axes, rules: Rules
) -> Problem:
    src = of_floats(descs[0], dst)
    axes, alg = along.of(src.ndims, rules), Alg.reduction_norm_lp_sum
    if not axes:
        whole = src.reshape((1,))
        return Problem(ReductionDesc(alg, whole, dense((1,), src), p, 0.0), (Arg.SRC,), ())
    (axis,) = axes
    shape = (*src.dims[:axis], 1, *src.dims[axis + 1 :])
    left = dense(shape, src)
    if not src.dims[axis]:
        return Problem(None, (), shape, result=src.data_type)
    return Problem(ReductionDesc(alg, src, left, p, 0.0), (Arg.SRC,), shape)
