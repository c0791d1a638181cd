"""The form of commit subjects, and where it is checked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import commits


@pytest.mark.parametrize(
    "subject",
    [
        "docs: draw the folders of codegen",
        "codegen/nest: fold rows in registers",
        "primitives, ops: take a taps argument",
        "Merge branch 'functions'",
        f"docs: {'x' * 66}",
    ],
)
def test_right(subject: str) -> None:
    assert commits.fault(subject) is None


@pytest.mark.parametrize(
    ("subject", "wrong"),
    [
        (f"docs: {'x' * 67}", "73 characters; at most 72"),
        ("wip", "expected 'area: imperative'"),
        ("Docs: draw the folders", "expected 'area: imperative'"),
        ("docs: Draw the folders", "expected 'area: imperative'"),
        ("docs: draw the folders.", "expected 'area: imperative'"),
        ("docs:draw the folders", "expected 'area: imperative'"),
    ],
)
def test_wrong(subject: str, wrong: str) -> None:
    assert str(commits.fault(subject)).startswith(wrong)


def test_commits_since_main(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that main has are left as they are; without main nothing is checked."""

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    def commit(subject: str) -> None:
        git("commit", "--quiet", "--allow-empty", "--message", subject)

    assert commits.main(tmp_path) == 0
    assert "nothing was checked" in capsys.readouterr().out
    git("init", "--quiet", "--initial-branch", "main")
    commit("An old one.")
    git("checkout", "--quiet", "-b", "topic")
    commit("docs: draw the folders")
    assert commits.main(tmp_path) == 0
    assert "1 since main, 0 to reword" in capsys.readouterr().out
    commit("Two things; at once")
    export = tmp_path / "export"
    export.mkdir()
    assert commits.main(export) == 0
    assert "nothing was checked" in capsys.readouterr().out
    assert commits.main(tmp_path) == 1
    out = capsys.readouterr().out
    assert "'Two things; at once': expected" in out
    assert "old" not in out
    git("branch", "--quiet", "-D", "main")
    assert commits.main(tmp_path) == 0
    assert "nothing was checked" in capsys.readouterr().out
