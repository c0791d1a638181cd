"""Convolutions as benchdnn spells them: ``mb50ic64ih56oc256oh56kh1ph0n"resnet_50:res2a*4"``.

Pairs of a key and a number in any order, then ``n`` and a name. A missing width is the height's, a
missing output size or padding follows from the other one. ``*4`` ends the name of a layer that a
network has four times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_KEYS = frozenset(
    ["g", "mb", "ic", "oc", "ih", "iw", "oh", "ow", "kh", "kw", "sh", "sw", "ph", "pw", "dh", "dw"]
)
_PAIR = re.compile(r"_?([a-z]+)(\d+)")
_NAME = re.compile(r"([^*]*)(?:\*(\d+))?")


@dataclass(frozen=True, slots=True)
class Extent:
    """One spatial dimension: sizes, stride, left padding, and dilation, which is 0 where dense."""

    src: int
    dst: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def padding_r(self) -> int:
        """The padding after the last element, negative where the kernel leaves some out."""
        reach = (self.kernel - 1) * (self.dilation + 1) + 1
        return (self.dst - 1) * self.stride - self.src + reach - self.padding

    @property
    def taps(self) -> int:
        """How often a kernel element meets an element of the source, over all outputs."""
        starts = [position * self.stride - self.padding for position in range(self.dst)]
        offsets = [tap * (self.dilation + 1) for tap in range(self.kernel)]
        return sum(0 <= start + offset < self.src for start in starts for offset in offsets)


@dataclass(frozen=True, slots=True)
class ConvolutionCase:
    """A two-dimensional convolution and how often its network has it."""

    name: str
    count: int
    batch: int
    groups: int
    src_channels: int
    dst_channels: int
    height: Extent
    width: Extent

    @property
    def src_dims(self) -> tuple[int, ...]:
        """(N, IC, IH, IW)."""
        return self.batch, self.src_channels, self.height.src, self.width.src

    @property
    def weights_dims(self) -> tuple[int, ...]:
        """(OC, IC, KH, KW), with the groups in front if there are several."""
        per_group = (self.dst_channels // self.groups, self.src_channels // self.groups)
        dims = (*per_group, self.height.kernel, self.width.kernel)
        return dims if self.groups == 1 else (self.groups, *dims)

    @property
    def dst_dims(self) -> tuple[int, ...]:
        """(N, OC, OH, OW)."""
        return self.batch, self.dst_channels, self.height.dst, self.width.dst

    @property
    def strides(self) -> tuple[int, int]:
        """Of height and width."""
        return self.height.stride, self.width.stride

    @property
    def dilations(self) -> tuple[int, int]:
        """Of height and width; 0 is a dense kernel."""
        return self.height.dilation, self.width.dilation

    @property
    def padding_l(self) -> tuple[int, int]:
        """Above and on the left."""
        return self.height.padding, self.width.padding

    @property
    def padding_r(self) -> tuple[int, int]:
        """Below and on the right."""
        return self.height.padding_r, self.width.padding_r

    @property
    def flops(self) -> int:
        """Multiplications and additions, without those with padding: nobody needs to do them."""
        products = self.batch * self.dst_channels * self.src_channels // self.groups
        return 2 * products * self.height.taps * self.width.taps


def parse(text: str, batch: int | None = None) -> ConvolutionCase:
    """The convolution that ``text`` describes, with another batch size where one is given.

    Raises ValueError, with the text and the reason, for what is no two-dimensional convolution.
    """
    pairs, separator, name = text.partition("n")
    if not separator:
        raise ValueError(f'{text!r}: no name; a convolution ends with n"NAME"')
    values = _values(text, pairs.rstrip("_"))
    missing = [key for key in ("ic", "oc", "ih") if not values.get(key)]
    if missing:
        raise ValueError(f"{text!r}: {missing[0]} must be given and positive")
    found = _NAME.fullmatch(name.strip().strip('"'))
    if found is None:
        raise ValueError(f"{text!r}: {name} is no name")
    return ConvolutionCase(
        found[1],
        int(found[2] or 1),
        values.get("mb", 2) if batch is None else batch,
        values.get("g", 1),
        values["ic"],
        values["oc"],
        _extent(text, values, "h"),
        _extent(text, _with_width(values), "w"),
    )


def read(path: Path, batch: int | None = None) -> list[ConvolutionCase]:
    """The convolutions of a file, one in each line; empty lines and those with ``#`` are none."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [parse(line, batch) for line in lines if line and not line.startswith("#")]


def _values(text: str, pairs: str) -> dict[str, int]:
    values: dict[str, int] = {}
    end = 0
    while end < len(pairs):
        pair = _PAIR.match(pairs, end)
        if pair is None or pair[1] not in _KEYS:
            expected = ", ".join(sorted(_KEYS))
            raise ValueError(f"{text!r}: {pairs[end:]!r} begins with none of the keys {expected}")
        values[pair[1]] = int(pair[2])
        end = pair.end()
    return values


def _with_width(values: Mapping[str, int]) -> Mapping[str, int]:
    """The values with the height's for the width where the width has none of its own."""
    if any(key.endswith("w") for key in values):
        return values
    return {f"{key[0]}w": value for key, value in values.items() if key.endswith("h")}


def _extent(text: str, values: Mapping[str, int], letter: str) -> Extent:
    src, kernel = values.get(f"i{letter}", 0), values.get(f"k{letter}", 0)
    stride, dilation = values.get(f"s{letter}", 1), values.get(f"d{letter}", 0)
    if not (src and kernel and stride):
        raise ValueError(f"{text!r}: i{letter}, k{letter} and s{letter} must be positive")
    dst, padding = values.get(f"o{letter}"), values.get(f"p{letter}")
    reach = (kernel - 1) * (dilation + 1) + 1
    if dst is None:
        padding = padding or 0
        dst = (src - reach + 2 * padding) // stride + 1
    elif padding is None:
        padding = int(((dst - 1) * stride - src + reach) / 2)
    return Extent(src, dst, kernel, stride, padding, dilation)
