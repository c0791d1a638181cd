"""The layers of ResNet-50, and the work that they are."""

from __future__ import annotations

import numpy as np
import pytest

from bench.contest import read
from bench.convolutions import layers, named
from dnnl import ConvolutionDesc
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.creation import describe


def flops(case: Case) -> int:
    return ConvolutionDesc.operation.flops(describe(case, ConvolutionDesc))


def test_the_layers_of_resnet_50() -> None:
    cases = layers()
    assert len(cases) == 20
    assert sum(named(case)[1] for case in cases) == 53
    assert named(cases[0]) == ("conv1", 1)
    assert named(cases[1]) == ("res2a_branch1", 4)
    assert {case.sizes.src_dims[0] for case in layers(16)} == {16}
    # The network without its classifier has 7.7 GFLOP, of which a part is with padding.
    assert 7.2e9 < sum(named(case)[1] * flops(case) for case in cases) < 7.7e9


@pytest.mark.parametrize(
    "problem",
    [
        "ic1ih7oc1oh7kh3ph1",
        "ic1ih224oc1oh112kh7sh2ph3",
        "ic1ih9oc1kh3ph2dh1",
        "ic1ih5oc1oh2kh2sh3",
        "ic1ih5iw9oc1kh3kw1ph1pw0",
        "g4ic8ih10oc12kh3dh1ph2",
    ],
)
def test_products_with_padding_are_not_counted(problem: str) -> None:
    (case,) = read("conv", "--dir=FWD_D", problem)
    sizes = case.sizes
    met = 1
    for letter in "hw":
        i, o, k, s, p, d = (sizes[key + letter] for key in "iokspd")
        inside = np.zeros(i + p + (o - 1) * s + (k - 1) * (d + 1) + 1)
        inside[p : p + i] = 1
        taps = [(at, tap) for at in range(o) for tap in range(k)]
        met *= int(sum(inside[at * s + tap * (d + 1)] for at, tap in taps))
    products = sizes["mb"] * sizes["oc"] * sizes["ic"] // sizes.groups * met
    assert flops(case) == 2 * products
