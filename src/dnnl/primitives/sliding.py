"""Descriptions of kernels that slide over images: a convolution, and its transpose."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Self

from dnnl.errors import InvalidArguments
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.primitives import parameters
from dnnl.primitives.checks import (
    check_dims,
    check_forward,
    spelled_size,
    total,
)
from dnnl.primitives.operation import Parameter
from dnnl.primitives.weighted import (
    GRADIENTS,
    WeightedDesc,
    order_hint,
)
from dnnl.types.arg import GRADIENT, Arg
from dnnl.types.kinds import RUNTIME_DIM, Alg, PropKind
from dnnl.types.memory_desc import MemoryDesc

_FEW, _MANY = 4, 150


@dataclass(frozen=True)
class SlidingDesc(WeightedDesc):
    """src (N, IC, [[D,] H,] W), dst (N, OC, ...), weights ([G,] OC/G, IC/G, ...) with one more
    dimension if there are groups, bias (OC); a gradient has the dims of its tensor."""

    prop_kind: PropKind
    alg_kind: Alg
    src_desc: MemoryDesc
    weights_desc: MemoryDesc
    bias_desc: MemoryDesc
    dst_desc: MemoryDesc
    strides: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
    dilations: tuple[int, ...]
    diff_src_desc: MemoryDesc
    diff_weights_desc: MemoryDesc
    diff_bias_desc: MemoryDesc
    diff_dst_desc: MemoryDesc

    single = ("n", "d", "h", "w")

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        weights_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        strides: parameters.Numbers,
        padding_l: parameters.Numbers,
        padding_r: parameters.Numbers | None = None,
        dilations: parameters.Numbers | None = None,
        bias_desc: MemoryDesc | None = None,
    ) -> Self:
        """Describe a forward pass; raises InvalidArguments where sizes do not agree.

        One number is that of all spatial dimensions. ``padding_r`` is ``padding_l`` by default,
        ``dilations`` are 0.
        """
        check_forward(prop_kind, GRADIENTS)
        return cls.made(
            prop_kind=prop_kind,
            alg_kind=alg_kind,
            src_desc=src_desc,
            weights_desc=weights_desc,
            bias_desc=bias_desc,
            dst_desc=dst_desc,
            strides=strides,
            padding_l=padding_l,
            padding_r=padding_r,
            dilations=dilations,
        )

    @classmethod
    def backward_data(
        cls,
        alg_kind: Alg | str,
        diff_src_desc: MemoryDesc,
        weights_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        strides: parameters.Numbers,
        padding_l: parameters.Numbers,
        padding_r: parameters.Numbers | None = None,
        dilations: parameters.Numbers | None = None,
    ) -> Self:
        """Describe the gradient of src; raises InvalidArguments where sizes do not agree.

        The window is that of the forward computation. Arguments DIFF_DST, WEIGHTS, DIFF_SRC.
        """
        return cls.made(
            prop_kind=PropKind.backward_data,
            alg_kind=alg_kind,
            diff_src_desc=diff_src_desc,
            weights_desc=weights_desc,
            diff_dst_desc=diff_dst_desc,
            strides=strides,
            padding_l=padding_l,
            padding_r=padding_r,
            dilations=dilations,
        )

    @classmethod
    def backward_weights(
        cls,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        diff_weights_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        strides: parameters.Numbers,
        padding_l: parameters.Numbers,
        padding_r: parameters.Numbers | None = None,
        dilations: parameters.Numbers | None = None,
        diff_bias_desc: MemoryDesc | None = None,
    ) -> Self:
        """Describe the gradients of the weights and, with ``diff_bias_desc``, of the bias; raises
        InvalidArguments where sizes do not agree.

        The window is that of the forward computation. Arguments SRC, DIFF_DST, DIFF_WEIGHTS,
        DIFF_BIAS.
        """
        return cls.made(
            prop_kind=PropKind.backward_weights,
            alg_kind=alg_kind,
            src_desc=src_desc,
            diff_weights_desc=diff_weights_desc,
            diff_bias_desc=diff_bias_desc,
            diff_dst_desc=diff_dst_desc,
            strides=strides,
            padding_l=padding_l,
            padding_r=padding_r,
            dilations=dilations,
        )

    def check(self) -> None:
        """The channels and the sizes of the images agree."""
        self._check_channels()
        self.check_spatial()

    def check_dims(self) -> None:
        """The tensors have the ranks of an image and its kernel."""
        ndims = self.src.ndims
        if not 3 <= ndims <= 5:
            rule = "expected (N, C, W), (N, C, H, W) or (N, C, D, H, W)"
            raise InvalidArguments(self.field("src"), self.src.dims, rule)
        if self.dst.ndims != ndims:
            rule = f"expected {ndims} dimensions, as {self.name_of('src')} has"
            hint = order_hint(self.dst, self.bias, ())
            raise InvalidArguments(self.field("dst"), self.dst.dims, rule, hint)
        if self.weights.ndims not in (ndims, ndims + 1):
            rule = f"expected {ndims} dimensions, or {ndims + 1} with groups first"
            raise InvalidArguments(self.field("weights"), self.weights.dims, rule)

    def _check_channels(self) -> None:
        groups, outputs, channels = self.channels
        weights = self.name_of("weights")
        taken, made = total(groups, channels), total(groups, outputs)
        if self.src.dims[1] != taken:
            rule = f"{weights} {self.weights.dims} take {taken} channels"
            raise InvalidArguments(self.field("src"), self.src.dims, rule, self._hint_of_groups())
        if self.dst.dims[1] != made:
            rule = f"{weights} {self.weights.dims} make {made} channels"
            raise InvalidArguments(self.field("dst"), self.dst.dims, rule)
        if self.dst.dims[0] != self.src.dims[0]:
            rule = f"the batch must be that of {self.name_of('src')}, which is {self.src.dims[0]}"
            raise InvalidArguments(self.field("dst"), self.dst.dims, rule)
        if not self.bias.is_zero:
            why = f"the channels of {self.name_of('dst')}"
            check_dims(self.field("bias"), self.bias, (made,), why)

    def _hint_of_groups(self) -> str:
        """What to do with weights that have groups, but no dimension for them."""
        _, outputs, channels = self.channels
        groups, rest = divmod(self.src.dims[1], max(channels, 1))
        if self.weights.ndims > self.src.ndims or groups < 2 or rest or outputs % groups:
            return ""
        dims = groups, outputs // groups, *self.weights.dims[1:]
        return f"weights of {groups} groups have the dims (g, o, i, ...): reshape({dims})"

    def derived_size(
        self, argument: int, dim: int, dims: Mapping[int, Sequence[int]]
    ) -> int | None:
        """Those of images in dst follow from src, if `places_of` says how."""
        of_dst = argument == self._argument("dst") or argument >= Arg.post_op(0)
        space = dim - self.src.ndims + len(self.strides)
        if not of_dst or space < 0:
            return None
        size = dims[self._argument("src")][dim]
        kernel = dims[self._argument("weights")][-len(self.strides) :]
        return self.places_of(space, size, kernel[space])

    def other_sizes(self) -> Sequence[Mapping[str, int]]:
        """Short rows (few positions of the kernel), and long ones."""
        taps, space = self.weights.dims[-1], len(self.strides) - 1
        reach = 1 if taps == RUNTIME_DIM else (taps - 1) * (self.dilations[space] + 1) + 1
        padding = self.padding_l[space] + self.padding_r[space]
        return tuple(
            {"w": max(2, reach + count * self.strides[space] - padding)} for count in (_FEW, _MANY)
        )

    def complete_typical(self, dims: dict[int, list[int]]) -> None:
        """Channels that are open are as many as the weights have, or else weights have as many as
        there are channels."""
        weights = dims[self._argument("weights")]
        begin = self.weights.ndims - self.src.ndims
        groups = weights[0] if begin else 1
        for tensor, place in (("src", begin + 1), ("dst", begin)):
            argument, pattern = self._argument(tensor), getattr(self, tensor)
            if pattern.dims[1] != RUNTIME_DIM:
                weights[place] = pattern.dims[1] // groups
            dims[argument][1] = groups * weights[place]
        channels = dims[self._argument("dst")][1]
        for argument, own in dims.items():
            if argument % GRADIENT == Arg.BIAS:
                own[0] = channels
            elif argument >= Arg.post_op(0) and own[1] != 1:
                own[1] = channels

    def _argument(self, tensor: str) -> int:
        field = self.field(tensor)
        return next(own.argument for own in self.tensors if own.field == field)

    @abstractmethod
    def places_of(self, space: int, size: int, taps: int) -> int | None:
        """The size of dst in a dimension of space in which src has so many elements and the kernel
        so many taps, if it follows from these."""

    @abstractmethod
    def check_spatial(self) -> None:
        """Raise unless the sizes of src, kernel and dst agree."""

    @property
    def _spatial(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """The sizes of src, of the kernel and of dst, in the dimensions of space."""
        count = self.src.ndims - 2
        return self.src.dims[2:], self.weights.dims[-count:], self.dst.dims[2:]

    @property
    def channels(self) -> tuple[int, int, int]:
        """(groups, output channels of one, input channels of one)."""
        grouped = self.weights.ndims > self.src.ndims
        dims = self.weights.dims if grouped else (1, *self.weights.dims)
        return dims[0], dims[1], dims[2]

    @property
    def problem(self) -> str:
        """The sizes as benchdnn spells a convolution."""
        groups, outputs, channels = self.channels
        group = f"g{spelled_size(groups)}" if self.weights.ndims > self.src.ndims else ""
        text = f"{group}mb{spelled_size(self.src.dims[0])}"
        text += f"_ic{spelled_size(groups, channels)}oc{spelled_size(groups, outputs)}"
        spatial = "dhw"[3 - len(self.strides) :]
        kernel = self.weights.dims[-len(self.strides) :]
        for dim, letter in enumerate(spatial):
            sizes = {
                "i": self.src.dims[dim + 2],
                "o": self.dst.dims[dim + 2],
                "k": kernel[dim],
                "s": self.strides[dim],
                "d": self.dilations[dim],
                "p": self.padding_l[dim],
            }
            text += "_" + "".join(f"{k}{letter}{spelled_size(n)}" for k, n in sizes.items())
        return text

    @property
    def space(self) -> tuple[Spatial, Spatial, Spatial]:
        """Depth, height and width, from src to dst; a missing one has size 1."""
        return self._space(self.src, self.dst)

    @property
    def space_back(self) -> tuple[Spatial, Spatial, Spatial]:
        """The same from dst to src, as gradients of data go."""
        return self._space(self.dst, self.src)

    def _space(self, src: MemoryDesc, dst: MemoryDesc) -> tuple[Spatial, Spatial, Spatial]:
        count = len(self.strides)
        given = [
            Spatial(
                src.dims[dim + 2],
                dst.dims[dim + 2],
                self.weights.dims[dim - count],
                self.strides[dim],
                self.padding_l[dim],
                self.dilations[dim] + 1,
            )
            for dim in range(count)
        ]
        one = Spatial(1, 1, 1, 1, 0, 1)
        d, h, w = [one] * (3 - count) + given
        return d, h, w


def sliding_parameters(prefix: str) -> tuple[Parameter, ...]:
    """What a description has besides its tensors; names of its algorithms begin with ``prefix``."""
    return (
        Parameter("alg_kind", parameters.Algorithm(prefix), lambda case: case["alg"].alg, "alg"),
        Parameter("strides", parameters.Spatial(1), lambda case: case.sizes.spatial("s")),
        Parameter("padding_l", parameters.Spatial(0), lambda case: case.sizes.spatial("p")),
        Parameter(
            "padding_r",
            parameters.Spatial(),
            lambda case: case.sizes.padding_r,
            default=lambda desc: desc.padding_l,
        ),
        Parameter(
            "dilations",
            parameters.Spatial(0),
            lambda case: case.sizes.spatial("d"),
            default=lambda desc: (0,) * len(desc.strides),
        ),
    )


def flops(desc: SlidingDesc, elements: Sequence[int], places: Sequence[int]) -> int:
    """Twice the products of taps that meet one of ``elements`` from one of their ``places``: those
    with padding are excluded, as nobody needs to compute them."""
    kernel = desc.weights.dims[-len(elements) :]
    geometry = zip(
        elements, places, kernel, desc.strides, desc.padding_l, desc.dilations, strict=True
    )
    channels = desc.dst.dims[1] * desc.channels[2]
    return 2 * desc.src.dims[0] * channels * prod(_meetings(*numbers) for numbers in geometry)


def _meetings(src: int, dst: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How often a tap meets an element of src, in one dimension and over all places of a window."""
    starts = [position * stride - padding for position in range(dst)]
    offsets = [tap * (dilation + 1) for tap in range(kernel)]
    return sum(0 <= start + offset < src for start in starts for offset in offsets)
