"""Resize and Upsample against ONNX Runtime: every transformation of coordinates, rounding and
interpolation, of any axes and in any operator set."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from dnnl.errors import OutOfMemory, Unimplemented
from dnnl.graph.graph import ModelError
from dnnl.lowering.graphs import LAYOUTS
from dnnl.operators.interpolation import COORDINATES, ROUNDINGS, ratio
from dnnl.runtime.engine import Engine
from tests.framework.models import assert_same, make_model, model_of, node, plans_of, run_peer
from tests.framework.test_operators import agree, random
from tests.pairs import every_pair

HALF = Fraction(1, 2)
IMAGE = (2, 5, 7, 6)
ENLARGED, REDUCED, BOTH = (2, 5, 13, 9), (2, 5, 3, 4), (2, 5, 4, 17)


def resized(
    shape: tuple[int, ...] = IMAGE,
    sizes: tuple[int, ...] | None = None,
    scales: tuple[float, ...] | None = None,
    roi: tuple[float, ...] | None = None,
    opset: int = 19,
    kind: str = "float32",
    **attrs: Any,
) -> Any:
    """A model of one Resize."""
    constants: dict[str, Any] = {}
    if roi is not None:
        constants["roi"] = np.array(roi, np.float32)
    if scales is not None:
        constants["scales"] = np.array(scales, np.float32)
    if sizes is not None:
        constants["sizes"] = np.array(sizes, np.int64)
    names = ("scales",) if opset < 11 else ("roi", "scales", "sizes")
    sources = ["x", *(name if name in constants else "" for name in names)]
    while not sources[-1]:
        sources.pop()
    kinds = {"x": kind, "y": kind}
    return make_model(
        [node("Resize", sources, "y", **attrs)], {"x": shape}, ["y"], constants, opset, kinds
    )


def layers(proto: Any) -> list[str]:
    """The primitives of a model that agrees with ONNX Runtime."""
    return [layer.primitive for layer in agree(proto, "propagate", 1e-4).layers]


TRANSFORMED = sorted(COORDINATES.keys() - {"tf_crop_and_resize", "tf_half_pixel_for_nn"})


@every_pair(
    sizes=[ENLARGED, REDUCED, BOTH], coordinates=TRANSFORMED, mode=["nearest", "linear", "cubic"]
)
def test_coordinates(mode: str, coordinates: str, sizes: tuple[int, ...]) -> None:
    transformation: dict[str, Any] = {"coordinate_transformation_mode": coordinates}
    agree(resized(sizes=sizes, mode=mode, **transformation), "propagate", 1e-4)


@pytest.mark.parametrize("rounding", sorted(ROUNDINGS))
@pytest.mark.parametrize("coordinates", ["asymmetric", "half_pixel", "align_corners"])
def test_roundings(rounding: str, coordinates: str) -> None:
    attrs: dict[str, Any] = {
        "nearest_mode": rounding,
        "coordinate_transformation_mode": coordinates,
    }
    for scales in ((1, 1, 2, 3), (1, 1, 0.5, 0.25), (1, 1, 1.5, 0.7)):
        if coordinates != "align_corners" or all(n == int(n) for n in scales):
            agree(resized((1, 2, 8, 8), scales=scales, **attrs), "plain")


FAST: dict[str, dict[str, Any]] = {
    "twice": {"scales": (1, 1, 2, 2), "nearest_mode": "floor"},
    "linear": {"sizes": BOTH, "mode": "linear"},
    "channels_last": {"scales": (1, 2, 2, 1), "mode": "linear"},
    "batch": {"scales": (3, 1, 1, 1), "nearest_mode": "floor"},
    "volume": {"shape": (1, 3, 4, 5, 6), "sizes": (1, 3, 8, 5, 9), "mode": "linear"},
    "matrix": {"shape": (6, 5), "scales": (2, 2), "mode": "linear"},
    "corners": {"sizes": BOTH, "mode": "linear", "coordinate_transformation_mode": "align_corners"},
    "cubic": {"sizes": REDUCED, "mode": "cubic"},
    "nearest": {"sizes": BOTH, "coordinate_transformation_mode": "align_corners"},
}


@pytest.mark.parametrize("name", FAST)
def test_what_resampling_computes_is_one_primitive(name: str) -> None:
    attrs = dict(FAST[name])
    if "nearest_mode" in attrs:
        attrs["coordinate_transformation_mode"] = "asymmetric"
    names = layers(resized(**attrs))
    assert [name for name in names if name != "reorder"] == ["resampling"]


def test_one_axis_after_the_other_where_these_are_fewer_terms() -> None:
    large = resized((1, 2, 24, 24), (1, 2, 96, 96), mode="cubic")
    assert layers(large) == ["resampling"] * 2
    four = resized((2, 3, 4, 5), (3, 4, 6, 7), mode="linear", axes=[0, 1, 2, 3])
    (want,) = ReferenceEvaluator(four).run(None, {"x": (x := random(2, 3, 4, 5))})
    session = model_of(four).compile(Engine("cpu"))
    assert [layer.primitive for layer in session.layers].count("resampling") == 4
    assert_same(session.run({"x": x}), {"y": want}, 1e-4)


def test_resampling_behind_a_convolution_keeps_its_layout_and_takes_post_ops() -> None:
    """As a feature pyramid has it."""
    attrs: dict[str, Any] = {"mode": "nearest", "nearest_mode": "floor"}
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("Resize", ["c", "", "s"], "r", coordinate_transformation_mode="asymmetric", **attrs),
        node("Add", ["r", "z"], "y"),
    ]
    constants = {"w": random(16, 8, 1, 1), "s": np.array([1, 1, 2, 2], np.float32)}
    proto = make_model(nodes, {"x": (1, 8, 4, 4), "z": (1, 16, 8, 8)}, ["y"], constants)
    session = agree(proto, "propagate")
    assert ("resampling", ("node_y",)) in [(n.primitive, n.fused) for n in session.layers]


@pytest.mark.parametrize("sizes", [(1, 16, 7, 9), (1, 16, 24, 24)])
def test_given_taps_between_convolutions_reorder_nothing(sizes: tuple[int, ...]) -> None:
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("Resize", ["c", "", "", "s"], "r", mode="cubic"),
        node("Conv", ["r", "v"], "y"),
    ]
    constants = {"w": random(16, 16, 1, 1), "v": random(8, 16, 3, 3), "s": np.array(sizes)}
    proto = make_model(nodes, {"x": (1, 16, 8, 8)}, ["y"], constants)
    names = layers(proto)
    first, last = (n for n, name in enumerate(names) if name == "convolution")
    assert set(names[first + 1 : last]) == {"resampling"}


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize(("kind", "tolerance"), [("float16", 1e-2), ("double", 1e-6)])
def test_other_floats_are_resized_alike(kind: str, tolerance: float, mode: str) -> None:
    attrs: dict[str, Any] = {"coordinate_transformation_mode": "align_corners"}
    narrow, wide = (
        resized(sizes=BOTH, mode=mode, kind=each, **attrs) for each in (kind, "float32")
    )
    x = random(*IMAGE).astype(np.float16)
    got, want = (
        model_of(proto).compile(Engine("cpu")).run({"x": x.astype(own)})["y"].astype(np.float64)
        for proto, own in ((narrow, np.dtype(kind)), (wide, np.float32))
    )
    assert np.abs(got - want).max() < tolerance


def test_nearest_elements_of_long_axes_are_gathered() -> None:
    count = 2**20 + 3
    proto = resized((1, 1, count), (1, 1, count // 2), mode="nearest", nearest_mode="ceil")
    x = np.arange(count, dtype=np.float32).reshape(1, 1, count)
    got = model_of(proto).compile(Engine("cpu")).run({"x": x})["y"]
    want = np.ceil((np.arange(count // 2) + 0.5) * count / (count // 2) - 0.5)
    np.testing.assert_array_equal(got.ravel(), want)


RATIOS = [
    *[(axes, policy) for axes in ([2, 3], [3, 2]) for policy in ("not_larger", "not_smaller")],
    # ONNX Runtime computes other policies of axes from the front alone.
    *[(axes, "stretch") for axes in ([3, 2], [-1, -2])],
]


@pytest.mark.parametrize(("axes", "policy"), RATIOS)
def test_axes_and_ratios(axes: list[int], policy: str) -> None:
    attrs: dict[str, Any] = {"keep_aspect_ratio_policy": policy, "mode": "linear"}
    agree(resized(sizes=(11, 5), axes=axes, **attrs), "propagate", 1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("value", [0.0, 2.5])
def test_regions(value: float, mode: str) -> None:
    attrs: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize"}
    roi = (0, 0, 0.2, 0.4, 1, 1, 1.3, 0.9)
    proto = resized(sizes=ENLARGED, roi=roi, mode=mode, extrapolation_value=value, **attrs)
    agree(proto, "propagate", 1e-4)


def test_a_region_of_the_same_size_is_another_image() -> None:
    """ONNX Runtime gives the source, ONNX's reference what was asked for."""
    attrs: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize"}
    roi = (0, 0, 0.1, 0.2, 1, 1, 0.7, 0.8)
    proto = resized((1, 2, 7, 6), (1, 2, 7, 6), roi=roi, mode="linear", **attrs)
    x = random(1, 2, 7, 6)
    (want,) = ReferenceEvaluator(proto).run(None, {"x": x})
    assert_same(model_of(proto).compile(Engine("cpu")).run({"x": x}), {"y": want}, 1e-4)


