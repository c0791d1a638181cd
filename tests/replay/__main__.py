"""``python -m tests.replay BASE``: the kernels of the working tree beside those of a revision."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tests.replay.cases import Replayed, cases

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "replay"
SHOWN = 20


@click.command()
@click.argument("base")
@click.option("--all", "everything", is_flag=True, help="List all cases that differ.")
def main(base: str, everything: bool) -> None:
    """Write the LLVM IR of the same cases at the revision BASE and in the working tree.

    Exits with 1 where a kernel differs. The texts are in build/replay/base and build/replay/tree.
    """
    asked = cases()
    with _checkout(base) as tree:
        before = _generated(tree, "base", asked)
    after = _generated(ROOT, "tree", asked)
    differ = [
        place for place, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1
    ]
    for place in differ if everything else differ[:SHOWN]:
        _show(asked[place], before[place], after[place])
    if len(differ) > SHOWN and not everything:
        click.echo(f"... and {len(differ) - SHOWN} more (--all)")
    refused = sum(one.startswith("refused") for one in after)
    kernels = len({*after}) - len({one for one in after if one.startswith("refused")})
    click.echo(
        f"{len(asked)} cases, {kernels} kernels, {refused} refused: "
        f"{len(asked) - len(differ)} equal, {len(differ)} differ"
    )
    sys.exit(bool(differ))


def _show(case: Replayed, before: str, after: str) -> None:
    click.echo(f"{case.target}: {case.line}")
    if "refused" in before[:7] + after[:7]:
        click.echo(f"    {before}\n    {after}")
    else:
        files = [
            f"build/replay/{side}/{name}.ll" for side, name in (("base", before), ("tree", after))
        ]
        click.echo(f"    diff {' '.join(files)}")


def _generated(tree: Path, side: str, asked: Sequence[Replayed]) -> list[str]:
    """The hashes of the kernels that a checkout writes."""
    folder = FOLDER / side
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = tree / "src" if (tree / "src").is_dir() else tree
    subprocess.run(
        [sys.executable, "-m", "tests.replay.generate", str(folder)],
        cwd=tree,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(source)},
        input=json.dumps([[case.target, case.line] for case in asked]),
    )
    hashes: list[str] = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    return hashes


@contextmanager
def _checkout(revision: str) -> Iterator[Path]:
    """A checkout of a revision, for as long as it is needed."""
    git = ["git", "-C", str(ROOT), "worktree"]
    with TemporaryDirectory(prefix="dnnl-replay-") as parent:
        tree = Path(parent) / "base"
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            if not (tree / "tests" / "replay").is_dir():
                raise click.BadParameter(
                    f"{revision} is older than tests/replay", param_hint="BASE"
                )
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    main()
