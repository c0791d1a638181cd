"""Convolutions by a matrix unit have few kernels for images of all sizes."""

from __future__ import annotations

import pytest

from tests.codegen.unit_emulation import NEEDS_VECTORS
from tests.fuzz.kind import State
from tests.fuzz.primitives import run

_OPEN = "--open=batch+spatial --sizes=3 --stag=axb --dtag=axb"
OPEN = {
    "--matmul --dt=bf16:bf16:f32 --open=batch --sizes=4 37x64:64x48": 3,
    f"--conv --dt=bf16:bf16:bf16 {_OPEN} mb2ic32ih7oc20oh7kh3ph1": 2,
    f"--conv --dt=u8:s8:u8 {_OPEN} mb2ic64ih7iw11oc33oh4ow6kh3kw3sh2sw2ph1pw1": 2,
    f"--conv --dt=s8:s8:f32 {_OPEN} mb2ic64ih7iw5oc32oh7ow5kh1kw1ph0pw0": 2,
    f"--conv --dt=bf16:bf16:f32 {_OPEN} mb2ic32ih9iw7oc16oh5ow4kh1kw1sh2sw2ph0pw0": 4,
    "--conv --dt=u8:s8:s8 --attr-zero-points=src:common:3+dst:common:7 "
    f"--attr-scales=src:common:0.25+wei:per_oc {_OPEN} mb2ic64ih7iw5oc32oh7ow5kh3kw3ph1pw1": 2,
    "--conv --dt=bf16:bf16:bf16 --attr-post-ops=sum+relu+add:f32:per_oc "
    f"{_OPEN} mb1ic32ih7oc16oh7kh3ph1": 2,
    f"--conv --dir=BWD_D --dt=bf16:bf16:bf16 {_OPEN} mb1ic16ih7oc32oh7kh3ph1": 2,
    f"--conv --dir=BWD_W --dt=bf16:bf16:bf16 {_OPEN} mb2ic32ih7oc16oh7kh3ph1": 3,
    f"--deconv --dt=bf16:bf16:bf16 {_OPEN} mb2ic32ih5oc16oh10kh2sh2ph0": 2,
    f"--deconv --dt=u8:s8:u8 {_OPEN} mb1ic64ih5oc16oh9kh3sh2ph1": 3,
}
"""The most kernels for all sizes of a case, with those that the primitive begins with."""

pytestmark = [NEEDS_VECTORS, pytest.mark.usefixtures("unit")]


@pytest.mark.parametrize("case", OPEN)
def test_open_sizes_share_kernels(case: str) -> None:
    outcome = run(f"default real 2 {case}")
    assert outcome.state is State.PASSED, outcome.detail
    kernels = int(outcome.reason.split()[1])
    assert kernels <= OPEN[case]