@pytest.mark.parametrize("a", [-0.75, -0.5])
def test_cubic_without_what_is_outside(a: float) -> None:
    for sizes in (ENLARGED, REDUCED):
        agree(resized(sizes=sizes, mode="cubic", cubic_coeff_a=a, exclude_outside=1), "plain", 1e-4)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias(mode: str) -> None:
    """ONNX Runtime leaves out what is outside, whether it is asked to or not."""
    proto = resized((1, 2, 24, 20), (1, 2, 9, 7), mode=mode, antialias=1, exclude_outside=1)
    agree(proto, "propagate", 1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.6, 0.5), (1, 1, 1.4, 1)])
def test_old_operator_sets(mode: str, scales: tuple[float, ...]) -> None:
    agree(resized(scales=scales, opset=10, mode=mode), "propagate", 1e-4)
    if min(scales) >= 1:
        shape, constants = {"x": IMAGE}, {"s": np.array(scales, np.float32)}
        newer = node("Upsample", ["x", "s"], "y", mode=mode)
        agree(make_model([newer], shape, ["y"], constants, 9), "plain", 1e-4)
        older = node("Upsample", ["x"], "y", mode=mode, scales=[float(n) for n in scales])
        agree(make_model([older], shape, ["y"], opset=7), "propagate", 1e-4)


