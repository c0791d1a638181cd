"""Resizing by the resampling primitive, at once or axis by axis; integers that it does not compute
are gathered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor, isfinite, prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import Array, ModelError, Node, Shape, TensorType, is_whole
from dnnl.graph.scope import Scope, normal_axis
from dnnl.graph.writer import Writer
from dnnl.lowering.graphs import FORWARD, Lowering
from dnnl.operators.interpolation import (
    COORDINATES,
    CROPS,
    ROUNDINGS,
    InterpolatedAxis,
    Rule,
    is_identity,
    is_resampling,
    nearest,
    of_any_size,
    outside,
    ratio,
    taps,
)
from dnnl.operators.operator import ANY_POST_OPS, Operator
from dnnl.operators.writing import gathered
from dnnl.primitives.resampling import ResamplingDesc
from dnnl.runtime.storage import check_capacity
from dnnl.types.arg import Arg
from dnnl.types.interpolation import Interpolation
from dnnl.types.size import is_known, surely_equal
from dnnl.types.taps import Taps

_MODES = ("nearest", "linear", "cubic")
_POLICIES = ("stretch", "not_larger", "not_smaller")
_MOST = 2**31
_EXACT = 2**8
"""Scales of smaller integers are exact in f32, and so are their products with sizes."""
_WHOLE = Fraction(0), Fraction(1)
"""The region of an axis that is all of it."""
_FIRST = 10
"""The last operator set with scales alone, which divide the coordinates."""


def _infer_resize(scope: Scope) -> list[TensorType]:
    """The source's type with the new sizes."""
    _rule_of(scope)
    axes = _open_axes(scope) or _axes_of(scope)
    return scope.result([axis.new for axis in axes])


@dataclass(frozen=True, slots=True)
class _OpenAxis:
    """An axis that gets ``new`` elements by a ``rule``, or a table where its sizes are known; None
    where each element is itself."""

    new: int
    rule: Interpolation | Taps | None


def _open_axes(scope: Scope) -> tuple[_OpenAxis, ...] | None:
    """What becomes of each axis, where that is a rule for any sizes, and only a run knows some of
    them; None where numbers are needed, or where all are known."""
    shape, rule = scope.shape(), _rule_of(scope)
    resized = [normal_axis(axis, len(shape)) for axis in scope.attr("axes", range(len(shape)))]
    given = None if _is_old(scope) else scope.constant(3)
    sizes = list(given) if given is not None and given.size == len(resized) else None
    if all(map(is_known, (*shape, *(sizes or ())))) or len(set(resized)) < len(resized):
        return None
    scales = _scales(scope, len(resized))
    if sizes is not None and scales is not None:
        return None
    if sizes is not None:
        stretched = _name(scope, "keep_aspect_ratio_policy", "stretch", _POLICIES) == "stretch"
        made = [_open_axis(rule, shape[d], n) for d, n in zip(resized, sizes, strict=True)]
    else:
        stretched, scales = True, scales or [0.0] * len(resized)
        made = [_scaled_axis(rule, shape[d], n) for d, n in zip(resized, scales, strict=True)]
    if not stretched or None in made:
        return None
    found = dict(zip(resized, made, strict=True))
    return tuple(found.get(d) or _OpenAxis(n, None) for d, n in enumerate(shape))


def _open_axis(rule: Rule, old: int, new: int, scale: Fraction | None = None) -> _OpenAxis | None:
    """An axis that gets ``new`` elements; None where there is no rule for any sizes that are not
    known."""
    if scale is None and is_known(old) and is_known(new):
        return _known_axis(rule, _sized(old, new, None, *_WHOLE))
    alike = rule.coordinates not in (CROPS, "tf_half_pixel_for_nn")
    if surely_equal(old, new) and alike and scale in (None, 1):
        return _OpenAxis(old, None)
    made = of_any_size(rule, scale)
    return _OpenAxis(new, made) if made and new >= 1 else None


def _known_axis(rule: Rule, axis: InterpolatedAxis) -> _OpenAxis | None:
    if rule.coordinates == CROPS or axis.new < 1 or max(axis.old, axis.new) > _LONGEST:
        return None
    return _OpenAxis(axis.new, None if is_identity(rule, axis) else taps(rule, axis))


