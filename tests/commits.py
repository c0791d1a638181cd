"""``python -m tests.commits``: whether the subjects of the commits since main have their form."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LENGTH = 72
MAIN = ("origin/main", "main")
SUBJECT = re.compile(r"[a-z][a-z0-9_,/ -]*: [^A-Z\s].*[^.\s]")
MERGE = re.compile(r"Merge |Revert ")


def fault(subject: str) -> str | None:
    """What is wrong with the subject of a commit, if anything is."""
    if MERGE.match(subject):
        return None
    if len(subject) > LENGTH:
        return f"{len(subject)} characters; at most {LENGTH}"
    if not SUBJECT.fullmatch(subject):
        return "expected 'area: imperative', in lower case, without a full stop"
    return None


def git(folder: Path, *arguments: str) -> str | None:
    """What git prints, or None where it fails or is not there."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def subjects(folder: Path) -> dict[str, str] | None:
    """The subjects of the commits since main by their hashes; None where there is no main, as in a
    shallow checkout, or where the folder is no checkout of its own, as an export is."""
    top = git(folder, "rev-parse", "--show-toplevel")
    if top is None or not folder.samefile(top):
        return None
    bases = (git(folder, "merge-base", "HEAD", name) for name in MAIN)
    base = next((base for base in bases if base), None)
    lines = base and git(folder, "log", "--format=%h %s", f"{base}..HEAD")
    if lines is None:
        return None
    return dict(line.split(" ", 1) for line in lines.splitlines())


def main(folder: Path = ROOT) -> int:
    """Prints what is wrong; the exit status."""
    found = subjects(folder)
    if found is None:
        print(f"commits: nothing was checked; neither {' nor '.join(MAIN)} is known here")
        return 0
    faults = {name: wrong for name, subject in found.items() if (wrong := fault(subject))}
    for name, wrong in faults.items():
        print(f"{name} {found[name]!r}: {wrong}")
    print(f"commits: {len(found)} since main, {len(faults)} to reword")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