def test_coordinates_of_operator_set_11() -> None:
    attrs: dict[str, Any] = {
        "coordinate_transformation_mode": "tf_half_pixel_for_nn",
        "nearest_mode": "floor",
    }
    empty: tuple[float, ...] = ()
    proto = resized(sizes=BOTH, roi=empty, scales=empty, opset=11, **attrs)
    agree(proto, "propagate")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_changes(layout: str) -> None:
    """Not even a step is left."""
    assert not agree(resized(sizes=IMAGE, mode="cubic"), layout).layers


def test_lines_and_many_dimensions() -> None:
    """Shapes that ONNX Runtime does not take, by those that it does."""
    for shape, sizes, axes in (((7,), (12,), [0]), ((2, 1, 3, 2, 4, 6), (5, 9), [4, 5])):
        x = random(*shape)
        proto = resized(shape, sizes, mode="linear", axes=axes)
        got = model_of(proto).compile(Engine("cpu")).run({"x": x})["y"]
        image = x.reshape(1, 1, 1, 7) if len(shape) == 1 else x.reshape(12, 1, 4, 6)
        same = resized(image.shape, (*image.shape[: 4 - len(sizes)], *sizes), mode="linear")
        want = run_peer(same, {"x": image})["y"]
        np.testing.assert_allclose(got.reshape(want.shape), want, atol=1e-5)


