"""Damage to ONNX models, as texts: fields changed, repeated and removed, then bytes.

- ``graph.node[0].op_type='Foo'`` sets a field to a Python value;
- ``+graph.node[0]`` repeats an element, ``-graph.node[0]`` removes it or clears a field;
- ``nest:9`` puts the graph into so many branches, each within the next;
- ``@10=255`` changes a byte of the file, ``@10:20`` keeps a part of it, ``@10+ff00`` inserts bytes.

An edit of what an earlier one took away does nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import onnx
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto, helper

Texts = st.SearchStrategy[str]

_MOST_BYTES = 2**24  # of the file of a model that is nested
_STEP = re.compile(r"(\w+)(?:\[(\d+)\])?")
_FIELD = re.compile(r"([\w.\[\]]+)=(.*)", re.DOTALL)
_INTEGERS = (0, -1, 1, 2, 7, 99, 2**31 - 1, -(2**31))
_LONG = (*_INTEGERS, 2**31, 2**40, 2**63 - 1, -(2**63))
_FLOATS = ("0.0", "-1.0", "1e38", "-1e38", "1e400", "-1e400", "1e400*0")
_TEXTS = (
    "''", "'x'", "'../weights.bin'", "'/etc/passwd'", "'weights.bin/..'", "'.'", "'link.bin'",
    "'no.bin'", "'-1'", "'16'", "'1e3'", "'99999999999999999999'", "'abc'", "'\\0'", "'x'*3000",
    "'Relu'", "'Conv'", "'If'", "'Loop'", "'Reshape'", "'Resize'", "'ai.onnx.ml'",
    "'com.microsoft'", "'SAME_UPPER'", "'NOTSET'", "'VALID'",
)  # fmt: skip
_BYTES = ("b''", "b'x'", "bytes(64)", "b'\\xff'*64", "bytes(10**6)", "b'SAME_LOWER'")
_INT32 = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_ENUM)


class Place(NamedTuple):
    """A field of a message, or one element of it."""

    path: str
    field: Any
    element: bool


def places(message: Any, prefix: str = "") -> Iterator[Place]:
    """Every place of a message that has a value, and each field that has none."""
    for field in message.DESCRIPTOR.fields:
        path = f"{prefix}{field.name}"
        value = getattr(message, field.name)
        if not _is_repeated(value):
            yield Place(path, field, element=False)
            if field.message_type is not None and message.HasField(field.name):
                yield from places(value, f"{path}.")
            continue
        for number, item in enumerate(list(value)[:8]):
            yield Place(f"{path}[{number}]", field, element=True)
            if field.message_type is not None:
                yield from places(item, f"{path}[{number}].")


def _is_repeated(value: Any) -> bool:
    return hasattr(value, "extend")


@st.composite
def edits(draw: st.DrawFn, proto: Any) -> str:
    """A few edits of a model, of its fields or of its bytes."""
    found = list(places(proto))
    one = st.one_of(_field(found, _names(proto)), _structure(found))
    size = proto.ByteSize()
    damage = st.one_of(
        st.builds("@{}={}".format, st.integers(0, size - 1), st.integers(0, 255)),
        st.builds("@{}:{}".format, st.just(0), st.integers(0, size)),
        st.builds("@{}+{}".format, st.integers(0, size), st.binary(max_size=4).map(bytes.hex)),
    )
    in_bytes = draw(st.integers(0, 2)) == 0
    return " ".join(draw(st.lists(damage if in_bytes else one, min_size=1, max_size=4)))


def _names(proto: Any) -> list[str]:
    """The names of values, which make cycles and second producers where they are mixed up."""
    named = [name for node in proto.graph.node for name in (*node.input, *node.output)]
    return [repr(name) for name in dict.fromkeys(named)]


@st.composite
def _field(draw: st.DrawFn, found: list[Place], names: list[str]) -> str:
    scalars = [place for place in found if place.field.message_type is None]
    near = [place for place in scalars if _telling(place.path)]
    place = draw(_one(near if draw(st.booleans()) else scalars))
    return f"{place.path}={draw(st.sampled_from(_values(place.field, names)))}"


def _one(found: list[Place]) -> st.SearchStrategy[Place]:
    """One of many: hypothesis would spell them all, were they sampled from."""
    return st.integers(0, len(found) - 1).map(found.__getitem__)


def _telling(path: str) -> bool:
    """Whether a field says much in few bytes."""
    return not path.endswith(("doc_string", "name")) and "_data[" not in path


def _values(field: Any, names: list[str]) -> list[str]:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return [*(_TEXTS if field.type == FieldDescriptor.TYPE_STRING else _BYTES), *names]
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return list(_FLOATS)
    values = _INTEGERS if field.cpp_type in _INT32 else _LONG
    return [str(value) for value in values]


@st.composite
def _structure(draw: st.DrawFn, found: list[Place]) -> str:
    place = draw(_one([place for place in found if place.element] or found))
    nest = f"nest:{draw(st.sampled_from((1, 2, 40, 200, 2000)))}"
    return draw(st.sampled_from((f"-{place.path}", f"+{place.path}", f"-{place.path}", nest)))


def edited(proto: Any, texts: list[str]) -> bytes:
    """The file of a model after these edits."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    depths = [int(text[5:]) for text in texts if text.startswith("nest:")]
    damages = [text for text in texts if text.startswith("@")]
    for text in texts:
        if not text.startswith(("nest:", "@")):
            with suppress(AttributeError, IndexError, TypeError, ValueError):
                _edit(made, text)
    content = _nested(made, depths[0]) if depths else bytes(made.SerializeToString())
    for text in damages:
        content = _damaged(content, text)
    return content


