"""Layer normalization, also of the root mean square kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dnnl.errors import InvalidArguments
from dnnl.kernels.normalization.axes import NormalizationAxes
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import (
    ATTRIBUTES,
    DIR,
    INPLACE,
    Driver,
    ends,
    flags,
    tags,
    types,
)
from dnnl.language.problem import Dims
from dnnl.language.values import several, text
from dnnl.language.verbose import OperationLine, Tensor
from dnnl.primitives.checks import check_backward, check_dims, check_forward, spelled
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
from dnnl.primitives.parameters import Flags, Type
from dnnl.primitives.roles import data_roles, gradient_roles
from dnnl.reference.layer_normalization import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType, DataTypeLike
from dnnl.types.kinds import RUNTIME_DIM, NormFlags, PropKind
from dnnl.types.memory_desc import MemoryDesc

_FLAGS = Flags(AFFINE | NormFlags.use_global_stats | NormFlags.rms_norm)
_CHANNEL_TYPES = Type((DataType.f32, DataType.bf16, DataType.f16))


@dataclass(frozen=True)
class LayerNormalizationDesc(NormalizationDesc):
    """dst = scale * (src - mean) / sqrt(variance + epsilon) + shift for each row along the last
    dimension.

    Forward arguments SRC, DST; MEAN and VARIANCE, read with ``use_global_stats`` and written in
    training without it; SCALE with ``use_scale``, SHIFT with ``use_shift``. src has 2 to 5
    dimensions; dst may be ``any`` and may be src's buffer. The statistics are f32 and have the dims
    of src without the last; ``stat_desc`` may be ``any``, then they have the order of src. Scale
    and shift have the dims of the last. With ``rms_norm`` no mean is subtracted, MEAN is no
    argument, and VARIANCE is the mean of the squares. Dims, strides and offsets of plain layouts
    may be RUNTIME_DIM, in either direction: one primitive serves all of them.

    Backward arguments SRC, DIFF_DST, MEAN, VARIANCE, SCALE with ``use_scale``; DIFF_SRC, and
    DIFF_SCALE and DIFF_SHIFT with their flags, which only ``backward`` may have. With
    ``use_global_stats`` the statistics are constants. Gradients may be ``any``, and diff_src may be
    the buffer of diff_dst.

    The attribute scales of SRC multiply the normalized, scaled and shifted value.
    """

    prop_kind: PropKind
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    diff_src_desc: MemoryDesc
    diff_dst_desc: MemoryDesc
    stat_desc: MemoryDesc
    epsilon: float
    flags: NormFlags
    scale_shift_data_type: DataType = field(default=DataType.f32)
    diff_scale_shift_data_type: DataType = field(default=DataType.f32)

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        epsilon: float,
        flags: NormFlags | str | int | None,
        stat_desc: MemoryDesc | None = None,
        scale_shift_data_type: DataTypeLike = "f32",
    ) -> LayerNormalizationDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken."""
        check_forward(prop_kind)
        return cls.made(
            prop_kind=prop_kind,
            src_desc=src_desc,
            dst_desc=dst_desc,
            stat_desc=stat_desc,
            epsilon=epsilon,
            flags=flags,
            scale_shift_data_type=scale_shift_data_type,
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
        stat_desc: MemoryDesc | None = None,
        scale_shift_data_type: DataTypeLike = "f32",
        diff_scale_shift_data_type: DataTypeLike = "f32",
    ) -> LayerNormalizationDesc:
        """Describe the gradients of a forward computation; raises InvalidArguments where the rules
        are broken. ``prop_kind`` is backward, or backward_data without scale and shift."""
        check_backward(prop_kind)
        return cls.made(
            prop_kind=prop_kind,
            diff_src_desc=diff_src_desc,
            diff_dst_desc=diff_dst_desc,
            src_desc=src_desc,
            stat_desc=stat_desc,
            epsilon=epsilon,
            flags=flags,
            scale_shift_data_type=scale_shift_data_type,
            diff_scale_shift_data_type=diff_scale_shift_data_type,
        )

    def __post_init__(self) -> None:
        # Which tensors there are depends on the flags.
        self._set("flags", _FLAGS.read("flags", self.flags, 0))
        super().__post_init__()

    def check_dims(self) -> None:
        """There are rows, and all tensors have the dims of src."""
        dims = self.src_desc.dims
        if not 2 <= len(dims) <= 5:
            raise InvalidArguments("src_desc", dims, "expected 2 to 5 dimensions")
        if self.stat_desc.is_zero:
            layout = None if RUNTIME_DIM in dims else "any"
            self._set("stat_desc", MemoryDesc(dims[:-1], "f32", layout))
        for name, desc in self._given():
            if name != "stat_desc":
                check_dims(name, desc, dims, "the dims of src")
        check_dims("stat_desc", self.stat_desc, dims[:-1], "the dims of src without the last")

    def check(self) -> None:
        """Statistics are f32, and gradients of scale and shift need the propagation backward."""
        if self.stat_desc.data_type is not DataType.f32:
            raise InvalidArguments("stat_desc", str(self.stat_desc), "statistics are f32")
        if self.prop_kind is PropKind.backward_data and self.flags & AFFINE:
            rule = "backward_data knows neither scale nor shift"
            raise InvalidArguments("flags", str(self.flags), rule, "use backward")

    @property
    def problem(self) -> str:
        """The dims."""
        return spelled(self.src_desc.dims)

    @property
    def row_desc(self) -> MemoryDesc:
        """One element for each row, in the order of src; row-major where a row is in blocks."""
        src = self.src_desc
        last = src.ndims - 1
        if any(dim == last for dim, _ in src.inner_blocks):
            return MemoryDesc(src.dims[:-1], "f32")
        return MemoryDesc(
            src.dims[:-1],
            "f32",
            src.strides[:-1],
            inner_blocks=src.inner_blocks,
            padded_dims=src.padded_dims[:-1],
        )

    @property
    def axes(self) -> NormalizationAxes:
        """Rows along the last dimension share statistics."""
        return NormalizationAxes.of_layer(self.src_desc.ndims)

    @property
    def statistics(self) -> MemoryDesc:
        """One number for each row."""
        return self.stat_desc

    @property
    def channel_types(self) -> tuple[DataType, DataType]:
        """Those that were asked for."""
        return self.scale_shift_data_type, self.diff_scale_shift_data_type


