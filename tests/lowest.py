"""``python tests/lowest.py``: pip constraints that hold dependencies to their lower bounds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def constraints() -> Iterator[str]:
    """A line for each lower bound of the project and its extras."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    for text in (*project["dependencies"], *(text for extra in extras for text in extra)):
        found = re.match(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", text)
        if found:
            yield f"{found[1]}=={found[2]}"


if __name__ == "__main__":
    print("\n".join(sorted(set(constraints()))))
