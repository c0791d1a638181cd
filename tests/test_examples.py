"""The examples run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dnnl import Engine

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def needed(path: Path) -> str:
    """Why an example cannot run here."""
    if path.stem.startswith("sycl") and not Engine.count("sycl"):
        return "needs a SYCL device: pip install 'dnnl[sycl]'"
    return ""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path) -> None:
    if needed(path):
        pytest.skip(needed(path))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
