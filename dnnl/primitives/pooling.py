"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Reason, Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels import pooling as kernel
from dnnl.primitives.checks import read_spatial, window_problem
from dnnl.primitives.desc import (
    Desc,
    Tensor,
    check_alg,
    check_dims,
    check_not_any,
    check_prop_forward,
    check_tensors,
    read_kinds,
    spelled_size,
    src_dst,
)
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    plan_with_dst,
)
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import Alg, PropKind, coerce
from dnnl.types.layout_input import read_integers
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp


@dataclass(frozen=True)
class PoolingDesc(Desc):
    """dst = the maximum or the average of each window of src, [batch, channels, spatial...].

    Arguments SRC, DST. Tap k of output o lies at ``o * stride + k * (dilation + 1) - padding_l``.
    A maximum ignores the padding; an average divides by the number of all taps (include_padding)
    or of those inside src (exclude_padding). dst may be ``any``: it is laid out as src.
    """

    kind = "pooling"

    prop_kind: PropKind
    alg_kind: Alg
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    strides: tuple[int, ...]
    kernel: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
    dilations: tuple[int, ...]

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        strides: Sequence[int],
        kernel: Sequence[int],
        padding_l: Sequence[int],
        padding_r: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
    ) -> PoolingDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken.

        ``padding_r`` is by default ``padding_l``; a dilation of 0, the default, is dense.
        """
        left, taps = read_integers("padding_l", padding_l), read_integers("kernel", kernel)
        return cls(
            coerce(PropKind, prop_kind, "prop_kind"),
            coerce(Alg, alg_kind, "alg_kind"),
            src_desc,
            dst_desc,
            read_integers("strides", strides),
            taps,
            left,
            left if padding_r is None else read_integers("padding_r", padding_r),
            (0,) * len(taps) if dilations is None else read_integers("dilations", dilations),
        )

    def __post_init__(self) -> None:
        read_kinds(self)
        check_tensors(self)
        check_prop_forward(self.prop_kind)
        check_alg(self.alg_kind, "pooling_")
        check_not_any("src_desc", self.src_desc)
        src = self.src_desc.dims
        if not 3 <= len(src) <= 5:
            rule = "expected 3 to 5 dimensions: batch, channels and 1 to 3 spatial ones"
            raise InvalidArguments("src_desc", src, rule)
        for name, low in (
            ("strides", 1), ("kernel", 1), ("padding_l", 0), ("padding_r", 0), ("dilations", 0)
        ):  # fmt: skip
            value = read_spatial(name, getattr(self, name), len(src) - 2, low)
            object.__setattr__(self, name, value)
        out = self._output(src[2:])
        check_dims("dst_desc", self.dst_desc, (*src[:2], *out), "what the window makes of src")
        if self.alg_kind is Alg.pooling_avg_exclude_padding:
            self._check_padding()

    def _ranges(self) -> list[int]:
        """How far the taps of a window reach, in each spatial dimension."""
        pairs = zip(self.kernel, self.dilations, strict=True)
        return [(taps - 1) * (dilation + 1) + 1 for taps, dilation in pairs]

    def _output(self, spatial: Sequence[int]) -> list[int]:
        out = []
        for dim, reach in enumerate(self._ranges()):
            room = spatial[dim] + self.padding_l[dim] + self.padding_r[dim] - reach
            if room < 0 and spatial[dim]:
                rule = f"the window reaches over {reach} of {room + reach} with padding"
                raise InvalidArguments("kernel", self.kernel, rule)
            out.append(room // self.strides[dim] + 1 if room >= 0 else 0)
        return out

    def _check_padding(self) -> None:
        for name in ("padding_l", "padding_r"):
            padding: tuple[int, ...] = getattr(self, name)
            for width, reach in zip(padding, self._ranges(), strict=True):
                if width >= reach:
                    rule = f"must be less than {reach}, or a window could hold no element"
                    raise InvalidArguments(name, padding, rule)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """SRC and DST."""
        return src_dst(self.src_desc, self.dst_desc)

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Who can do it, best first."""
        return IMPLS

    @property
    def auxiliary(self) -> str:
        """The algorithm."""
        return f"alg:{self.alg_kind}"

    @property
    def problem(self) -> str:
        """The sizes as ``mb16ic64_ih112oh56kh3sh2dh0ph1_iw112ow56kw3sw2dw0pw1``."""
        batch, channels = map(spelled_size, self.src_desc.dims[:2])
        head = f"mb{batch}ic{channels}"
        window = (self.kernel, self.strides, self.dilations, self.padding_l)
        return head + window_problem(self.src_desc.dims[2:], self.dst_desc.dims[2:], *window)


def _nest(desc: PoolingDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    maximum = desc.alg_kind is Alg.pooling_max
    if maximum and desc.prop_kind is PropKind.forward_training:
        return Refusal(Reason.PROP_KIND, "forward_training of a maximum, for its workspace")

    def configure(dst: MemoryDesc, post_ops: tuple[PostOp, ...]) -> kernel.Conf | Refusal:
        return kernel.configure(
            desc.alg_kind, desc.src_desc, dst, desc.kernel, desc.strides, desc.padding_l,
            desc.dilations, post_ops,
        )  # fmt: skip

    return plan_with_dst(desc, attr, isa, configure, kernel.build)


IMPLS = (Implementation("nest", _nest),)
