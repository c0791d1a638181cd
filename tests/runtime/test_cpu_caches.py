"""Sizes of caches from what Linux tells about a processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from dnnl.runtime.backend import CacheSizes
from dnnl.runtime.engines.cpu_caches import cache_sizes

LEVELS = [
    ("1", "Data", "48K", "12"),
    ("1", "Instruction", "32K", "8"),
    ("2", "Unified", "2M", "16"),
    ("3", "Unified", "491520K", "20"),
]


def describe(folder: Path, levels: list[tuple[str, str, str, str]]) -> None:
    for number, values in enumerate(levels):
        index = folder / f"index{number}"
        index.mkdir()
        names = ("level", "type", "size", "ways_of_associativity")
        for name, value in zip(names, values, strict=True):
            (index / name).write_text(f"{value}\n")


def test_sizes(tmp_path: Path) -> None:
    describe(tmp_path, LEVELS)
    assert cache_sizes(tmp_path) == CacheSizes(48 * 2**10, 12, 2 * 2**20, 480 * 2**20)


def test_a_third_level_may_be_missing(tmp_path: Path) -> None:
    describe(tmp_path, LEVELS[:3])
    assert cache_sizes(tmp_path) == CacheSizes(48 * 2**10, 12, 2 * 2**20)


def test_a_fully_associative_cache(tmp_path: Path) -> None:
    describe(tmp_path, [("1", "Data", "64K", "0"), ("2", "Unified", "1M", "0")])
    assert cache_sizes(tmp_path) == CacheSizes(64 * 2**10, 1024, 2**20)


@pytest.mark.parametrize(
    "levels",
    [
        [],
        LEVELS[:2],
        [("1", "Data", "big", "8"), LEVELS[2]],
        [("1", "Data", "0K", "8"), LEVELS[2]],
    ],
)
def test_what_is_not_told_is_not_guessed(
    tmp_path: Path, levels: list[tuple[str, str, str, str]]
) -> None:
    describe(tmp_path, levels)
    assert cache_sizes(tmp_path) is None


def test_no_such_folder(tmp_path: Path) -> None:
    assert cache_sizes(tmp_path / "nowhere") is None
