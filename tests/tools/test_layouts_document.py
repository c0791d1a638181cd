"""docs/layouts.md tells the truth: its pictures are drawn anew, its formulas and programs run."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dnnl.tools.layout import layout
from dnnl.types.memory_desc import MemoryDesc

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "layouts.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    dnnl layout (.*)", TEXT, re.MULTILINE)
SHOWN = re.findall(r"!\[.+\]\((.*)\)", TEXT)
FORMULAS = re.findall(r"^\| (\w+) \| `(.*)` \|$", TEXT, re.MULTILINE)
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_pictures_are_what_the_command_draws(command: str, tmp_path: Path) -> None:
    """`make pictures` draws them."""
    *arguments, option, path = shlex.split(command)
    assert option == "--svg"
    drawn = tmp_path / "drawn.svg"
    done = CliRunner().invoke(layout, [*arguments, "--svg", str(drawn)])
    assert done.exit_code == 0, done.output
    assert drawn.read_text(encoding="utf-8") == (ROOT / path).read_text(encoding="utf-8")


def test_each_picture_has_a_command_and_is_shown() -> None:
    made = [shlex.split(command)[-1] for command in COMMANDS]
    kept = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/pictures").glob("*.svg")]
    assert made == [f"docs/{path}" for path in SHOWN]
    assert sorted(made) == sorted(kept)


@pytest.mark.parametrize("dims", [(2, 20, 2, 3), (17, 35, 3, 2), (1, 1, 1, 1), (33, 16, 2, 1)])
@pytest.mark.parametrize(("tag", "formula"), FORMULAS)
def test_formulas(tag: str, formula: str, dims: tuple[int, ...]) -> None:
    letters = "oihw" if "o" in tag.lower() else "nchw"
    whole = re.sub(r"ceil\((\w)/(\d+)\)", r"((\1 + \2 - 1)/\2)", formula).replace("/", "//")
    code = compile(whole, formula, "eval")
    sizes = dict(zip(letters.upper(), dims, strict=True))
    desc = MemoryDesc(dims, "f32", tag)
    for index in itertools.product(*map(range, desc.padded_dims)):
        place = dict(zip(letters, index, strict=True))
        assert eval(code, {**sizes, **place}) == desc.offset(index)


def test_there_is_a_formula_for_each_picture() -> None:
    assert sorted(tag for tag, _ in FORMULAS) == sorted(Path(path).stem for path in SHOWN)


def test_programs_run() -> None:
    """One after the other, and the general formula for other layouts as well."""
    names: dict[str, Any] = {}
    for program in PROGRAMS:
        exec(compile(program, "layouts.md", "exec"), names)
    descs = [
        MemoryDesc((3, 18, 2, 5), "f32", "nChw8c"),
        MemoryDesc((3, 18, 2, 5), "f32", "ABcd2b2a2b", offset0=7),
        MemoryDesc((3, 4, 2, 5), "f32", (90, 21, 10, 2)),
        MemoryDesc((6, 40, 2, 5), "f32", "nChw16c").submemory((2, 16, 1, 3), (3, 16, 1, 2)),
    ]
    for desc in descs:
        for index in itertools.product(*map(range, desc.padded_dims)):
            assert names["offset"](desc, index) == desc.offset(index)
