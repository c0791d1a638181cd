"""Products by a matrix unit: tails in every direction, attributes, threads, and the thread's state.

`tests/codegen/test_kernels_everywhere.py` compiles such kernels on every machine; here they run, by
an emulated unit where the processor has none.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

from dnnl import Arg, ConvolutionDesc, Memory, MemoryDesc, PrimitiveAttr, PrimitiveDesc, config
from dnnl.codegen import isa as rows
from dnnl.codegen.compile import jit
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Kernel, Recipe
from dnnl.codegen.isa import caches
from dnnl.codegen.nest import work_items
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.product.pack.border import Border
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.primitives import primitive_desc
from dnnl.primitives.desc import Desc
from tests.check import logical
from tests.codegen.unit_emulation import NEEDS_VECTORS
from tests.forking import DONE, forked
from tests.launch import launch
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, execute
from tests.primitives.products import (
    ROWS,
    Dims,
    Layouts,
    Types,
    Window,
    attr_of,
    convolution_desc,
    inner_product_desc,
    inputs,
    matmul_desc,
    verify,
    verify_on,
)
from tests.processor import ISAS

PAIRS = [("u8", "s8"), ("s8", "s8"), ("s8", "u8"), ("u8", "u8")]
TYPES = [*((*pair, "s32") for pair in PAIRS), ("bf16", "bf16", "f32")]
PLAIN = ("plain", "any", "plain")

pytestmark = [NEEDS_VECTORS, pytest.mark.usefixtures("unit")]
each_type = pytest.mark.parametrize("types", TYPES, ids="-".join)


def border_of(desc: Desc) -> Border | None:
    """How src of a convolution is copied with a border."""
    conf = PrimitiveDesc(desc, ENGINE).plan.recipe.conf
    assert isinstance(conf, ProductConf)
    return conf.border


def conf_of(pd: PrimitiveDesc) -> ProductConf[Any]:
    """What was planned."""
    conf = pd.plan.recipe.conf
    assert isinstance(conf, ProductConf)
    return conf


def taken(pd: PrimitiveDesc) -> bool:
    """Whether the unit multiplies."""
    return conf_of(pd).multiply.tiles is not None


def check(desc: Desc, attr: PrimitiveAttr | None = None) -> None:
    """Judge a result that the unit computes."""
    assert taken(PrimitiveDesc(desc, ENGINE, attr))
    verify(desc, attr)


@each_type
@pytest.mark.parametrize("rows_of_src", [2, 16, 17, 31, 33, 50, 97])
def test_tails_of_rows(rows_of_src: int, types: tuple[str, str, str]) -> None:
    check(matmul_desc((rows_of_src, 128, 40), types, PLAIN))


@every_pair(types=TYPES, k=[16, 30, 63, 64, 80, 129, 148, 250], rows_of_src=[9, 40])
def test_tails_of_sums(k: int, types: tuple[str, str, str], rows_of_src: int) -> None:
    check(matmul_desc((rows_of_src, k, 33), types, PLAIN))


@pytest.mark.parametrize("columns", [2, 16, 17, 32, 33, 70])
@pytest.mark.parametrize("dst", ["plain", "AB16a16b", "gaps"])
def test_tails_of_columns(dst: str, columns: int) -> None:
    for types in (TYPES[columns % len(PAIRS)], TYPES[-1]):
        check(matmul_desc((37, 68, columns), types, ("plain", "any", dst)))


@each_type
def test_transposed_operands_and_batches(types: tuple[str, str, str]) -> None:
    for layouts in (("reversed", "reversed", "reversed"), ("gaps", "part", "reversed")):
        check(matmul_desc((37, 68, 45), types, layouts))
    for layouts in (("abc", "acb", "abc"), ("bac", "abc", "bac"), ("acb", "any", "acb")):
        check(matmul_desc((37, 68, 45), types, layouts, batch=(3,)))


@pytest.mark.parametrize(
    ("pair", "zeros", "k"),
    [*zip(PAIRS, [(0,), (1,), (0, 1), (0, 1)], [64, 75, 75, 64], strict=True)],
)
def test_attributes_of_bytes(pair: tuple[str, str], zeros: Dims, k: int) -> None:
    attr = attr_of(("eltwise", "eltwise_relu"), ("sum", 0.5), ("prelu", 2))
    attr.set_scales(Arg.SRC, 0)
    attr.set_scales(Arg.WEIGHTS, 2)
    attr.set_scales(Arg.DST, 0)
    for number in zeros:
        arg, mask = ((Arg.SRC, 0), (Arg.WEIGHTS, 2))[number]
        attr.set_zero_points(arg, mask)
    attr.set_zero_points(Arg.DST, 0)
    check(matmul_desc((50, k, 45), (*pair, "u8"), PLAIN, "bf16"), attr)
    check(matmul_desc((50, k, 45), (*pair, "s8"), ("plain", "any", "reversed")), attr)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_extreme_bytes_are_summed_exactly(pair: tuple[str, str]) -> None:
    limits = {"u8": (0, 255), "s8": (-128, 127)}
    pd = PrimitiveDesc(matmul_desc((34, 200, 33), (*pair, "s32")), ENGINE)
    assert taken(pd)
    for a in limits[pair[0]]:
        for b in limits[pair[1]]:
            args = inputs(pd, "integers")
            for arg, value in ((Arg.SRC, a), (Arg.WEIGHTS, b)):
                args[arg].data[: args[arg].desc.size] = np.array(value, np.int16).astype(np.uint8)
            src, weights = (logical(args[arg]) for arg in (Arg.SRC, Arg.WEIGHTS))
            got = execute(pd.desc, args, pd.attr)
            assert (logical(got) == src @ weights).all()


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches in which a panel of 2400 k stays in parts alone."""
    monkeypatch.setattr(caches, "of", lambda _cpu, sized: replace(sized, l1=2**14, l2=2**17))
    monkeypatch.setattr(work_items, "FEW_ITEMS", 4)


