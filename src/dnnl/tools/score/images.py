"""Image files as rows for models with one input."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import Array
from dnnl.tools.score.dataset import Dataset
from dnnl.tools.score.rows import Part, Rows, Source, Task, rows_of_a_part, tasks_of_files
from dnnl.tools.score.signature import RowType

_MODES = {1: "L", 3: "RGB"}
"""Pillow's modes by number of channels."""
_LOOKED_AT = 256
"""The number of images whose sizes are checked before workers start; workers check all."""


@dataclass(frozen=True, slots=True)
class Pixels:
    """How pixels become an input: NCHW with ``channels_first``, else NHWC.

    ``mean`` and ``std`` have a number for each channel, for pixels from 0 to 1. They are empty if
    the input is uint8.
    """

    dtype: np.dtype
    channels: int
    channels_first: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, row: RowType, mean: Sequence[float], std: Sequence[float]) -> Pixels:
        """The conversion for an input, with ``mean`` and ``std`` of the command line.

        Raises InvalidArguments if the input is no image, or its layout is ambiguous.
        """
        first, last = (row.shape[at] in _MODES if len(row.shape) == 3 else False for at in (0, 2))
        if first == last:
            rule = "images need an input of 1 or 3 channels, either NCHW or NHWC"
            raise InvalidArguments("MODEL", str(row), rule)
        size = row.shape[0 if first else 2]
        channels = int(size)
        if row.dtype == np.uint8:
            if mean or std:
                rule = f"the model's input is {row}, which is the bytes of an image"
                raise InvalidArguments("--mean" if mean else "--std", mean or std, rule)
            return cls(row.dtype, channels, first, (), ())
        if not np.can_cast(row.dtype, np.float64, "same_kind") or row.dtype.kind in "iub":
            rule = "images need an input of floats or of bytes (uint8)"
            raise InvalidArguments("MODEL", str(row), rule)
        return cls(
            row.dtype,
            channels,
            first,
            _by_channel("--mean", mean or (0.0,), channels),
            _by_channel("--std", std or (1.0,), channels),
        )

    def size_of(self, row: RowType) -> tuple[int | str, int | str]:
        """The height and the width of a row, names where they are open."""
        return row.shape[1:3] if self.channels_first else row.shape[:2]  # type: ignore[return-value]

    def as_input(self, images: Array) -> Array:
        """uint8 [batch, height, width, channels] as the model's input."""
        values = images
        if self.mean:
            scale = 1 / (255 * np.array(self.std))
            shift = np.array(self.mean) / self.std
            values = (images * scale.astype(np.float32) - shift.astype(np.float32)).astype(
                self.dtype
            )
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2)) if self.channels_first else values


def _by_channel(option: str, values: Sequence[float], channels: int) -> tuple[float, ...]:
    if len(values) not in (1, channels):
        rule = f"expected one number, or one for each of {channels} channels"
        raise InvalidArguments(option, ",".join(map(str, values)), rule)
    if option == "--std" and 0.0 in values:
        raise InvalidArguments(option, ",".join(map(str, values)), "is divided by: no 0")
    return tuple(values) * (channels // len(values))


def image_source(
    data: Dataset,
    row: RowType,
    pixels: Pixels,
    size: tuple[int, int] | None,
    batch: int,
    part_rows: int | None,
) -> Source:
    """The images of a data set, one row each.

    ``size`` is the height and width to which images are scaled. Without it all must have the size
    that the model fixes, or else that of the first image.

    Raises InvalidArguments if the model does not take ``size``, or if one of the first images has
    another size.
    """
    height, width = pixels.size_of(row)
    sizes = [_size(data.root / name) for name in data.files[:_LOOKED_AT]]
    first = next((found for found in sizes if found is not None), None)
    if first is None and size is None:
        path = str(data.root / data.files[0])
        raise InvalidArguments("DATASET", path, "is no image that can be read")
    target = size or first or (0, 0)
    known = tuple(
        of_model if isinstance(of_model, int) else of_image
        for of_model, of_image in zip((height, width), target, strict=True)
    )
    if size is not None and size != known:
        rule = f"the model takes images of {known[0]}x{known[1]}"
        raise InvalidArguments("--size", f"{size[0]}x{size[1]}", rule)
    for name, found in zip(data.files, sizes, strict=False):
        if size is None and found is not None and found != known:
            path, rule = str(data.root / name), _other_size(found, (known[0], known[1]))
            raise InvalidArguments("DATASET", path, rule)
    rows = part_rows or rows_of_a_part(known[0] * known[1] * pixels.channels, batch)
    reader = ImageReader(
        str(data.root), row.name, pixels.channels, (known[0], known[1]), size is not None
    )
    channels = (pixels.channels,)
    shape = (*channels, *known) if pixels.channels_first else (*known, *channels)
    return Source(reader, tasks_of_files(data.files, rows), {row.name: shape})


def _other_size(found: tuple[int, int], wanted: tuple[int, int]) -> str:
    needed = f"{wanted[0]}x{wanted[1]}"
    return (
        f"is an image of {found[0]}x{found[1]}, where {needed} is needed; "
        f"--size {needed} scales images"
    )


def _size(path: Path) -> tuple[int, int] | None:
    """The height and width in the header of an image; None if it cannot be read."""
    try:
        with Image.open(path) as image:
            return image.height, image.width
    except (OSError, ValueError, Image.DecompressionBombError):
        return None


@dataclass(frozen=True, slots=True)
class ImageReader:
    """Decodes the files of a task to uint8 [height, width, channels]."""

    root: str
    name: str
    channels: int
    size: tuple[int, int]
    scales: bool

    def read(self, task: Task) -> Iterator[Rows]:
        """The rows of each part; see `Reader`."""
        for part in task.parts:
            yield self._part(task, part)

    def _part(self, task: Task, part: Part) -> Rows:
        images = np.zeros((part.rows, *self.size, self.channels), np.uint8)
        bad = {}
        for index, name in enumerate(task.files):
            reason = self._decode(Path(self.root, name), images[index])
            if reason:
                bad[index] = reason
        return Rows(part, list(task.files), [0] * part.rows, {self.name: images}).without(bad)

    def _decode(self, path: Path, into: Array) -> str:
        """Decode an image into an array; returns why it is bad, or an empty text."""
        try:
            with warnings.catch_warnings():  # a huge claimed size is an error below
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                with Image.open(path) as image:
                    height, width = self.size
                    if not self.scales and (image.height, image.width) != self.size:
                        return _other_size((image.height, image.width), self.size)
                    if image.mode.startswith(("I", "F")):  # Pillow would clip these at 255
                        return f"has pixels of more than 8 bits (Pillow's mode {image.mode})"
                    shown = image.convert(_MODES[self.channels])
                    if (image.height, image.width) != self.size:
                        shown = shown.resize((width, height), Image.Resampling.BILINEAR)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            return f"is no image that can be read: {error}"
        except Image.DecompressionBombWarning as error:
            return f"is too large: {error}"
        into[:] = np.asarray(shown).reshape(into.shape)
        return ""
