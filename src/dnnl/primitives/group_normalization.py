"""Group normalization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from dnnl.errors import InvalidArguments
from dnnl.kernels.normalization.axes import NormalizationAxes
from dnnl.language.case import CaseValues, tensor
from dnnl.language.descriptor import Grammar
from dnnl.language.options import ATTRIBUTES, DIR, INPLACE, MB, Driver, ends, flags, tags, types
from dnnl.language.values import several, text
from dnnl.primitives.checks import check_backward, check_dims, check_forward, image_problem
from dnnl.primitives.normalization import (
    AFFINE,
    IMPLEMENTATIONS,
    NormalizationDesc,
    channel_roles,
    epsilon_parameter,
    flags_parameter,
    statistic_roles,
)
from dnnl.primitives.operation import BACKWARD_DATA, FORWARD, Operation, Parameter
from dnnl.primitives.parameters import Flags, Whole
from dnnl.primitives.roles import data_roles, gradient_roles
from dnnl.reference.group_normalization import SPECIFICATION
from dnnl.types.arg import GRADIENT, Arg
from dnnl.types.kinds import RUNTIME_DIM, NormFlags, PropKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.runtime_dim import RuntimeDim

_KNOWN = NormFlags.use_global_stats | AFFINE


@dataclass(frozen=True)
class GroupNormalizationDesc(NormalizationDesc):
    """dst = scale * (src - mean) / sqrt(variance + epsilon) + shift for each group of channels of
    each image.

    src is [batch, channels, spatial...] with one to three spatial dimensions. The channels form
    ``groups`` groups of equally many neighbours. Mean and population variance are those of the
    group in its image, or given with ``use_global_stats``. They have the dims (batch, groups),
    scale and shift (channels,); all are f32 and row-major.

    Forward arguments: SRC, DST; MEAN and VARIANCE, read with ``use_global_stats``, else written in
    training; SCALE with ``use_scale``, SHIFT with ``use_shift``. dst may be ``any`` and may be
    src's buffer.

    Backward arguments: SRC, DIFF_DST, MEAN, VARIANCE, DIFF_SRC; SCALE as above; DIFF_SCALE and
    DIFF_SHIFT with their flags, but not in ``backward_data``. Without ``use_global_stats`` the
    statistics are functions of src, through which a gradient passes too. diff_src may be
    diff_dst's buffer, and both may be ``any``.

    The attribute scales of SRC multiplies the normalized, scaled and shifted value; that of DST
    divides what the post-ops make of it.
    """

    prop_kind: PropKind
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    groups: int
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
        groups: int,
        epsilon: float,
        flags: NormFlags | str | int | None,
    ) -> GroupNormalizationDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken."""
        check_forward(prop_kind)
        return cls.made(
            prop_kind=prop_kind,
            src_desc=src_desc,
            dst_desc=dst_desc,
            groups=groups,
            epsilon=epsilon,
            flags=flags,
        )

    @classmethod
    def backward(
        cls,
        prop_kind: PropKind | str,
        diff_src_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        src_desc: MemoryDesc,
        groups: int,
        epsilon: float,
        flags: NormFlags | str | int | None,
    ) -> GroupNormalizationDesc:
        """Describe ``backward``, or ``backward_data``, which has no gradients of scale and shift;
        raises InvalidArguments where the rules are broken."""
        check_backward(prop_kind)
        return cls.made(
            prop_kind=prop_kind,
            diff_src_desc=diff_src_desc,
            diff_dst_desc=diff_dst_desc,
            src_desc=src_desc,
            groups=groups,
            epsilon=epsilon,
            flags=flags,
        )

    def check(self) -> None:
        """There is space, groups are of equally many channels, and all tensors have the dims of
        src."""
        dims = self.src_desc.dims
        if not 3 <= len(dims) <= 5:
            rule = "expected 3 to 5 dimensions: batch, channels and 1 to 3 spatial ones"
            raise InvalidArguments("src_desc", dims, rule)
        for name, desc in self._given():
            check_dims(name, desc, dims, "the dims of src")
        if dims[1] > 0 and dims[1] % self.groups:
            rule = f"must divide the number of channels, which is {dims[1]}"
            raise InvalidArguments("groups", self.groups, rule, f"try {gcd(self.groups, dims[1])}")

    def size_promise(self, argument: int, dim: int) -> int:
        """Images have whole groups of channels."""
        image = argument % GRADIENT in (Arg.SRC, Arg.DST)
        return RuntimeDim(multiple=self.groups) if image and dim == 1 else RUNTIME_DIM

    @property
    def problem(self) -> str:
        """The sizes as ``g32mb16ic64ih56iw56``."""
        return f"g{self.groups}{image_problem(self.src_desc.dims)}"

    @property
    def axes(self) -> NormalizationAxes:
        """Groups of channels of one image share statistics."""
        return NormalizationAxes.of_groups(self.groups, self.src_desc.dims[1])

    @property
    def statistics(self) -> MemoryDesc:
        """One number for each group of each image."""
        return MemoryDesc((self.src_desc.dims[0], self.groups), "f32")


def _data(number: int) -> Callable[[CaseValues], MemoryDesc]:
    """Tensor ``number`` of a case; a single tag serves both."""
    return lambda case: tensor(
        case.sizes.src_dims, case.part("dt", number), case.part("tag", number)
    )


GroupNormalizationDesc.operation = Operation(
    kind="group_normalization",
    summary="group normalization: each group of channels by its mean and variance",
    driver=Driver(
        "gnorm",
        (
            DIR, types("dt", "f32", ends, (1, 2)),
            tags("tag", "abx:any", ends, several(text, (1, 2))),
            flags("GCH"), MB, *ATTRIBUTES, INPLACE,
        ),
        Grammar(("g", "mb", "ic"), tail=("eps",), defaults={"eps": 1 / 16}, need=("g", "ic")),
    ),
    roles=(
        *data_roles(_data(0), _data(1), "nc*", src_reads=FORWARD | BACKWARD_DATA),
        *gradient_roles(_data(0), _data(1), "nc*"),
        *statistic_roles("nc"),
        *channel_roles(),
    ),
    parameters=(
        Parameter("groups", Whole(1), lambda case: case.sizes.groups),
        epsilon_parameter(),
        flags_parameter(Flags(_KNOWN)),
    ),
    in_place=((Arg.DST, Arg.SRC), (Arg.DIFF_SRC, Arg.DIFF_DST)),
    scales_result=True,
    operands=(4, 16),
    reference=SPECIFICATION,
    examples=(
        "--flags=,GCH,CH --tag=abx,axb,aBx16b g1ic19ih5 g19mb3ic19ih5 g4ic20ih5iw7",
        "--flags=C,GH --tag=aBx16b:axb,axb:abx,abx:aBx8b g2mb3ic40iw9 g3ic48id2ih3iw5",
        "--flags=,CH --dt=bf16,f16,f32:bf16,f16:f32 --tag=abx,axb g3mb2ic12ih4 g2ic32ih5iw3",
        "--flags=CH --tag=abx,axb g32ic64ih28 g2ic64ih9eps1e-3 g1mb1ic8ih80",
    ),
    implementations=IMPLEMENTATIONS,
)  # fmt: skip
