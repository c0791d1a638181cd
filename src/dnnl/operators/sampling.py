"""Operators that sample images at computed positions: GridSample, AffineGrid and DeformConv."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.lowering.facts import Source
from dnnl.lowering.graphs import Lowering
from dnnl.operators.operator import Operator, Role
from dnnl.operators.window import Window
from dnnl.operators.writing import counted
from dnnl.primitives.grid_sample import GridSampleDesc
from dnnl.types.arg import Arg
from dnnl.types.size import is_known

_SAMPLE = "dnnl.Sample"
"""GridSample with the attributes of the primitive; an operator of expansions, which no file can
hold."""
_FUNCTIONS = {
    b"bilinear": "linear", b"linear": "linear", b"nearest": "nearest",
    b"bicubic": "cubic", b"cubic": "cubic",
}  # fmt: skip
_PADDINGS = (b"zeros", b"border", b"reflection")


def _infer_sample(scope: Scope) -> list[TensorType]:
    """[N, C, ...] with the spatial sizes of the grid."""
    shape, grid = scope.shape(), scope.shape(1)
    space = len(shape) - 2
    if not 1 <= space <= 3:
        raise Unimplemented(f"{scope.node}: images {shape} have not 1 to 3 dimensions of space")
    if len(grid) != len(shape) or grid[0] != shape[0] or grid[-1] != space:
        raise ModelError(f"grid {grid} does not name places of images {shape}")
    if prod(grid) and not prod(shape[2:]):
        raise ModelError(f"there is nothing to sample in images {shape}")
    mode, padding = scope.attr("mode", b"linear"), scope.attr("padding_mode", b"zeros")
    if mode not in _FUNCTIONS or padding not in _PADDINGS:
        raise ModelError(f"attributes 'mode' = {mode!r}, 'padding_mode' = {padding!r} are unknown")
    for place in range(2):
        if scope.type(place).dtype.kind in "biu":
            rule = f"{scope.type(place).dtype} is not sampled; Cast makes floats of it"
            raise Unimplemented(f"{scope.node}: {rule}")
    return scope.result((*shape[:2], *grid[1:-1]))


def _expand_sample(writer: Writer) -> bool:
    """GridSample with the attributes as the primitive names them."""
    node, shape = writer.node, writer.graph.shape_of(writer.node.output)
    corners = node.attrs.get("align_corners", 0)
    attrs = {
        "mode": node.attrs.get("mode", b"linear"),
        "padding_mode": node.attrs.get("padding_mode", b"zeros"),
        "coordinates": "corners" if corners else "edges",
    }
    writer.add(_SAMPLE, node.inputs, shape, attrs)
    return True


def _lower_sample(lowering: Lowering, node: Node) -> None:
    """A grid sample in the layout of the image."""
    source, grid = map(lowering.source, node.inputs)
    desc = GridSampleDesc(
        _FUNCTIONS[node.attrs["mode"]],
        node.attrs["padding_mode"].decode(),
        node.attrs["coordinates"],
        source.desc,
        grid.desc,
        lowering.result(node, lowering.graph.shape_of(node.output)),
    )
    args: dict[int, Source] = {Arg.SRC: source, Arg.SRC_1: grid}
    lowering.define(node.output, lowering.emit(node, desc, args))


def _infer_affine(scope: Scope) -> list[TensorType]:
    """A grid [N, H, W, 2] or [N, D, H, W, 3] for images of the size in the second source."""
    theta, size = scope.shape(), scope.listed("size", 1)
    if size is None or len(size) not in (4, 5):
        raise ModelError(f"size {size} is not that of images or volumes")
    space = len(size) - 2
    if theta != (size[0], space, space + 1):
        raise ModelError(f"theta {theta} must be {(size[0], space, space + 1)}")
    return scope.result((size[0], *size[2:], space))


def _expand_affine(writer: Writer) -> bool:
    """theta times the homogeneous coordinates (x, y, 1) or (x, y, z, 1) of each pixel."""
    node, shape = writer.node, writer.graph.shape_of(writer.node.output)
    batch, *sizes, space = shape
    corners = bool(node.attrs.get("align_corners", 0))

    def factors(place: int) -> str:
        ends = {"starts": (place,), "ends": (place + 1,), "axes": (2,)}
        column = writer.add("Slice", (node.inputs[0],), (batch, space, 1), ends)
        return writer.reshape(column, (batch, *[1] * space, space))

    total, so_far = factors(space), (batch, *[1] * space, space)
    for dim, size in enumerate(sizes):
        own = tuple(size if d == dim else 1 for d in range(space))
        numbers = writer.reshape(_even(writer, size, corners=corners), (1, *own, 1))
        term = writer.add("Mul", (numbers, factors(space - 1 - dim)), (batch, *own, space))
        so_far = (batch, *sizes[: dim + 1], *[1] * (space - 1 - dim), space)
        total = writer.add("Add", (total, term), so_far)
    writer.reshape(total, shape)
    return True


def _even(writer: Writer, size: int, *, corners: bool) -> str:
    """The coordinates, from -1 to 1, of the pixels of a dimension."""
    if is_known(size):
        places = np.arange(size)
        if corners:
            return writer.constant(places * (2 / (size - 1)) - 1 if size > 1 else places)
        return writer.constant((2 * places + 1) / size - 1)
    numbers = counted(writer, size)
    number = writer.add("Cast", (numbers,), (size,), {"to": writer.dtype})
    last = writer.sizes([size - 1 if corners else size], ())
    extent = writer.add("Cast", (last,), (), {"to": writer.dtype})
    if not corners:
        number = writer.add("Add", (number, writer.constant(0.5)), (size,))
    doubled = writer.add("Mul", (number, writer.constant(2.0)), (size,))
    quotient = writer.add("Div", (doubled, extent), (size,))
    return writer.add("Sub", (quotient, writer.constant(1.0)), (size,))


def _infer_deformed(scope: Scope) -> list[TensorType]:
    """[N, C, H, W] gives the shape of the convolution of the same window."""
    shape, weights, offset = (scope.shape(place) for place in range(3))
    groups, parts = scope.attr("group", 1), scope.attr("offset_group", 1)
    if scope.type().dtype not in REAL:
        raise Unimplemented(f"{scope.node}: {scope.type().dtype} is not computed; Cast makes f32")
    if len(shape) != 4 or len(weights) != 4 or len(offset) != 4:
        raise ModelError(f"source {shape}, weights {weights} or offset {offset} is no image")
    if shape[1] != weights[1] * groups or weights[0] % groups or shape[1] % parts:
        rule = f"{groups} groups and {parts} groups of offsets of source {shape}, weights {weights}"
        raise ModelError(f"{rule} disagree")
    taps = weights[2] * weights[3]
    window = _window(scope)
    out = (shape[0], 2 * parts * taps, *window.out)
    if offset != out:
        raise ModelError(f"offset {offset} must be {out}")
    mask = (shape[0], parts * taps, *window.out)
    if scope.node.input(4) and scope.shape(4) != mask:
        raise ModelError(f"mask {scope.shape(4)} must be {mask}")
    return scope.result((shape[0], weights[0], *window.out))


def _window(scope: Scope) -> Window:
    kernel = scope.shape(1)[2:]
    if tuple(scope.attr("kernel_shape", kernel)) != kernel:
        raise ModelError(f"attribute 'kernel_shape' is not that of the weights, {kernel}")
    return Window.over(scope.shape()[2:], kernel, scope.node.attrs)


def _expand_deformed(writer: Writer) -> bool:
    """The samples of each tap, 0 outside the image, times the mask; then a product with the
    weights."""
    node, graph = writer.node, writer.graph
    scope = Scope(node, graph)
    (batch, channels, *image), window = scope.shape(), _window(scope)
    height, width = window.out
    groups, parts = node.attrs.get("group", 1), node.attrs.get("offset_group", 1)
    taps, pixels = prod(window.kernel), height * width
    seen = (batch * parts, taps, 2, height, width)
    offset = writer.reshape(node.inputs[2], seen)
    one = (batch * parts, taps, 1, height, width)
    coordinates = []
    for dim in (1, 0):  # grids have the last spatial dimension first
        ends = {"starts": (dim,), "ends": (dim + 1,), "axes": (2,)}
        moved = writer.add("Slice", (offset,), one, ends)
        places = _places_of_taps(writer, window, dim)
        coordinates.append(writer.reshape(writer.add("Add", (moved, places), one), (*one, 1)))
    grid = writer.add("Concat", tuple(coordinates), (*one, 2), {"axis": 5})
    grid = writer.reshape(grid, (batch * parts, taps * height, width, 2))
    source = writer.reshape(node.inputs[0], (batch * parts, channels // parts, *image))
    columns = (batch * parts, channels // parts, taps * height, width)
    value = sampled(writer, (source, grid), columns, b"linear", b"zeros")
    if node.input(4):
        columns = (batch * parts, channels // parts, taps, pixels)
        mask = writer.reshape(node.inputs[4], (batch * parts, 1, taps, pixels))
        value = writer.add("Mul", (writer.reshape(value, columns), mask), columns)
    depth, rows = channels // groups * taps, scope.shape(1)[0] // groups
    value = writer.reshape(value, (batch, groups, depth, pixels))
    weights = writer.reshape(node.inputs[1], (1, groups, rows, depth))
    result = writer.add("MatMul", (weights, value), (batch, groups, rows, pixels))
    out = graph.shape_of(node.output)
    result = writer.reshape(result, out)
    if node.input(3):
        bias = writer.reshape(node.inputs[3], (1, out[1], 1, 1))
        writer.add("Add", (result, bias), out)
    return True


def _places_of_taps(writer: Writer, window: Window, dim: int) -> str:
    """The positions of taps along spatial dimension ``dim``, in pixels: broadcast to [1, taps, 1,
    H, W]."""
    stride, first = window.strides[dim], -window.padding_l[dim]
    tap = np.arange(prod(window.kernel))
    tap = tap // window.kernel[1] if dim == 0 else tap % window.kernel[1]
    begin = writer.constant((first + tap * window.dilations[dim]).reshape(1, -1, 1, 1, 1))
    size = window.out[dim]
    number = writer.reshape(
        _numbers(writer, size), (1, 1, 1, *((size, 1) if not dim else (1, size)))
    )
    own = (1, 1, 1, *((size, 1) if not dim else (1, size)))
    scaled = writer.add("Mul", (number, writer.constant(stride)), own)
    return writer.add("Add", (scaled, begin), (1, len(tap), *own[2:]))


def _numbers(writer: Writer, count: int) -> str:
    """0 to ``count - 1`` as floats."""
    if is_known(count):
        return writer.constant(np.arange(count))
    return writer.add("Cast", (counted(writer, count),), (count,), {"to": writer.dtype})


def sampled(
    writer: Writer, sources: tuple[str, str], shape: Shape, mode: bytes, padding: bytes
) -> str:
    """Samples of an image at a grid in pixels: ``sources`` are both, ``shape`` is that of the
    result."""
    attrs = {"mode": mode, "padding_mode": padding, "coordinates": "pixels"}
    return writer.add(_SAMPLE, sources, shape, attrs)


OPERATORS: Mapping[str, Operator] = {
    "AffineGrid": Operator(_infer_affine, expand=_expand_affine, inputs=(2, 2)),
    "DeformConv": Operator(_infer_deformed, expand=_expand_deformed, inputs=(3, 5)),
    "GridSample": Operator(_infer_sample, expand=_expand_sample, inputs=(2, 2)),
}
MADE: Mapping[str, Operator] = {
    _SAMPLE: Operator(_infer_sample, _lower_sample, inputs=(2, 2), role=Role.EXACT),
}
