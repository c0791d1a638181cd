"""Batch normalization."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Reason, Recipe, Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels import batch_normalization as kernel
from dnnl.primitives.checks import image_problem
from dnnl.primitives.desc import (
    Desc,
    Tensor,
    check_dims,
    check_not_any,
    check_prop_forward,
    check_tensors,
    read_kinds,
    src_dst,
)
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    like,
    refuse_attr,
    resolve_post_ops,
)
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import NormFlags, PropKind, coerce
from dnnl.types.layout_input import read_float
from dnnl.types.memory_desc import MemoryDesc

_KNOWN = (
    NormFlags.use_global_stats
    | NormFlags.use_scale
    | NormFlags.use_shift
    | NormFlags.fuse_norm_relu
    | NormFlags.fuse_norm_add_relu
)


@dataclass(frozen=True)
class BatchNormalizationDesc(Desc):
    """dst = scale * (src - mean) / sqrt(variance + epsilon) + shift for each channel.

    Arguments SRC, DST; MEAN and VARIANCE, read with ``use_global_stats`` and written in training
    without it; SCALE with ``use_scale``, SHIFT with ``use_shift``. All but the data have the dims
    (channels,) and are f32. ``fuse_norm_relu`` ends with max(0, dst). src is [batch, channels,
    spatial...], dst may be ``any`` and may be src's buffer.
    """

    kind = "batch_normalization"
    in_place = (Arg.SRC,)

    prop_kind: PropKind
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    epsilon: float
    flags: NormFlags

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        epsilon: float,
        flags: NormFlags | str | int | None,
    ) -> BatchNormalizationDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken."""
        prop, given = coerce(PropKind, prop_kind, "prop_kind"), coerce(NormFlags, flags, "flags")
        return cls(prop, src_desc, dst_desc, epsilon, given)

    def __post_init__(self) -> None:
        read_kinds(self)
        object.__setattr__(self, "epsilon", read_float("epsilon", self.epsilon))
        check_tensors(self)
        check_prop_forward(self.prop_kind)
        check_not_any("src_desc", self.src_desc)
        if self.src_desc.ndims < 2:
            rule = "expected at least 2 dimensions: batch and channels"
            raise InvalidArguments("src_desc", self.src_desc.dims, rule)
        check_dims("dst_desc", self.dst_desc, self.src_desc.dims, "the dims of src")
        if not self.epsilon >= 0:
            raise InvalidArguments("epsilon", self.epsilon, "must not be negative", "try 1e-5")
        if self.flags & ~_KNOWN:
            rule = f"batch normalization knows {_KNOWN}"
            raise InvalidArguments("flags", str(self.flags), rule)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """SRC, DST, and what the flags ask for."""
        given = NormFlags.use_global_stats in self.flags
        training = self.prop_kind is PropKind.forward_training
        channels = MemoryDesc((self.src_desc.dims[1],), "f32")
        tensors = list(src_dst(self.src_desc, self.dst_desc))
        if given or training:
            tensors.append(Tensor(Arg.MEAN, "stats", channels, output=not given))
            tensors.append(Tensor(Arg.VARIANCE, "stats", channels, output=not given))
        if NormFlags.use_scale in self.flags:
            tensors.append(Tensor(Arg.SCALE, "scale", channels))
        if NormFlags.use_shift in self.flags:
            tensors.append(Tensor(Arg.SHIFT, "shift", channels))
        return tuple(tensors)

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Who can do it, best first."""
        return IMPLS

    @property
    def auxiliary(self) -> str:
        """The flags."""
        return f"flags:{self.flags.letters}"

    @property
    def problem(self) -> str:
        """The sizes as ``mb16ic64ih56iw56``."""
        return image_problem(self.src_desc.dims)


def _nest(desc: BatchNormalizationDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr, "post_ops") or _refuse_flags(desc)
    if refusal is not None:
        return refusal
    dst = like(desc.dst_desc, desc.src_desc)
    post_ops = resolve_post_ops(tuple(attr.post_ops), dst)
    scale, shift, relu = (
        flag in desc.flags
        for flag in (NormFlags.use_scale, NormFlags.use_shift, NormFlags.fuse_norm_relu)
    )
    conf = kernel.configure(desc.src_desc, dst, desc.epsilon, scale, shift, relu, post_ops)
    if isinstance(conf, Refusal):
        return conf
    recipe = Recipe(conf, isa, kernel.build)
    return Plan(replace(desc, dst_desc=dst), post_ops, recipe, conf.scratchpad)


def _refuse_flags(desc: BatchNormalizationDesc) -> Refusal | None:
    if NormFlags.use_global_stats not in desc.flags:
        return Refusal(Reason.PARAMETER, "statistics of the batch, without use_global_stats")
    if NormFlags.fuse_norm_add_relu in desc.flags:
        return Refusal(Reason.PARAMETER, "fuse_norm_add_relu; use the post-ops sum and relu")
    training = desc.prop_kind is PropKind.forward_training
    if training and NormFlags.fuse_norm_relu in desc.flags:
        return Refusal(Reason.PROP_KIND, "forward_training with fuse_norm_relu, for its workspace")
    return None


IMPLS = (Implementation("nest", _nest),)
