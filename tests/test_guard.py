"""The guard pages: the buffer itself can be used, the byte beside it cannot be touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.guard import guarded

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="mprotect is POSIX")

TOUCH = """
import ctypes
from tests.guard import guarded
data = guarded({nbytes}, {at!r})
data[:] = 1
ctypes.c_byte.from_address(data.ctypes.data + {distance}).value
"""


@pytest.mark.parametrize("nbytes", [1, 100, 4096, 5000])
@pytest.mark.parametrize("at", ["end", "start"])
def test_every_byte_of_the_buffer_can_be_used(nbytes: int, at: str) -> None:
    data = guarded(nbytes, at)  # type: ignore[arg-type]
    data[:] = 7
    assert data.size == nbytes
    assert int(data.sum()) == 7 * nbytes


def test_an_empty_buffer_has_an_address() -> None:
    assert guarded(0).size == 0


@pytest.mark.parametrize(
    ("at", "distance", "survives"),
    [("end", 99, True), ("end", 100, False), ("start", 0, True), ("start", -1, False)],
)
def test_touching_the_byte_beside_kills_the_process(at: str, distance: int, survives: bool) -> None:
    code = TOUCH.format(nbytes=100, at=at, distance=distance)
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=False)
    assert (done.returncode == 0) == survives
