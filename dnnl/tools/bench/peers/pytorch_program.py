"""What runs on PyTorch for one operation: which functions on tensors of which layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dnnl.errors import Unimplemented
from dnnl.primitives.desc import Desc
from dnnl.reference.arrays import Array
from dnnl.tools.bench.peers.pytorch_tensors import View, plain
from dnnl.types.arg import Arg
from dnnl.types.kinds import FormatKind

Tensors = Mapping[int, Any]
"""The tensors by execution argument."""
Values = Mapping[int, Array]
"""Scales and zero points by execution argument."""


@dataclass(frozen=True)
class Program:
    """``build(torch, tensors, values, out)`` gives what computes into ``out`` and returns it.

    ``views`` are the tensors' layouts. A complete program has the attributes in it; other ones are
    followed by the post-ops and know no other attributes.
    """

    name: str
    views: Mapping[int, View]
    build: Callable[[Any, Tensors, Values, Any], Callable[[], Any]]
    complete: bool = False


def plain_views(desc: Desc, *, channels_last: bool = False) -> dict[int, View]:
    """Views of unblocked tensors; a destination left open is laid out as a source of its dims."""
    views = {
        tensor.argument: plain(tensor.desc, channels_last=channels_last) for tensor in desc.tensors
    }
    source, dst = desc.tensors[0], desc.outputs[0].desc
    if dst.format_kind is FormatKind.any and dst.dims == source.desc.dims:
        views[Arg.DST] = views[source.argument]
    return views


def alike(torch: Any, src: Any, out: Any) -> tuple[Any, Callable[[], Any]]:
    """A tensor laid out as ``src``, and what brings its contents to ``out``.

    It is ``out`` itself where that has the layout. Some functions of PyTorch ignore the strides of
    the tensor that they are given for the result.
    """
    if src.stride() == out.stride():
        return out, lambda: out
    work = torch.empty_like(src)
    return work, lambda: out.copy_(work)


def equal_floats(desc: Desc, *ignored: int) -> None:
    """Raise Unimplemented unless the tensors have one type of floats.

    Of others PyTorch rounds, wraps or promotes where we round once and saturate.
    """
    kinds = {t.desc.data_type for t in desc.tensors if t.argument not in ignored}
    if len(kinds) > 1 or not all(kind.is_float for kind in kinds):
        names = ", ".join(sorted(map(str, kinds)))
        raise Unimplemented(f"PyTorch computes {desc.kind} of {names} in another way")
