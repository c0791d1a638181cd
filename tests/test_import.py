"""What ``import dnnl`` gives and costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dnnl


def run(program: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_every_name_is_there_and_known_to_type_checkers() -> None:
    tree = ast.parse(Path(dnnl.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in blocks[0].body if isinstance(node, ast.ImportFrom)]
    typed = {alias.asname: node.module for node in imports for alias in node.names if alias.asname}
    assert typed == {name: f"dnnl.{home}" for name, home in dnnl._HOMES.items()}
    for name in dnnl.__all__:
        assert getattr(dnnl, name) is not None
    assert set(dnnl.__all__) <= set(dir(dnnl))


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'SoftMaxDesc'"):
        getattr(dnnl, "SoftMaxDesc")  # noqa: B009 - for type checkers


def test_models_without_onnx_say_what_to_install() -> None:
    call = "import sys; sys.modules['onnx'] = None\nfrom dnnl import *\ntry: load('x')\n"
    found = run(f"{call}except ModuleNotFoundError as error: print(error.name, error)")
    assert found == "onnx models need the package onnx: pip install 'dnnl[onnx]' brings it"


def test_nothing_is_imported_that_was_not_asked_for() -> None:
    heavy = "[m for m in ('numpy', 'llvmlite', 'onnx', 'dnnl.codegen') if m in sys.modules]"
    assert run(f"import sys, dnnl; print({heavy})") == "[]"
    memory = f"import sys, dnnl; dnnl.Memory; print({heavy})"
    assert run(memory) == "['numpy']"
    kernels = "sorted(m for m in sys.modules if m.startswith('dnnl.kernels.'))"
    found = run(f"import sys, dnnl; dnnl.EltwiseDesc, dnnl.Primitive; print({kernels})")
    assert "dnnl.kernels.eltwise" in found
    assert "dnnl.kernels.convolution" not in found


def test_modules_are_attributes() -> None:
    assert (
        run("import dnnl; print(dnnl.types.__name__, dnnl.log.__name__)") == "dnnl.types dnnl.log"
    )
    for name in ("nothing", "nothing.there", "types.nothing", ""):
        assert run(f"import dnnl; print(hasattr(dnnl, {name!r}))") == "False"


def test_names_and_modules_are_asked_for_by_several_threads_at_once() -> None:
    program = """
import dnnl, faulthandler, importlib, threading
faulthandler.dump_traceback_later(60, exit=True)
names = [lambda name=name: getattr(dnnl, name) for name in dnnl.__all__]
modules = [lambda home=home: importlib.import_module("dnnl." + home)
           for home in reversed(dnnl._HOMES.values())]
threads = [threading.Thread(target=work) for pair in zip(names, modules) for work in pair]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done")
"""
    assert run(program) == "done"
