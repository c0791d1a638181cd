"""How a convolution's output is cut into tiles, against counting every pixel and every tap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dnnl.codegen.product.brgemm import ACCUMULATOR_CHAINS, TileShape
from dnnl.kernels.product.base.pixel_tiles import (
    BandRun,
    Spatial,
    band_runs,
    rows_per_band,
    static_taps,
    tile_runs,
)

ONE = Spatial(1, 1, 1, 1, 0, 1)


@st.composite
def spatials(draw: st.DrawFn) -> Spatial:
    """Any relation of sizes, also with more or fewer outputs than the padding on the left says."""
    return Spatial(
        src=draw(st.integers(0, 12)),
        dst=draw(st.integers(1, 20)),
        kernel=draw(st.integers(1, 7)),
        stride=draw(st.integers(1, 4)),
        padding=draw(st.integers(0, 15)),
        dilation=draw(st.integers(1, 9)),
    )


@st.composite
def large(draw: st.DrawFn) -> Spatial:
    """Sizes of which not all pixels are looked at, and kernels of which not all taps are."""
    size = st.integers(1, 400)
    return Spatial(
        src=draw(size),
        dst=draw(size),
        kernel=draw(st.integers(1, 200)),
        stride=draw(st.integers(1, 3)),
        padding=draw(st.integers(-3, 300)),
        dilation=draw(st.integers(1, 200)),
    )


def inside(space: Spatial, out: int) -> list[int]:
    """The taps of an output that see the image, by trying each."""
    places = [out * space.stride - space.padding + k * space.dilation for k in range(space.kernel)]
    return [k for k, place in enumerate(places) if 0 <= place < space.src]


@given(spatials())
def test_taps(space: Spatial) -> None:
    for out in range(space.dst):
        assert list(range(*space.taps(out))) == inside(space, out)


@given(spatials())
def test_padded(space: Spatial) -> None:
    complete = all(len(inside(space, out)) == space.kernel for out in range(space.dst))
    # A padding that no tap falls into, which a kernel of zeros would need, is not looked for.
    assert space.padded or complete
    if space.padding == 0:
        assert space.padded == (not complete)


@given(spatials() | large())
def test_inner(space: Spatial) -> None:
    complete = [len(inside(space, out)) == space.kernel for out in range(space.dst)]
    low, high = space.inner
    assert [low <= out < high for out in range(space.dst)] == complete


@given(spatials() | large(), st.integers(1, 30))
def test_tiles_cover_a_row_once(w: Spatial, rows: int) -> None:
    covered: list[int] = []
    numbers: list[int] = []
    for run in tile_runs(w, rows):
        assert 1 <= run.width <= rows
        assert run.taps is None or len(run.taps) == run.width
        for number in range(run.count):
            begin = run.begin + number * run.width
            numbers.append(run.first + number)
            for i in range(run.width):
                covered.append(begin + i)
                assert run.taps is None or list(range(*run.taps[i])) == inside(w, begin + i)
    assert covered == list(range(w.dst))
    assert numbers == list(range(len(numbers)))


@given(spatials() | large(), st.integers(1, 30))
def test_tiles_are_as_few_and_even_as_can_be(w: Spatial, rows: int) -> None:
    widths = [run.width for run in tile_runs(w, rows) for _ in range(run.count)]
    assert len(widths) == -(-w.dst // rows)
    assert max(widths) - min(widths) <= 1


@given(spatials() | large(), spatials(), st.integers(1, 30), st.integers(1, 4))
def test_bands_cover_the_rows_once(h: Spatial, w: Spatial, rows: int, vectors: int) -> None:
    height = rows_per_band((ONE, h, w), TileShape(rows, vectors), vectors)
    assert 1 <= height <= h.dst
    covered: list[int] = []
    numbers: list[int] = []
    for run in band_runs(h, height):
        for number in range(run.first, run.first + run.count):
            numbers.append(number)
            for row in range(run.rows):
                out = number * height + row
                covered.append(out)
                assert run.taps is None or list(range(*run.taps[row])) == inside(h, out)
    assert covered == list(range(h.dst))
    assert numbers == list(range(len(numbers)))


@given(spatials(), st.integers(1, 30), st.integers(1, 8))
def test_tiles_cover_a_band_once(w: Spatial, rows: int, height: int) -> None:
    """Each pixel with its taps."""
    covered: list[tuple[int, int]] = []
    for run in tile_runs(w, rows, height):
        assert 1 <= run.width <= rows
        for number in range(run.count):
            begin = run.begin + number * run.width
            pixels = [(row, begin + column) for row, column in run.pixels(w.dst)]
            covered += pixels
            for (_, column), taps in zip(pixels, run.taps or (), strict=True):
                assert list(range(*taps)) == inside(w, column)
    assert covered == [(row, column) for row in range(height) for column in range(w.dst)]


def test_short_rows_share_tiles() -> None:
    """Tiles of 3 x 2 sums would leave multiply-adds idle; those of 4 x 2 do not."""
    w, h = (Spatial(n, n, 3, 1, 1, 1) for n in (7, 14))
    assert rows_per_band((ONE, w, w), TileShape(6, 2), 2) == 7
    assert {run.width for run in tile_runs(w, 6, 7)} == {5, 6}
    assert rows_per_band((ONE, w, w), TileShape(6, 2), 0) == 1  # integers
    assert rows_per_band((ONE, h, h), TileShape(6, 2), 2) == 1
    assert min(run.width for run in tile_runs(h, 6)) * 2 >= ACCUMULATOR_CHAINS
    assert rows_per_band((ONE, w, w), TileShape(14, 2), 2) == 2
    many = Spatial(21, 7, 15, 1, 0, 1)
    assert rows_per_band((ONE, many, many), TileShape(6, 2), 2) == 1  # taps to write out


@given(spatials())
def test_bands_of_one_row_know_their_taps_where_all_are_the_same(h: Spatial) -> None:
    (run,) = band_runs(h, 1)
    assert (run.taps is None) == h.padded
    assert run.taps in (None, ((0, h.kernel),))


def test_runs_of_a_resnet_layer() -> None:
    w = Spatial(src=56, dst=56, kernel=3, stride=1, padding=1, dilation=1)
    left, middle, right = tile_runs(w, 14)
    assert (left.first, left.count, left.begin, left.width) == (0, 1, 0, 14)
    assert (middle.first, middle.count, middle.begin, middle.width) == (1, 2, 14, 14)
    assert (right.first, right.count, right.begin) == (3, 1, 42)
    assert left.taps == ((1, 3), *[(0, 3)] * 13)
    assert middle.taps == ((0, 3),) * 14
    assert right.taps == (*[(0, 3)] * 13, (0, 2))


def test_static_taps() -> None:
    w = Spatial(src=4, dst=4, kernel=3, stride=1, padding=1, dilation=1)
    whole, middle = tile_runs(w, 4)[0], tile_runs(w, 1)[1]
    every, some = BandRun(0, 1, 1, None), BandRun(0, 1, 2, ((1, 3), (0, 3)))
    alike = BandRun(0, 1, 2, ((1, 3), (1, 3)))
    assert static_taps(every, whole, 3)
    assert not static_taps(every, middle, 3)
    assert static_taps(some, middle, 3)
    assert not static_taps(alike, middle, 3)


def test_pixels() -> None:
    w = Spatial(src=3, dst=3, kernel=1, stride=1, padding=0, dilation=1)
    (tile,) = tile_runs(w, 6, 2)
    assert tile.pixels(3) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    first, second = tile_runs(w, 4, 2)
    assert first.pixels(3) == [(0, 0), (0, 1), (0, 2)]
    assert second.pixels(3) == [(1, 0), (1, 1), (1, 2)]
    assert [tile.pixels(3) for tile in tile_runs(w, 2, 1)] == [[(0, 0), (0, 1)], [(0, 0)]]
