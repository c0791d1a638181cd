"""oneDNN's names: every one leads to something that is here, and the document tells the same."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import dnnl
from dnnl import Arg, config
from dnnl.onednn import QUERIES, THEIRS
from dnnl.primitives.registry import OPERATIONS

DOCS = Path(__file__).resolve().parents[1] / "docs"
DOCUMENT = DOCS / "from-onednn.md"
PLAIN = dnnl.MemoryDesc((2, 4), "f32")
ENGINE = dnnl.Engine("cpu")
PD = dnnl.PrimitiveDesc(dnnl.EltwiseDesc.forward("forward", "eltwise_relu", PLAIN, PLAIN), ENGINE)
OBJECTS: dict[str, Any] = {
    "dnnl": dnnl, "engine": ENGINE, "stream": dnnl.Stream(ENGINE), "md": PLAIN, "pd": PD,
    "memory": dnnl.Memory(PLAIN, ENGINE), "attr": dnnl.PrimitiveAttr(),
    "primitive": dnnl.Primitive(PD),
}  # fmt: skip
OWNERS = {
    "dnnl": dnnl, "Engine": ENGINE, "Stream": OBJECTS["stream"], "MemoryDesc": PLAIN,
    "Memory": OBJECTS["memory"], "PrimitiveDesc": PD, "PrimitiveAttr": OBJECTS["attr"],
    "PostOps": OBJECTS["attr"].post_ops, "Primitive": OBJECTS["primitive"],
}  # fmt: skip
HOMES = [home for table in (*THEIRS.values(), QUERIES) for home in table.values()]
FIELDS = {name for desc in OPERATIONS.values() for name in desc.__dataclass_fields__}


@pytest.mark.parametrize("home", sorted({*HOMES} - {"a tuple of integers"}))
def test_what_is_named_is_there(home: str) -> None:
    paths = re.findall(rf"\b((?:{'|'.join(OBJECTS)})(?:\.\w+)+)", home)
    assert paths
    for path in paths:
        head, *names = path.split(".")
        found = OBJECTS[head]
        for name in names:
            if path.startswith("pd.desc.") and name in FIELDS:
                break  # a field of some descriptions
            found = getattr(found, name)
    for name in re.findall(r"config\.\w+\('(\w+)'", home):
        config.get(name)


@pytest.mark.parametrize("owner", THEIRS)
def test_errors_name_ours(owner: str) -> None:
    for name, home in THEIRS[owner].items():
        if "::" in name or hasattr(OWNERS[owner], name):
            continue
        with pytest.raises(AttributeError) as caught:
            getattr(OWNERS[owner], name)
        text = str(caught.value)
        assert f"{owner}" in text
        assert f"has no attribute '{name}'; " in text
        assert home in text
        assert name not in dir(OWNERS[owner])


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("Convolution", "dnnl.ConvolutionDesc"),
        ("softmax", "dnnl.SoftmaxDesc"),
        ("MatMul", "dnnl.MatmulDesc"),
        ("inner_product", "dnnl.InnerProductDesc"),
        ("SoftMaxDesc", "dnnl.SoftmaxDesc"),
        ("DNNL_ARG_DIFF_SRC", "dnnl.Arg.DIFF_SRC"),
    ],
)
def test_operations_without_direction(name: str, home: str) -> None:
    with pytest.raises(AttributeError, match=f"'{name}'; use {re.escape(home)}$"):
        getattr(dnnl, name)


def test_nested_names_are_told() -> None:
    with pytest.raises(AttributeError, match=r"use dnnl.Memory; memory::desc is dnnl.MemoryDesc"):
        dnnl.memory.desc  # type: ignore[attr-defined]  # noqa: B018


def test_attributes_that_are_there_cost_no_more() -> None:
    """A ``__getattr__`` would slow down every look-up: an execution took 2.2 us, not 1.5."""
    kinds = [type(owner) for name, owner in OWNERS.items() if name != "dnnl"]
    assert not [kind for kind in kinds if hasattr(kind, "__getattr__")]


def test_other_names_have_no_hint() -> None:
    for owner in OWNERS.values():
        with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
            getattr(owner, "nothing")  # noqa: B009 - for type checkers


@pytest.mark.parametrize(
    "value",
    [
        PD.src_desc,
        PD.engine,
        PD.attr,
        PD.desc.propagation,
        PLAIN.data_type,
        OBJECTS["attr"].post_ops,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_property_is_not_called(value: Any) -> None:
    for arguments in ((), (0,)):
        with pytest.raises(TypeError, match="not callable; what gave it is a property, written "):
            value(*arguments)


def test_the_document_has_the_table() -> None:
    text = (DOCS / "onednn-names.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w[\w:]*)` \| `?(.*?)`? \|$", text, re.MULTILINE)
    want = [row for table in (*THEIRS.values(), QUERIES) for row in table.items()]
    assert rows == want


def test_the_document_names_programs() -> None:
    found = re.findall(r"`(examples/\w+\.py)`", DOCUMENT.read_text(encoding="utf-8"))
    assert len(found) >= 5
    assert all((DOCUMENT.parents[1] / path).is_file() for path in found)


def test_the_document_has_our_orders() -> None:
    """Those of oneDNN's are written down beside them; what is ours alone comes behind."""
    text = re.sub(r"\s+", " ", DOCUMENT.read_text(encoding="utf-8"))
    found = re.findall(r"(\w+)\(([^)]*)\) (\w+Desc(?:\.\w+)?)\(([^)]*)\)", text)
    assert len(found) >= 25
    for theirs, _, ours, parameters in found:
        constructor: Any = dnnl
        for name in ours.split("."):
            constructor = getattr(constructor, name)
        names = list(inspect.signature(constructor).parameters)
        own = [name.replace("_desc", "") for name in names]
        assert own[: parameters.count(",") + 1] == parameters.split(", ")
        assert THEIRS["dnnl"][theirs].endswith(f"dnnl.{ours}")


def test_a_primitive_is_a_functor() -> None:
    src, dst = (dnnl.Memory(PLAIN, ENGINE) for _ in range(2))
    src.numpy()[:] = [[-1, 2, -3, 4], [5, -6, 7, -8]]
    event = OBJECTS["primitive"](OBJECTS["stream"], {Arg.SRC: src, Arg.DST: dst})
    assert event.done
    assert dst.numpy().tolist() == [[0, 2, 0, 4], [5, 0, 7, 0]]
