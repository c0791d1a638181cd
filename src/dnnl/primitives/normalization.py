"""What the operations that normalize share: their roles, and how they are planned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.kernels.normalization import backward, forward
from dnnl.kernels.normalization.axes import NormalizationAxes
from dnnl.kernels.normalization.description import NormalizationBackwardConf, NormalizationConf
from dnnl.language.case import CaseValues, flags_of
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
    Parameter,
    Passes,
    Role,
)
from dnnl.primitives.parameters import Flags, Real
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import NormFlags, PropKind
from dnnl.types.memory_desc import MemoryDesc

AFFINE = NormFlags.use_scale | NormFlags.use_shift
FUSED = NormFlags.fuse_norm_relu | NormFlags.fuse_norm_add_relu
_WEIGHTS: Passes = frozenset({PropKind.backward})


class NormalizationDesc(Desc):
    """A description of what elements are normalized, by which statistics."""

    prop_kind: PropKind
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    diff_src_desc: MemoryDesc
    diff_dst_desc: MemoryDesc
    epsilon: float
    flags: NormFlags

    @property
    @abstractmethod
    def axes(self) -> NormalizationAxes:
        """Which elements share statistics, and which a scale."""

    @property
    @abstractmethod
    def statistics(self) -> MemoryDesc:
        """The descriptor of the mean and of the variance."""

    @property
    def channel_types(self) -> tuple[DataType, DataType]:
        """The data types of scale and shift, and of their gradients."""
        return DataType.f32, DataType.f32

    def channels(self, *, gradient: bool = False) -> MemoryDesc:
        """The descriptor of scale and shift, or of their gradients."""
        return MemoryDesc((self.src_desc.dims[self.axes.channels],), self.channel_types[gradient])

    def channels_with(self, flag: NormFlags, *, gradient: bool = False) -> MemoryDesc:
        """The descriptor of scale or shift, or of its gradient; the zero one where it is absent."""
        if flag not in self.flags or (gradient and self.prop_kind is not PropKind.backward):
            return MemoryDesc.zero()
        return self.channels(gradient=gradient)

    @cached_property
    def given(self) -> bool:
        """Whether the statistics are."""
        return NormFlags.use_global_stats in self.flags

    @cached_property
    def read(self) -> bool:
        """Whether the statistics are inputs."""
        return not self.prop_kind.is_forward or self.given

    @cached_property
    def fused_relu(self) -> bool:
        """Whether a relu ends the forward pass."""
        return bool(self.flags & FUSED)

    @cached_property
    def workspace(self) -> MemoryDesc:
        """The descriptor of what the relu has passed; the zero one where nothing says that."""
        if not self.fused_relu or self.prop_kind is PropKind.forward_inference:
            return MemoryDesc.zero()
        return laid_out_as(self.src_desc.undecided("u8"), [self.src_desc])


def _forward_conf(
    desc: NormalizationDesc, isa: Isa, attributes: Attributes
) -> NormalizationConf | Refusal:
    conf = NormalizationConf(
        kind=desc.kind,
        axes=desc.axes,
        src=desc.src_desc,
        dst=desc.dst_desc,
        stat=desc.statistics,
        scale=desc.channels_with(NormFlags.use_scale),
        shift=desc.channels_with(NormFlags.use_shift),
        epsilon=desc.epsilon,
        given=desc.given,
        stored=desc.prop_kind is PropKind.forward_training and not desc.given,
        rms=NormFlags.rms_norm in desc.flags,
        relu=desc.fused_relu,
        added=NormFlags.fuse_norm_add_relu in desc.flags,
        workspace=desc.workspace,
        attributes=attributes,
        late=desc.operation.scales_result,
    )
    return forward.configure(conf, isa)


def _backward_conf(desc: NormalizationDesc, isa: Isa) -> NormalizationBackwardConf | Refusal:
    conf = NormalizationBackwardConf(
        kind=desc.kind,
        axes=desc.axes,
        src=desc.src_desc,
        diff_dst=desc.diff_dst_desc,
        diff_src=desc.diff_src_desc,
        stat=desc.statistics,
        scale=desc.channels_with(NormFlags.use_scale),
        diff_scale=desc.channels_with(NormFlags.use_scale, gradient=True),
        diff_shift=desc.channels_with(NormFlags.use_shift, gradient=True),
        epsilon=desc.epsilon,
        given=desc.given,
        rms=NormFlags.rms_norm in desc.flags,
        added=NormFlags.fuse_norm_add_relu in desc.flags,
        workspace=desc.workspace,
    )
    return backward.configure(conf, isa)


def _forward(desc: NormalizationDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    return plan_forward(desc, attr, isa, partial(_forward_conf, desc, isa), forward.build)


def _backward(desc: NormalizationDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    return plan_nest(desc, attr, isa, partial(_backward_conf, desc, isa), backward.build)


IMPLEMENTATIONS = (
    Implementation("nest", _forward, FORWARD),
    Implementation("nest", _backward, BACKWARD_DATA),
)
StatCase = Callable[[CaseValues], MemoryDesc]


def statistic_roles(letters: str = "*", case: StatCase | None = None) -> tuple[Role, ...]:
    """Mean and variance as inputs, and as outputs. Where a ``case`` gives their descriptor, it is
    the field ``stat_desc``."""

    def role(argument: Arg, read: bool, reads: Passes = NEVER, writes: Passes = NEVER) -> Role:
        def when(desc: NormalizationDesc) -> bool:
            if desc.read != read:
                return False
            return argument is not Arg.MEAN or NormFlags.rms_norm not in desc.flags

        role = partial(
            Role, argument, "stats", reads=reads, writes=writes, when=when, letters=letters
        )
        if case is None:
            return role(derived=lambda desc: desc.statistics)
        return role(field="stat_desc", like=("row_desc",), optional=True, case=case)

    return tuple(
        either
        for argument in (Arg.MEAN, Arg.VARIANCE)
        for either in (
            role(argument, True, reads=FORWARD | BACKWARD_DATA),
            role(argument, False, writes=TRAINING),
        )
    )


def channel_roles() -> tuple[Role, ...]:
    """Scale and shift, and their gradients."""

    def role(
        argument: Arg, name: str, flag: NormFlags, reads: Passes = NEVER, writes: Passes = NEVER
    ) -> Role:
        return Role(
            argument,
            name,
            reads=reads,
            writes=writes,
            when=lambda desc: flag in desc.flags,
            letters="c",
            derived=lambda desc: desc.channels(gradient=bool(writes)),
        )

    scale, shift = NormFlags.use_scale, NormFlags.use_shift
    return (
        role(Arg.SCALE, "scale", scale, reads=FORWARD | BACKWARD_DATA),
        role(Arg.SHIFT, "shift", shift, reads=FORWARD),
        role(Arg.DIFF_SCALE, "diff_scale", scale, writes=_WEIGHTS),
        role(Arg.DIFF_SHIFT, "diff_shift", shift, writes=_WEIGHTS),
    )


def epsilon_parameter(case: Callable[[CaseValues], float] | None = None) -> Parameter:
    """What is added to variances."""

    def of_sizes(case: CaseValues) -> float:
        return float(np.float32(case.sizes.numbers["eps"]))

    return Parameter("epsilon", Real(0.0, "try 1e-5"), case or of_sizes)


def flags_parameter(known: Flags[NormFlags]) -> Parameter:
    """The flags that an operation knows."""
    return Parameter("flags", known, lambda case: flags_of(case["flags"]), "flags")