def by_groups(size: int, zero_points: bool) -> PrimitiveAttr:
    """Scales of both factors for groups of what is summed up, zero points of weights as well."""
    attr = attr_of(("eltwise", "eltwise_relu"), ("sum", 0.5))
    attr.set_scales(Arg.SRC, 3, (1, 2 * size))
    attr.set_scales(Arg.WEIGHTS, 3, (size, 1))
    if zero_points:
        attr.set_zero_points(Arg.WEIGHTS, 3, (size, 1), "s8")
    return attr


@every_pair(
    pair=PAIRS,
    rows=[2, 17, 50],
    size=[16, 32, 96, 192],
    zero_points=[False, True],
    dst=["plain", "reversed"],
)
def test_sums_in_segments(
    size: int, rows: int, pair: tuple[str, str], zero_points: bool, dst: str
) -> None:
    """Of fewer words than the unit takes, as many, and several blocks of them."""
    attr = by_groups(size, zero_points)
    desc = matmul_desc((rows, 384, 45), (*pair, "f32"), ("plain", "any", dst), "f32")
    assert taken(PrimitiveDesc(desc, ENGINE, attr))
    verify(desc, attr, "normal")


@pytest.mark.usefixtures("small_caches")
def test_sums_in_parts_of_several_segments() -> None:
    for weights in ("s8", "s4"):
        desc, attr = (
            matmul_desc((133, 2432, 103), ("u8", weights, "f32"), PLAIN),
            by_groups(64, True),
        )
        pd = PrimitiveDesc(desc, ENGINE, attr)
        assert taken(pd)
        assert conf_of(pd).blocking.steps
        verify(desc, attr, "normal")


def test_segments_that_fill_no_block_are_left_to_vectors() -> None:
    """The unit would leave a word of each; and a row of ones meets all of a panel."""
    desc = matmul_desc((33, 272, 45), ("s8", "s8", "f32"), PLAIN)
    attr = by_groups(68, False)
    assert not taken(PrimitiveDesc(desc, ENGINE, attr))
    verify(desc, attr, "normal")
    desc = matmul_desc((33, 256, 45), ("u8", "s8", "f32"), PLAIN)
    attr = by_groups(32, True)
    attr.set_zero_points(Arg.SRC, 0)
    assert not taken(PrimitiveDesc(desc, ENGINE, attr))
    verify(desc, attr, "normal")


@pytest.mark.usefixtures("small_caches")
@each_type
def test_sums_in_parts(types: tuple[str, str, str]) -> None:
    attr = PrimitiveAttr()
    if "s32" in types:
        attr.set_zero_points(Arg.SRC, 0)
    desc = matmul_desc((133, 2410, 103), types, PLAIN)
    pd = PrimitiveDesc(desc, ENGINE, attr)
    (phase,) = pd.plan.recipe.kernel().phases[-1:]
    assert conf_of(pd).blocking.steps
    assert phase.scratch
    check(desc, attr)
    check(desc)


