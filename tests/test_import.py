"""What ``import dnnl`` gives and costs."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dnnl
from dnnl import ops


def run(program: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.mark.parametrize("package", [dnnl, ops])
def test_every_name_is_there_and_known_to_type_checkers(package: Any) -> None:
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in blocks[0].body if isinstance(node, ast.ImportFrom)]
    typed = {alias.asname: node.module for node in imports for alias in node.names if alias.asname}
    assert typed == {name: f"{package.__name__}.{home}" for name, home in package._HOMES.items()}
    for name in package.__all__:
        value = getattr(package, name)
        assert value is not None
        assert getattr(value, "__name__", name) == name
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize("package", [dnnl, ops])
def test_no_name_is_a_module_as_well(package: Any) -> None:
    """Which of the two is found would depend on what was imported last."""
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(package.__all__)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'SoftMaxDesc'"):
        getattr(dnnl, "SoftMaxDesc")  # noqa: B009 - for type checkers


def test_models_without_onnx_say_what_to_install() -> None:
    call = "import sys; sys.modules['onnx'] = None\nfrom dnnl import *\ntry: load('x')\n"
    found = run(f"{call}except ModuleNotFoundError as error: print(error.name, error)")
    assert found == "onnx models need the package onnx: pip install 'dnnl[onnx]' brings it"


BUFFER = """
import sys
for absent in ('onnx', 'onnxruntime', 'torch'): sys.modules[absent] = None
import numpy as np
from dnnl import ShapedBuffer
buffer = ShapedBuffer.from_numpy(np.ones((2, 3, 4, 5), 'f4'), (0, 3, 1, 2), layout='nChw16c')
print(buffer.reshape(6, -1).numpy().sum(), [m for m in sys.modules if 'framework' in m])
"""


def test_buffers_of_a_framework_need_no_onnx() -> None:
    assert run(BUFFER) == "120.0 []"


HEAVY = "[m for m in ('numpy', 'llvmlite', 'onnx', 'dnnl.codegen', 'rich') if m in sys.modules]"


def test_nothing_is_imported_that_was_not_asked_for() -> None:
    assert run(f"import sys, dnnl; print({HEAVY})") == "[]"
    memory = f"import sys, dnnl; dnnl.Memory; print({HEAVY})"
    assert run(memory) == "['numpy']"
    kernels = "sorted(m for m in sys.modules if m.startswith('dnnl.kernels.'))"
    found = run(f"import sys, dnnl; dnnl.EltwiseDesc, dnnl.Primitive; print({kernels})")
    assert "dnnl.kernels.pointwise.eltwise" in found
    assert "dnnl.kernels.convolution.direct.convolution" not in found


MODULES = "sorted(m for m in sys.modules if m.startswith('dnnl.'))"
OF_PEERS = "[m for m in ('onnx', 'onnxruntime', 'torch', 'matplotlib') if m in sys.modules]"


def test_operations_import_what_they_need_when_they_are_asked_for() -> None:
    """Modules are counted rather than seconds: about 3 ms each, and all of them are 340."""
    names = run(f"import sys; from dnnl import ops; print(*{MODULES})").split()
    assert "dnnl.ops" in names
    assert len(names) < 10
    code = f"import sys; from dnnl.ops import exp; print(*{MODULES}, *{OF_PEERS})"
    names = run(code).split()
    assert "dnnl.kernels.pointwise.eltwise" in names
    assert not [name for name in names if "convolution" in name or not name.startswith("dnnl.")]


HELP = """
import contextlib, io, sys
for absent in ('onnx', 'onnxruntime', 'torch', 'matplotlib', 'jinja2'): sys.modules[absent] = None
from dnnl.tools import cli
with contextlib.redirect_stdout(io.StringIO()) as shown: status = cli.main({arguments})
print(status, len(shown.getvalue()) > 100, len([m for m in sys.modules if m.startswith('dnnl.')]))
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "--help"],
        ["explain", "--help"],
        ["layout", "--help"],
        ["info"],
        ["bench", "--eltwise", "--mode=L", "--alg=relu,tanh,elu", "2x3x4x5"],
        ["layout", "aBcd16b", "2x17x3x5"],
        ["explain", "--eltwise", "--alg=relu", "2x3"],
    ],
)
def test_commands_that_read_no_model_do_without_onnx(arguments: list[str]) -> None:
    assert run(HELP.format(arguments=arguments)).startswith("0 True")


def test_the_list_of_commands_imports_none_of_them() -> None:
    status, shown, modules = run(HELP.format(arguments=["--help"])).split()
    assert (status, shown) == ("0", "True")
    assert int(modules) < 10
    shown_heavy = f"import sys\nfrom dnnl.tools import cli\ncli.main(['--help'])\nprint({HEAVY})"
    assert run(shown_heavy).endswith("[]")


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
