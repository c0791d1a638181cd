"""Gradients of a convolution's weights on a matrix unit: tails in every direction, padding, groups
of images, blocks of the sums and parts of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dnnl.codegen.isa import caches
from dnnl.codegen.nest import work_items
from dnnl.kernels.convolution.direct.unit_gradient import UnitGradient
from dnnl.primitives.primitive_desc import select_isa
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.lines import judged

pytestmark = pytest.mark.skipif(
    select_isa(ENGINE).matrix is None, reason="the machine has no matrix unit"
)
LEVEL = "avx512_core_amx"


@pytest.fixture(params=["caches of the machine", "small caches"])
def _caches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small ones, sums have many blocks and parts."""
    if request.param == "small caches":
        monkeypatch.setattr(caches, "of", lambda _cpu, sized: replace(sized, l1=2**13, l2=2**15))
        monkeypatch.setattr(work_items, "LEAST_WORK", 256)


@pytest.mark.usefixtures("_caches")
@every_pair(
    types=["bf16", "bf16:f32:bf16", "f8_e5m2", "f32 --attr-fpmath=bf16"],
    layouts=["--stag=abx --dtag=abx", "--stag=axb --dtag=axb", "--stag=aBx16b --dtag=axb", ""],
    weights=["any", "abx", "axb"],
    size=[
        "mb9_ic19oc33_ih7oh7kh3ph1", "mb35_ic32oc64_ih9iw6oh5ow6kh3kw3sh2sw1ph1pw1",
        "mb16_ic48oc17_ih8iw9oh3ow4kh3kw2sh2sw2ph0pw0", "mb8_ic3oc40_iw23ow12kw7sw2pw3",
        "mb12_ic20oc96_ih6oh6kh1", "mb33_ic16oc32_id3ih4iw5od3oh4ow5kd3kh3kw3pd1ph1pw1",
        "mb8_ic64oc32_ih9iw12oh5ow8kh3kw3dh1dw1ph0pw0", "mb1_ic40oc34_ih16oh16kh3ph1",
    ],
)  # fmt: skip
def test_gradients(types: str, layouts: str, weights: str, size: str) -> None:
    line = f"--dir=BWD_WB --dt={types} --wtag={weights} {layouts} {size}"
    for conf in judged("convolution", line, LEVEL):
        assert isinstance(conf.product.problem, UnitGradient)


@pytest.mark.parametrize("size", ["g2mb9_ic40oc64_ih7oh7kh3ph1", "g3mb8_ic48oc96_ih9oh5kh3sh2ph1"])
@pytest.mark.parametrize("kind", ["convolution", "deconvolution"])
def test_groups(kind: str, size: str) -> None:
    if kind == "deconvolution":
        size = size.replace("ih9oh5", "ih5oh9").replace("ic40oc64", "ic64oc40")
    for conf in judged(kind, f"--dir=BWD_WB --dt=bf16 --stag=abx,axb {size}", LEVEL):
        assert isinstance(conf.product.problem, UnitGradient)


@pytest.mark.parametrize(
    "size",
    [
        "mb1_ic32oc32_ih9oh5kh3sh2ph1",
        "mb2_ic32oc32_ih17oh17kh3ph1",
        "mb9_ic1oc33_ih7oh7kh3ph1",
        "g2mb8_ic40oc66_ih7oh7kh3ph1",
    ],
)
def test_what_vectors_do(size: str) -> None:
    """Steps of the unit that would be empty but for a few terms, and panels that cut groups."""
    for conf in judged("convolution", f"--dir=BWD_W --dt=bf16 {size}", LEVEL):
        assert not isinstance(conf.product.problem, UnitGradient)
