"""What runs on PyTorch for one operation: which functions on tensors of which layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dnnl.errors import Unimplemented
from dnnl.primitives.desc import Desc
from dnnl.reference.arrays import Array
from dnnl.tools.bench.peers.pytorch_tensors import Run, Tensor, Torch, View, plain
from dnnl.types.arg import Arg
from dnnl.types.kinds import FormatKind

Tensors = Mapping[int, Tensor]
"""The tensors by execution argument."""
Values = Mapping[int, Array]
"""Scales and zero points by execution argument."""


@dataclass(frozen=True)
class Program:
    """``build(torch, tensors, values, out)`` gives what computes into ``out`` and returns it.

    Where there is more than one output it returns the tensors by argument. ``views`` are the
    tensors' layouts. A complete program has the attributes in it; other ones are
    followed by the post-ops and know no other attributes.
    """

    name: str
    views: Mapping[int, View]
    build: Callable[[Torch, Tensors, Values, Tensor], Run]
    complete: bool = False


def plain_views(desc: Desc, *, channels_last: bool = False) -> dict[int, View]:
    """Views of unblocked tensors; one left open is laid out as the first of its dims that is not,
    but for sources and weights."""
    tensors = [tensor for tensor in desc.tensors if tensor.argument != Arg.WORKSPACE]
    views = {tensor.argument: plain(tensor.desc, channels_last=channels_last) for tensor in tensors}
    models: dict[tuple[int, ...], View] = {}
    for tensor in reversed(tensors):
        if tensor.desc.format_kind is not FormatKind.any:
            models[tensor.desc.dims] = views[tensor.argument]
    for tensor in tensors:
        follows = tensor.output or not desc.propagation.is_forward
        if follows and tensor.desc.format_kind is FormatKind.any:
            views[tensor.argument] = models.get(tensor.desc.dims, views[tensor.argument])
    return views


def gradients(
    torch: Torch, function: Callable[..., Tensor], sources: Sequence[Tensor], diff_dst: Tensor
) -> Callable[[], tuple[Tensor, ...]]:
    """What computes the gradients of ``function(*sources)`` with respect to the sources, by what
    PyTorch has recorded of one call."""
    own = [source.detach().requires_grad_() for source in sources]
    result = function(*own)
    return lambda: torch.autograd.grad(result, own, diff_dst, retain_graph=True)


def alike(torch: Torch, src: Tensor, out: Tensor) -> tuple[Tensor, Run]:
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
        raise Unimplemented(f"PyTorch computes {desc.kind} of {names} differently")