@each_type
def test_inner_products(types: tuple[str, str, str]) -> None:
    check(inner_product_desc((35, 96), 50, types, PLAIN, "f32"))
    check(inner_product_desc((35, 99), 50, types, PLAIN))  # no whole words
    check(inner_product_desc((35, 64, 3, 5), 50, types, ("last", "any", "plain")))
    check(inner_product_desc((35, 100, 3, 5), 50, types, ("last", "any", "plain")))


WINDOWS = [
    (Window((5, 9), (3, 3), padding_l=(1, 1)), (45, 64)),
    (Window((17, 33), (3, 3), (2, 2), (1, 1)), (45, 36)),
    (Window((14, 14), (1, 1)), (70, 68)),
    (Window((6, 7), (3, 2), (2, 1), (3, 2), (1, 4), (1, 2)), (33, 32)),
    (Window((20, 20), (7, 7), (2, 2), (3, 3)), (20, 3)),
    (Window((11,), (4,), (3,), (2,), (1,)), (16, 16)),
    (Window((3, 4, 5), (2, 3, 2), (1, 1, 2), (1, 0, 1), (0, 1, 1)), (19, 40)),
    (Window((14, 13), (1, 1), (2, 3)), (45, 64)),
    (Window((5, 9, 14), (1, 1, 1), (1, 2, 2)), (33, 32)),
    (Window((7, 7), (3, 3), padding_l=(1, 1)), (2, 20, 32)),
    (Window((7, 7), (3, 3), padding_l=(1, 1)), (2, 17, 18)),
]  # fmt: skip


def _convolution(window: Window, channels: Dims, types: Types, layouts: Layouts) -> ConvolutionDesc:
    desc = convolution_desc(window, 2, channels, layouts, bias=False)
    src, weights, dst = types
    return replace(
        desc,
        src_desc=desc.src_desc.with_data_type(src),
        weights_desc=desc.weights_desc.with_data_type(weights),
        dst_desc=desc.dst_desc.with_data_type(dst),
    )


@pytest.mark.parametrize("number", range(len(WINDOWS)))
def test_convolutions(number: int) -> None:
    window, channels = WINDOWS[number]
    plain, blocks = "abcde"[: 2 + len(window.src)], len(channels) == 2 and channels[1] % 16 == 0
    attr = PrimitiveAttr()
    attr.set_zero_points(Arg.SRC, 0)
    attr.set_zero_points(Arg.WEIGHTS, 0)
    types = TYPES[number % len(PAIRS)]
    check(_convolution(window, channels, types, ("any", "any", "any")), attr)
    check(_convolution(window, channels, types, (plain, "any", plain)))
    for layout in ("any", "block16" if blocks else plain):
        check(_convolution(window, channels, TYPES[-1], (layout, "any", layout)))


@pytest.mark.parametrize("types", TYPES[-2:], ids="-".join)
def test_blocks_of_channels_that_do_not_fill_them(types: Types) -> None:
    """They are copied with a border into words of channels."""
    for channels in ((20, 3), (33, 23)):
        check(_convolution(WINDOWS[4][0], channels, types, ("block16", "any", "block16")))


@every_pair(k=[64, 128, 320, 512, 2304], columns=[16, 40, 70], rows_of_src=[5, 33, 300, None])
def test_the_end_of_a_tile_waits_for_the_next_one(
    k: int, columns: int, rows_of_src: int | None
) -> None:
    """Whichever part of it is left when that is stored, and of whichever height both are."""
    attr = attr_of(("sum", 0.5), ("eltwise", "eltwise_relu"))
    attr.set_scales(Arg.SRC, 0)
    attr.set_scales(Arg.WEIGHTS, 2)
    attr.set_scales(Arg.DST, 0)
    if rows_of_src is not None:
        check(matmul_desc((rows_of_src, k, columns), ("u8", "s8", "u8"), PLAIN, "f32"), attr)
    else:
        check(matmul_desc((41, k, columns), TYPES[-1], ("abc", "any", "abc"), batch=(3,)))


@pytest.mark.parametrize("alg", ["eltwise_tanh", "eltwise_relu"])
def test_ends_of_bands_of_several_heights_wait(alg: str) -> None:
    small = Window((7, 7), (3, 3), padding_l=(1, 1)), Window((20, 4), (3, 3), (3, 1), (0, 1))
    for window in (*small, Window((3, 60), (1, 2))):
        for channels in ((40, 64), (3, 33, 64)):
            desc = _convolution(window, channels, ("u8", "s8", "f32"), ("any", "any", "acdb"))
            check(desc, attr_of(("eltwise", alg)))


