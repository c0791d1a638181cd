"""Checks and spellings that several operations share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Protocol

from dnnl.errors import InvalidArguments
from dnnl.types.kinds import RUNTIME_DIM, FormatKind, PropKind, coerce, sizes_text
from dnnl.types.layout_input import read_sequence
from dnnl.types.memory_desc import MemoryDesc


def check_forward(prop_kind: PropKind | str, gradient: str = "a gradient is backward()") -> None:
    """Raise unless this is the propagation of a forward pass; ``gradient`` says what is that of
    others."""
    if not coerce(PropKind, prop_kind, "prop_kind").is_forward:
        rule = "expected forward_training or forward_inference"
        raise InvalidArguments("prop_kind", str(prop_kind), rule, gradient)


def check_backward(prop_kind: PropKind | str) -> None:
    """Raise unless this is the propagation of a gradient."""
    if coerce(PropKind, prop_kind, "prop_kind").is_forward:
        rule = "expected backward or backward_data"
        raise InvalidArguments("prop_kind", str(prop_kind), rule, "the computation is forward()")


def total(*factors: int) -> int:
    """The product of sizes; RUNTIME_DIM if one of them is open."""
    return RUNTIME_DIM if RUNTIME_DIM in factors else prod(factors)


def check_dims(
    argument: str, desc: MemoryDesc, expected: Sequence[int], why: str, hint: str = ""
) -> None:
    """Raise unless the dims are as expected: what is open in one tensor is open in all."""
    if desc.dims != tuple(expected):
        raise InvalidArguments(argument, desc.dims, f"expected {sizes_text(expected)}, {why}", hint)


class Window(Protocol):
    """The parameters of a window that slides over images; a number for each spatial dimension."""

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances of its places."""

    @property
    def padding_l(self) -> tuple[int, ...]:
        """How far it begins before the image."""

    @property
    def padding_r(self) -> tuple[int, ...]:
        """How far it ends behind the image."""

    @property
    def dilations(self) -> tuple[int, ...]:
        """The gaps between its taps."""


def places(size: int, taps: int, stride: int, padding: int, dilation: int) -> int:
    """How many places a window has in one dimension of an image, with the padding of both ends."""
    span = size + padding - window_reach(taps, dilation)
    return span // stride + 1 if span >= 0 else 0


def source_size(count: int, taps: int, stride: int, padding: int, dilation: int) -> int:
    """The least size of an image in which a window has so many places, with the padding of both
    ends."""
    return max((count - 1) * stride + window_reach(taps, dilation) - padding, 0)


def window_reach(taps: int, dilation: int) -> int:
    """How many elements a window reaches over, in one dimension."""
    return (taps - 1) * (dilation + 1) + 1


def window_hint(
    window: Window, images: Sequence[int], kernel: Sequence[int], out: Sequence[int]
) -> str:
    """What to look at where a window has not ``out`` places in ``images``.

    That is the order of the arguments, where oneDNN's would fit, which has the dilations
    before the paddings; or dilations that count from 1. Empty where taps are neighbours.
    """
    dilations = window.dilations
    if not any(dilations):
        return ""
    sizes = zip(
        images,
        kernel,
        window.strides,
        window.padding_r,
        dilations,
        window.padding_l,
        out,
        strict=False,
    )
    if len(images) == len(out) and all(
        places(n, k, s, left + right, gap) == o for n, k, s, left, right, gap, o in sizes
    ):
        order = "strides, padding_l, padding_r, dilations"
        return f"oneDNN has dilations before the paddings; here the order is {order}"
    dense = sizes_text([max(size - 1, 0) for size in dilations])
    given = f"dilations = {sizes_text(dilations)} count from 0, which is dense"
    return f"{given}; what others write so is {dense}"


def read_sources(descs: Iterable[MemoryDesc]) -> tuple[MemoryDesc, ...]:
    """The sources of an operation that takes one or more, each with its layout."""
    rule = "expected a sequence of at least one dnnl.MemoryDesc"
    sources = read_sequence("src_descs", descs, rule)
    if not sources:
        raise InvalidArguments("src_descs", descs, rule)
    for number, source in enumerate(sources):
        name = f"src_descs[{number}]"
        if not isinstance(source, MemoryDesc):
            raise InvalidArguments(name, source, "expected a dnnl.MemoryDesc")
        if source.is_zero:
            raise InvalidArguments(name, str(source), "this tensor is required")
        if source.format_kind is FormatKind.any:
            rule = "the layout of this tensor must be given"
            raise InvalidArguments(name, str(source), rule, "'any' is for tensors not yet made")
    return sources


def spelled(dims: Sequence[int]) -> str:
    """Sizes as benchdnn writes them, 2x3x4; one that only execution knows is ``*``."""
    return "x".join(map(spelled_size, dims))


def spelled_size(*factors: int) -> str:
    """One size of `spelled`, or the product of several."""
    return "*" if RUNTIME_DIM in factors else str(prod(factors))


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