def _edit(proto: Any, text: str) -> None:
    assigned = _FIELD.fullmatch(text)
    path = assigned[1] if assigned else text[1:]
    *outer, (name, index) = _STEP.findall(path)
    owner = proto
    for step, number in outer:
        owner = getattr(owner, step)
        owner = owner[int(number)] if number else owner
    if assigned:
        value = eval(assigned[2], {})
        if index:
            getattr(owner, name)[int(index)] = value
        elif _is_repeated(getattr(owner, name)):
            getattr(owner, name).append(value)
        else:
            setattr(owner, name, value)
    elif text.startswith("+"):
        elements = getattr(owner, name)
        elements.append(elements[int(index)])
    elif index:
        del getattr(owner, name)[int(index)]
    else:
        owner.ClearField(name)


def _nested(proto: Any, depth: int) -> bytes:
    """The file of a model whose graph is the branch of an If, that of another, and so on.

    Written as bytes, as protobuf's own functions refuse what is too deep for them.
    """
    names = b"".join(_part(2, output.name.encode()) for output in proto.graph.output)
    rim = onnx.GraphProto(name="rim", output=proto.graph.output)
    rim.initializer.append(helper.make_tensor("condition", TensorProto.BOOL, (), [True]))
    inner = onnx.GraphProto()
    inner.CopyFrom(proto.graph)
    inner.ClearField("input")
    core = bytes(inner.SerializeToString())
    kind = bytes([20 << 3 & 0x7F | 0x80, 20 >> 4, AttributeProto.GRAPH])
    behind = _part(5, _part(1, b"else_branch") + kind + _part(6, b""))
    before, size = [], len(core)
    level = bytes(rim.SerializeToString())
    depth = min(depth, _MOST_BYTES // len(level))
    for _ in range(depth):
        branch = _part(1, b"then_branch") + kind + _head(6, size)
        node = _part(1, b"condition") + names + _part(4, b"If") + _head(5, len(branch) + size)
        inside = len(node) + len(branch) + size + len(behind)
        before.append(level + _head(1, inside) + node + branch)
        size += len(before[-1]) + len(behind)
    content = b"".join([*reversed(before), core, behind * depth])
    for value in proto.graph.input:
        content += _part(11, bytes(value.SerializeToString()))
    proto.ClearField("graph")
    return bytes(proto.SerializeToString()) + _part(7, content)


def _part(number: int, content: bytes) -> bytes:
    """A field of a protobuf message that has a length."""
    return _head(number, len(content)) + content


def _head(number: int, size: int) -> bytes:
    """What stands before the ``size`` bytes of such a field."""
    length = b""
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size])


def _damaged(content: bytes, text: str) -> bytes:
    place, sign, rest = re.split("([=:+])", text[1:], maxsplit=1)
    at = int(place)
    if sign == "=":
        return (
            content[:at] + bytes([int(rest)]) + content[at + 1 :] if at < len(content) else content
        )
    if sign == ":":
        return content[at : int(rest)]
    return content[:at] + bytes.fromhex(rest) + content[at:]
