"""Pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.windows import pooling as kernel
from dnnl.kernels.windows import pooling_backward as gradient
from dnnl.language.case import INVALID, CaseValues, tensor
from dnnl.language.descriptor import WINDOW, Grammar
from dnnl.language.options import (
    ATTRIBUTES,
    DIR,
    DT,
    MB,
    TAG,
    Driver,
    algorithm,
)
from dnnl.primitives.checks import (
    check_dims,
    check_forward,
    places,
    source_size,
    spelled_size,
    window_hint,
    window_problem,
    window_reach,
)
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_forward, plan_nest
from dnnl.primitives.operation import (
    BACKWARD_DATA,
    FORWARD,
    TRAINING,
    Operation,
    Parameter,
    Role,
)
from dnnl.primitives.parameters import Algorithm, Numbers, Spatial
from dnnl.reference.pooling import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM, Alg, PropKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import typical

_BYTE_TAPS = 255
"""So many taps can be numbered in u8 by oneDNN's count."""
_FEW = 5
"""The least typical number of windows."""
_SOURCES = Arg.SRC, Arg.DIFF_SRC


@dataclass(frozen=True)
class PoolingDesc(Desc):
    """dst = the maximum or the average of each window of src, [batch, channels, spatial...].

    Arguments SRC, DST; backward DIFF_DST, DIFF_SRC. Tap k of output o is at
    ``o * stride + k * (dilation + 1) - padding_l``. A maximum ignores the padding; an average
    divides by the number of all taps (include_padding) or of those inside src (exclude_padding).
    dst may be ``any``: it is laid out as src. Dims, strides and offsets may be RUNTIME_DIM; a size
    that is so in src is so in dst.

    A maximum is NaN where a tap is, and of padding alone the least value of its type, -inf of
    floats. In training it writes WORKSPACE, which its gradient reads: the row-major number of the
    first tap of each window that has the maximum, of the last one that is NaN, with the dims and
    the layout of dst; u8 where a window has at most 255 taps, else s32.
    """

    prop_kind: PropKind
    alg_kind: Alg
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    strides: tuple[int, ...]
    kernel: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
    dilations: tuple[int, ...]
    diff_src_desc: MemoryDesc
    diff_dst_desc: MemoryDesc
    workspace_desc: MemoryDesc

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        strides: Numbers,
        kernel: Numbers,
        padding_l: Numbers,
        padding_r: Numbers | None = None,
        dilations: Numbers | None = None,
    ) -> PoolingDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken.

        One number is that of all spatial dimensions. ``padding_r`` is by default ``padding_l``; a
        negative one leaves the end of src out. A
        dilation of 0, the default, is dense.
        """
        check_forward(prop_kind)
        return cls.made(
            prop_kind=prop_kind,
            alg_kind=alg_kind,
            src_desc=src_desc,
            dst_desc=dst_desc,
            strides=strides,
            kernel=kernel,
            padding_l=padding_l,
            padding_r=padding_r,
            dilations=dilations,
        )

    @classmethod
    def backward(
        cls,
        alg_kind: Alg | str,
        diff_src_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        strides: Numbers,
        kernel: Numbers,
        padding_l: Numbers,
        padding_r: Numbers | None = None,
        dilations: Numbers | None = None,
    ) -> PoolingDesc:
        """Describe the gradient of src, [batch, channels, spatial...], from that of dst; raises
        InvalidArguments where the rules are broken.

        A gradient that is ``any``, and the workspace, get the layouts of the forward
        description that is the hint; without one as the other gradient. The window is that of
        the forward computation.
        """
        return cls.made(
            prop_kind=PropKind.backward_data,
            alg_kind=alg_kind,
            diff_src_desc=diff_src_desc,
            diff_dst_desc=diff_dst_desc,
            strides=strides,
            kernel=kernel,
            padding_l=padding_l,
            padding_r=padding_r,
            dilations=dilations,
        )

    @property
    def _ends(self) -> tuple[MemoryDesc, MemoryDesc]:
        """src and dst, or their gradients."""
        if self.propagation.is_forward:
            return self.src_desc, self.dst_desc
        return self.diff_src_desc, self.diff_dst_desc

    def check_dims(self) -> None:
        """There are batch, channels and space."""
        src, _ = self._ends
        if not 3 <= src.ndims <= 5:
            rule = "expected 3 to 5 dimensions: batch, channels and 1 to 3 spatial ones"
            name = "src_desc" if self.propagation.is_forward else "diff_src_desc"
            raise InvalidArguments(name, src.dims, rule)

    def check(self) -> None:
        """dst has the dims that the window makes of src, and the workspace has them too."""
        src, dst = self._ends
        out = (*src.dims[:2], *self._output(src.dims[2:]))
        name = "dst_desc" if self.propagation.is_forward else "diff_dst_desc"
        check_dims(name, dst, out, "what the window makes of src", self._hint)
        if self.alg_kind is Alg.pooling_avg_exclude_padding:
            self._check_padding()
        if _marks(self) and self.propagation is not PropKind.forward_inference:
            self._check_workspace()

    def _check_workspace(self) -> None:
        """The workspace follows from the others; only its layout may have been decided."""
        follows = self._ends[1].undecided(_tap_type(self.kernel))
        given = self.workspace_desc
        if given.is_zero:
            self._set("workspace_desc", follows)
        elif (given.dims, given.data_type) != (follows.dims, follows.data_type):
            rule = f"expected {follows.data_type} and the dims of dst"
            raise InvalidArguments("workspace_desc", str(given), rule)

    def derived_size(
        self, argument: int, dim: int, dims: Mapping[int, Sequence[int]]
    ) -> int | None:
        """How many windows there are along a dimension of src."""
        src = next((dims[other] for other in _SOURCES if other in dims), None)
        if src is None or dim < 2 or argument in _SOURCES or argument >= Arg.post_op(0):
            return None
        taps, stride, padding, gap = self._window(dim - 2)
        span = src[dim] + padding - window_reach(taps, gap)
        return span // stride + 1 if typical(span) >= 0 else 0

    def complete_typical(self, dims: dict[int, list[int]]) -> None:
        """The typical size of an open src fits a few windows."""
        source, *others = (dims[tensor.argument] for tensor in self.tensors)
        for dim, size in enumerate(self._ends[0].dims[2:], 2):
            if size == RUNTIME_DIM:
                window = self._window(dim - 2)
                source[dim] = max(source[dim], source_size(_FEW, *window))
                for other in others:
                    other[dim] = places(source[dim], *window)

    def _window(self, dim: int) -> tuple[int, int, int, int]:
        """The taps, the stride, the padding of both ends and the dilation along a spatial
        dimension."""
        padding = self.padding_l[dim] + self.padding_r[dim]
        return self.kernel[dim], self.strides[dim], padding, self.dilations[dim]

    def _ranges(self) -> list[int]:
        """How far the taps of a window reach, in each spatial dimension."""
        return list(map(window_reach, self.kernel, self.dilations))

    def _output(self, spatial: Sequence[int]) -> list[int]:
        out = []
        for dim, reach in enumerate(self._ranges()):
            if spatial[dim] == RUNTIME_DIM:
                out.append(RUNTIME_DIM)
                continue
            taps, stride, padding, gap = self._window(dim)
            if spatial[dim] + padding < reach and spatial[dim]:
                rule = f"the window reaches over {reach} of {spatial[dim] + padding} with padding"
                raise InvalidArguments("kernel", self.kernel, rule, self._hint)
            out.append(places(spatial[dim], taps, stride, padding, gap))
        return out

    @property
    def _hint(self) -> str:
        """What to look at where the window does not fit."""
        src, dst = self._ends
        return window_hint(self, src.dims[2:], self.kernel, dst.dims[2:])

    def _check_padding(self) -> None:
        for name in ("padding_l", "padding_r"):
            padding: tuple[int, ...] = getattr(self, name)
            for width, reach in zip(padding, self._ranges(), strict=True):
                if width >= reach:
                    rule = f"must be less than {reach}, or a window could hold no element"
                    raise InvalidArguments(name, padding, rule)

    @property
    def problem(self) -> str:
        """The sizes as ``mb16ic64_ih112oh56kh3sh2dh0ph1_iw112ow56kw3sw2dw0pw1``."""
        src, dst = self._ends
        batch, channels = map(spelled_size, src.dims[:2])
        head = f"mb{batch}ic{channels}"
        window = (self.kernel, self.strides, self.dilations, self.padding_l)
        return head + window_problem(src.dims[2:], dst.dims[2:], *window)


def _marks(desc: PoolingDesc) -> bool:
    """Whether it matters which tap won."""
    return desc.alg_kind is Alg.pooling_max


def _tap_type(kernel: Sequence[int]) -> DataType:
    return DataType.u8 if prod(kernel) <= _BYTE_TAPS else DataType.s32


def _forward(desc: PoolingDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    workspace = None if desc.workspace_desc.is_zero else desc.workspace_desc
    configure = partial(
        kernel.configure,
        desc.alg_kind,
        desc.src_desc,
        desc.dst_desc,
        desc.kernel,
        desc.strides,
        desc.padding_l,
        desc.dilations,
        workspace=workspace,
    )
    return plan_forward(desc, attr, isa, configure, kernel.build)


def _backward(desc: PoolingDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    configure = partial(
        gradient.configure,
        desc.alg_kind,
        desc.diff_src_desc,
        desc.diff_dst_desc,
        desc.workspace_desc,
        desc.kernel,
        desc.strides,
        desc.padding_l,
        desc.dilations,
    )
    return plan_nest(desc, attr, isa, configure, gradient.build)


def _workspace(case: CaseValues) -> MemoryDesc | None:
    problem = case.sizes
    if case["alg"].alg != Alg.pooling_max.name:
        return None
    return tensor(problem.window_dims, _tap_type(problem.spatial("k")), "any")


def _invalid(case: CaseValues) -> str | None:
    """An average without its padding needs an element in each window."""
    problem = case.sizes
    columns = zip(*map(problem.spatial, "kdp"), problem.padding_r, strict=True)
    empty = any(max(left, right) >= (k - 1) * (d + 1) + 1 for k, d, left, right in columns)
    return INVALID if empty and case["alg"] == "avg_np" else None


PoolingDesc.operation = Operation(
    kind="pooling",
    summary="pooling: one value for each window of src",
    driver=Driver(
        "pool",
        (
            DIR, DT, TAG,
            algorithm(
                "max",
                {
                    "max": "pooling_max", "avg_np": "pooling_avg_exclude_padding",
                    "avg_p": "pooling_avg_include_padding",
                },
            ),
            MB, *ATTRIBUTES,
        ),
        Grammar(("mb", "ic"), WINDOW, lowest=3, window="down"),
    ),
    roles=(
        Role(
            Arg.SRC, "src", "src_desc", reads=FORWARD, letters="nc*",
            case=lambda case: tensor(case.sizes.src_dims, case.part("dt", 0), case.tag(0)),
        ),
        Role(
            Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src_desc",), letters="nc*",
            case=lambda case: tensor(case.sizes.window_dims, case.part("dt", 1), case.tag(1)),
        ),
        Role(
            Arg.DIFF_SRC, "src", "diff_src_desc", writes=BACKWARD_DATA, like=("diff_dst_desc",),
            letters="nc*",
            case=lambda case: tensor(case.sizes.src_dims, case.part("dt", 0), case.tag(0)),
        ),
        Role(
            Arg.DIFF_DST, "dst", "diff_dst_desc", reads=BACKWARD_DATA, like=("diff_src_desc",),
            letters="nc*",
            case=lambda case: tensor(case.sizes.window_dims, case.part("dt", 1), case.tag(1)),
        ),
        Role(
            Arg.WORKSPACE, "ws", "workspace_desc", reads=BACKWARD_DATA, writes=TRAINING,
            when=_marks, optional=True, like=("dst_desc", "diff_dst_desc"), letters="nc*",
            case=_workspace,
        ),
    ),
    parameters=(
        Parameter("alg_kind", Algorithm("pooling_"), lambda case: case["alg"].alg, "alg"),
        Parameter("strides", Spatial(1), lambda case: case.sizes.spatial("s")),
        Parameter("kernel", Spatial(1), lambda case: case.sizes.spatial("k")),
        Parameter("padding_l", Spatial(0), lambda case: case.sizes.spatial("p")),
        Parameter("padding_r", Spatial(), lambda case: case.sizes.padding_r,
            default=lambda desc: desc.padding_l,
        ),
        Parameter("dilations", Spatial(0), lambda case: case.sizes.spatial("d"),
            default=lambda desc: (0,) * len(desc.strides),
        ),
    ),
    operands=(0, 16),
    reference=SPECIFICATION,
    examples=("--alg=max,avg_np --tag=abx,axb ic19ih9kh3sh2ph1",),
    implementations=(
        Implementation("nest", _forward, FORWARD),
        Implementation("nest", _backward, BACKWARD_DATA),
    ),
    invalid=_invalid,
)  # fmt: skip
