"""Arrays of any library in, and results of the same kind out."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.promotion import TORCH, is_number, is_tensor, rules_of
from dnnl.ops.recorded import RequiresGradient
from dnnl.runtime.dlpack import Exporter
from dnnl.runtime.memory import Memory
from dnnl.runtime.wrap import ArrayLike, array_of
from dnnl.types.dtype import DataType

Array = np.ndarray

Out: TypeAlias = Array | Exporter | None
"""A writable array for the result, or None for a new one."""

Result: TypeAlias = Any
"""``out``, or a new array of the library of the first argument: only the call knows which."""


Shape = tuple[int, ...]


class Shaped(Protocol):
    """What NumPy says of an array, ``strides`` in bytes."""

    @property
    def shape(self) -> Shape: ...
    @property
    def strides(self) -> Shape: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...


A = TypeVar("A", bound=Shaped)


def lent(source: Any, argument: str) -> Array:
    """A NumPy array of the same memory, or a copy where strides are negative or odd,
    or what is stored are the negated numbers.

    Numbers and lists become f32, the type that all operations take.
    """
    if is_number(source) or isinstance(source, list | tuple):
        source = _made(source, np.dtype(np.float32), argument)
    if hasattr(source, "resolve_neg"):  # a tensor of PyTorch
        source = _settled(source, argument)
    array = array_of(source, argument)
    return array if _is_plain(array) else np.ascontiguousarray(array)


def differentiating() -> bool:
    """Whether tensors of PyTorch may have tangents, those of forward-mode differentiation."""
    return getattr(_forward(), "_current_level", 0) >= 0


@cache
def _forward() -> Any:
    return sys.modules["torch.autograd.forward_ad"]


def _settled(tensor: Any, argument: str) -> Any:
    """A tensor of PyTorch whose memory says all."""
    name = type(tensor).__name__
    if is_tensor(type(tensor)):
        try:
            address = tensor.data_ptr()
        except RuntimeError:  # sparse, or within torch.func: its export says why
            return tensor
        if not address and tensor.numel():
            rule = "has no memory of its own, as tensors within tracing and on the device 'meta'"
            raise InvalidArguments(argument, name, rule, "pass a tensor with elements")
    if differentiating() and _forward().unpack_dual(tensor).tangent is not None:
        rule = "has a tangent, and functions on arrays are not differentiated forwards"
        hint = "pass torch.autograd.forward_ad.unpack_dual(tensor).primal"
        raise InvalidArguments(argument, name, rule, hint)
    if tensor.requires_grad:
        if sys.modules["torch"].is_grad_enabled():
            rule = "requires a gradient, which is not computed here"
            raise RequiresGradient(argument, name, rule, f"pass {argument}.detach()")
        tensor = tensor.detach()
    return tensor.resolve_neg()


def arrays_of(
    sources: Sequence[Any],
    arguments: Sequence[str],
    take: Callable[[Any, str], A],
    place: Callable[[Array], A],
) -> list[A]:
    """What ``take`` makes of each source, and ``place`` of an array of a Python number, which has
    the type that the arrays' library gives it."""
    rules = rules_of(*sources)
    if rules is TORCH:  # which takes NumPy's numbers for Python's
        sources = [s.item() if isinstance(s, np.generic) else s for s in sources]
    pairs = list(zip(sources, arguments, strict=True))
    found = [None if is_number(source) else take(source, name) for source, name in pairs]
    models = [(a.dtype, name) for a, name in zip(found, arguments, strict=True) if a is not None]
    arrays = []
    for array, (source, name) in zip(found, pairs, strict=True):
        if array is not None:
            arrays.append(array)
        elif models:
            kind = rules.number(source, data_type_of(*models[0]))
            arrays.append(place(_made(source, kind.numpy, name)))
        else:
            arrays.append(place(lent(source, name)))
    return arrays


def data_type_of(dtype: np.dtype, argument: str) -> DataType:
    """The data type of a NumPy type, refused in the name of an argument."""
    try:
        return DataType.from_numpy(dtype)
    except InvalidArguments as error:
        raise InvalidArguments(argument, str(dtype), error.rule, error.hint) from None


def _made(source: ArrayLike, dtype: np.dtype, argument: str) -> Array:
    """Numbers as an array of a type that holds them."""
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(source, dtype)
        given = np.asarray(source)
        held = given.dtype.kind not in "iuO" or np.array_equal(array.astype(object), given)
    except OverflowError:
        held = False
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArguments(argument, source, f"no array of numbers: {error}") from None
    if not held:
        rule = f"{DataType.from_numpy(dtype)} does not hold these integers"
        raise InvalidArguments(argument, source, rule, "pass an array of a wider type")
    return array


def written(out: Out) -> Array:
    """A NumPy array of the memory of ``out``, to be written."""
    assert out is not None
    array = array_of(out, "out")
    if not _is_plain(array) or not array.flags.writeable:
        rule = "expected a writable array without negative strides"
        raise InvalidArguments("out", f"{array.dtype} of strides {array.strides}", rule)
    return array


def same_kind(result: Array, like: ArrayLike | None) -> Result:
    """A result for who passed ``like``: NumPy's, or by DLPack what its library makes of it."""
    if isinstance(like, Memory):
        return Memory.from_numpy(result)
    if isinstance(like, np.ndarray | np.generic) or not hasattr(like, "__dlpack__"):
        return result
    library = sys.modules.get(type(like).__module__.partition(".")[0])
    make = getattr(library, "from_dlpack", None)
    if make is None:
        rule = "its library has no from_dlpack for the result"
        raise InvalidArguments("x", type(like).__name__, rule, "pass a NumPy array")
    # NumPy does not export types that it does not have itself, as bf16.
    return make(result if result.dtype.isbuiltin == 1 else Memory.from_numpy(result))


def address_of(array: Array) -> int:
    """The address of the first element; ``array.ctypes`` takes three times as long."""
    try:
        return ctypes.addressof(ctypes.c_byte.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, with gaps, or of a type of ml_dtypes
        return array.ctypes.data


def _is_plain(array: Array) -> bool:
    size = array.itemsize
    return array.flags.c_contiguous or all(
        stride >= 0 and stride % size == 0 for stride in array.strides
    )