@pytest.mark.parametrize("kind", ["uint8", "int8", "int32", "int64"])
def test_integers_stay_what_they_are(kind: str) -> None:
    info = np.iinfo(kind)
    x = np.random.default_rng(1).integers(info.min, info.max, IMAGE, kind, endpoint=True)
    for sizes in ((2, 5, 14, 12), BOTH):
        got = model_of(resized(sizes=sizes, kind=kind)).compile(Engine("cpu")).run({"x": x})["y"]
        places = [
            np.ceil((np.arange(new) + 0.5) * old / new - 1).clip(0, old - 1).astype(int)
            for old, new in zip(IMAGE[2:], sizes[2:], strict=True)
        ]
        np.testing.assert_array_equal(got, x[:, :, places[0]][..., places[1]])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "both": ({"sizes": IMAGE, "scales": (1, 1, 1, 1)}, "either scales or sizes"),
    "short": ({"scales": (2, 2)}, "must be 4 positive numbers"),
    "negative": ({"scales": (1, 1, -1, 1)}, "must be 4 positive numbers"),
    "huge": ({"scales": (1, 1, 1e10, 1)}, "too many"),
    "size": ({"sizes": (2, 5, -3, 4)}, "must be 4 of at least 0"),
    "cubic": ({"sizes": ENLARGED, "mode": "cubic", "cubic_coeff_a": math.inf}, "must be finite"),
    "mode": ({"sizes": ENLARGED, "mode": "lanczos"}, "'lanczos' must be one of nearest, linear"),
    "twice": ({"sizes": (4, 4), "axes": [2, -2]}, "name one twice"),
    "region": (
        {"sizes": ENLARGED, "coordinate_transformation_mode": "tf_crop_and_resize"},
        "must be 8 numbers",
    ),
    "nothing": ({"shape": (1, 1, 0, 2), "sizes": (1, 1, 3, 2)}, "no elements to make 3 of"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    attrs, reason = REFUSED[name]
    model = model_of(resized(**attrs))
    with pytest.raises(ModelError, match=reason):
        model.with_shapes({"x": attrs.get("shape", IMAGE)})


def test_nothing_is_left_and_too_much_is_refused() -> None:
    proto = resized(scales=(1, 1, 0.1, 1))
    got = model_of(proto).compile(Engine("cpu")).run({"x": random(*IMAGE)})["y"]
    assert got.shape == (2, 5, 0, 6)
    with pytest.raises(OutOfMemory):
        model_of(resized((1, 1, 1, 1), scales=(1, 1, 2e9, 2e9))).compile(Engine("cpu"))


def test_interpolated_integers_are_refused() -> None:
    proto = resized(sizes=ENLARGED, mode="linear", kind="uint8")
    with pytest.raises(Unimplemented, match="linear interpolation of uint8; Cast makes floats"):
        model_of(proto).compile(Engine("cpu"))


TIES = {
    "20 to 6": (20, 6, "half_pixel", "round_prefer_ceil"),
    "100 to 30": (100, 30, "half_pixel", "round_prefer_ceil"),
    "14 to 4 up": (14, 4, "asymmetric", "round_prefer_ceil"),
    "14 to 4 down": (14, 4, "asymmetric", "round_prefer_floor"),
    "49 to 7": (49, 7, "asymmetric", "floor"),
    "49 to 7 up": (49, 7, "asymmetric", "ceil"),
    "corners": (9, 5, "align_corners", "round_prefer_floor"),
}


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", TIES)
def test_ties_are_exact(name: str, scaled: bool) -> None:
    """Places are fractions, also those that a scale in f32 stands for."""
    old, new, coordinates, rounding = TIES[name]
    attrs: dict[str, Any] = {"nearest_mode": rounding}
    attrs["coordinate_transformation_mode"] = coordinates
    size: dict[str, Any] = {"scales": (1.0, new / old)} if scaled else {"sizes": (1, new)}
    proto = resized((1, old), **size, mode="nearest", **attrs)
    session = model_of(proto).compile(Engine("cpu"), num_threads=1)
    got = session.run({"x": np.arange(old, dtype=np.float32)[np.newaxis]})["y"][0]
    at = [Fraction(i) for i in range(new)]
    places = {
        "half_pixel": [(i + HALF) * old / new - HALF for i in at],
        "asymmetric": [i * old / new for i in at],
        "align_corners": [i * (old - 1) / (new - 1) for i in at],
    }[coordinates]
    nearest = {
        "floor": math.floor,
        "ceil": math.ceil,
        "round_prefer_ceil": lambda x: math.floor(x + HALF),
        "round_prefer_floor": lambda x: math.ceil(x - HALF),
    }[rounding]
    assert got.tolist() == [nearest(place) for place in places]


def test_a_scale_stands_for_the_simplest_fraction() -> None:
    def read(old: int, new: int, scale: float) -> Fraction:
        return ratio(old, new, float(np.float32(scale)))

    assert read(20, 6, 0.3) == read(21, 6, 0.3) == Fraction(3, 10)
    assert read(3000, 2999, 2999 / 3000) == Fraction(2999, 3000)
    assert read(7, 9, 4 / 3) == Fraction(4, 3)
    assert read(7, 9, np.pi / 2) == Fraction(float(np.float32(np.pi / 2)))


SPREADING: dict[str, dict[str, Any]] = {
    "linear": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    "cubic": {"mode": "cubic"},
    "antialias": {"mode": "linear", "antialias": 1},
    "region": {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
}


@pytest.mark.parametrize("name", SPREADING)
def test_infinities_and_nan_reach_what_they_are_a_part_of(name: str) -> None:
    """Each element by itself: as many are not finite as differ where that element differs."""
    new = 6 if name == "antialias" else 16
    attrs = dict(SPREADING[name])
    if name == "region":
        attrs |= {"roi": (0.0, 0.0, 1.2, 1.0), "extrapolation_value": 3.0}
    proto = resized((11, 11), (new, 16), **attrs)
    session = model_of(proto).compile(Engine("cpu"), num_threads=1)
    plain = np.random.default_rng(1).standard_normal((11, 11)).astype(np.float32)
    for at in ((0, 0), (5, 5), (4, 10), (10, 10)):
        other, infinite = plain.copy(), plain.copy()
        other[at], infinite[at] = 1e4, np.inf
        first, second, third = (session.run({"x": x})["y"] for x in (plain, other, infinite))
        np.testing.assert_array_equal(~np.isfinite(third), first != second)
        np.testing.assert_array_equal(third[first == second], first[first == second])


def test_one_infinity_in_a_corner_of_a_smaller_image() -> None:
    proto = resized((6, 6), scales=(1.5, 1.5), **SPREADING["linear"])
    session = model_of(proto).compile(Engine("cpu"), num_threads=1)
    x = np.ones((6, 6), np.float32)
    x[2, 3] = np.inf
    peer = run_peer(proto, {"x": x})["y"]
    got = session.run({"x": x})["y"]
    assert np.count_nonzero(~np.isfinite(got)) <= np.count_nonzero(~np.isfinite(peer)) <= 9


OPEN: dict[str, dict[str, Any]] = {
    "half_pixel": {"mode": "linear"},
    "pytorch": {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    "corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    "cubic": {"mode": "cubic", "cubic_coeff_a": -0.5},
    "nearest": {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
    "rounded": {"nearest_mode": "round_prefer_floor"},
    "doubled": {"mode": "linear", "scales": (1, 1, 2, 2)},
    "broken": {"mode": "linear", "scales": (1, 1, 1.5, 0.75)},
    "in_f32": {"mode": "linear", "scales": (1, 1, 0.7, 1.3)},
}


@pytest.mark.parametrize("name", OPEN)
def test_images_of_any_size_get_that_of_others(name: str) -> None:
    """One plan for all, as of a decoder; scales that f32 rounds have one for each size."""
    attrs = dict(OPEN[name])
    constants: dict[str, Any] = {"w": random(8, 3, 3, 3)}
    nodes = [node("Conv", ["x", "w"], "c", strides=[2, 2], pads=[1, 1, 1, 1])]
    if (scales := attrs.pop("scales", None)) is not None:
        constants["s"] = np.array(scales, np.float32)
        nodes.append(node("Resize", ["c", "", "s"], "y", **attrs))
    else:
        constants |= {"two": np.array([2]), "four": np.array([4]), "zero": np.array([0])}
        nodes += [
            node("Shape", ["x"], "xs"),
            node("Slice", ["xs", "two", "four"], "space"),
            node("Shape", ["c"], "cs"),
            node("Slice", ["cs", "zero", "two"], "ahead"),
            node("Concat", ["ahead", "space"], "size", axis=0),
            node("Resize", ["c", "", "", "size"], "y", **attrs),
        ]
    proto = make_model(nodes, {"x": ("n", 3, "h", "w")}, ["y"], constants)
    model = model_of(proto)
    for n, height, width in ((2, 16, 24), (2, 33, 20), (3, 47, 18), (2, 21, 40), (4, 64, 31)):
        x = random(n, 3, height, width)
        assert_same({"y": model(x)}, run_peer(proto, {"x": x}), 1e-3)
    plans = plans_of(model)
    one = (len(plans._special.sessions), len(plans._open)) == (1, 1)
    assert one == (name != "in_f32")


BATCHES: dict[str, dict[str, Any]] = {
    "antialias": {"mode": "linear", "antialias": 1, "scales": (1, 1, 0.5, 0.7)},
    "nearest": {"mode": "nearest", "scales": (1, 1, 0.7, 1.3)},
    "cubic": {"mode": "cubic", "exclude_outside": 1, "scales": (1, 1, 0.7, 1)},
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_of_any_size_share_tables(name: str) -> None:
    """Those of images whose size is known, by scales that only tables have."""
    attrs = dict(BATCHES[name])
    constants = {"s": np.array(attrs.pop("scales"), np.float32)}
    nodes = [node("Resize", ["x", "", "s"], "y", **attrs)]
    proto = make_model(nodes, {"x": ("n", 2, 12, 10)}, ["y"], constants, opset=18)
    model = model_of(proto)
    for n in (2, 3, 5):
        x = random(n, 2, 12, 10)
        assert_same({"y": model(x)}, run_peer(proto, {"x": x}), 1e-3)
    plans = plans_of(model)
    assert (len(plans._special.sessions), len(plans._open)) == (1, 1)
