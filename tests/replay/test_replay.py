"""Replay tells equal kernels from different ones."""

from __future__ import annotations

from pathlib import Path

from dnnl.codegen import isa
from tests.replay.cases import TARGETS, cases
from tests.replay.generate import written


def test_every_target_and_driver_is_replayed() -> None:
    asked = cases()
    assert {case.target for case in asked} == set(TARGETS)
    assert len(set(asked)) == len(asked)


def test_kernels_differ_where_their_texts_do(tmp_path: Path) -> None:
    targets = ("avx2", isa.DEVICES[0].name)
    lines = ("--softmax --axis=1 3x50", "--softmax --axis=0 3x50")
    hashes = [written(tmp_path, (target, line)) for target in targets for line in lines]
    assert len(set(hashes)) == len(hashes)
    assert {path.stem for path in tmp_path.iterdir()} == set(hashes)
    assert written(tmp_path, (targets[0], lines[0])) == hashes[0]


def test_a_refusal_is_a_result(tmp_path: Path) -> None:
    assert written(tmp_path, ("sse41", "--reorder --sdt=f32 --ddt=f32 nonsense")).startswith(
        "refused"
    )