@pytest.mark.parametrize("layout", ["last", "reach", "block16"])
@pytest.mark.parametrize(
    "window", [WINDOWS[0][0], WINDOWS[3][0], Window((20, 37), (5, 1), (3, 1), (4, 0))]
)
def test_threads_copy_the_rows_that_they_see(
    window: Window, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of rows of pixels, which may be parts of longer ones; of other layouts all is copied
    first."""
    monkeypatch.setattr(caches, "of", lambda _cpu, sized: sized)
    for channels, types in (((20, 64), TYPES[0]), ((40, 32), TYPES[-1]), ((16, 14), TYPES[1])):
        desc = _convolution(window, channels, types, ("any", "any", "acdb"))
        src = desc.src_desc
        if layout == "reach":
            n, c, h, w = src.dims
            whole = MemoryDesc((n + 1, c, h + 2, w + 3), src.data_type, "acdb")
            src = whole.submemory(src.dims, (1, 0, 1, 2))
        else:
            src = src.with_tag("acdb" if layout == "last" else "aBcd16b")
        desc = replace(desc, src_desc=src)
        border = border_of(desc)
        assert border is not None
        assert border.in_bands == (layout != "block16")
        check(desc)


def test_images_that_several_products_meet_are_copied_once() -> None:
    grouped = _convolution(*WINDOWS[9], TYPES[0], ("acdb", "any", "acdb"))
    border = border_of(grouped)
    assert border is not None
    assert border.rows is not None
    assert not border.in_bands
    check(grouped)


def test_a_single_row_is_multiplied_by_vectors() -> None:
    """From memory that is as fast."""
    for types in TYPES:
        one, many = (
            PrimitiveDesc(matmul_desc((rows_of_src, 256, 96), types, PLAIN), ENGINE)
            for rows_of_src in (1, 40)
        )
        assert not taken(one)
        assert taken(many)


def _read_state(_: None, isa: rows.Isa) -> Kernel:
    """Write down the shapes of the tiles that the calling thread has set."""
    module = Module("state", isa)
    phase = PhaseFunction(module, "state", [0])
    phase.e.intrinsic("llvm.x86.sttilecfg", ir.VoidType(), [phase.arguments[0]])
    return Kernel(module, (phase.end(1),), (0,))


def test_the_state_of_the_thread_is_left_as_it_was() -> None:
    verify(matmul_desc((40, 128, 40), TYPES[0], PLAIN))
    verify(matmul_desc((50, 128, 40), TYPES[0], PLAIN))
    with tempfile.TemporaryDirectory() as folder, config.override("cache_dir", folder):
        image, _ = jit.image(Recipe(None, primitive_desc.select_isa(ENGINE), _read_state))
    state = np.full(64, 255, np.uint8)
    launch(ENGINE.load(image), [state.ctypes.data])
    assert not state.any()


def _runs() -> list[tuple[PrimitiveDesc, dict[int, Memory]]]:
    made = []
    for sizes in ((33, 128, 40), (64, 80, 64), (50, 300, 33)):
        pd = PrimitiveDesc(matmul_desc(sizes, TYPES[1], PLAIN), ENGINE)
        made.append((pd, inputs(pd, "integers")))
    return made


def test_threads_with_tiles_of_several_shapes() -> None:
    runs, wrong = _runs(), []

    def work(order: Sequence[int]) -> None:
        for number in order:
            pd, args = runs[number]
            try:
                verify_on(pd, args)
            except AssertionError as error:
                wrong.append(error)

    orders = [(0, 1, 2) * 3, (2, 0, 1) * 3, (1, 2, 0) * 3, (0, 2, 1) * 3]
    threads = [threading.Thread(target=work, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is POSIX")
def test_a_child_of_a_fork_may_use_tiles() -> None:
    (pd, args), *_ = _runs()
    verify_on(pd, args)
    assert forked(lambda: verify_on(pd, args)) == DONE


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_the_same_bits_as_by_vectors(pair: tuple[str, str]) -> None:
    desc = matmul_desc((50, 130, 45), (*pair, "s8"), ROWS)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.WEIGHTS, 2)
    args = inputs(PrimitiveDesc(desc, ENGINE, attr))
    found = set()
    for name in ISAS:
        with config.override("max_cpu_isa", name):
            found.add(execute(desc, args, attr).data.tobytes())
    assert len(found) == 1
