"""What stays in a folder of compiled kernels, and what goes when there is too much of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import time

import pytest

from dnnl.codegen.compile.disk_cache import DiskCache
from dnnl.runtime.image import Image, Phase

HOUR = 3600
SIZE = 1000
IMAGE = Image("cpu", bytes(SIZE), (Phase("f", 7, (0, 1)),), (1, 17))


def age(path: Path, hours: float) -> None:
    """Make a file as one that was used last so long ago."""
    then = time() - hours * HOUR
    os.utime(path, (then, then))


def is_recent(path: Path) -> bool:
    return path.stat().st_mtime > time() - HOUR / 10


@pytest.fixture
def names(tmp_path: Path) -> Callable[[], set[str]]:
    """What is in the folder."""
    return lambda: {path.stem for path in tmp_path.iterdir()}


def test_what_is_stored_is_found(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "made", 2**20)
    assert cache.load("a") is None
    cache.store("a", IMAGE)
    assert cache.load("a") == IMAGE


def test_what_was_used_least_recently_goes_first(
    tmp_path: Path, names: Callable[[], set[str]]
) -> None:
    cache = DiskCache(tmp_path, 8 * 1200)  # files are a little larger than their code
    for number in range(8):
        cache.store(str(number), IMAGE)
        age(tmp_path / f"{number}.dnnl", 30 - number)
    assert names() == set("01234567")
    assert cache.load("0") == IMAGE
    cache.store("new", IMAGE)
    assert names() == {"0", "4", "5", "6", "7", "new"}  # three quarters of the limit


def test_files_of_others_stay(tmp_path: Path) -> None:
    others = [tmp_path / "photo.jpg", tmp_path / ("0" * 64), tmp_path / "folder.dnnl"]
    for path in others[:2]:
        path.write_bytes(bytes(10 * SIZE))
    others[2].mkdir()
    for path in others:
        age(path, 1000)
    cache = DiskCache(tmp_path, 3 * SIZE)
    for number in range(9):
        cache.store(str(number), IMAGE)
    assert all(path.exists() for path in others)
    assert sum(path.is_file() for path in tmp_path.glob("*.dnnl")) <= 3


def test_what_a_crash_left_behind_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", lambda path: None)
        patch.setattr(os, "replace", lambda source, target: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            DiskCache(tmp_path, 2**20).store("a", IMAGE)
    (left,) = tmp_path.iterdir()
    age(left, 5)
    DiskCache(tmp_path, 2 * SIZE).store("b", IMAGE)
    assert [path.name for path in tmp_path.iterdir()] == ["b.dnnl"]


def test_a_use_is_noted_once_an_hour(tmp_path: Path) -> None:
    cache, path = DiskCache(tmp_path, 2**20), tmp_path / "a.dnnl"
    cache.store("a", IMAGE)
    for hours, noted in ((0.5, False), (2, True)):
        age(path, hours)
        assert cache.load("a") == IMAGE
        assert is_recent(path) is noted


@pytest.mark.parametrize(("call", "left"), [("unlink", 3), ("utime", 4)])
def test_what_another_process_removes_meanwhile_is_gone(
    tmp_path: Path,
    names: Callable[[], set[str]],
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    left: int,
) -> None:
    cache = DiskCache(tmp_path, 4 * 1200)
    for number in range(4):
        cache.store(str(number), IMAGE)
        age(tmp_path / f"{number}.dnnl", 30 - number)
    remove, original = os.unlink, getattr(os, call)

    def slower(path: str) -> None:
        remove(path)
        original(path)

    monkeypatch.setattr(os, call, slower)
    assert cache.load("3") == IMAGE
    cache.store("new", IMAGE)
    assert "new" in names()
    assert len(names()) == left


def test_how_often_the_whole_folder_is_looked_at(tmp_path: Path) -> None:
    """64 times for the limit, by chance, whatever the size of the files."""
    limit = 2**28
    cache = DiskCache(tmp_path, limit)
    for size in (2**12, 2**14):
        stores = 4 * limit // size
        looks = sum(cache._draws(size) for _ in range(stores))
        assert 128 < looks < 512
    assert all(cache._draws(limit // 64) for _ in range(100))


_USER = f"""
import sys
from pathlib import Path
from dnnl.codegen.compile.disk_cache import DiskCache
from dnnl.runtime.image import Image, Phase
cache = DiskCache(Path(sys.argv[1]), 20 * 1200)
for turn in range(600):
    name = str(turn * int(sys.argv[2]) % 101)
    image = Image("cpu", name.encode().ljust({SIZE}), (), ())
    found = cache.load(name)
    assert found in (None, image), found
    if found is None:
        cache.store(name, image)
"""


def test_processes_share_a_folder(tmp_path: Path) -> None:
    users = [
        subprocess.Popen([sys.executable, "-c", _USER, tmp_path, str(step)]) for step in (7, 31, 1)
    ]
    assert [user.wait(60) for user in users] == [0, 0, 0]
    assert 1 <= len(list(tmp_path.iterdir())) <= 23
