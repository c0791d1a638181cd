"""The programs in README.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"


def test_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert programs
    for program in programs:
        exec(compile(program, str(README), "exec"), {})


def test_it_reads_the_same_elsewhere() -> None:
    """A package index shows it without the files beside it: no link leads to one, and those that
    it names are there."""
    text = README.read_text(encoding="utf-8")
    assert not re.findall(r"\]\((?!https?://)[^)]*\)", text)
    named = re.findall(r"`((?:docs|examples)/[^`]*)`", text)
    assert len(named) > 10
    assert not [name for name in named if not (README.parent / name).exists()]
