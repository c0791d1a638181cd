"""The programs in docs/pytorch.md run as they stand there."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from dnnl.torch.backend import compile_graph

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"


def test_pytorch_finds_the_backend() -> None:
    (found,) = entry_points(group="torch_dynamo_backends", name="dnnl")
    assert found.load() is compile_graph


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*skip annotate.*:UserWarning")
def test_programs_run(capsys: pytest.CaptureFixture[str]) -> None:
    text, scope = PAGE.read_text(encoding="utf-8"), dict[str, Any]()
    for program in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(program, PAGE.name, "exec"), scope)
    shown = capsys.readouterr().out.strip()
    assert shown == "\n".join(line.strip() for line in shown.splitlines())
    assert all(line in text for line in shown.splitlines())