def _scaled_axis(rule: Rule, old: int, scale: float) -> _OpenAxis | None:
    """An axis that is scaled by a number that f32 and products with sizes have exactly; None for
    others, whose sizes depend on how f32 rounds, unless they are known."""
    if is_known(old):
        return _known_axis(rule, _scaled(old, scale, *_WHOLE))
    exact = Fraction(scale)
    above, below = exact.as_integer_ratio()
    whole = below == 1 or rule.coordinates != "align_corners"
    if not 0 < above < _EXACT > below or not whole:
        return None
    if rule.rounding == "simple":
        rule = replace(rule, rounding="floor" if exact >= 1 else "ceil")
    return _open_axis(rule, old, old * above // below, exact)


def _rule_of(scope: Scope) -> Rule:
    """How elements are made.

    Raises ModelError for names that ONNX does not have, and numbers that make no weights.
    """
    old = _is_old(scope)
    cubic = scope.attr("cubic_coeff_a", -0.75)
    if not isfinite(cubic):
        raise ModelError(f"attribute 'cubic_coeff_a' = {cubic} must be finite")
    coordinates = _name(scope, "coordinate_transformation_mode", "half_pixel", COORDINATES)
    rounding = _name(scope, "nearest_mode", "round_prefer_floor", ROUNDINGS)
    return Rule(
        _name(scope, "mode", "nearest", _MODES),
        "asymmetric" if old else coordinates,
        "simple" if old else rounding,
        cubic,
        bool(scope.attr("antialias", 0)),
        bool(scope.attr("exclude_outside", 0)),
        scope.attr("extrapolation_value", 0.0),
    )


def _is_old(scope: Scope) -> bool:
    return scope.node.op == "Upsample" or scope.graph.opset <= _FIRST


def _name(scope: Scope, attribute: str, default: str, known: Collection[str]) -> str:
    name = str(scope.attr(attribute, default.encode()).decode(errors="replace"))
    if name not in known:
        raise ModelError(f"attribute {attribute!r} = {name!r} must be one of {', '.join(known)}")
    return name


def _axes_of(scope: Scope) -> tuple[InterpolatedAxis, ...]:
    """What becomes of each axis.

    Raises ModelError for scales, sizes and regions that do not fit the source.
    """
    shape = tuple(map(int, scope.shape()))  # the places of all elements are needed
    resized = [normal_axis(axis, len(shape)) for axis in scope.attr("axes", range(len(shape)))]
    if len(set(resized)) != len(resized):
        raise ModelError(f"axes {scope.attr('axes')} name one twice")
    axes = [InterpolatedAxis(n, n, Fraction(1), Fraction(n)) for n in shape]
    regions = _regions(scope, len(resized))
    scales, sizes = _scales(scope, len(resized)), _sizes(scope, len(resized))
    if (scales is None) == (sizes is None):
        raise ModelError("either scales or sizes must be given")
    if sizes is not None:
        factors = _factors(scope, [shape[d] for d in resized], sizes)
    for index, d in enumerate(resized):
        begin, end = regions[index]
        if sizes is not None:
            axes[d] = _sized(shape[d], sizes[index], factors[index], begin, end)
        elif scales is not None:
            axes[d] = _scaled(shape[d], scales[index], begin, end)
        if shape[d] == 0 and axes[d].new:
            raise ModelError(f"axis {d} has no elements to make {axes[d].new} of")
    return tuple(axes)


def _scaled(old: int, scale: float, begin: Fraction, end: Fraction) -> InterpolatedAxis:
    # In f32, where 0.7 of 10 is 7.
    width = float(np.float32(old) * np.float32(end - begin) * np.float32(scale))
    if width >= _MOST:
        raise ModelError(f"{scale} times {old} elements are too many")
    exact = ratio(old, floor(width), scale)
    return InterpolatedAxis(old, floor(width), exact, old * (end - begin) * exact, begin, end)


def _sized(
    old: int, size: int, factor: Fraction | None, begin: Fraction, end: Fraction
) -> InterpolatedAxis:
    """``factor`` applies to all axes where the aspect ratio is fixed."""
    if factor is None:
        return InterpolatedAxis(old, size, Fraction(size, max(1, old)), Fraction(size), begin, end)
    return InterpolatedAxis(
        old, floor(factor * old + Fraction(1, 2)), factor, factor * old, begin, end
    )


def _factors(scope: Scope, old: Sequence[int], sizes: Sequence[int]) -> list[Fraction | None]:
    """The one factor of all axes for a fixed aspect ratio."""
    policy = _name(scope, "keep_aspect_ratio_policy", "stretch", _POLICIES)
    if policy == "stretch" or not sizes or 0 in old:
        return [None] * len(sizes)
    chosen = min if policy == "not_larger" else max
    factors = (Fraction(size, n) for size, n in zip(sizes, old, strict=True))
    return [chosen(factors)] * len(sizes)


def _scales(scope: Scope, count: int) -> list[float] | None:
    if "scales" in scope.node.attrs:
        given: Array | None = np.asarray(scope.node.attrs["scales"])
    else:
        given = scope.constant(1 if _is_old(scope) else 2)
    if given is None or not given.size:
        return None
    scales = [float(n) for n in given.ravel()]
    if len(scales) != count or not all(isfinite(n) and n > 0 for n in scales):
        raise ModelError(f"scales {scales} must be {count} positive numbers")
    return scales


def _sizes(scope: Scope, count: int) -> list[int] | None:
    given = None if _is_old(scope) else scope.constant(3)
    if given is None or not given.size:
        return None
    sizes = [int(n) for n in given.ravel()]
    if len(sizes) != count or not all(0 <= n < _MOST for n in sizes):
        raise ModelError(f"sizes {sizes} must be {count} of at least 0 and less than {_MOST}")
    return sizes


def _regions(scope: Scope, count: int) -> list[tuple[Fraction, Fraction]]:
    """Where each axis begins and ends, as parts of it: all of it unless a region is asked for."""
    mode = scope.attr("coordinate_transformation_mode", b"").decode(errors="replace")
    if mode != CROPS or _is_old(scope):
        return [(Fraction(0), Fraction(1))] * count
    given = scope.constant(1)
    numbers = [] if given is None else [float(n) for n in given.ravel()]
    if len(numbers) != 2 * count or not all(map(isfinite, numbers)):
        raise ModelError(f"roi {numbers} must be {2 * count} numbers: {count} starts, then ends")
    ends = list(map(Fraction, numbers))
    return list(zip(ends[:count], ends[count:], strict=True))


_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
_MOST_SPATIAL = 3
_LONGEST = 2**20  # elements along an axis of the primitive
_PLACE = 64  # bytes that computing the place of an element takes for a while
_PASS = 8  # an element that is stored and read again takes as long as so many taps


def _expand_resize(writer: Writer) -> bool:
    """Nothing where each element is itself, else resamplings, or some nodes for each axis."""
    scope = Scope(writer.node, writer.graph)
    if "taps" in writer.node.attrs:  # what this has written for an Upsample
        return False
    rule = _rule_of(scope)
    if _ruled(writer, rule):
        return True
    axes = _axes_of(scope)
    source, dst = writer.node.inputs[0], tuple(axis.new for axis in axes)
    if is_whole(writer.dtype) and rule.mode != "nearest":
        raise Unimplemented(f"{rule.mode} interpolation of {writer.dtype}; Cast makes floats of it")
    if 0 in dst:
        writer.add("Identity", (writer.constant(np.zeros(dst)),), dst)
        return True
    # Before the places of so many elements are computed.
    check_capacity(max(prod(dst) * writer.dtype.itemsize, max(dst) * _PLACE))
    changed = [d for d, axis in enumerate(axes) if not is_identity(rule, axis)]
    # Those axes first that lose elements, which leaves less to do for the others.
    changed.sort(key=lambda d: axes[d].new / axes[d].old)
    if not changed:
        writer.add("Identity", (source,), dst)
    elif _is_gathered(writer, rule, axes):
        _gathered(writer, rule, axes, changed)
    else:
        own = {d: taps(rule, axes[d]) for d in changed}
        usual = {d for d in changed if is_resampling(rule, axes[d])}
        sizes = tuple(axis.old for axis in axes), dst
        _extrapolated(writer, in_passes(writer, rule.mode, sizes, own, usual), rule, axes)
    return True


def _ruled(writer: Writer, rule: Rule) -> bool:
    """One resampling by rules along axes of which only a run knows the sizes."""
    scope = Scope(writer.node, writer.graph)
    axes, shape = _open_axes(scope), scope.shape()
    if axes is None or is_whole(writer.dtype) or not 3 <= len(shape) <= 2 + _MOST_SPATIAL:
        return False
    if any(axis.rule for axis in axes[:2]):
        return False
    mode, source = "nearest" if rule.mode == "nearest" else "linear", writer.node.inputs[0]
    dst = writer.graph.shape_of(writer.node.output)
    each = tuple(axis.rule or Interpolation("nearest") for axis in axes[2:])
    if any(axis.rule for axis in axes):
        writer.add("Resize", (source,), dst, {"mode": mode, "taps": each})
    else:
        writer.add("Identity", (source,), dst)
    return True


def _is_gathered(writer: Writer, rule: Rule, axes: Sequence[InterpolatedAxis]) -> bool:
    """Whether elements are moved that the primitive does not: integers that f32 does not hold, and
    those of axes that are longer than its code has places for."""
    held = not is_whole(writer.dtype) or writer.dtype in _BYTES
    longest = max(max(axis.old, axis.new) for axis in axes)
    return rule.mode == "nearest" and (not held or longest > _LONGEST)


def _gathered(
    writer: Writer, rule: Rule, axes: Sequence[InterpolatedAxis], changed: Sequence[int]
) -> None:
    """The nearest slices of each axis."""
    value, shape = writer.node.inputs[0], tuple(axis.old for axis in axes)
    for d in changed:
        shape = (*shape[:d], axes[d].new, *shape[d + 1 :])
        value = gathered(writer, value, shape, d, nearest(rule, axes[d]))
    _extrapolated(writer, value, rule, axes)


def in_passes(
    writer: Writer,
    mode: str,
    sizes: tuple[Shape, Shape],
    own: Mapping[int, Taps],
    usual: Collection[int] = (),
) -> str:
    """Weighted sums by taps of axes between two shapes, along all at once, or one after the other
    where these are fewer terms. Those of ``usual`` axes are what the primitive has by itself."""
    (shape, dst), value = sizes, writer.node.inputs[0]
    for part in _parts(*sizes, own):
        wider = tuple(dst[d] if d in part else n for d, n in enumerate(shape))
        given = {} if usual and part <= {*usual} else {d: own[d] for d in part}
        name = "nearest" if mode == "nearest" else "linear"
        value = _pass(writer, value, name, sorted(part), (shape, wider), given)
        shape = wider
    return value


def _parts(old: Shape, new: Shape, own: Mapping[int, Taps]) -> list[set[int]]:
    """The axes that are resized."""
    left, total, apart = prod(old), prod(new), 0.0
    for d, each in own.items():
        left = left * new[d] // old[d]
        apart += left * (each.count + _PASS)
    at_once = total * (prod(each.count for each in own.values()) + _PASS)
    if len(own) <= _MOST_SPATIAL and at_once <= apart:
        return [{*own}]
    return [{d} for d in own]


def _pass(
    writer: Writer,
    source: str,
    mode: str,
    changed: Sequence[int],
    shapes: tuple[Shape, Shape],
    own: dict[int, Taps],
) -> str:
    """One resampling of ``source`` along axes, which are those of space: they come to the end where
    they are not there. Without taps of its ``own`` it has the usual ones."""
    shape, dst = shapes
    rank = len(shape)

    def add(value: str, sizes: Shape, spatial: Sequence[int]) -> str:
        each = [own.get(d) or Taps([range(dst[d])], np.ones((1, dst[d]))) for d in spatial]
        attrs = {"mode": mode, "taps": tuple(each) if own else ()}
        return writer.add("Resize", (value,), sizes, attrs)

    if changed[0] >= 2 and rank <= 2 + _MOST_SPATIAL:
        return add(source, dst, range(2, rank))
    others = [d for d in range(rank) if d not in changed]
    perm = (*others, *changed)
    ahead = tuple(shape[d] for d in others) or (1,)
    ahead = (prod(ahead[:-1]), ahead[-1])
    permuted, resized = (tuple(sizes[d] for d in perm) for sizes in (shape, dst))
    value = writer.add("Transpose", (source,), permuted, {"perm": perm})
    value = writer.reshape(value, (*ahead, *permuted[len(others) :]))
    value = writer.reshape(add(value, (*ahead, *resized[len(others) :]), changed), resized)
    back = tuple(perm.index(d) for d in range(rank))
    return writer.add("Transpose", (value,), dst, {"perm": back})


def _extrapolated(writer: Writer, value: str, rule: Rule, axes: Sequence[InterpolatedAxis]) -> None:
    """Another number where the region that is taken goes beyond the axes."""
    shape = tuple(axis.new for axis in axes)
    for d, axis in enumerate(axes):
        beyond = outside(rule, axis)
        if beyond.any():
            mask = beyond.reshape([-1 if at == d else 1 for at in range(len(shape))])
            number = writer.constant(rule.extrapolation)
            sources = (writer.constant(mask, np.dtype(np.bool_)), number, value)
            value = writer.add("Where", sources, shape)


def _lower_resize(lowering: Lowering, node: Node) -> None:
    """[N, C, ...] by the taps of the node, or else by the nearest elements or linearly between
    the centres of pixels."""
    source = lowering.source(node.inputs[0])
    dst = lowering.result(node, lowering.graph.shape_of(node.output))
    alg, taps = f"resampling_{node.attrs['mode']}", node.attrs["taps"]
    desc = ResamplingDesc.forward(FORWARD, alg, source.desc, dst, taps=taps)
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


OPERATORS: Mapping[str, Operator] = {
    "Resize": Operator(
        _infer_resize, _lower_resize, _expand_resize, post_ops=ANY_POST_OPS, inputs=(1, 4)
    ),
    "Upsample": Operator(_infer_resize, expand=_expand_resize, inputs=(1, 2)),
}
