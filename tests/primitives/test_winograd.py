"""Convolutions and their gradients by Winograd's algorithm, and where it is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import (
    Arg,
    ConvolutionDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReorderDesc,
    Stream,
    Unimplemented,
)
from dnnl.kernels.convolution.winograd.conf import WinogradConf
from dnnl.reference.sliding import WINOGRAD_SUM
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.creation import create
from dnnl.types.kinds import Alg
from tests.check import check, logical, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS, array, execute, execute_all, tensor
from tests.primitives.lines import conf_of, judged
from tests.primitives.products import Window, convolution_desc, inputs, verify

WINOGRAD = ("forward_inference", "convolution_winograd")
SIZES = [
    "mb2ic20ih9iw7oc18kh3kw3ph1pw1",
    "g3mb2ic24ih13iw14oc12kh3kw3ph3pw0",
    "ic1ih4iw3oc1kh3kw3ph0pw0",
    "g8ic8ih6oc8kh3ph1",
    "mb3ic17ih5iw30oc33kh3kw3ph0pw2",
    "ic48ih2oc40kh3ph1",
    "mb2ic5ih45iw42oc7kh3kw3ph1pw1",
    "mb2ic33ih30oc16kh3ph2",
]
FORWARD = [
    "--alg=WINO",
    "--alg=WINO --attr-post-ops=sum+relu",
    "--alg=WINO --attr-post-ops=gelu_erf+add:f32:per_oc+prelu:per_oc+mul:f32",
    "--alg=WINO --attr-scales=src:0:0.5+wei:per_oc+dst:0:2 --attr-post-ops=relu",
]
TYPES = ["f32", "f16", "bf16", "bf16:bf16:f32", "f32:f32:f16", "f32:bf16:f32"]


@every_pair(
    isa=ISAS,
    size=SIZES,
    given=FORWARD,
    src=["any", "abx", "aBx8b"],
    weights=["any", "abx", "axb"],
    dst=["any", "axb", "abx", "aBx16b"],
)
def test_forward(isa: str, size: str, given: str, src: str, weights: str, dst: str) -> None:
    line = f"{given} --stag={src} --wtag={weights} --dtag={dst} {size}"
    assert all(isinstance(conf, WinogradConf) for conf in judged("convolution", line, isa))


@every_pair(
    isa=ISAS,
    size=SIZES[:4],
    of=["convolution BWD_D", "deconvolution FWD_B", "deconvolution BWD_D"],
    src=["any", "abx", "axb"],
    weights=["any", "abx"],
)
def test_transposed(isa: str, size: str, of: str, src: str, weights: str) -> None:
    kind, direction = of.split()
    line = f"--alg=WINO --dir={direction} --stag={src} --wtag={weights} {size}"
    assert all(isinstance(conf, WinogradConf) for conf in judged(kind, line, isa))


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("isa", [ISAS[0], ISAS[-1]])
def test_types(types: str, isa: str) -> None:
    for direction in ("FWD_B", "BWD_D"):
        line = f"--alg=WINO --dir={direction} --dt={types} g2mb2ic20ih9iw7oc18kh3kw3ph1pw1"
        assert all(isinstance(conf, WinogradConf) for conf in judged("convolution", line, isa))


def test_nothing_to_compute() -> None:
    src, weights, dst = (
        MemoryDesc(dims, "f32") for dims in ((0, 8, 6, 6), (4, 8, 3, 3), (0, 4, 4, 4))
    )
    desc = ConvolutionDesc.forward(*WINOGRAD, src, weights, dst, 1, 0)
    assert execute(desc, inputs(PrimitiveDesc(desc, ENGINE))).numpy().shape == (0, 4, 4, 4)


WINDOWS = [
    Window((12, 12), (3, 3), padding_l=(1, 1)),
    Window((11, 30), (3, 3), padding_l=(2, 0), padding_r=(0, 3)),
    Window((7, 7), (3, 3), padding_l=(6, 1), padding_r=(1, 7)),
    Window((3, 4), (3, 3), padding_l=(0, 0)),
]


def winograd_desc(window: Window, batch: int, channels: tuple[int, ...]) -> ConvolutionDesc:
    desc = convolution_desc(window, batch, channels)
    return replace(desc, alg_kind=Alg.convolution_winograd)


@pytest.mark.parametrize("channels", [(20, 16), (2, 9, 20), (64, 128)], ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_errors(window: Window, channels: tuple[int, ...]) -> None:
    verify(winograd_desc(window, 2, channels), fill="normal")


@pytest.mark.parametrize("tile", [2, 4])
def test_each_size_of_tiles(tile: int) -> None:
    desc = winograd_desc(Window((13, 11), (3, 3), padding_l=(1, 1)), 2, (20, 24))
    for columns in (16, 32, 40):
        weights = MemoryDesc.winograd((20, 24, 3, 3), "f32", tile, columns)
        verify(replace(desc, weights_desc=weights), fill="normal")


@pytest.mark.parametrize("groups", [1, 4])
def test_pytorch(groups: int) -> None:
    src, weights = (2, 16, 17, 13), (24, 16 // groups, 3, 3)
    grouped = (groups, 24 // groups, *weights[1:]) if groups > 1 else weights
    desc = ConvolutionDesc.backward_data(
        "convolution_winograd",
        MemoryDesc(src, "f32", "any"),
        MemoryDesc(grouped, "f32", "any"),
        MemoryDesc((2, 24, 17, 13), "f32", "any"),
        1,
        1,
    )
    pd = PrimitiveDesc(desc, ENGINE)
    gradient = random_memory(pd.diff_dst_desc, ENGINE, 1)
    kernel = random_memory(pd.weights_desc, ENGINE, 2)
    (got,) = execute_all(pd, {Arg.DIFF_DST: gradient, Arg.WEIGHTS: kernel}).values()
    taps = tensor(kernel).reshape(weights)
    want = F.conv_transpose2d(tensor(gradient), taps, padding=1, groups=groups)
    check(got, array(want), WINOGRAD_SUM("f32", 9 * 24 // groups))
    forward = ConvolutionDesc.forward(
        "forward_inference",
        "convolution_winograd",
        MemoryDesc(src, "f32", "any"),
        MemoryDesc(grouped, "f32", "any"),
        MemoryDesc((2, 24, 17, 13), "f32", "any"),
        1,
        1,
    )
    pd = PrimitiveDesc(forward, ENGINE)
    image = random_memory(pd.src_desc, ENGINE, 3)
    kernel = random_memory(pd.weights_desc, ENGINE, 2)
    done = execute(forward, {Arg.SRC: image, Arg.WEIGHTS: kernel})
    want = F.conv2d(tensor(image), taps, padding=1, groups=groups)
    check(done, array(want), WINOGRAD_SUM("f32", 9 * 16 // groups))


def test_work_items_and_phases() -> None:
    """The same results, wherever the transformed pixels are."""
    for size, in_items in (("mb2ic5ih45oc7", True), ("mb2ic5ih9oc7", False)):
        (conf,) = judged("convolution", f"--alg=WINO --stag=any {size}kh3ph1", ISAS[-1])
        assert conf.in_items is in_items
        assert (conf.scratchpad == 0) is in_items


def test_what_is_said_of_it() -> None:
    desc = winograd_desc(Window((13, 11), (3, 3), padding_l=(1, 1)), 2, (20, 24))
    info = PrimitiveDesc(desc, ENGINE).info()
    assert info.implementation.startswith("winograd")
    assert info.operations == 2 * (2 * 4 * 3) * 36 * 20 * 24
    assert not info.packing
    plain = replace(desc, weights_desc=desc.weights_desc.with_tag("abcd"))
    (made,) = PrimitiveDesc(plain, ENGINE).info().packing
    assert "wei" in str(made)
    assert "abDc" in str(made)


def test_scratchpad_of_the_user() -> None:
    attr = PrimitiveAttr()
    attr.scratchpad_mode = "user"
    desc = winograd_desc(Window((9, 9), (3, 3), padding_l=(1, 1)), 1, (8, 8))
    pd = PrimitiveDesc(desc, ENGINE, attr)
    assert pd.scratchpad_desc.size > 0
    shared = PrimitiveDesc(desc, ENGINE)
    given = {
        tensor.argument: random_memory(tensor.desc, ENGINE, tensor.argument)
        for tensor in pd.desc.tensors
        if not tensor.output
    }
    results = []
    for own, more in ((pd, {Arg.SCRATCHPAD: Memory(pd.scratchpad_desc, ENGINE)}), (shared, {})):
        dst = Memory(own.dst_desc, ENGINE)
        Primitive(own).execute(Stream(ENGINE), {**given, **more, Arg.DST: dst})
        results.append(logical(dst))
    np.testing.assert_array_equal(results[0], results[1])


def refused(caught: pytest.ExceptionInfo[Unimplemented]) -> dict[str, str]:
    """What each implementation said."""
    pairs = (str(candidate).partition(": ") for candidate in caught.value.reasons)
    return {name: reason for name, _, reason in pairs}


REFUSED = [
    ("ic8ih9oc8kh3sh2ph1", "unsupported parameter: strides 2x2, dilations 0x0; it takes"),
    ("ic8ih9oc8kh3dh1ph1", "unsupported parameter: strides 1x1, dilations 1x1; it takes"),
    ("ic8ih9oc8kh5ph2", "unsupported shape: a kernel of 5x5; it takes 3x3"),
    ("ic8ih9iw9oc8kh3kw1ph1pw0", "unsupported shape: a kernel of 3x1; it takes 3x3"),
    ("ic8iw9oc8kw3pw1", "unsupported shape: 1 dimensions of space; it takes 2"),
]


@pytest.mark.parametrize(("size", "reason"), REFUSED)
def test_refusals(size: str, reason: str) -> None:
    with pytest.raises(Unimplemented, match="nothing does convolution") as caught:
        list(judged("convolution", f"--alg=WINO {size}", ISAS[-1]))
    found = refused(caught)
    assert found["winograd"].startswith(reason)
    assert found["brgemm"].endswith("convolution_winograd; this is convolution_direct")


def test_types_that_are_refused() -> None:
    src, weights, dst = (
        MemoryDesc(dims, kind, "any")
        for dims, kind in (((1, 8, 6, 6), "u8"), ((4, 8, 3, 3), "s8"), ((1, 4, 4, 4), "f32"))
    )
    with pytest.raises(Unimplemented) as caught:
        PrimitiveDesc(ConvolutionDesc.forward(*WINOGRAD, src, weights, dst, 1, 0), ENGINE)
    assert refused(caught)["winograd"].startswith("unsupported data type: u8; it takes")


def test_weights_of_another_propagation() -> None:
    """They may be reordered to those that are wanted."""
    src, dst = MemoryDesc((1, 8, 6, 6), "f32", "any"), MemoryDesc((1, 8, 6, 6), "f32", "any")
    given = MemoryDesc((8, 8, 3, 3), "f32", "any")
    forward = PrimitiveDesc(ConvolutionDesc.forward(*WINOGRAD, src, given, dst, 1, 1), ENGINE)
    desc = ConvolutionDesc.backward_data(WINOGRAD[1], src, forward.weights_desc, dst, 1, 1)
    with pytest.raises(Unimplemented) as caught:
        PrimitiveDesc(desc, ENGINE)
    assert "weights_desc of this propagation" in refused(caught)["winograd"]
    backward = PrimitiveDesc(replace(desc, weights_desc=given), ENGINE)
    kernel = random_memory(given.with_tag("abcd"), ENGINE).reorder_to(forward.weights_desc)
    again = Memory(backward.weights_desc, ENGINE)
    reorder = PrimitiveDesc(ReorderDesc(kernel.desc, again.desc), ENGINE)
    Primitive(reorder).execute(Stream(ENGINE), {Arg.FROM: kernel, Arg.TO: again})
    np.testing.assert_allclose(again.numpy(), kernel.numpy(), atol=1e-6)


AUTO = [
    ("mb16ic64ih56oc64kh3ph1", "WinogradConf"),
    ("mb16ic512ih7oc512kh3ph1", "WinogradConf"),
    ("g4mb8ic256ih28oc256kh3ph1", "WinogradConf"),
    ("mb1ic256ih14oc256kh3ph1", "WinogradConf"),
    ("mb1ic512ih7oc512kh3ph1", "ProductConf"),
    ("mb1ic3ih56oc64kh3ph1", "ProductConf"),
    ("mb1ic64ih56oc64kh3sh2ph1", "ProductConf"),
    ("mb1ic64ih56oc64kh1", "ProductConf"),
    ("g64mb1ic64ih56oc64kh3ph1", "DepthwiseTilesConf"),
]


@pytest.mark.parametrize("types", ["bf16", "f16", "f32:bf16:f32", "bf16:bf16:f32"])
@pytest.mark.parametrize("isa", ISAS)
def test_the_choice_for_narrow_types(types: str, isa: str) -> None:
    """It is that for f32 where these types are multiplied as f32."""
    line = f"--alg=AUTO --dt={types} --stag=any --wtag=any mb2ic48ih14oc64kh3ph1"
    assert all(isinstance(conf, WinogradConf) for conf in judged("convolution", line, isa))


@pytest.mark.parametrize(("size", "chosen"), AUTO)
def test_the_choice_of_an_algorithm(size: str, chosen: str) -> None:
    line = f"--conv --alg=AUTO --stag=any {size}"
    for case in Interpreter().cases(line.split()):
        made = create(case, ConvolutionDesc)
        assert type(conf_of(made.pd)).__name__ == chosen
