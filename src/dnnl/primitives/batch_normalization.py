"""Batch normalization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dnnl.errors import InvalidArguments
from dnnl.kernels.normalization.axes import NormalizationAxes
from dnnl.language.case import CaseValues, tensor
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
from dnnl.primitives.normalization import (
    AFFINE,
    FUSED,
    IMPLEMENTATIONS,
    NormalizationDesc,
    channel_roles,
    epsilon_parameter,
    flags_parameter,
    statistic_roles,
)
from dnnl.primitives.operation import BACKWARD_DATA, FORWARD, TRAINING, Operation, Role
from dnnl.primitives.parameters import Flags
from dnnl.primitives.roles import data_roles, gradient_roles
from dnnl.reference.batch_normalization import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.kinds import NormFlags, PropKind
from dnnl.types.memory_desc import MemoryDesc

_KNOWN = NormFlags.use_global_stats | AFFINE | FUSED


@dataclass(frozen=True)
class BatchNormalizationDesc(NormalizationDesc):
    """dst = scale * (src - mean) / sqrt(variance + epsilon) + shift for each channel.

    src is [batch, channels, spatial...]. Mean and population variance are those of the batch, or
    given with ``use_global_stats``. ``fuse_norm_relu`` ends with max(0, dst);
    ``fuse_norm_add_relu`` adds a second source before.

    Forward arguments: SRC, DST; SRC_1, laid out as dst, with ``fuse_norm_add_relu``; MEAN and
    VARIANCE, read with ``use_global_stats``, else written in training; SCALE with ``use_scale``,
    SHIFT with ``use_shift``; WORKSPACE, written in training with a fused relu: 1 where it passed a
    value, else 0, u8, laid out as src. dst may be ``any`` and may be src's buffer.

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
    def axes(self) -> NormalizationAxes:
        """Channels share statistics."""
        return NormalizationAxes.of_batch()

    @property
    def statistics(self) -> MemoryDesc:
        """One number for each channel."""
        return MemoryDesc(self.src_desc.dims[1:2], "f32")


def _src(case: CaseValues) -> MemoryDesc:
    return tensor(case.sizes.src_dims, case.part("dt", 0), case.tag(0), case.strides(0, "tag"))


def _case(number: int) -> Callable[[CaseValues], MemoryDesc]:
    """A tensor whose layout follows from that of src, unless the case says what it is."""

    def desc(case: CaseValues) -> MemoryDesc:
        part = case.strides(number, "tag")
        tag = case.tag(1) if number else "any"
        return tensor(case.sizes.src_dims, case.part("dt", number), tag, part)

    return desc


def _added(desc: BatchNormalizationDesc) -> bool:
    return NormFlags.fuse_norm_add_relu in desc.flags


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
            Arg.SRC_1, "src1", reads=FORWARD, when=_added, letters="nc*",
            derived=lambda desc: desc.dst_desc,
        ),
        *gradient_roles(_case(0), _case(1), "nc*"),
        Role(
            Arg.DIFF_SRC_1, "diff_src1", writes=BACKWARD_DATA, when=_added, letters="nc*",
            derived=lambda desc: desc.diff_dst_desc,
        ),
        *statistic_roles("c"),
        *channel_roles(),
        Role(
            Arg.WORKSPACE, "ws", reads=BACKWARD_DATA, writes=TRAINING, letters="nc*",
            when=lambda desc: desc.fused_relu, derived=lambda desc: desc.workspace,
        ),
    ),
    parameters=(epsilon_parameter(), flags_parameter(Flags(_KNOWN))),
    in_place=((Arg.DST, Arg.SRC), (Arg.DIFF_SRC, Arg.DIFF_DST)),
    operands=(4, 16),
    reference=SPECIFICATION,
    examples=("--flags=,GCH,CHR,GCHA --tag=abx,aBx16b mb3ic19ih5",),
    implementations=IMPLEMENTATIONS,
)  # fmt: skip
