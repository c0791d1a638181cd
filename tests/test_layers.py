"""The layers of the package, as data, and the check that every import keeps them.

``LAYERS`` has a row for each folder of ``dnnl`` and each module at its top: what the modules of
that folder may import beside their own neighbours. An entry is a folder without those below it, a
folder with them (``codegen.*``), or one module.
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

BASE = ("errors", "config", "forks", "garbage", "interrupts", "lazy", "log", "onednn")
VALUES = (*BASE, "types")
# Engines and code generation never meet: an image is all that passes between them.
CODE = (*VALUES, "runtime.image")
KERNEL = (*CODE, "codegen.*", "kernels.shared")
PRODUCT = (*KERNEL, "kernels.product.*")
BELOW_PRIMITIVES = (*VALUES, "reference", "language", "runtime", "codegen.*", "kernels.*")
PRIMITIVE = (*BELOW_PRIMITIVES, "primitives")
STEPS = (*VALUES, "runtime", "primitives", "graph")
REWRITE = (*VALUES, "reference", "runtime", "graph", "onnx", "operators")
MODELS = ("graph", "onnx", "lowering", "operators", "passes.*", "framework")
LAYERS: dict[str, tuple[str, ...]] = {
    "errors": (),
    "config": ("errors",),
    "forks": (),
    "lazy": ("forks", "onednn"),
    "garbage": ("forks",),
    "interrupts": (),
    "onednn": (),
    "log": ("errors", "config", "forks"),
    "types": BASE,
    "math": ("types",),
    "reference": VALUES,
    "language": VALUES,
    "runtime": VALUES,
    "runtime.engines": (*VALUES, "runtime"),
    "codegen": CODE,
    "codegen.isa": CODE,
    "codegen.ir": (*CODE, "codegen.isa"),
    "codegen.compile": (*CODE, "runtime.image_bytes", "codegen.isa", "codegen.ir"),
    "codegen.math": (*CODE, "codegen.ir"),
    "codegen.conversion": (*CODE, "codegen.isa", "codegen.ir", "codegen.math"),
    "codegen.functions": (*CODE, "codegen.ir", "codegen.math", "codegen.conversion"),
    "codegen.product": (*CODE, "codegen.isa", "codegen.ir", "codegen.conversion"),
    "codegen.memory": (*CODE, "codegen.ir", "codegen.conversion"),
    "codegen.random": (*CODE, "codegen.ir", "codegen.memory"),
    "codegen.nest": (*CODE, "codegen.isa", "codegen.ir", "codegen.conversion", "codegen.memory"),
    "codegen.epilogue": (
        *CODE,
        "codegen.isa",
        "codegen.ir",
        "codegen.math",
        "codegen.conversion",
        "codegen.functions",
        "codegen.product",
        "codegen.memory",
        "codegen.random",
        "codegen.nest",
    ),
    "kernels": KERNEL,
    "kernels.shared": (*CODE, "codegen.*"),
    "kernels.pointwise": KERNEL,
    "kernels.attention": KERNEL,
    "kernels.data": KERNEL,
    "kernels.reduction": KERNEL,
    "kernels.normalization": KERNEL,
    "kernels.rnn": KERNEL,
    "kernels.windows": KERNEL,
    "kernels.product": (),
    "kernels.product.base": KERNEL,
    "kernels.product.unit": (*KERNEL, "kernels.product.base"),
    "kernels.product.compensation": (*KERNEL, "kernels.product.base"),
    "kernels.product.pack": (*KERNEL, "kernels.product.base", "kernels.product.compensation"),
    "kernels.product.plan": (
        *KERNEL,
        "kernels.product.base",
        "kernels.product.unit",
        "kernels.product.compensation",
        "kernels.product.pack",
    ),
    "kernels.product.loops": (
        *KERNEL,
        "kernels.product.base",
        "kernels.product.unit",
        "kernels.product.pack",
        "kernels.product.plan",
    ),
    "kernels.reorder": (*KERNEL, "kernels.product.pack"),
    "kernels.matmul": PRODUCT,
    "kernels.convolution.direct": PRODUCT,
    "kernels.convolution.depthwise": (*PRODUCT, "kernels.convolution.direct"),
    "kernels.convolution.winograd": (
        *PRODUCT,
        "kernels.matmul",
        "kernels.reorder",
        "kernels.convolution.direct",
    ),
    "kernels.convolution": (
        *PRODUCT,
        "kernels.matmul",
        "kernels.convolution.direct",
        "kernels.convolution.depthwise",
    ),
    "primitives": BELOW_PRIMITIVES,
    "ops": (*VALUES, "runtime", "primitives"),
    "sycl": (*VALUES, "runtime.*", "primitives"),
    "graph": VALUES,
    "onnx": (*VALUES, "runtime", "graph"),
    "lowering": STEPS,
    "operators": (*STEPS, "lowering"),
    # What a model computes from constants alone, it computes as the specification does.
    "passes": REWRITE,
    "passes.functions": (*REWRITE, "passes"),
    "passes.quantized": (*REWRITE, "passes", "passes.functions"),
    "framework": (*STEPS, "lowering", "onnx", "operators", "passes.*"),
    "torch.aten": (*VALUES, "graph", "torch.dtypes", "torch.private", "torch.resizing"),
    "torch.functions": (*VALUES, "runtime", "primitives"),
    "torch.derivatives": (*VALUES, "ops", "torch.functions", "torch.tensors"),
    "torch": (*STEPS, "operators", "passes.*", "framework", "torch.aten", "torch.functions"),
    "tools": (*PRIMITIVE, "__version__", "runtime.*", *MODELS),
    "tools.bench.peers": (*PRIMITIVE, "tools"),
    "tools.bench": (*PRIMITIVE, "__version__", "tools", "tools.bench.peers"),
    "tools.explain": (*PRIMITIVE, "tools", "tools.bench"),
    "tools.quantcheck": (*PRIMITIVE, *MODELS, "tools", "tools.bench"),
    "tools.score": (*PRIMITIVE, *MODELS, "runtime.*", "tools"),
    "__init__": (*VALUES, "runtime", "primitives", "framework", "torch"),
    "__main__": ("tools",),
}
HOMES = {
    "llvmlite": ("codegen", "runtime.engines"),
    "onnx": ("onnx", "tools"),
    "functorch": ("torch.private",),
    "torch": ("__init__", "torch"),  # the first one for type checkers alone
}
"""The packages from elsewhere that few may import."""


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


def row(name: str) -> str | None:
    """The row of ``LAYERS`` for a module: that of its folder, or the nearest one above."""
    found = [layer for layer in LAYERS if within(name, layer)]
    return max(found, key=len, default=None)


def permits(part: str, target: str) -> bool:
    """Whether an entry of ``LAYERS`` allows to import ``target``."""
    if part.endswith(".*"):
        return within(target, part.removesuffix(".*"))
    return row(target) == part or (part not in LAYERS and within(target, part))


def refusals(name: str, source: str) -> Iterator[str]:
    """What module ``name`` does that its layer does not allow."""
    layer = row(name)
    if layer is None:
        yield f"{name}: no layer has it"
        return
    for item in imports(ast.parse(source)):
        where = f"{name}:{item.line}: {item.target}"
        if item.target.startswith("."):
            yield f"{where}: relative imports hide the layer"
        for package, homes in HOMES.items():
            if within(item.target, package) and not any(within(name, home) for home in homes):
                yield f"{where}: {package} belongs in {' and '.join(homes)}"
        if not within(item.target, "dnnl"):
            continue
        target = item.target.removeprefix("dnnl").removeprefix(".")
        if row(target) != layer and not any(permits(part, target) for part in LAYERS[layer]):
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
    graph = {layer: below(layer) for layer in LAYERS}
    graphlib.TopologicalSorter(graph).prepare()


def below(layer: str) -> set[str]:
    """The rows that a row of ``LAYERS`` may import from."""
    return {other for other in LAYERS for part in LAYERS[layer] if permits(part, other)} - {layer}


def picture(*homes: str) -> str:
    """The folders below one home, or those of several and below, as a mermaid diagram; arrows that
    follow from others are left out."""
    outside = homes[0] if len(homes) == 1 else ""
    rows = [
        layer
        for layer in LAYERS
        if any(within(layer, home) for home in homes) and layer != outside and LAYERS[layer]
    ]
    graph = {layer: below(layer).intersection(rows) for layer in rows}
    lines = ["```mermaid", "flowchart BT"]
    for layer, direct in graph.items():
        implied = {far for near in direct for far in graph[near]}
        lines += [
            f"    {_label(layer, outside)} --> {_label(other, outside)}"
            for other in sorted(direct - implied)
        ] or [f"    {_label(layer, outside)}"]
    return "\n".join([*lines, "```"])


def _label(layer: str, outside: str) -> str:
    """A row in a picture: without the folder that all are in, or else with ``dnnl``, because a node
    of a diagram cannot be called graph."""
    return layer.removeprefix(f"{outside}.") if outside else f"dnnl.{layer}"


@pytest.mark.parametrize(
    "homes",
    [
        ("codegen",),
        ("kernels",),
        ("graph", "onnx", "lowering", "operators", "passes", "framework", "torch"),
    ],
)
def test_the_picture_shows_the_rows(homes: tuple[str, ...]) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert picture(*homes) in page


def test_each_folder_has_a_row() -> None:
    folders = {module_name(path.parent / "__init__.py") for path in SOURCES}
    assert folders <= LAYERS.keys()


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
        ("graph.sizes", "from onnx import TensorProto", "onnx belongs"),
        ("graph.sizes", "from dnnl.operators.table import OPERATORS", "may import"),
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
        ("onnx.read", "import onnx\nfrom dnnl.graph.graph import Graph"),
    ],
)
def test_what_is_allowed(name: str, source: str) -> None:
    assert not list(refusals(name, source))
