"""Reorders on PyTorch: one copy, or the steps of a quantization."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dnnl.errors import Unimplemented
from dnnl.primitives.reorder import ReorderDesc
from dnnl.reference.arrays import Array
from dnnl.tools.bench.peers.base import LARGEST_BELOW_S32
from dnnl.tools.bench.peers.pytorch_program import Program, Tensors, Values
from dnnl.tools.bench.peers.pytorch_tensors import Run, Tensor, Torch, data_type, split
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.post_ops import PostOpSum
from dnnl.types.scales import ScaleSpec

_BYTE = 8


def reorder(desc: ReorderDesc, attr: PrimitiveAttr) -> Program:
    """A copy between two views, or scale, zero point, sum, round and clamp one after the other."""
    source, target = split(desc.src_desc, desc.dst_desc)
    views = {int(Arg.SRC): source, int(Arg.DST): target}
    quantized = bool(attr.scales or attr.zero_points or len(attr.post_ops))
    kinds = desc.src_desc.data_type, desc.dst_desc.data_type
    if kinds[1] is DataType.f8_e4m3 and (quantized or kinds[0] is not kinds[1]):
        raise Unimplemented("PyTorch saturates what f8_e4m3 does not hold, where NaN is due")
    if not quantized and _copies(*kinds):

        def copy(_: Any, tensors: Tensors, __: Values, out: Tensor) -> Run:
            return lambda: out.copy_(tensors[Arg.SRC])

        return Program("copy_", views, copy, complete=True)
    specs = (*attr.scales.values(), *attr.zero_points.values())
    blocked = source.sizes != desc.src_desc.dims
    if any(spec.groups or (spec.mask and blocked) for spec in specs):
        raise Unimplemented("PyTorch has no scales of groups or for blocked layouts")
    return Program("steps", views, _Steps(desc, attr), complete=True)


def _copies(src: DataType, dst: DataType) -> bool:
    """Whether copy_ converts as we do: floats are rounded alike, integers only become larger."""
    if dst.is_float:
        return True
    return src is dst or (dst is DataType.s32 and src.is_integer and src.bits == _BYTE)


class _Steps:
    """``clamp(round(((src - zero point) * scale + sum) / scale + zero point))``, a call for each.

    The two scales are one where nothing is between them.
    """

    def __init__(self, desc: ReorderDesc, attr: PrimitiveAttr) -> None:
        self._desc, self._attr = desc, attr

    def __call__(self, torch: Torch, tensors: Tensors, values: Values, out: Tensor) -> Run:
        dims = self._desc.src_desc.dims
        scales = self._broadcast(torch, values, Arg.SCALES, self._attr.scales, dims)
        zeros = self._broadcast(torch, values, Arg.ZERO_POINTS, self._attr.zero_points, dims)
        steps: list[Callable[[Tensor], Tensor]] = []
        if Arg.SRC in zeros:
            steps.append(lambda x: x.sub_(zeros[Arg.SRC]))
        if Arg.SRC in scales and not len(self._attr.post_ops):
            scales = {Arg.DST: scales.get(Arg.DST, 1.0) / scales[Arg.SRC]}
        if Arg.SRC in scales:
            steps.append(lambda x: x.mul_(scales[Arg.SRC]))
        steps += [self._sum(entry, out) for entry in self._attr.post_ops]
        if Arg.DST in scales:
            steps.append(lambda x: x.div_(scales[Arg.DST]))
        if Arg.DST in zeros:
            steps.append(lambda x: x.add_(zeros[Arg.DST]))
        kind = self._desc.dst_desc.data_type
        if kind.is_integer:
            low, high = kind.min, min(kind.max, LARGEST_BELOW_S32)
            steps += [lambda x: x.round_(), lambda x: x.clamp_(low, high)]
        source = tensors[Arg.SRC]
        work = torch.empty_like(source, dtype=data_type(torch, DataType.f32))

        def run() -> Tensor:
            value = work.copy_(source)
            for step in steps:
                value = step(value)
            return out.copy_(value)

        return run

    def _broadcast(
        self,
        torch: Torch,
        values: Values,
        kind: int,
        specs: Mapping[int, ScaleSpec],
        dims: tuple[int, ...],
    ) -> dict[int, Tensor]:
        """Scales or zero points by argument, of a shape that is broadcast to the tensors."""

        def tensor(array: Array, spec: ScaleSpec) -> Tensor:
            single = torch.from_numpy(array).to(torch.float32)
            return single.reshape(spec.shape(dims) if spec.mask else ())

        return {owner: tensor(values[kind | owner], spec) for owner, spec in specs.items()}

    def _sum(self, entry: object, out: Tensor) -> Callable[[Tensor], Tensor]:
        if not isinstance(entry, PostOpSum) or entry.zero_point or entry.data_type is not None:
            raise Unimplemented(f"PyTorch has no equal of the post-op {entry}")
        return lambda x: x.add_(out, alpha=entry.scale)
