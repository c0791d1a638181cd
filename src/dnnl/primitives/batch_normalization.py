"""Batch normalization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.normalization import batch as forward_kernel
from dnnl.kernels.normalization import batch_backward as backward_kernel
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
from dnnl.primitives.checks import check_backward, check_dims, check_forward, image_problem
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    laid_out_as,
    plan_forward,
    plan_nest,
)
from dnnl.primitives.operation import (
    BACKWARD_DATA,
    FORWARD,
    NEVER,
    TRAINING,
    Operation,
    Parameter,
    Passes,
    Role,
)
from dnnl.primitives.parameters import Flags, Real
from dnnl.primitives.roles import data_roles, gradient_roles
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
_WEIGHTS: Passes = frozenset({PropKind.backward})


@dataclass(frozen=True)
class BatchNormalizationDesc(Desc):
    """dst = scale * (src - mean) / sqrt(variance + epsilon) + shift for each channel.

    src is [batch, channels, spatial...]. Mean and population variance are those of the batch, or
    given with ``use_global_stats``. ``fuse_norm_relu`` ends with max(0, dst);
    ``fuse_norm_add_relu`` adds a second source before.

    Forward arguments: SRC, DST; SRC_1, laid out as dst, with ``fuse_norm_add_relu``; MEAN and
    VARIANCE, read with ``use_global_stats``, else written in training; SCALE with ``use_scale``,
    SHIFT with ``use_shift``; WORKSPACE, written in training with a fused relu: 1 where it kept dst,
    else 0, u8, laid out as src. dst may be ``any`` and may be src's buffer.

    Backward arguments: SRC, DIFF_DST, MEAN, VARIANCE, DIFF_SRC; SCALE and WORKSPACE as above;
    DIFF_SRC_1, laid out as diff_dst, with ``fuse_norm_add_relu``; DIFF_SCALE and DIFF_SHIFT with
    their flags, but not in ``backward_data``. Without ``use_global_stats`` the statistics are
    functions of src, through which a gradient passes too. diff_src may be diff_dst's buffer, and
    both may be ``any``.

    Whatever belongs to channels has the dims (channels,) and is f32.
    """

    prop_kind: PropKind
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    epsilon: float
    flags: NormFlags
    diff_src_desc: MemoryDesc
    diff_dst_desc: MemoryDesc

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
        check_forward(prop_kind)
        return cls.made(
            prop_kind=prop_kind, src_desc=src_desc, dst_desc=dst_desc, epsilon=epsilon, flags=flags
        )

    @classmethod
    def backward(
        cls,
        prop_kind: PropKind | str,
        diff_src_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        src_desc: MemoryDesc,
        epsilon: float,
        flags: NormFlags | str | int | None,
    ) -> BatchNormalizationDesc:
        """Describe ``backward``, or ``backward_data``, which has no gradients of scale and shift;
        raises InvalidArguments where the rules are broken."""
        check_backward(prop_kind)
        return cls.made(
            prop_kind=prop_kind,
            diff_src_desc=diff_src_desc,
            diff_dst_desc=diff_dst_desc,
            src_desc=src_desc,
            epsilon=epsilon,
            flags=flags,
        )

    def check(self) -> None:
        """There are channels, and all tensors have the dims of src."""
        if self.src_desc.ndims < 2:
            rule = "expected at least 2 dimensions: batch and channels"
            raise InvalidArguments("src_desc", self.src_desc.dims, rule)
        for name, desc in self._given():
            check_dims(name, desc, self.src_desc.dims, "the dims of src")

    @property
    def problem(self) -> str:
        """The sizes as ``mb16ic64ih56iw56``."""
        return image_problem(self.src_desc.dims)

    @property
    def fused_relu(self) -> bool:
        """Whether a relu ends the forward pass."""
        either = NormFlags.fuse_norm_relu | NormFlags.fuse_norm_add_relu
        return bool(self.flags & either)


def _forward(desc: BatchNormalizationDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    training = desc.prop_kind is PropKind.forward_training
    configure = partial(
        forward_kernel.configure,
        desc.src_desc,
        desc.dst_desc,
        isa,
        desc.epsilon,
        desc.flags,
        _workspace(desc) if training and desc.fused_relu else None,
        training,
    )
    return plan_forward(desc, attr, isa, configure, forward_kernel.build)


def _backward(desc: BatchNormalizationDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    configure = partial(
        backward_kernel.configure,
        desc.src_desc,
        desc.diff_dst_desc,
        desc.diff_src_desc,
        isa,
        desc.epsilon,
        desc.flags,
        _workspace(desc) if desc.fused_relu else None,
        desc.prop_kind in _WEIGHTS,
    )
    return plan_nest(desc, attr, isa, configure, backward_kernel.build)


def _has(flag: NormFlags) -> partial[bool]:
    return partial(_flagged, flag)


def _flagged(flag: NormFlags, desc: BatchNormalizationDesc) -> bool:
    return flag in desc.flags


def _computed(desc: BatchNormalizationDesc) -> bool:
    """Whether the statistics are those of the batch."""
    return NormFlags.use_global_stats not in desc.flags


def _fused(desc: BatchNormalizationDesc) -> bool:
    return desc.fused_relu


def _workspace(desc: BatchNormalizationDesc) -> MemoryDesc:
    open_desc = MemoryDesc(desc.src_desc.dims, "u8", "any")
    return laid_out_as(open_desc, [desc.src_desc])


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


def _src(case: CaseValues) -> MemoryDesc:
    return tensor(case.sizes.src_dims, case.part("dt", 0), case.tag(0), case.strides(0, "tag"))


def _case(number: int) -> Callable[[CaseValues], MemoryDesc]:
    """A tensor whose layout follows from that of src, unless the case says what it is."""

    def desc(case: CaseValues) -> MemoryDesc:
        part = case.strides(number, "tag")
        tag = case.tag(1) if number else "any"
        return tensor(case.sizes.src_dims, case.part("dt", number), tag, part)

    return desc


_GIVEN, _ADDED = _has(NormFlags.use_global_stats), _has(NormFlags.fuse_norm_add_relu)
_SCALED, _SHIFTED = _has(NormFlags.use_scale), _has(NormFlags.use_shift)

BatchNormalizationDesc.operation = Operation(
    kind="batch_normalization",
    summary="batch normalization: each channel by its mean and variance",
    driver=Driver(
        "bnorm",
        (DIR, DT, TAG, strides(ends, 2), flags("GCHRA"), MB, *ATTRIBUTES, INPLACE),
        Grammar(("mb", "ic"), tail=("eps",), defaults={"eps": 1 / 16}),
    ),
    roles=(
        *data_roles(_src, _case(1), "nc*", src_reads=FORWARD | BACKWARD_DATA),
        Role(
            Arg.SRC_1, "src1", reads=FORWARD, when=_ADDED, letters="nc*",
            derived=lambda desc: desc.dst_desc,
        ),
        *gradient_roles(_case(0), _case(1), "nc*"),
        Role(
            Arg.DIFF_SRC_1, "diff_src1", writes=BACKWARD_DATA, when=_ADDED, letters="nc*",
            derived=lambda desc: desc.diff_dst_desc,
        ),
        _channel(Arg.MEAN, "stats", _GIVEN, reads=FORWARD),
        _channel(Arg.VARIANCE, "stats", _GIVEN, reads=FORWARD),
        _channel(Arg.MEAN, "stats", _computed, writes=TRAINING),
        _channel(Arg.VARIANCE, "stats", _computed, writes=TRAINING),
        _channel(Arg.MEAN, "stats", lambda _: True, reads=BACKWARD_DATA),
        _channel(Arg.VARIANCE, "stats", lambda _: True, reads=BACKWARD_DATA),
        _channel(Arg.SCALE, "scale", _SCALED, reads=FORWARD | BACKWARD_DATA),
        _channel(Arg.SHIFT, "shift", _SHIFTED, reads=FORWARD),
        _channel(Arg.DIFF_SCALE, "diff_scale", _SCALED, writes=_WEIGHTS),
        _channel(Arg.DIFF_SHIFT, "diff_shift", _SHIFTED, writes=_WEIGHTS),
        Role(
            Arg.WORKSPACE, "ws", reads=BACKWARD_DATA, writes=TRAINING, when=_fused,
            derived=_workspace, letters="nc*",
        ),
    ),
    parameters=(
        Parameter(
            "epsilon", Real(0.0, "try 1e-5"),
            lambda case: float(np.float32(case.sizes.numbers["eps"])),
        ),
        Parameter("flags", Flags(_KNOWN), lambda case: flags_of(case["flags"]), "flags"),
    ),
    in_place=((Arg.DST, Arg.SRC), (Arg.DIFF_SRC, Arg.DIFF_DST)),
    operands=(4, 16),
    reference=SPECIFICATION,
    examples=("--flags=,GCH,CHR,GCHA --tag=abx,aBx16b mb3ic19ih5",),
    implementations=(
        Implementation("nest", _forward, FORWARD),
        Implementation("nest", _backward, BACKWARD_DATA),
    ),
)  # fmt: skip
