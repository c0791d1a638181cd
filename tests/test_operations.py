"""Each operation is one record: nothing else knows one from another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dnnl.language.planned import PLANNED
from dnnl.primitives.desc import Desc
from dnnl.primitives.registry import OPERATIONS

ROOT = Path(__file__).resolve().parents[1] / "src" / "dnnl"
POST_OPS = {"sum", "eltwise", "binary", "prelu"}
"""Kinds whose names are those of post-ops as well, which attributes spell."""
DIRECTIONS = {"concat"}
"""Kinds whose names are those of directions as well, in cases of recurrent networks."""
EXPORTS = (
    "__init__.py",
    "primitives/registry.py",
    "ops/",
    "torch/__init__.py",
    "torch/derivatives/",
    "torch/functions/",
    "torch/modules.py",
    "torch/multihead.py",
)
PEERS = ("tools/bench/peers/", "onednn.py")
ONNX = (
    "framework/",
    "graph/",
    "lowering/",
    "operators/",
    "passes/",
    "tools/quantcheck/products.py",
    "torch/aten/",
)
CASES = ("language/", "tools/bench/", "tools/explain/")


def words(source: str) -> Iterator[tuple[int, str]]:
    """Texts, and the parts of imported modules, with their lines; folders of kernels have names of
    their own."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            if parts[:2] == ["dnnl", "kernels"]:
                if OPERATIONS.keys() & parts:  # a variant of that operation
                    continue
                parts = []
            yield from ((node.lineno, part) for part in parts)
            yield from ((node.lineno, alias.name) for alias in node.names)


@cache
def words_of(path: Path) -> tuple[tuple[int, str], ...]:
    """The words of a file."""
    return tuple(words(path.read_text(encoding="utf-8")))


def names(description: type[Desc], name: str) -> set[str]:
    """What an operation may be called by in a file; drivers have short names, which are other words
    where nothing is about cases."""
    operation = description.operation
    drivers = {operation.driver.name} if name.startswith(CASES) else set()
    others = POST_OPS | (DIRECTIONS if name.startswith("primitives/rnn") else set())
    return {description.__name__, *({operation.kind, *drivers} - others)}


def homes(kind: str) -> tuple[str, ...]:
    """Where the name of a kind may stand: in its own files and the kernels that they import, in the
    export lines, in its functions on arrays, in the tables of peers and in the registration of ONNX
    operators."""
    source = (ROOT / f"primitives/{kind}.py").read_text(encoding="utf-8")
    kernels = re.findall(r"from dnnl\.(kernels[.\w]*) import (.*)", source)
    own = [
        (folder, name.split(" as ")[0]) for folder, names in kernels for name in names.split(", ")
    ]
    files = [f"{at.replace('.', '/')}/{name}" for at, name in own]
    parts = [f"kernels/{kind}", f"primitives/{kind}.py", f"primitives/{kind}_", f"reference/{kind}"]
    return (*parts, *files, *EXPORTS, *PEERS, *ONNX)


@pytest.mark.parametrize("kind", OPERATIONS)
def test_the_kind_of_an_operation_is_named_at_home_alone(kind: str) -> None:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        wanted = set() if name.startswith(homes(kind)) else names(OPERATIONS[kind], name)
        lines = words_of(path) if wanted else ()
        found += [f"{name}:{line}: {word}" for line, word in lines if word in wanted]
    assert not found


def test_a_name_elsewhere_is_seen() -> None:
    source = "from dnnl.primitives.softmax import SoftmaxDesc\nKINDS = ('softmax',)"
    found = [line for line, word in words(source) if word in names(OPERATIONS["softmax"], "log.py")]
    assert sorted(found) == [1, 1, 2]


def test_what_is_planned_is_not_there_yet() -> None:
    assert not {row.kind for row in PLANNED} & set(OPERATIONS)
