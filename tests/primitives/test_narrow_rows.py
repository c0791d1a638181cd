"""Convolutions of images whose rows only executions know, and which may be short: no size that
comes builds a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from dnnl import Primitive, PrimitiveDesc, config
from dnnl.codegen.isa import caches
from dnnl.codegen.isa.caches import Caches
from dnnl.primitives import primitive as module
from tests.primitives.harness import ENGINE
from tests.primitives.runtime_sizes import judged, trials
from tests.primitives.test_open_convolution import opened, opened_image
from tests.small_caches import small_caches

DENSE = "--stag=axb --dtag=axb --wtag=any"
BLOCKED = "--stag=aBx16b --dtag=aBx16b --wtag=any"
F32, AVX2, BF16, VNNI = "avx512_core", "avx2", "avx512_core_bf16", "avx512_core_vnni"
LAYERS = {
    "3x3": (DENSE, "ic24oc40kh3kw3ph1pw1", F32),
    "3x3, AVX2": (DENSE, "ic24oc40kh3kw3ph1pw1", AVX2),
    "low tiles": (DENSE, "ic16oc72kh3kw3ph1pw1", F32),
    "tiles of one vector": (DENSE, "ic16oc8kh3kw3ph1pw1", F32),
    "tiles of one vector, AVX2": (DENSE, "ic16oc8kh3kw3ph1pw1", AVX2),
    "stride 2": (DENSE, "ic24oc40kh3kw3sh2sw2ph1pw1", F32),
    "stride 2, AVX2": (DENSE, "ic24oc40kh3kw3sh2sw2ph1pw1", AVX2),
    "stride 2 along rows": (DENSE, "ic24oc40kh3kw3sw2ph1pw1", F32),
    "stride 2 across rows": (DENSE, "ic24oc40kh3kw3sh2ph1pw1", AVX2),
    "dilation": (DENSE, "ic24oc40kh3kw3dh1dw1ph2pw2", F32),
    "dilation of short rows, AVX2": (DENSE, "ic24oc40kh3kw3dh4dw4ph5pw5", AVX2),
    "5x5": (DENSE, "ic24oc40kh5kw5ph2pw2", F32),
    "1x3": (DENSE, "ic24oc40kh1kw3pw1", F32),
    "padding alone": (DENSE, "ic24oc40kh1kw1ph1pw1", F32),
    "much padding": (DENSE, "ic24oc40kh3kw3ph3pw4", F32),
    "blocked": (BLOCKED, "ic16oc32kh3kw3ph1pw1", F32),
    "groups": (DENSE, "g2ic48oc64kh3kw3ph1pw1", F32),
    "a sum": (f"{DENSE} --attr-post-ops=sum+relu", "ic24oc40kh3kw3ph1pw1", F32),
    "a sum, AVX2": (f"{DENSE} --attr-post-ops=sum+relu", "ic24oc8kh3kw3ph1pw1", AVX2),
    "a residual": (f"{DENSE} --attr-post-ops=add:f32:15:axb", "ic24oc40kh3kw3ph1pw1", F32),
    "bf16": (f"{DENSE} --dt=bf16", "ic24oc40kh3kw3ph1pw1", BF16),
    "bf16, odd channels": (f"{DENSE} --dt=bf16:bf16:f32", "ic25oc40kh3kw3ph1pw1", BF16),
    "bf16, odd groups": (f"{DENSE} --dt=bf16:bf16:f32", "g3ic75oc96kh3kw3ph1pw1", BF16),
    "bf16, AVX2": (f"{DENSE} --dt=bf16:bf16:f32", "ic24oc40kh3kw3ph1pw1", AVX2),
    "bytes": (f"{DENSE} --dt=u8:s8:s32", "ic32oc40kh3kw3ph1pw1", VNNI),
    "bytes, stride 2": (f"{DENSE} --dt=u8:s8:u8", "ic30oc40kh3kw3sh2sw2ph1pw1", VNNI),
    "bytes, AVX2": (f"{DENSE} --dt=u8:s8:s32", "ic32oc40kh3kw3ph1pw1", AVX2),
    "signed bytes": (f"{DENSE} --dt=s8:s8:f32", "ic30oc40kh3kw3ph1pw1", VNNI),
}


@pytest.fixture(autouse=True)
def _nothing_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors beyond the caches have kernels of their own."""

    def of(cpu: str, sized: Caches) -> Caches:
        return replace(small_caches(cpu, sized), streamed=caches.NEVER, streamed_rows=caches.NEVER)

    monkeypatch.setattr(caches, "of", of)


def check(made: Primitive, options: str, shapes: Iterable[str]) -> None:
    for shape in shapes:
        (trial,) = trials(f"--conv {options} {shape}")
        judged(made, trial)


def primitive(options: str, shape: str) -> Primitive:
    """A primitive for all sizes of images."""
    (trial,) = trials(f"--conv {options} {shape}")
    attr = trial.pd.attr
    entries = [entry.mapped(opened_image) for entry in attr.post_ops]
    attr = attr.with_layouts(entries, attr.dropout)
    return Primitive(PrimitiveDesc(opened(trial.desc), ENGINE, attr))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.covers
def test_no_width_builds_a_kernel(layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, layer_shape, isa = LAYERS[layer]
    with config.override("max_cpu_isa", isa):
        made = primitive(options, f"mb2{layer_shape}ih5iw9")
        monkeypatch.setattr(module, "_image", None)  # which builds kernels
        for width in (*range(1, 19), 23, 31, 32, 33, 40):
            batch, height = 1 + width % 2, 1 + width * 5 % 7
            check(made, options, [f"mb{batch}{layer_shape}ih{height}iw{width}"])


@pytest.mark.parametrize("isa", [F32, AVX2])
def test_rows_without_padding(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with config.override("max_cpu_isa", isa):
        made = primitive(DENSE, "mb2ic24oc40ih9iw9kh3kw3")
        monkeypatch.setattr(module, "_image", None)
        check(made, DENSE, [f"mb2ic24oc40ih{3 + w % 4}iw{w}kh3kw3" for w in range(3, 41)])


@pytest.mark.parametrize("shape", ["ic16oc24kw3pw1", "ic16oc24kw5sw2pw2"])
def test_a_single_row(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with config.override("max_cpu_isa", F32):
        made = primitive(DENSE, f"mb2{shape}iw9")
        monkeypatch.setattr(module, "_image", None)
        check(made, DENSE, [f"mb{1 + w % 3}{shape}iw{w}" for w in range(1, 41)])


@pytest.mark.parametrize("isa", [F32, AVX2])
def test_volumes(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = "ic16oc24kd3kh3kw3pd1ph1pw1"
    with config.override("max_cpu_isa", isa):
        made = primitive(DENSE, f"mb2{shape}id3ih4iw9")
        monkeypatch.setattr(module, "_image", None)
        check(made, DENSE, [f"mb1{shape}id{1 + w % 3}ih{1 + w % 4}iw{w}" for w in range(1, 33)])
