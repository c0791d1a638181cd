"""Batch normalization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Reason, Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels import batch_normalization as kernel
from dnnl.language.case import CaseValues, flags_of, tensor
from dnnl.language.descriptor import Grammar
from dnnl.language.options import (
    ATTRIBUTES,
    DIR,
    DT,
    INPLACE,
    MB,
    TAG,
    Driver,
    ends,
    flags,
    strides,
)
from dnnl.primitives.checks import check_dims, image_problem
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_nest
from dnnl.primitives.operation import (
    FORWARD,
    NEVER,
    TRAINING,
    Operation,
    Parameter,
    Passes,
    Role,
)
from dnnl.primitives.parameters import Flags, Real
from dnnl.reference.batch_normalization import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import NormFlags, PropKind
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
        return cls.made(
            prop_kind=prop_kind, src_desc=src_desc, dst_desc=dst_desc, epsilon=epsilon,
            flags=flags,
        )  # fmt: skip

    def check(self) -> None:
        """There are channels, and dst has the dims of src."""
        if self.src_desc.ndims < 2:
            rule = "expected at least 2 dimensions: batch and channels"
            raise InvalidArguments("src_desc", self.src_desc.dims, rule)
        check_dims("dst_desc", self.dst_desc, self.src_desc.dims, "the dims of src")

    @property
    def problem(self) -> str:
        """The sizes as ``mb16ic64ih56iw56``."""
        return image_problem(self.src_desc.dims)


def _forward(desc: BatchNormalizationDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    scale, shift, relu = (
        flag in desc.flags
        for flag in (NormFlags.use_scale, NormFlags.use_shift, NormFlags.fuse_norm_relu)
    )
    configure = partial(
        kernel.configure, desc.src_desc, desc.dst_desc, desc.epsilon, scale, shift, relu
    )
    refusal = _refuse_flags(desc)
    return refusal or plan_nest(desc, attr, isa, configure, kernel.build, "post_ops")


def _refuse_flags(desc: BatchNormalizationDesc) -> Refusal | None:
    if NormFlags.use_global_stats not in desc.flags:
        return Refusal(Reason.PARAMETER, "statistics of the batch, without use_global_stats")
    if NormFlags.fuse_norm_add_relu in desc.flags:
        return Refusal(Reason.PARAMETER, "fuse_norm_add_relu; use the post-ops sum and relu")
    training = desc.prop_kind is PropKind.forward_training
    if training and NormFlags.fuse_norm_relu in desc.flags:
        return Refusal(Reason.PROP_KIND, "forward_training with fuse_norm_relu, for its workspace")
    return None


def _has(flag: NormFlags) -> partial[bool]:
    return partial(_flagged, flag)


def _flagged(flag: NormFlags, desc: BatchNormalizationDesc) -> bool:
    return flag in desc.flags


def _computed(desc: BatchNormalizationDesc) -> bool:
    """Whether the statistics are those of the batch."""
    return NormFlags.use_global_stats not in desc.flags


def _channels(desc: BatchNormalizationDesc) -> MemoryDesc:
    return MemoryDesc((desc.src_desc.dims[1],), "f32")


def _channel(
    argument: Arg,
    name: str,
    when: Callable[[BatchNormalizationDesc], bool],
    reads: Passes = NEVER,
    writes: Passes = NEVER,
) -> Role:
    """A tensor with one number for each channel."""
    return Role(
        argument, name, reads=reads, writes=writes, when=when, derived=_channels, letters="c"
    )


def _dst(case: CaseValues) -> MemoryDesc:
    part = case.strides(1, "tag")
    return tensor(case.sizes.src_dims, case["dt"], case["tag"] if part else "any", part)


_GIVEN = _has(NormFlags.use_global_stats)

BatchNormalizationDesc.operation = Operation(
    kind="batch_normalization",
    summary="batch normalization: each channel by its mean and variance",
    driver=Driver(
        "bnorm",
        (DIR, DT, TAG, strides(ends, 2), flags("GCHRA"), MB, *ATTRIBUTES, INPLACE),
        Grammar(("mb", "ic"), tail=("eps",), defaults={"eps": 1 / 16}),
    ),
    roles=(
        Role(
            Arg.SRC, "src", "src_desc", reads=FORWARD, letters="nc*",
            case=lambda case: tensor(
                case.sizes.src_dims, case["dt"], case["tag"], case.strides(0, "tag")
            ),
        ),
        Role(
            Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src_desc",), letters="nc*",
            case=_dst,
        ),
        _channel(Arg.MEAN, "stats", _GIVEN, reads=FORWARD),
        _channel(Arg.VARIANCE, "stats", _GIVEN, reads=FORWARD),
        _channel(Arg.MEAN, "stats", _computed, writes=TRAINING),
        _channel(Arg.VARIANCE, "stats", _computed, writes=TRAINING),
        _channel(Arg.SCALE, "scale", _has(NormFlags.use_scale), reads=FORWARD),
        _channel(Arg.SHIFT, "shift", _has(NormFlags.use_shift), reads=FORWARD),
    ),
    parameters=(
        Parameter(
            "epsilon", Real(0.0, "try 1e-5"),
            lambda case: float(np.float32(case.sizes.numbers["eps"])),
        ),
        Parameter("flags", Flags(_KNOWN), lambda case: flags_of(case["flags"]), "flags"),
    ),
    in_place=((Arg.DST, Arg.SRC),),
    operands=(4, 16),
    reference=SPECIFICATION,
    examples=("--flags=GCH,GR --tag=abx,aBx16b mb3ic19ih5",),
    implementations=(Implementation("nest", _forward, FORWARD),),
)  # fmt: skip
