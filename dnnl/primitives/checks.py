"""Reading and spelling what several operations have: axes, lists of sources, windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dnnl.errors import InvalidArguments
from dnnl.primitives.desc import Tensor, check_not_any, spelled, spelled_size
from dnnl.types.arg import Arg
from dnnl.types.layout_input import read_integers
from dnnl.types.memory_desc import MemoryDesc

_TOO_FAR = 2**31  # products with extents must fit 64 bits


def check_axis(axis: object, ndims: int) -> None:
    """Raise unless ``axis`` is a dimension."""
    if not ndims:
        raise InvalidArguments("axis", axis, "the tensor has no dimensions, so it has no axis")
    if not isinstance(axis, int) or isinstance(axis, bool) or not 0 <= axis < ndims:
        hint = ""
        if isinstance(axis, int) and -ndims <= axis < 0:
            hint = f"counted from the end it is axis {axis + ndims}"
        raise InvalidArguments("axis", axis, f"expected one of 0..{ndims - 1}", hint)


def read_sources(descs: object) -> tuple[MemoryDesc, ...]:
    """The sources of an operation that takes one or more, each with its layout."""
    sources = tuple(descs) if isinstance(descs, Iterable) else ()
    if not sources:
        rule = "expected a sequence of at least one dnnl.MemoryDesc"
        raise InvalidArguments("src_descs", descs, rule)
    for number, source in enumerate(sources):
        name = f"src_descs[{number}]"
        if not isinstance(source, MemoryDesc):
            raise InvalidArguments(name, source, "expected a dnnl.MemoryDesc")
        check_not_any(name, source)
    return sources


def source_tensors(sources: Sequence[MemoryDesc], dst: MemoryDesc) -> tuple[Tensor, ...]:
    """The tensors of an operation with any number of sources."""
    inputs = [Tensor(Arg.multiple_src(i), "src", desc) for i, desc in enumerate(sources)]
    return (*inputs, Tensor(Arg.DST, "dst", dst, output=True))


def read_spatial(
    name: str, values: Sequence[int], count: int, low: int | None = None
) -> tuple[int, ...]:
    """One integer, of at least ``low``, for each of ``count`` spatial dimensions."""
    numbers = read_integers(name, values)
    if len(numbers) != count:
        rule = f"expected one number for each of {count} spatial dimensions"
        raise InvalidArguments(name, numbers, rule)
    if low is not None and any(number < low for number in numbers):
        raise InvalidArguments(name, numbers, f"must be at least {low}")
    if any(abs(number) >= _TOO_FAR for number in numbers):
        raise InvalidArguments(name, numbers, f"must be less than {_TOO_FAR}")
    return numbers


def image_problem(dims: Sequence[int]) -> str:
    """[batch, channels, spatial...] as ``mb16ic64ih56iw56``."""
    spatial = "dhw"[5 - len(dims) :] if len(dims) <= 5 else ""
    names = ["mb", "ic", *(f"i{letter}" for letter in spatial)]
    if len(names) != len(dims):
        return spelled(dims)
    return "".join(
        f"{name}{spelled_size(extent)}" for name, extent in zip(names, dims, strict=True)
    )


def window_problem(
    src: Sequence[int],
    dst: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: Sequence[int],
) -> str:
    """The spatial part of a sliding window: ``_ih112oh56kh3sh2dh0ph1_iw112ow56...``."""
    letters = "dhw"[3 - len(src) :]
    columns = zip(src, dst, kernel, strides, dilations, padding, strict=True)
    return "".join(
        "_"
        + "".join(
            f"{key}{letter}{spelled_size(value)}"
            for key, value in zip("ioksdp", column, strict=True)
        )
        for letter, column in zip(letters, columns, strict=True)
    )