def _stat_desc(case: CaseValues) -> MemoryDesc:
    tag = case["stat_tag"]
    return tensor(case.shapes.dims[:-1], DataType.f32, "any" if tag == "undef" else tag)


def _data(number: int, kind: int) -> Callable[[CaseValues], MemoryDesc]:
    """The tensor of a case with layout ``number``, ``any`` where the case gives fewer, and type
    ``kind``."""

    def desc(case: CaseValues) -> MemoryDesc:
        given = case["tag"].items
        tag = given[number] if number < len(given) else "any"
        return tensor(case.shapes.dims, case.part("dt", kind), tag)

    return desc


def _first(*names: str) -> Callable[[OperationLine], Sequence[Tensor]]:
    """The first tensor of these names in a verbose line."""
    return lambda line: line.named(*names)[:1]


_GRADIENT = 2  # behind the layouts that a case gives

LayerNormalizationDesc.operation = Operation(
    kind="layer_normalization",
    summary="layer normalization: each row by its mean and variance",
    driver=Driver(
        "lnorm",
        (
            DIR, types("dt", "f32", ends, (1, 2)),
            tags("tag", "abx:any", ends, several(text, (1, 2))),
            tags("stat_tag", "any", _first("stats", "stat")),
            types("ss_dt", "f32", _first("scale", "shift", "diff_scale", "diff_shift")),
            flags("GCHM"), *ATTRIBUTES, INPLACE,
        ),
        Dims(),
    ),
    roles=(
        *data_roles(_data(0, 0), _data(1, 1), src_reads=FORWARD | BACKWARD_DATA),
        *gradient_roles(_data(_GRADIENT, 0), _data(_GRADIENT, 1)),
        *statistic_roles(case=_stat_desc),
        *channel_roles(),
    ),
    parameters=(
        epsilon_parameter(lambda _: 1 / 16),
        flags_parameter(_FLAGS),
        Parameter("scale_shift_data_type", _CHANNEL_TYPES, lambda case: case["ss_dt"]),
        Parameter("diff_scale_shift_data_type", _CHANNEL_TYPES, lambda case: case["ss_dt"]),
    ),
    in_place=((Arg.DST, Arg.SRC), (Arg.DIFF_SRC, Arg.DIFF_DST)),
    channels=-1,
    scales_result=True,
    operands=(4, 16),
    reference=SPECIFICATION,
    examples=(
        "--flags=,G,M --tag=abx,axb,aBx16b 3x19x40",
        # backward_data knows neither scale nor shift
        "--dir=FWD_D,BWD_DW --flags=CH,GCHM --tag=abx,axb 3x19x40 5x3 2x3x1x2x17",
        "--dir=BWD_DW --flags=H --ss_dt=bf16 --dt=bf16 3x19",
    ),
    implementations=IMPLEMENTATIONS,
)  # fmt: skip
