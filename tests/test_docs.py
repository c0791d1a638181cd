"""The pages of the documentation: their form, their links and their programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINES = 300
COLUMNS = 100
# What cannot be broken: rows of tables and of drawings of memory, addresses, links, and commands
# that write a picture.
WHOLE = re.compile(r"\|| +\d+ +\| |.*https?://|.*\]\(|    .* --svg ")
# Pages whose programs run one after the other; those of others have tests of their own.
PROGRAMS = (
    "engines",
    "execution",
    "frameworks",
    "from-onednn",
    "models",
    "numerics",
    "ops",
    "pytorch-training",
)
FILES = re.compile(r"`([\w-]+/[\w/-]+\.py)`")
HOMES = (ROOT, ROOT / "src" / "dnnl")
NAMED = re.compile(r"docs/[\w/-]+\.(?:md|svg|png)")


def names(paths: list[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def prose(text: str) -> str:
    """A page without its programs and drawings."""
    return re.sub(r"^(```.*?^```|    .*?)$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """What links may name in a page: its headings as GitHub and package indexes spell them."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_a_page_is_easy_to_read(page: Path) -> None:
    lines = read(page).splitlines()
    assert page.name == "CHANGELOG.md" or len(lines) <= LINES
    wide = [line for line in lines if len(line) > COLUMNS and not WHOLE.match(line)]
    assert not wide
    assert lines[0].startswith("# ")
    assert len([line for line in prose(read(page)).splitlines() if line.startswith("# ")]) == 1


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(read(page))):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(read(target)), link


def test_pages_are_found() -> None:
    """Each is named in README.md, or linked from a page that is."""
    found = {ROOT / name for name in NAMED.findall(read(ROOT / "README.md"))}
    more = True
    while more:
        links = {
            (page.parent / link).resolve()
            for page in found
            if page.suffix == ".md"
            for link in re.findall(r"\]\(([^)#\s]+\.md)", read(page))
        }
        more = not links <= found
        found |= links
    assert names([page for page in PAGES if page not in found and page.parent != ROOT]) == []


@pytest.mark.parametrize("folder", ["docs", "src", "tests", "bench", "examples"])
def test_pages_that_are_named_exist(folder: str) -> None:
    sources = [path for end in ("py", "md") for path in (ROOT / folder).rglob(f"*.{end}")]
    named = {name for path in sources for name in NAMED.findall(read(path))}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_files_that_are_named_exist(page: Path) -> None:
    """From the root or from the package on; ``x.py`` stands for a file of any operation."""
    named = {name for name in FILES.findall(read(page)) if not name.endswith(("/x.py", "_x.py"))}
    there = {name for name in named for home in HOMES if (home / name).exists()}
    assert named - there == set()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = read(ROOT / "docs" / f"{name}.md")
    scope: dict[str, Any] = {}
    for program in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(program, f"{name}.md", "exec"), scope)
    assert scope
