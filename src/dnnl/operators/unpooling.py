"""MaxUnpool and Col2Im."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from dnnl.graph.graph import ModelError, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import known_int
from dnnl.graph.writer import Writer
from dnnl.operators.operator import Operator
from dnnl.operators.scatter import SLICES
from dnnl.operators.window import Window
from dnnl.operators.writing import transposed, with_size
from dnnl.types.size import surely_equal

_INDEX = np.dtype(np.int64)


def _infer_unpooled(scope: Scope) -> list[TensorType]:
    """The size before the pooling, or a given one."""
    if scope.shape(1) != scope.shape():
        raise ModelError(f"indices {scope.shape(1)} are not one for each of {scope.shape()}")
    return scope.result(_wanted(scope) or _unpooled(scope))


def _wanted(scope: Scope) -> Shape:
    given = scope.constant(2)
    if given is None:
        return ()
    least, sizes = _unpooled(scope), tuple(known_int(size) for size in given.ravel())
    if len(sizes) != len(least) or any(a < b for a, b in zip(sizes, least, strict=True)):
        raise ModelError(f"output_shape {sizes} does not hold {least}")
    return sizes


def _unpooled(scope: Scope) -> Shape:
    batch, channels, *spatial = scope.shape()
    kernel = tuple(scope.attr("kernel_shape"))
    attrs = {name: scope.attr(name) for name in ("pads", "strides") if scope.attr(name)}
    return (batch, channels, *Window.onto(tuple(spatial), kernel, attrs).out)


def _expand_unpooled(writer: Writer) -> bool:
    """A scatter of elements into a row of zeros, which is padded to a larger given size."""
    node, graph = writer.node, writer.graph
    scope = Scope(node, graph)
    source, shape, out = scope.shape(), _unpooled(scope), graph.shape_of(node.output)
    zeros = writer.filled(0, (prod(shape), 1))
    places = node.inputs[1]
    places = writer.reshape(places, (prod(source),), _INDEX)
    updates = writer.reshape(node.inputs[0], (prod(source), 1))
    value = writer.add(SLICES, (zeros, places, updates), (prod(shape), 1))
    value = writer.reshape(value, shape)
    for axis, size in enumerate(out):
        if surely_equal(size, shape[axis]):
            continue
        behind = writer.filled(0, with_size(shape, axis, size - shape[axis]))
        shape = with_size(shape, axis, size)
        value = writer.add("Concat", (value, behind), shape, {"axis": axis})
    return True


def _infer_columns(scope: Scope) -> list[TensorType]:
    """[N, C * block, L] gives [N, C, ...], where L is the number of blocks."""
    image, block = _columns(scope)
    (batch, rows, places), window = scope.shape(), _window(scope, image, block)
    if rows % prod(block) or places != prod(window.out):
        rule = f"{scope.shape()} are not {prod(window.out)} blocks of {block}"
        raise ModelError(f"columns {rule} in an image of {image}")
    return scope.result((batch, rows // prod(block), *image))


def _columns(scope: Scope) -> tuple[Shape, Shape]:
    """The sizes of the image and of a block, which a plan must know."""
    image, block = scope.listed("image_shape", 1), scope.listed("block_shape", 2)
    if image is None or block is None or len(image) != len(block) or len(scope.shape()) != 3:
        raise ModelError(f"image_shape {image} and block_shape {block} of {scope.shape()} disagree")
    return tuple(map(int, image)), tuple(map(int, block))


def _window(scope: Scope, image: Shape, block: Shape) -> Window:
    return Window.over(image, block, scope.node.attrs)


def _expand_columns(writer: Writer) -> bool:
    """A scatter that adds the elements of all columns into the padded image, then a Slice."""
    node, graph = writer.node, writer.graph
    scope = Scope(node, graph)
    image, block = _columns(scope)
    window = _window(scope, image, block)
    batch, channels = graph.shape_of(node.output)[:2]
    sides = zip(image, window.padding_l, window.padding_r, strict=True)
    whole = tuple(size + before + behind for size, before, behind in sides)
    taps, blocks, images = prod(block), prod(window.out), batch * channels
    seen = (images, taps * blocks)
    value = writer.reshape(node.inputs[0], seen)
    value = transposed(writer, value, seen, (1, 0))
    zeros = writer.filled(0, (prod(whole), images))
    places = writer.constant(_places(window, whole), _INDEX)
    attrs = {"reduction": b"add"}
    value = writer.add(SLICES, (zeros, places, value), (prod(whole), images), attrs)
    value = transposed(writer, value, (prod(whole), images), (1, 0))
    shape = (batch, channels, *whole)
    value = writer.reshape(value, shape)
    for axis, size in enumerate(image, 2):
        if size != shape[axis]:
            first = window.padding_l[axis - 2]
            ends = {"starts": (first,), "ends": (first + size,), "axes": (axis,)}
            shape = with_size(shape, axis, size)
            value = writer.add("Slice", (value,), shape, ends)
    writer.reshape(value, shape)
    return True


def _places(window: Window, whole: Shape) -> np.ndarray:
    """Flattened indices into the padded image, [taps, blocks]."""
    rank, total = len(whole), np.zeros((), np.int64)
    for dim, size in enumerate(whole):
        tap = np.arange(window.kernel[dim]) * window.dilations[dim]
        block = np.arange(window.out[dim]) * window.strides[dim]
        own = tap.reshape([-1 if d == dim else 1 for d in range(2 * rank)])
        other = block.reshape([-1 if d == dim + rank else 1 for d in range(2 * rank)])
        total = total * size + own + other
    return total.ravel()


OPERATORS: Mapping[str, Operator] = {
    "Col2Im": Operator(_infer_columns, expand=_expand_columns, inputs=(3, 3)),
    "MaxUnpool": Operator(
        _infer_unpooled, expand=_expand_unpooled, inputs=(2, 3), required=("kernel_shape",)
    ),
}
