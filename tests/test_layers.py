"""The layers of the package, as data, and the check that every import keeps them.

``LAYERS`` names for each part of ``dnnl`` the parts that its modules may import from beside their
own. A name is a package, a module, or a dotted module within a package.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "dnnl"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 500

BASE = ("errors", "config", "forks", "interrupts", "lazy", "log", "onednn")
LAYERS: dict[str, tuple[str, ...]] = {
    "errors": (),
    "config": ("errors",),
    "forks": (),
    "lazy": ("forks", "onednn"),
    "interrupts": (),
    "onednn": (),
    "log": ("errors", "config", "forks"),
    "types": BASE,
    "math": ("types",),
    "reference": (*BASE, "types"),
    "language": (*BASE, "types"),
    "runtime": (*BASE, "types"),
    # Engines and code generation never meet: an image is all that passes between them.
    "codegen": (*BASE, "types", "runtime.image"),
    "kernels": (*BASE, "types", "runtime.image", "codegen"),
    "primitives": (*BASE, "types", "reference", "language", "runtime", "codegen", "kernels"),
    "ops": (*BASE, "types", "runtime", "primitives"),
    # What a model computes from constants alone, it computes as the specification does.
    "framework": (*BASE, "types", "reference", "runtime", "primitives"),
    "tools": (
        "__version__",
        *BASE,
        "types",
        "reference",
        "language",
        "runtime",
        "codegen",
        "kernels",
        "primitives",
        "framework",
    ),
    "__init__": (*BASE, "types", "runtime", "codegen", "primitives", "framework"),
    "__main__": ("tools",),
}
LLVM = "llvmlite"
LLVM_HOMES = ("codegen", "runtime.engines")


@dataclass(frozen=True)
class Import:
    """One imported name, absolute; ``nested`` where it stands inside a function."""

    line: int
    target: str
    nested: bool


def module_name(path: Path) -> str:
    """``src/dnnl/types/tag.py`` -> ``types.tag``; a package is called by its name alone."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def imports(tree: ast.AST, nested: bool = False) -> Iterator[Import]:
    """Every import of a module, also those for type checking alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, nested)
        elif isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            for alias in node.names:
                yield Import(node.lineno, f"{home}.{alias.name}", nested)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports(node, nested or inside)


def within(name: str, part: str) -> bool:
    """Whether dotted ``name`` is ``part`` or lies in it."""
    return name == part or name.startswith(part + ".")


def refusals(name: str, source: str) -> Iterator[str]:
    """What module ``name`` does that its layer does not allow."""
    layer = name.partition(".")[0]
    if layer not in LAYERS:
        yield f"{name}: no layer is called {layer!r}"
        return
    allowed = (layer, *LAYERS[layer])
    for item in imports(ast.parse(source)):
        where = f"{name}:{item.line}: {item.target}"
        if item.target.startswith("."):
            yield f"{where}: relative imports hide the layer"
        if within(item.target, LLVM) and not any(within(name, home) for home in LLVM_HOMES):
            yield f"{where}: llvmlite belongs in {' and '.join(LLVM_HOMES)}"
        if not within(item.target, "dnnl"):
            continue
        target = item.target.removeprefix("dnnl").removeprefix(".")
        if not any(within(target, part) for part in allowed):
            yield f"{where}: {layer} may import {', '.join(LAYERS[layer]) or 'nothing'}"
        if item.nested:
            yield f"{where}: an import inside a function hides a cycle"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_keeps_its_layer(path: Path) -> None:
    assert not list(refusals(module_name(path), path.read_text(encoding="utf-8")))


def test_modules_import_without_cycles() -> None:
    trees = {module_name(p): ast.parse(p.read_text(encoding="utf-8")) for p in SOURCES}
    graph: dict[str, set[str]] = {}
    for name, tree in trees.items():
        own = [i.target for i in imports(tree) if within(i.target, "dnnl")]
        targets = {target.removeprefix("dnnl.") for target in own}
        # ``from package import x`` names a module x or an attribute of the package.
        known = {t if t in trees else t.rpartition(".")[0] for t in targets}
        graph[name] = known & trees.keys()
    graphlib.TopologicalSorter(graph).prepare()


def test_layers_are_ordered() -> None:
    graph = {layer: {part.partition(".")[0] for part in below} for layer, below in LAYERS.items()}
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "examples"])
def test_files_stay_short(folder: str) -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


@pytest.mark.parametrize(
    ("name", "source", "refusal"),
    [
        (
            "types.tag",
            "from dnnl.runtime import memory",
            "may import errors, config, forks",
        ),
        (
            "types.tag",
            "import dnnl.kernels.nest",
            "may import errors, config, forks",
        ),
        ("types.tag", "import dnnl", "may import errors, config, forks"),
        ("codegen.jit", "from dnnl.runtime import engine", "runtime.image"),
        ("codegen.jit", "from dnnl.runtime.images import Image", "runtime.image"),
        ("runtime.engine", "from dnnl.codegen.isa import x86", "may import"),
        ("kernels.nest", "import llvmlite.binding as llvm", "llvmlite belongs"),
        ("runtime.memory", "from llvmlite import ir", "llvmlite belongs"),
        ("kernels.pool", "def f():\n    from dnnl.codegen import nest", "hides a cycle"),
        ("kernels.pool", "from . import nest", "relative"),
        ("extras.thing", "", "no layer"),
    ],
)
def test_a_breach_is_seen(name: str, source: str, refusal: str) -> None:
    assert any(refusal in line for line in refusals(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("types.tag", "from dnnl.types.kinds import Alg\nimport numpy as np"),
        ("codegen.jit", "from llvmlite import ir\nfrom dnnl.runtime.image import Image"),
        ("runtime.engines.cpu", "import llvmlite.binding as llvm"),
        ("tools.run", "def f():\n    import onnxruntime"),
    ],
)
def test_what_is_allowed(name: str, source: str) -> None:
    assert not list(refusals(name, source))
