"""docs/decompression.md tells the truth: its program runs, its drawing is drawn anew."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from dnnl.tools.layout import layout

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "decompression.md").read_text(encoding="utf-8")


def test_programs_run() -> None:
    names: dict[str, Any] = {}
    for program in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(program, "decompression.md", "exec"), names)
    assert "weights" in names


def test_drawings_are_what_the_command_draws() -> None:
    (command,) = re.findall(r"^    dnnl layout (.*)", TEXT, re.MULTILINE)
    done = CliRunner().invoke(layout, shlex.split(command))
    assert done.exit_code == 0, done.output
    drawn = "\n".join(f"    {line.rstrip()}".rstrip() for line in done.output.splitlines())
    assert drawn in TEXT
