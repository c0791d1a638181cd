"""Kernel files that are damaged, exchanged, of another owner or in nobody's reach: results are
right all the same.

A case is what happens to the folder between two uses of it, in order: ``cut:300`` keeps so many
thousandths of each file, ``flip:300:4`` changes a bit there, ``empty``, ``swap`` gives each file
the content of another, ``mode:666``, ``owner``, ``link``, ``folder`` puts a folder in place of each
file, ``gone`` removes all, ``file`` puts a file in place of the folder, ``closed`` takes its
permissions, ``writers:3`` has so many processes compile the same kernels at once. Permissions that
were taken are given back before the next change, if it is no ``writers``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from dnnl import config
from tests.fuzz.kind import PASSED, Kind, Outcome, State, failed
from tests.fuzz.work import Work, descriptions

_SIZE = 200
_NOBODY = 65534
_LIMIT = 120.0  # seconds for all writers


def _cases() -> st.SearchStrategy[str]:
    places = st.sampled_from((0, 1, 5, 20, 60, 100, 300, 500, 900, 999))
    plain = [name for name in _CHANGES if name not in ("cut", "flip", "mode", "writers")]
    change = st.one_of(
        st.sampled_from(plain),
        st.builds("cut:{}".format, places),
        st.builds("flip:{}:{}".format, places, st.integers(0, 7)),
        st.builds("mode:{}".format, st.sampled_from(("666", "620", "602", "000", "400"))),
    )
    writers = st.sampled_from(("", "", "", "", "", "", "writers:2", "writers:4"))
    changes = st.lists(change, min_size=1, max_size=3).map(" ".join)
    return st.builds("{} {}".format, changes, writers).map(str.strip)


def _run(text: str) -> Outcome:
    if os.geteuid() != 0 and "owner" in text.split(" "):
        return Outcome(State.REFUSED, "owner: only root gives files away")
    with tempfile.TemporaryDirectory() as name, config.override("cache_dir", f"{name}/kernels"):
        folder = Path(name, "kernels")
        works = [Work.of(desc) for desc in descriptions(_SIZE)[:2]]
        for change in text.split(" "):
            kind, *rest = change.split(":")
            if kind != "writers":
                _reopen(folder)
            wrong = _CHANGES[kind](folder, *rest)
            if wrong:
                return failed(f"{kind}: writers", wrong)
        try:
            for number in (1, 2):  # the second time with what the first has left
                if not all(work.again().right() for work in works):
                    return failed(f"wrong after {text}", f"use {number}")
        finally:
            _reopen(folder)
    return PASSED


def _reopen(folder: Path) -> None:
    if folder.is_dir():
        folder.chmod(0o700)
    for path in _files(folder):
        if path.is_file():
            path.chmod(0o600)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.dnnl")) if folder.is_dir() else []


def _each(change: Callable[..., object]) -> Callable[..., str]:
    def changed(folder: Path, *rest: str) -> str:
        for path in _files(folder):
            if path.is_file():
                change(path, *rest)
        return ""

    return changed


def _cut(path: Path, place: str) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * int(place) // 1000])


def _flip(path: Path, place: str, bit: str) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) * int(place) // 1000] ^= 1 << int(bit)
    path.write_bytes(content)


def _own(path: Path) -> None:
    os.chown(path, _NOBODY, _NOBODY)


def _link(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    path.symlink_to(path.with_suffix(".old"))


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _swap(folder: Path) -> str:
    files = _files(folder)
    contents = [path.read_bytes() for path in files if path.is_file()]
    for path, content in zip(files, contents[1:] + contents[:1], strict=False):
        if path.is_file():
            path.write_bytes(content)
    return ""


def _gone(folder: Path) -> str:
    if folder.is_dir():
        shutil.rmtree(folder)
    return ""


def _file(folder: Path) -> str:
    _gone(folder)
    folder.write_bytes(b"")
    return ""


def _closed(folder: Path) -> str:
    if folder.is_dir():
        folder.chmod(0o500)
    return ""


def _writers(folder: Path, count: str) -> str:
    """What the processes complain of that use the folder at once."""
    command = [sys.executable, "-m", __name__]
    environment = {**os.environ, "DNNL_CACHE_DIR": str(folder)}
    running = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(int(count))
    ]
    ends = [(process.communicate(timeout=_LIMIT)[1], process.returncode) for process in running]
    return "\n".join(f"exit status {status}: {words}" for words, status in ends if status)


_CHANGES: dict[str, Callable[..., str]] = {
    "empty": _each(lambda path: path.write_bytes(b"")),
    "swap": _swap,
    "owner": _each(_own),
    "link": _each(_link),
    "folder": _each(_folder),
    "gone": _gone,
    "file": _file,
    "closed": _closed,
    "cut": _each(_cut),
    "flip": _each(_flip),
    "mode": _each(lambda path, mode: path.chmod(int(mode, 8))),
    "writers": _writers,
}

KIND = Kind("cache", "damaged kernel files", _cases, _run, __name__, timeout=180, lives=50)

if __name__ == "__main__":
    made = [Work.of(desc) for desc in descriptions(_SIZE)[:2]]
    sys.exit(not all(work.again().right() for work in made))
